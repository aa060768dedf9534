//! The plan of a round, which all processes derive from its seed: the features, and when limits change.

use std::{collections::BTreeSet, fmt};

use fastrand::Rng;
use harness::mixed::{CREDIT, FEATURES, FIRST_SHARE, LIMITS, MODES, OfCaller};

/// The lengths of the load, in microseconds: on one server, and on several.
const LOADS: [u64; 2] = [7_000_000, 10_000_000];

/// The number of the limit whose key is paused: it has no leases.
pub(crate) const BOTH: usize = 5;

/// The number of the limit that is paused too, and is decided while Redis is away.
pub(crate) const GATE: usize = 7;

/// The numbers of limits whose counts are found by their periods: buckets, a fixed window and a counter.
const RATED: [usize; 4] = [1, 2, 3, CREDIT];

/// The number of processes.
pub(crate) const PROCESSES: usize = 4;

/// A set of features.
#[derive(Clone)]
pub(crate) struct Mix(BTreeSet<&'static str>);

impl Mix {
    /// Returns all features but those with a mode of their own.
    pub(crate) fn all() -> Self {
        Self(FEATURES.into_iter().collect())
    }

    /// Reads features with commas between them, `all` among them, each with a minus before it to leave it out.
    pub(crate) fn read(text: &str) -> Self {
        let mut mix = Self(BTreeSet::new());
        for word in text.split(',') {
            let name = word.strip_prefix('-').unwrap_or(word);
            if name == "all" {
                mix = Self::all();
                continue;
            }
            let known = FEATURES.into_iter().chain(MODES).find(|it| *it == name);
            let known = known.unwrap_or_else(|| panic!("{name} is none of {FEATURES:?}"));
            if word == name {
                mix.0.insert(known)
            } else {
                mix.0.remove(known)
            };
        }
        mix
    }

    pub(crate) fn with(mut self, feature: &'static str) -> Self {
        self.0.insert(feature);
        self
    }

    pub(crate) fn has_replicas(&self) -> bool {
        self.has("reshard") || self.has("failover")
    }

    /// Returns the length of the load, in microseconds.
    pub(crate) fn load(&self) -> u64 {
        LOADS[usize::from(self.has_replicas())]
    }

    pub(crate) fn has(&self, feature: &str) -> bool {
        self.0.contains(feature)
    }
}

/// The text that [`Mix::read`] reads.
impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let without: Vec<_> = FEATURES.into_iter().filter(|name| !self.has(name)).collect();
        if 2 * without.len() > FEATURES.len() {
            return f.write_str(&self.0.iter().copied().collect::<Vec<_>>().join(","));
        }
        f.write_str("all")?;
        without.iter().try_for_each(|name| write!(f, ",-{name}"))?;
        MODES.into_iter().filter(|name| self.has(name)).try_for_each(|name| write!(f, ",{name}"))
    }
}

/// A change of a limit in all processes, or in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// An override with this number.
    Number(u32),
    Off,
    /// An override for this share of the callers, in percent.
    Share(u8),
    /// This factor of all limits, in thousandths.
    Scale(u32),
    /// An override with twice the period.
    Slow,
    /// Without override.
    Back,
    /// A reset by this process.
    Reset(usize),
    /// A pause by this process, of so many microseconds.
    Pause(usize, u64),
    /// An override of the caller, and the microsecond at which it ends; 0 for never.
    OfCaller(OfCaller, u64),
}

/// Adds overrides of the caller, half of which end by themselves.
fn of_caller(random: &mut Rng, load: u64, acts: &mut Vec<(u64, usize, Act)>) {
    let mut free_from = [0; LIMITS.len()];
    let mut at = 500_000;
    while at < load - 800_000 {
        let limit = random.usize(..LIMITS.len());
        let number = u64::from(LIMITS[limit].number());
        let what = [
            OfCaller::Number(number * 2),
            OfCaller::Number(number / 2),
            OfCaller::Off,
            OfCaller::Denied,
        ][random.usize(..4)];
        let end = at + random.u64(150_000..900_000);
        if free_from[limit] <= at {
            free_from[limit] = end + 1;
            let until = if random.bool() { end } else { 0 };
            acts.push((at, limit, Act::OfCaller(what, until)));
            if until == 0 {
                acts.push((end, limit, Act::OfCaller(OfCaller::Removed, 0)));
            }
        }
        at += random.u64(150_000..700_000);
    }
}

