//! The figures of the guide and of the page of the benches are those of `benches/figures.json`, which `benches/compare` writes.
//!
//! `UPDATE_FIGURES=1 tests/run programs figures::` writes them into the pages.

use std::{collections::HashMap, env, fs, ops::Range};

const FIGURES: &str = include_str!("../../benches/figures.json");
const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ratelimit-runtime/src/guide");

/// The page, the words around the figures, each of which is `{}` there, and the figures.
type Sentence = (&'static str, &'static str, fn(&Figures) -> Vec<String>);

/// The median of each figure, by its name.
struct Figures(HashMap<String, f64>);

/// The algorithms that count for each tier, as `bytes_per_key` and `scripts` name them.
const PER_TIER: [&str; 3] = ["token_bucket", "sliding_counter", "fixed_window"];

/// The page of the benches, from the folder of the guide.
const BENCHES: &str = "../../../benches/README";

/// The README, from the folder of the guide.
const README: &str = "../../../README";

const SENTENCES: [Sentence; 21] = [
    (README, "An annotated call takes {} ns in memory", |it| {
        vec![number(it.of("token_bucket, 1 callers, 1 threads: ns of a call"), 2)]
    }),
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
    ("capacity", "| `sliding_counter`, `fixed_window`, `token_bucket` | {} | {} to {} |", |it| {
        let all =
            |at: &str| PER_TIER.map(|name| it.of(&format!("bytes of a caller {at}, {name} of 3")));
        let most = all("in memory").into_iter().fold(0., f64::max);
        [vec![number(most, 9)], range(all("on Redis"))].concat()
    }),
    ("capacity", "| {} for each | {} / {} / {} |", |it| {
        let bytes = it.bytes("calls in flight");
        let each = it.of("bytes of a caller in memory, calls in flight of 1000") / 1_000.;
        [vec![number(each, 2)], bytes[3..].to_vec()].concat()
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
        refusals_a_second,
    ),
    (
        BENCHES,
        "64 tasks got {} million refusals a second, against {} if each was sent to Redis",
        refusals_a_second,
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
        decisions_on_lease,
    ),
    (
        BENCHES,
        "Four processes made {} decisions a second of one key by {} commands, and {} without a \
         lease. Sixteen made as many by {} (",
        |it| {
            let of_sixteen = it.of("leases, 16 of 1000000/s: commands a second");
            [decisions_on_lease(it), vec![number(of_sixteen, 3)]].concat()
        },
    ),
    ("waiting", "no window was above the threshold. {} % to {} % of the calls", |it| {
        range([200, 500, 1_000].map(|lease| {
            it.of(&format!(
                "three regions, lease of {lease} ms: admitted, % of those without leases"
            ))
        }))
    }),
];

/// Refusals by the deny cache in millions, and those by Redis.
fn refusals_a_second(figures: &Figures) -> Vec<String> {
    let of = |name: &str| figures.of(&format!("refused, {name}, 64 tasks: decisions/s"));
    vec![number(of("ours") / 1e6, 2), number(of("ours, always asking"), 2)]
}

/// Decisions of four processes with leases, their commands, and decisions without leases.
fn decisions_on_lease(figures: &Figures) -> Vec<String> {
    let of = |name: &str| figures.of(&format!("{name}, 4 of 1000000/s: 1000 decisions a second"));
    let commands = figures.of("leases, 4 of 1000000/s: commands a second");
    vec![number(of("leases") * 1e3, 2), number(commands, 3), number(of("no leases") * 1e3, 2)]
}

impl Figures {
    fn read() -> Self {
        let all: serde_json::Value = serde_json::from_str(FIGURES).expect("JSON");
        let all = all["figures"].as_array().expect("a list").iter();
        let figure = |it: &serde_json::Value| {
            Some((it["name"].as_str()?.to_owned(), it["median"].as_f64()?))
        };
        Self(all.map(|it| figure(it).expect("a figure")).collect())
    }

    fn of(&self, name: &str) -> f64 {
        *self.0.get(name).unwrap_or_else(|| panic!("benches/figures.json has no `{name}`"))
    }

    /// The server's microseconds for an admitted call at a threshold of 100.
    fn server(&self, name: &str) -> f64 {
        self.of(&format!("server time of {name}, threshold 100, admitted: us"))
    }

    fn to_one_log(&self, name: &str) -> f64 {
        self.server(name) / self.server("sliding_window")
    }

    /// The bytes of a caller in memory and on Redis, of three thresholds each.
    fn bytes(&self, name: &str) -> Vec<String> {
        let of = |at: &str| {
            [3, 100, 1_000].map(|threshold| {
                number(self.of(&format!("bytes of a caller {at}, {name} of {threshold}")), 9)
            })
        };
        [of("in memory"), of("on Redis")].concat()
    }
}

/// The least and the most.
fn range(all: impl IntoIterator<Item = f64>) -> Vec<String> {
    let mut all: Vec<f64> = all.into_iter().collect();
    all.sort_by(f64::total_cmp);
    vec![number(all[0], 2), number(all[all.len() - 1], 2)]
}

/// A number of that many digits, with spaces between thousands, and at most one digit after the point.
fn number(value: f64, digits: i32) -> String {
    let first = value.max(1e-9).log10().floor() + 1.;
    let unit = 10_f64.powf((first - f64::from(digits)).max(-1.));
    let rounded = (value / unit).round() * unit;
    let text = if rounded.fract() > 1e-9 && rounded < 100. {
        format!("{rounded:.1}")
    } else {
        format!("{rounded:.0}")
    };
    let (whole, rest) =
        text.split_once('.').map_or((&*text, ""), |(whole, _)| (whole, &text[whole.len()..]));
    let mut spaced = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            spaced.push(' ');
        }
        spaced.push(digit);
    }
    spaced + rest
}

