//! The sentences of the page of the benches.

use super::{Figures, PER_TIER, Sentence, number, range, ratio, ratios};

/// The page, from the folder of the guide.
const BENCHES: &str = "../../../benches/README";

pub(super) const SENTENCES: &[Sentence] = &[
    (BENCHES, "| `sliding_window` | {} / {} | {} / {} | {} / {} | {} / {} |", |it| {
        it.server_row("sliding_window")
    }),
    (BENCHES, "| the same, with costs | {} / {} | {} / {} | {} / {} | {} / {} |", |it| {
        it.server_row("sliding_window with costs")
    }),
    (BENCHES, "| `sliding_counter` | {} / {} | {} / {} | {} / {} | {} / {} |", |it| {
        it.server_row("sliding_counter")
    }),
    (BENCHES, "| `fixed_window` | {} / {} | {} / {} | {} / {} | {} / {} |", |it| {
        it.server_row("fixed_window")
    }),
    (BENCHES, "| `token_bucket` | {} / {} | {} / {} | {} / {} | {} / {} |", |it| {
        it.server_row("token_bucket")
    }),
    (
        BENCHES,
        "| a plain sorted-set script that returns as much | {} / {} | {} / {} | {} / {} | {} / {} |",
        |it| it.server_row("baseline"),
    ),
    (
        BENCHES,
        "`sliding_window` takes {} times as long as the plain script if admitted, and {} times if \
         refused.",
        |it| {
            ["admitted", "refused"]
                .map(|how| {
                    ratio(it.of(&format!("server time of sliding_window, {how}, to baseline")))
                })
                .into()
        },
    ),
    (
        BENCHES,
        "the server decided {} calls a second through the attribute, and the client took {} µs of \
         processor time",
        |it| {
            let name = "client processor time per call, 64 tasks, two workers, admitted";
            vec![
                number(it.of("admitted, 64 tasks, 2 workers: decisions/s"), 2),
                number(it.of(name), 2),
            ]
        },
    ),
    (
        BENCHES,
        "In a `sliding_window`, three tiers take {} times as long as one if admitted and {} times \
         if refused. Five take {} and {} times as long. Five tiers of the other algorithms take up \
         to {} times as long.",
        |it| {
            let more = |name: &str, tiers: u32, how: &str| {
                let several = it
                    .of(&format!("server time of {name}, {tiers} tiers, threshold 100, {how}: us"));
                several / it.of(&format!("server time of {name}, threshold 100, {how}: us"))
            };
            let of_window = [(3, "admitted"), (3, "refused"), (5, "admitted"), (5, "refused")]
                .map(|(tiers, how)| more("sliding_window", tiers, how));
            let others = PER_TIER.map(|name| more(name, 5, "admitted"));
            let most = others.into_iter().fold(0., f64::max);
            of_window.into_iter().chain([most]).map(ratio).collect()
        },
    ),
    (BENCHES, "| `sliding_window` | {} / {} / {} | {} / {} / {} |", |it| {
        it.bytes("sliding_window")
    }),
    (BENCHES, "| the same, with costs | {} / {} / {} | {} / {} / {} |", |it| {
        it.bytes("sliding_window with costs")
    }),
    (
        BENCHES,
        "| `sliding_counter`, `fixed_window`, `token_bucket` | {} | {} to {} |",
        Figures::per_tier_bytes,
    ),
    (
        BENCHES,
        "Calls in flight take {}, {} and {} bytes on Redis for 3, 100 and 1 000 permits of one \
         caller. In memory they take some {} bytes each",
        |it| {
            let bytes = it.bytes("calls in flight");
            [bytes[3..].to_vec(), vec![it.bytes_in_flight()]].concat()
        },
    ),
    (BENCHES, "| none | {} | {} % | {} / {} / {} |", |it| it.of_regions("no lease")),
    (BENCHES, "| 200 ms | {} | {} % | {} / {} / {} |", |it| it.of_regions("lease of 200 ms")),
    (BENCHES, "| 500 ms | {} | {} % | {} / {} / {} |", |it| it.of_regions("lease of 500 ms")),
    (BENCHES, "| 1 s | {} | {} % | {} / {} / {} |", |it| it.of_regions("lease of 1000 ms")),
    (
        BENCHES,
        "the fullest one had {} calls without a lease, because replies travel for up to 75 ms, and \
         none had more than {} with a lease.",
        |it| {
            let fullest = |lease: &str| {
                it.of(&format!("three regions, {lease}: fullest window by receipt, units"))
            };
            let under_lease =
                [200, 500, 1_000].map(|lease| fullest(&format!("lease of {lease} ms")));
            let most = under_lease.into_iter().fold(0., f64::max);
            vec![number(fullest("no lease"), 9), number(most, 9)]
        },
    ),
    (
        BENCHES,
        "With 64 tasks it admitted {} calls a second and refused {}, which is {} and {} times as \
         many as the commands of `redis-benchmark`.",
        |it| {
            let of = |how: &str, to: &str| {
                it.of(&format!("{how}, 64 tasks, 2 workers: decisions/s{to}"))
            };
            let calls = ["admitted", "refused"].map(|how| number(of(how, ""), 3));
            let ratios = ["admitted", "refused"].map(|how| ratio(of(how, " to redis-benchmark")));
            [calls, ratios].concat()
        },
    ),
    (BENCHES, "waits for each round trip: {} calls a second", |it| {
        vec![number(it.of("admitted, 1 tasks, current thread: decisions/s"), 3)]
    }),
    (BENCHES, "With 512 it admitted {} times as many calls", |it| {
        let of = |tasks: u32| it.of(&format!("admitted, {tasks} tasks, 2 workers: decisions/s"));
        vec![ratio(of(512) / of(64))]
    }),
    (
        BENCHES,
        "Two and four connections decided {} and {} times as many calls with 64 tasks, and {} and \
         {} times with 512.",
        |it| {
            let of = |count: u32, tasks: u32| {
                it.of(&format!("{count} connections, {tasks} tasks: decisions/s to one"))
            };
            [of(2, 64), of(4, 64), of(2, 512), of(4, 512)].map(ratio).into()
        },
    ),
    (
        BENCHES,
        "512 tasks got {} times as many decisions from two primaries as from one, and {} times from \
         three.",
        |it| {
            [2, 3]
                .map(|count| {
                    ratio(it.of(&format!("{count} primaries, 512 tasks: decisions/s to one")))
                })
                .into()
        },
    ),
    (BENCHES, "| `fixed_window` | {} ({}) / {} ({}) | {} ({}) / {} ({}) |", |it| {
        it.memory_row(["fixed_window"; 2], "fixed_window 3, refused")
    }),
    (BENCHES, "| `token_bucket` | {} ({}) / {} ({}) | {} ({}) / {} ({}) |", |it| {
        it.memory_row(["token_bucket"; 2], "token_bucket 3, refused")
    }),
    (BENCHES, "| `sliding_counter` | {} ({}) / {} ({}) | {} ({}) / {} ({}) |", |it| {
        it.memory_row(["sliding_counter"; 2], "sliding_counter 3, refused")
    }),
    (
        BENCHES,
        "| `sliding_window` of 100 000 / of 3 | {} ({}) / {} ({}) | {} ({}) / {} ({}) |",
        |it| {
            let admitted = ["sliding_window 100 000 in 1 ms", "sliding_window"];
            it.memory_row(admitted, "sliding_window 3, refused")
        },
    ),
    (
        BENCHES,
        "| `token_bucket` by hand, with `caller!` | {} ({}) / {} ({}) | {} ({}) / {} ({}) |",
        |it| it.memory_row(["token_bucket by hand"; 2], "token_bucket 3 by hand, refused"),
    ),
    (BENCHES, "| governor, key by `format!` | {} | {} |", |it| {
        it.nanos("governor, key by format!")
    }),
    (BENCHES, "| governor, ready key | {} | {} |", |it| it.nanos("governor, ready key")),
    (BENCHES, "one locked entry (`floor.rs`) | {} | {} |", |it| it.nanos("floor")),
    (
        BENCHES,
        "With a million callers, an annotated call takes {} to {} times as long as governor with a \
         ready key. Two threads that call for one caller take {} to {} times as long as governor, \
         and at most {} times if they are refused",
        |it| {
            let names = ["sliding_counter", "fixed_window", "token_bucket"];
            let ratio_of = |name: &str, callers: u32, threads: u32, peer: &str| {
                it.of(&format!(
                    "{name}, {callers} callers, {threads} threads, to governor given {peer}"
                ))
            };
            let of_two = |name: &str| ratio_of(name, 1, 2, "format!");
            let million = ["sliding_window", "token_bucket"]
                .map(|name| ratio_of(name, 1_000_000, 1, "a ready key"));
            let admitted = names.iter().copied().chain(["sliding_window 100 000 in 1 ms"]);
            let refused = names.map(|name| of_two(&format!("{name} 3, refused")));
            let most = ratios(refused)[1].clone();
            [ratios(million), ratios(admitted.map(of_two)), vec![most]].concat()
        },
    ),
    (
        BENCHES,
        "An override of another limit costs a call {} ns, and a global enforcement nothing",
        |it| vec![number(it.of("overrides, one of another limit: ns more"), 1)],
    ),
    (
        BENCHES,
        "A look-up among overridden callers that finds none costs {} to {} ns, of one caller as of \
         10 000, also under a `caller_digest`; the bar is 30. A call of an overridden \
         caller takes {} ns more, and {} ns as a digest. 10 000 changes in a row take {} ms. A \
         refusal from the deny cache takes {} ns above its clock",
        |it| {
            let more = |what: &str| it.of(&format!("overrides, {what}: ns more"));
            let lookups = [
                "one of a caller of all limits, looked up in vain",
                "one other caller of this limit",
                "10 000 other callers of this limit",
                "10 000 other callers, as digests",
            ];
            let of_caller =
                [more("this caller among 10 000"), more("this caller among 10 000, as digests")];
            let others = [
                number(it.of("overrides, 10 000 changes in a row: ms"), 3),
                number(it.of("flood, 1 tasks: ns over the clock"), 2),
            ];
            [
                range(lookups.map(more)),
                of_caller.map(|nanos| number(nanos, 2)).into(),
                others.into(),
            ]
            .concat()
        },
    ),
    (BENCHES, "costs 1 to 30. It sent {} commands a second", |it| {
        vec![number(it.of("flood, costs 1-30 at random: commands/s"), 2)]
    }),
    (BENCHES, "1 000 calls of four processes that waited took {} commands each", |it| {
        vec![number(it.of("line, sliding_window, 1000 waiting calls: commands a call"), 2)]
    }),
    (BENCHES, "| `ratelimit-runtime` | 86 | {} |", |it| {
        vec![number(it.of("cold build with default features, s"), 2)]
    }),
    (BENCHES, "| `ratelimit-runtime` without `redis` | 36 | {} |", |it| {
        vec![number(it.of("cold build without redis, s"), 2)]
    }),
    (
        BENCHES,
        "64 tasks got {} million refusals a second, against {} if each was sent to Redis",
        Figures::refusals_a_second,
    ),
    (
        BENCHES,
        "Four processes made {} decisions a second of one key by {} commands, and {} without a \
         lease. Sixteen made as many by {} (",
        |it| {
            let of_sixteen = it.of("leases, 16 of 1000000/s: commands a second");
            [it.decisions_on_lease(), vec![number(of_sixteen, 3)]].concat()
        },
    ),
];
