//! The plan of a round, which all processes derive from its seed: the features, and when limits change.

use std::{collections::BTreeSet, fmt};

use fastrand::Rng;
use harness::mixed::{FEATURES, LIMITS, LOSES_KEYS};

/// The length of the load, in microseconds.
pub(crate) const LOAD: u64 = 7_000_000;

/// The number of processes.
pub(crate) const PROCESSES: usize = 4;

/// A set of features.
#[derive(Clone)]
pub(crate) struct Mix(BTreeSet<&'static str>);

impl Mix {
    /// Returns all features but the one with a mode of its own.
    pub(crate) fn all() -> Self {
        Self(FEATURES.into_iter().collect())
    }

    /// Reads features with commas between them. With a minus before the first one, all but these.
    pub(crate) fn read(text: &str) -> Self {
        let (names, mut mix) = match text.strip_prefix('-') {
            Some(names) => (names, Self::all()),
            None => (text, Self(BTreeSet::new())),
        };
        for name in names.split(',').filter(|name| *name != "all") {
            let known = FEATURES.into_iter().chain([LOSES_KEYS]).find(|it| *it == name);
            let known = known.unwrap_or_else(|| panic!("{name} is none of {FEATURES:?}"));
            if text.starts_with('-') { mix.0.remove(known) } else { mix.0.insert(known) };
        }
        if names.split(',').any(|name| name == "all") { Self::all() } else { mix }
    }

    pub(crate) fn with(mut self, feature: &'static str) -> Self {
        self.0.insert(feature);
        self
    }

    pub(crate) fn has(&self, feature: &str) -> bool {
        self.0.contains(feature)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let without: Vec<_> = FEATURES.into_iter().filter(|name| !self.has(name)).collect();
        let losing = if self.has(LOSES_KEYS) { " and flushall" } else { "" };
        match without[..] {
            [] => write!(f, "all{losing}"),
            _ if 2 * without.len() < FEATURES.len() => write!(f, "-{}{losing}", without.join(",")),
            _ => f.write_str(&self.0.iter().copied().collect::<Vec<_>>().join(",")),
        }
    }
}

/// A change of a limit in all processes, or in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// An override with this number.
    Number(u32),
    Off,
    /// Without override.
    Back,
    /// A reset by this process.
    Reset(usize),
}

/// The changes of a round, by the microsecond after its start.
pub(crate) struct Plan {
    pub(crate) acts: Vec<(u64, usize, Act)>,
    /// The times in which calls wait for the limit with leases.
    storms: Vec<(u64, u64)>,
}

impl Plan {
    pub(crate) fn new(seed: u64, mix: &Mix) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut acts = Vec::new();
        let changes: Vec<&str> =
            ["raise", "lower", "off", "reset"].into_iter().filter(|it| mix.has(it)).collect();
        let mut free_from = [0; LIMITS.len()];
        let mut at = 700_000;
        while at < LOAD - 500_000 && !changes.is_empty() {
            let limit = random.usize(..LIMITS.len());
            let number = LIMITS[limit].number();
            let act = match changes[random.usize(..changes.len())] {
                "raise" => Act::Number(number * 2),
                "lower" => Act::Number(number / 2),
                "off" => Act::Off,
                _ => Act::Reset(random.usize(..PROCESSES)),
            };
            let until = at + random.u64(300_000..1_200_000);
            if free_from[limit] <= at {
                acts.push((at, limit, act));
                if !matches!(act, Act::Reset(_)) {
                    acts.push((until.min(LOAD - 200_000), limit, Act::Back));
                    free_from[limit] = until + 1;
                }
            }
            at += random.u64(150_000..700_000);
        }
        acts.sort_by_key(|(at, ..)| *at);
        let first = random.u64(800_000..2_200_000);
        let second = first + random.u64(2_500_000..3_500_000);
        let storms = [first, second].map(|at| (at, at + random.u64(200_000..700_000))).to_vec();
        Self { acts, storms }
    }

    pub(crate) fn is_storm(&self, at: u64) -> bool {
        self.storms.iter().any(|(from, until)| (*from..*until).contains(&at))
    }
}
