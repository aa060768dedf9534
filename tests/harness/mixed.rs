//! Histories of all features at once: the records of processes whose calls share a few limits, and
//! the rules that no such history may break.
//!
//! The rules are those of the guide, and use no code of the runtime. Times are microseconds of the
//! machine's clock, which is that of its Redis too. A doubtful time is no fault: bounds are those
//! that hold for certain.

mod blocks;
mod buckets;
mod call;
mod candidates;
mod charges;
mod excuses;
mod layers;
mod local;
mod note;
mod numbers;
mod pauses;
mod permits;
mod reasons;
mod report;
mod round;
mod shares;
#[cfg(test)]
mod tests;
mod turns;
mod warnings;
mod windows;

use std::{collections::BTreeMap, fmt, time::Duration};

use ratelimit_runtime::{Plans, Policy};

pub use self::{
    layers::NumberChange,
    note::{CallNote, Note, NoteLine, OfCaller, ProcessNotes, Reply},
    round::{Audit, Gap, MixedRound},
};

/// The caller of all calls.
pub const MIXED_CALLER: &str = "bob";

/// The deadline of each process's limiter.
pub const MIXED_DEADLINE: Duration = Duration::from_millis(500);

/// The longest time for which a call waits.
pub const LONGEST_WAIT: Duration = Duration::from_millis(1_500);

/// The time after which the permit of a dead process is free.
pub const PERMIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The features of a mix, by their names. Without one of them no call uses it.
pub const FEATURES: [&str; 34] = [
    "lease",
    "wait",
    "permits",
    "cancel",
    "settle",
    "refund",
    "ids",
    "together",
    "peek",
    "leave",
    "reset",
    "raise",
    "lower",
    "off",
    "rates",
    "scale",
    "enforce",
    "callers",
    "plans",
    "keypause",
    "block",
    "outage",
    "local",
    "first",
    "warn",
    "candidate",
    "threads",
    "blocked",
    "runtimes",
    "pause",
    "disconnect",
    "lost",
    "kill",
    "stop",
];

/// The lengths of blocks, in milliseconds, by a policy's choice; the first one has none.
pub const BLOCKS: [&[u64]; 3] = [&[], &[200, 500, 1_000], &[300, 700]];

/// The plan of half of a limit's number.
pub const SMALL_PLAN: &str = "small";

/// The feature that loses all keys now and then.
pub const LOSES_KEYS: &str = "flushall";

/// The features with a mode of their own. Slots of a cluster move, and a primary is killed, of a
/// cluster or behind Sentinels.
pub const MODES: [&str; 4] = [LOSES_KEYS, "reshard", "failover", "sentinel"];

/// The rule by which a limit admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An exact log of units.
    Log,
    /// A bucket of this many tokens.
    Bucket(u32),
    /// Windows that open at a call.
    Fixed,
    /// Two aligned windows.
    Counter,
    /// Calls in flight alone.
    Permits,
}

/// A limit that all processes share.
#[derive(Clone, Copy, Debug)]
pub struct MixedLimit {
    /// The name of its policies.
    pub name: &'static str,
    /// Its rule.
    pub rule: Rule,
    /// The length of a window.
    pub period: Duration,
    /// The units of a window.
    pub threshold: u32,
    /// The calls in flight; 0 for any number.
    pub permits: u32,
    /// The length of a lease; zero without leases.
    pub lease: Duration,
}

const fn limit(name: &'static str, rule: Rule, period: u64, threshold: u32) -> MixedLimit {
    let period = Duration::from_millis(period);
    MixedLimit { name, rule, period, threshold, permits: 0, lease: Duration::ZERO }
}

/// The limits, by their numbers.
pub const LIMITS: [MixedLimit; 10] = [
    MixedLimit { lease: Duration::from_millis(200), ..limit("ledger", Rule::Log, 2_000, 200) },
    MixedLimit {
        lease: Duration::from_millis(100),
        ..limit("tokens", Rule::Bucket(30), 1_000, 60)
    },
    limit("fixed", Rule::Fixed, 1_000, 40),
    limit("counter", Rule::Counter, 1_000, 40),
    MixedLimit { permits: 4, ..limit("slots", Rule::Permits, 0, 0) },
    MixedLimit { permits: 3, ..limit("both", Rule::Log, 2_000, 60) },
    // Its windows are shorter than any block, so that a longer wait is that of a block.
    limit("barred", Rule::Log, 150, 6),
    // Its calls are decided in their process while Redis is away, and only a pause refuses one.
    limit("gate", Rule::Log, 2_000, 50_000),
    // It is refilled so slowly that its level at the end shows the calls of the whole round.
    limit("credit", Rule::Bucket(600), 1_000, 10),
    // While Redis is away, each process admits a share of it.
    limit("spare", Rule::Log, 2_000, 60),
];