/// Returns the places of the figures of a sentence on a page, whose lines may end at any space.
fn places(page: &str, words: &str) -> Option<Vec<Range<usize>>> {
    page.char_indices().find_map(|(start, _)| places_at(page, start, words))
}

fn places_at(page: &str, start: usize, words: &str) -> Option<Vec<Range<usize>>> {
    let (mut at, mut places) = (start, Vec::new());
    for (index, part) in words.split("{}").enumerate() {
        if index > 0 {
            let is_figure = |it: char| it.is_ascii_digit() || it == ' ' || it == '.';
            let length = page[at..].find(|it| !is_figure(it)).unwrap_or(page.len() - at);
            let figure = page[at..at + length].trim_end_matches([' ', '.']);
            if !figure.starts_with(|it: char| it.is_ascii_digit()) {
                return None;
            }
            places.push(at..at + figure.len());
            at += figure.len();
        }
        for letter in part.chars() {
            let found = page[at..].chars().next()?;
            if found != letter && !(letter == ' ' && found == '\n') {
                return None;
            }
            at += found.len_utf8();
        }
    }
    Some(places)
}

fn is_updated() -> bool {
    env::var("UPDATE_FIGURES").is_ok_and(|value| value == "1")
}

#[test]
fn the_guides_figures_are_those_of_the_benches() {
    let figures = Figures::read();
    let mut wrong = Vec::new();
    for (page, words, of) in SENTENCES {
        let path = format!("{GUIDE}/{page}.md");
        let mut text = fs::read_to_string(&path).expect("a page");
        let places = places(&text, words).unwrap_or_else(|| panic!("{page} has not: {words}"));
        let expected = of(&figures);
        assert_eq!(places.len(), expected.len(), "{words}");
        for (place, expected) in places.into_iter().zip(expected).rev() {
            if text[place.clone()] != expected {
                wrong.push(format!("{page}: {} for {expected}: {words}", &text[place.clone()]));
                text.replace_range(place, &expected);
            }
        }
        if is_updated() {
            fs::write(path, text).expect("a page is written");
        }
    }
    assert!(is_updated() || wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The calculator's rule for memory is above what was measured, and not by half.
#[test]
fn the_rule_for_memory_covers_each_threshold() {
    let figures = Figures::read();
    let page = fs::read_to_string(format!("{GUIDE}/capacity.md")).expect("the page");
    let rule = "callers * ({} + {} * threshold)";
    let places = places(&page, rule).expect("the rule");
    let [base, unit] = [0, 1].map(|index| page[places[index].clone()].parse::<f64>().unwrap());
    for threshold in [3., 100., 1_000.] {
        let bytes =
            figures.of(&format!("bytes of a caller in memory, sliding_window of {threshold}"));
        let ruled = base + unit * threshold;
        assert!((bytes..1.6 * bytes).contains(&ruled), "{bytes} bytes of {threshold}, not {ruled}");
    }
}

/// A figure in µs, ns or a count in so much time is in one of the sentences, or an example of a number.
#[test]
fn each_measured_time_of_the_guide_is_in_a_sentence() {
    const RULES: [(&str, &str); 1] = [("capacity", "| at 10 µs | at 16 µs | at 24 µs |")];

    for file in fs::read_dir(GUIDE).expect("the pages") {
        let path = file.expect("a page").path();
        let Some(page) = path.file_name().and_then(|it| it.to_str()?.strip_suffix(".md")) else {
            continue;
        };
        let text = fs::read_to_string(&path).expect("a page");
        let mut rest = text.clone();
        for (_, words, _) in SENTENCES.iter().filter(|(of, ..)| *of == page) {
            for place in places(&text, words).into_iter().flatten() {
                rest.replace_range(place.clone(), &"-".repeat(place.len()));
            }
        }
        for (_, words) in RULES.iter().filter(|(of, _)| *of == page) {
            assert!(text.contains(words), "{page} has not: {words}");
            rest = rest.replace(words, "");
        }
        for unit in [" µs", " ns", " kB"] {
            for (end, _) in rest.match_indices(unit) {
                let is_measured = rest[..end].ends_with(|it: char| it.is_ascii_digit());
                assert!(
                    !is_measured,
                    "{page}: {}",
                    &rest[end.saturating_sub(10)..end + unit.len()]
                );
            }
        }
    }
}

#[test]
fn the_abuse_table_is_that_of_one_run() {
    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/README.md");

    let table = include_str!("../../benches/abuse/table.md").trim_end();
    let page = fs::read_to_string(PATH).expect("the page");
    let (before, rest) = page.split_once("| | bar |").expect("the table");
    let (_, after) = rest.split_once("\n\n").expect("its end");
    let updated = format!("{before}{table}\n\n{after}");
    if is_updated() {
        return fs::write(PATH, updated).expect("the page is written");
    }
    assert!(page == updated, "benches/README.md has another table than benches/abuse/table.md");
}
