//! The figures of the READMEs, the guide and the page of the benches are those of
//! `benches/figures.json`, which `benches/compare` writes.
//!
//! `UPDATE_FIGURES=1 tests/run programs figures::` writes them into the pages.

mod benches;
mod guide;

use std::{collections::HashMap, env, fs, ops::Range};

const FIGURES: &str = include_str!("../../benches/figures.json");
const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ratelimit-runtime/src/guide");

/// The page, the words around the figures, each of which is `{}` there, and the figures.
type Sentence = (&'static str, &'static str, fn(&Figures) -> Vec<String>);

/// The median of each figure, by its name.
struct Figures(HashMap<String, f64>);

/// The algorithms that count for each tier, as `bytes_per_key` and `scripts` name them.
const PER_TIER: [&str; 3] = ["token_bucket", "sliding_counter", "fixed_window"];

fn sentences() -> impl Iterator<Item = &'static Sentence> {
    guide::SENTENCES.iter().chain(benches::SENTENCES)
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

    /// The server's microseconds, admitted and refused, at each threshold.
    fn server_row(&self, name: &str) -> Vec<String> {
        let cells = [3, 100, 1_000, 100_000].map(|threshold| {
            ["admitted", "refused"].map(|how| {
                let name = format!("server time of {name}, threshold {threshold}, {how}: us");
                number(self.of(&name), if self.of(&name) < 10. { 2 } else { 3 })
            })
        });
        cells.concat()
    }

    /// The fullest window, the admitted calls in percent, and the milliseconds of 90 % of the calls of each region.
    fn of_regions(&self, lease: &str) -> Vec<String> {
        let of = |what: &str| self.of(&format!("three regions, {lease}: {what}"));
        let mut row = vec![
            number(of("fullest window, units"), 9),
            number(of("admitted, % of those without leases"), 3),
        ];
        row.extend(
            [2, 80, 150].map(|link| number(of(&format!("ms of a call over {link} ms, 90 %")), 4)),
        );
        row
    }

    /// The nanoseconds of a call of one caller, and of 10 000.
    fn nanos(&self, name: &str) -> Vec<String> {
        [1, 10_000].map(|callers| number(self.nanos_of(name, callers), 3)).into()
    }

    fn nanos_of(&self, name: &str, callers: u32) -> f64 {
        self.of(&format!("{name}, {callers} callers, 1 threads: ns of a call")).round()
    }

    /// The nanoseconds of an admitted and of a refused call, with their ratios to governor, of one caller and of 10 000.
    fn memory_row(&self, admitted: [&str; 2], refused: &str) -> Vec<String> {
        let mut row = Vec::new();
        for (callers, admitted) in [1, 10_000].into_iter().zip(admitted) {
            let governor = self.nanos_of("governor, key by format!", callers);
            for nanos in [admitted, refused].map(|name| self.nanos_of(name, callers)) {
                row.extend([number(nanos, 3), ratio(nanos / governor)]);
            }
        }
        row
    }

    fn nanos_of_a_call(&self) -> Vec<String> {
        vec![number(self.nanos_of("token_bucket", 1), 2)]
    }

    /// The bytes of a caller in memory and on Redis, under the algorithms that count for each tier.
    fn per_tier_bytes(&self) -> Vec<String> {
        let all = |at: &str| {
            PER_TIER.map(|name| self.of(&format!("bytes of a caller {at}, {name} of 3")))
        };
        let most = all("in memory").into_iter().fold(0., f64::max);
        let on_redis = ends(all("on Redis")).map(|bytes| number(bytes, 9));
        [vec![number(most, 9)], on_redis.into()].concat()
    }

    /// Refusals by the deny cache in millions, and those by Redis.
    fn refusals_a_second(&self) -> Vec<String> {
        let of = |name: &str| self.of(&format!("refused, {name}, 64 tasks: decisions/s"));
        vec![number(of("ours") / 1e6, 2), number(of("ours, always asking"), 2)]
    }

    /// Decisions of four processes with leases, their commands, and decisions without leases.
    fn decisions_on_lease(&self) -> Vec<String> {
        let of = |name: &str| self.of(&format!("{name}, 4 of 1000000/s: 1000 decisions a second"));
        let commands = self.of("leases, 4 of 1000000/s: commands a second");
        vec![number(of("leases") * 1e3, 2), number(commands, 3), number(of("no leases") * 1e3, 2)]
    }

    /// The bytes of a call in flight in memory.
    fn bytes_in_flight(&self) -> String {
        number(self.of("bytes of a caller in memory, calls in flight of 1000") / 1_000., 2)
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

/// A ratio, with two digits after the point.
fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

/// The least and the most.
fn range(all: impl IntoIterator<Item = f64>) -> Vec<String> {
    ends(all).map(|end| number(end, 2)).into()
}

/// The least and the most ratio.
fn ratios(all: impl IntoIterator<Item = f64>) -> Vec<String> {
    ends(all).map(ratio).into()
}

fn ends(all: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let start = [f64::MAX, f64::MIN];
    all.into_iter().fold(start, |[least, most], it| [least.min(it), most.max(it)])
}

/// A number of that many digits, with spaces between thousands, and at most one digit after the point.
fn number(value: f64, digits: i32) -> String {
    // A difference of nothing may be below it.
    let value = value.max(0.);
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
            // A line of a list is indented.
            if found == '\n' {
                at += page[at..].len() - page[at..].trim_start_matches(' ').len();
            }
        }
    }
    Some(places)
}

fn is_updated() -> bool {
    env::var("UPDATE_FIGURES").is_ok_and(|value| value == "1")
}

#[test]
fn the_figures_of_the_pages_are_those_of_the_benches() {
    let figures = Figures::read();
    let mut wrong = Vec::new();
    for (page, words, of) in sentences() {
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
        for (_, words, _) in sentences().filter(|(of, ..)| *of == page) {
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