/// The number of the limit whose bucket is compared at the end of a round. It has a factor of its
/// own, which is 1: of another one it would be another bucket.
pub const CREDIT: usize = 8;

/// The number of the limit of which each process admits a share while Redis is away.
pub const SPARE: usize = 9;

/// That share, in percent.
pub const LOCAL_SHARE: u8 = 20;

/// The smallest share of the callers, in percent, that has the caller of all calls.
pub const FIRST_SHARE: u8 = 71;

/// The threshold of the candidate of the limit that only a pause refuses: one that refuses even
/// less.
pub const TRIED: u32 = 90_000;

impl MixedLimit {
    /// Returns the policy of calls that Redis decides.
    pub fn policy(&self) -> Policy {
        let &Self { name, period, threshold, .. } = self;
        let policy = match self.rule {
            Rule::Log => Policy::sliding_window(name, period, threshold),
            Rule::Bucket(burst) => Policy::token_bucket(name, period, threshold).burst(burst),
            Rule::Fixed => Policy::fixed_window(name, period, threshold),
            Rule::Counter => Policy::sliding_counter(name, period, threshold),
            Rule::Permits => Policy::concurrency_limit(name, self.permits),
        };
        if self.permits == 0 {
            return policy;
        }
        policy.concurrency(self.permits).concurrency_timeout(PERMIT_TIMEOUT)
    }

    /// Returns the policy of calls that take units on lease, of the same name.
    #[must_use]
    pub fn leased(&self) -> Option<Policy> {
        (!self.lease.is_zero()).then(|| self.policy().lease(self.lease))
    }

    /// Returns `policy` with the lengths of a choice of blocks.
    pub fn barring(policy: Policy, blocks: usize) -> Policy {
        let lengths: Vec<_> = BLOCKS[blocks].iter().copied().map(Duration::from_millis).collect();
        policy.block(&lengths)
    }

    /// Returns the plans of a limit: the limit as it is, and one of half of its units. Of a bucket
    /// that is another rate, and those with turns have none.
    #[must_use]
    pub fn plans(&self) -> Option<Plans> {
        let small = Self { threshold: self.threshold / 2, ..*self };
        let has_plans = match self.rule {
            Rule::Log | Rule::Fixed | Rule::Counter => true,
            Rule::Bucket(_) => self.name == LIMITS[CREDIT].name,
            Rule::Permits => false,
        };
        let plans = has_plans.then(|| Plans::new(self.name, "whole", self.policy()));
        plans.map(|plans| plans.plan(SMALL_PLAN, small.policy()))
    }

    /// The number that overrides change: the threshold, or the calls in flight of a limit without
    /// windows.
    #[must_use]
    pub fn number(&self) -> u32 {
        if self.rule == Rule::Permits { self.permits } else { self.threshold }
    }

    fn period_micros(&self) -> u64 {
        micros(self.period)
    }
}

/// The faults of a round, by the invariant that each breaks.
#[derive(Clone, Debug, Default)]
pub struct Findings(BTreeMap<&'static str, Vec<String>>);

impl Findings {
    /// Adds a fault.
    pub fn add(&mut self, invariant: &'static str, fault: String) {
        self.0.entry(invariant).or_default().push(fault);
    }

    /// Adds all faults of another part.
    pub fn take_in(&mut self, other: Self) {
        for (invariant, faults) in other.0 {
            self.0.entry(invariant).or_default().extend(faults);
        }
    }

    /// Returns `true` if there is no fault.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of faults by invariant.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.0.iter().map(|(invariant, faults)| (*invariant, faults.len()))
    }
}

/// The first faults of each invariant.
impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (invariant, faults) in &self.0 {
            writeln!(f, "  {invariant}: {} faults", faults.len())?;
            for fault in faults.iter().take(3) {
                writeln!(f, "    {fault}")?;
            }
        }
        Ok(())
    }
}

/// A span of time, from its first microsecond to its last.
pub(crate) type Span = (u64, u64);

pub(crate) fn overlaps(one: Span, other: Span) -> bool {
    one.0 <= other.1 && other.0 <= one.1
}

pub(crate) fn micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}