/// The changes of a round, by the microsecond after its start.
pub(crate) struct Plan {
    pub(crate) acts: Vec<(u64, usize, Act)>,
    /// The times in which calls wait for the limit with leases, and are given back.
    storms: Vec<(u64, u64)>,
}

impl Plan {
    pub(crate) fn new(seed: u64, mix: &Mix) -> Self {
        let (mut random, load) = (Rng::with_seed(seed), mix.load());
        let mut acts = Vec::new();
        let changes: Vec<&str> = ["raise", "lower", "off", "rates", "enforce", "reset"]
            .into_iter()
            .filter(|it| mix.has(it))
            .collect();
        let mut free_from = [0; LIMITS.len()];
        let mut at = 700_000;
        while at < load - 500_000 && !changes.is_empty() {
            let limit = random.usize(..LIMITS.len());
            let number = LIMITS[limit].number();
            let act = match changes[random.usize(..changes.len())] {
                // An override in its place would end the candidate.
                _ if limit == GATE => Act::Reset(random.usize(..PROCESSES)),
                "lower" => Act::Number(number / 2),
                "off" => Act::Off,
                // The shares on both sides of the caller.
                "enforce" => Act::Share([1, FIRST_SHARE - 1, FIRST_SHARE, 100][random.usize(..4)]),
                "rates" if RATED.contains(&limit) => Act::Slow,
                "raise" | "rates" => Act::Number(number * 2),
                _ => Act::Reset(random.usize(..PROCESSES)),
            };
            let until = at + random.u64(300_000..2_500_000);
            if free_from[limit] <= at {
                // A reset and an override at once ask the calls that wait twice.
                let is_after_reset = mix.has("reset") && random.u8(..3) == 0;
                if is_after_reset {
                    acts.push((
                        at - random.u64(..4_000),
                        limit,
                        Act::Reset(random.usize(..PROCESSES)),
                    ));
                }
                acts.push((at, limit, act));
                if !matches!(act, Act::Reset(_)) {
                    acts.push((until.min(load - 200_000), limit, Act::Back));
                    free_from[limit] = until + 1;
                }
            }
            at += random.u64(150_000..700_000);
        }
        if mix.has("scale") {
            let mut random = Rng::with_seed(seed ^ 0x5c);
            let mut at = random.u64(600_000..1_500_000);
            while at < load - 800_000 {
                let until = (at + random.u64(300_000..2_000_000)).min(load - 300_000);
                let factor = [500, 2_000, 300, 1_000][random.usize(..4)];
                // It is of no limit.
                acts.extend([(at, 0, Act::Scale(factor)), (until, 0, Act::Scale(0))]);
                at = until + random.u64(100_000..1_500_000);
            }
        }
        if mix.has("callers") {
            of_caller(&mut Rng::with_seed(seed ^ 0xca), load, &mut acts);
        }
        if mix.has("keypause") {
            let mut random = Rng::with_seed(seed ^ 0xea);
            for _ in 0..4 {
                // The turns that it moves are over when the load ends.
                let at = random.u64(700_000..load / 2);
                let pause = Act::Pause(random.usize(..PROCESSES), random.u64(100_000..700_000));
                acts.push((at, BOTH, pause));
            }
        }
        if mix.has("outage") {
            let mut random = Rng::with_seed(seed ^ 0x9a);
            let mut at = 600_000;
            while at < load - 1_000_000 {
                let pause = Act::Pause(random.usize(..PROCESSES), random.u64(300_000..3_000_000));
                acts.push((at, GATE, pause));
                let reset = at + random.u64(50_000..600_000);
                acts.push((reset, GATE, Act::Reset(random.usize(..PROCESSES))));
                at = reset + random.u64(100_000..500_000);
            }
        }
        acts.sort_by_key(|(at, ..)| *at);
        let first = random.u64(100_000..900_000);
        let second = first + random.u64(3_800_000..5_000_000);
        let storms = [first, second].map(|at| (at, at + random.u64(200_000..700_000))).to_vec();
        Self { acts, storms }
    }

    pub(crate) fn is_storm(&self, at: u64) -> bool {
        self.storms.iter().any(|(from, until)| (*from..*until).contains(&at))
    }

    /// Returns `true` while the limit with leases rests: processes lease much of a window that is empty, and
    /// lease nothing while calls wait and for two seconds after.
    pub(crate) fn is_rest(&self, at: u64) -> bool {
        self.storms.iter().any(|(_, until)| (until + 600_000..until + 3_000_000).contains(&at))
    }
}
