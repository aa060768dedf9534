//! The sentences of the README and of the guide that have figures.

use super::{Figures, PER_TIER, Sentence, number, range};

/// The README, from the folder of the guide.
const README: &str = "../../../README";

pub(super) const SENTENCES: &[Sentence] = &[
    (README, "An annotated call takes {} ns in memory", Figures::nanos_of_a_call),
    ("../../../README.zh-CN", "被标注的一次调用在内存中约需 {} ns", Figures::nanos_of_a_call),
    (
        "capacity",
        "64 tasks got {} decisions of a `sliding_window` a second from one server, {} µs each",
        |it| {
            let a_second = it.of("admitted, 64 tasks, 2 workers: decisions/s");
            vec![number(a_second, 2), number(1e6 / a_second, 2)]
        },
    ),
    (
        "capacity",
        "**Client.** {} µs of processor time a decision. 64 tasks saturate a server; one task \
         makes some {} calls",
        |it| {
            let name = "client processor time per call, 64 tasks, two workers, admitted";
            let a_second = it.of("admitted, 1 tasks, current thread: decisions/s");
            vec![number(it.of(name), 2), number(a_second, 3)]
        },
    ),
    ("capacity", "{} to {} in a `token_bucket`, `sliding_counter` or `fixed_window`", |it| {
        range(PER_TIER.map(|name| it.to_one_log(name)))
    }),
    ("capacity", "{} with three tiers of a `sliding_window`, and up to {} of the others", |it| {
        let others = PER_TIER.map(|name| it.server(&format!("{name}, 3 tiers")) / it.server(name));
        let most = others.into_iter().fold(0., f64::max);
        vec![number(it.to_one_log("sliding_window, 3 tiers"), 2), number(most, 2)]
    }),
    ("capacity", "{} where calls have costs, and {} more for a `settle`", |it| {
        let with_costs = it.to_one_log("sliding_window with costs");
        let settle = it.of("its settle, fewer units : server time to a window with costs");
        vec![number(with_costs, 2), number(with_costs * settle, 2)]
    }),
    (
        "capacity",
        "A permit makes a `token_bucket` {} times as dear, and alone it takes {} times as long",
        |it| {
            ["with a permit", "permit alone"]
                .map(|name| number(it.of(&format!("{name}: server time to token_bucket")), 2))
                .into()
        },
    ),
    ("capacity", "is a second command of at most {}.", |it| {
        vec![number(it.of("release: server time to token_bucket").max(0.1), 1)]
    }),
    ("capacity", "| `sliding_window` | {} / {} / {} | {} / {} / {} |", |it| {
        it.bytes("sliding_window")
    }),
    ("capacity", "| the same, with costs | {} / {} / {} | {} / {} / {} |", |it| {
        it.bytes("sliding_window with costs")
    }),
    (
        "capacity",
        "| `sliding_counter`, `fixed_window`, `token_bucket` | {} | {} to {} |",
        Figures::per_tier_bytes,
    ),
    ("capacity", "| {} for each | {} / {} / {} |", |it| {
        let bytes = it.bytes("calls in flight");
        [vec![it.bytes_in_flight()], bytes[3..].to_vec()].concat()
    }),
    ("capacity", "A decision takes {} to {} ns.", |it| {
        let ours = |name: &&String| {
            [1, 10_000].iter().any(|callers| {
                name.ends_with(&format!(", {callers} callers, 1 threads: ns of a call"))
            }) && ["sliding", "fixed", "token"].iter().any(|start| name.starts_with(start))
        };
        let all = it.0.iter().filter(|(name, _)| ours(name)).map(|(_, nanos)| *nanos);
        range(all)
    }),
    (
        "comparison",
        "governor is faster: {} ns against {} ns of a check by hand. With a key by `format!` it \
         takes {} ns, and an annotated call {} ns",
        |it| {
            [
                "governor, ready key",
                "token_bucket by hand",
                "governor, key by format!",
                "token_bucket",
            ]
            .map(|name| number(it.of(&format!("{name}, 1 callers, 1 threads: ns of a call")), 2))
            .into()
        },
    ),
    (
        "design",
        "log is also cheaper: {} µs at a threshold of 100, against {} µs of a token bucket. \
         Above, its memory decides: {} kB a caller at 1 000, against {} kB",
        |it| {
            let kilobytes = ["sliding_window of 1000", "token_bucket of 3"]
                .map(|name| number(it.of(&format!("bytes of a caller on Redis, {name}")) / 1e3, 3));
            let micros = ["sliding_window", "token_bucket"].map(|name| number(it.server(name), 2));
            [micros, kilobytes].concat()
        },
    ),
    (
        "design",
        "From the deny cache, 64 tasks got {} million a second, against {} through Redis",
        Figures::refusals_a_second,
    ),
    ("failures", "| one server, a cluster, or a primary behind Sentinels | {} | {} | {} |", |it| {
        ["rounds", "calls", "rounds with faults"]
            .map(|name| number(it.of(&format!("histories: {name}")), 9))
            .into()
    }),
    (
        "design",
        "Four processes made {} decisions a second of one key by {} commands; without \
         leases, {}.",
        Figures::decisions_on_lease,
    ),
    ("waiting", "no window was above the threshold. {} % to {} % of the calls", |it| {
        range([200, 500, 1_000].map(|lease| {
            it.of(&format!(
                "three regions, lease of {lease} ms: admitted, % of those without leases"
            ))
        }))
    }),
];
