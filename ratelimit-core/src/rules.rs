//! The rules: which numbers of a policy break one, and where.

mod block;
mod calendar;
mod calls;
#[cfg(test)]
mod exhaustive;
mod lease;
mod leave;
#[cfg(test)]
mod tests;

pub use self::{
    calls::request_id_violation,
    lease::refilled,
    leave::{mark_fault, share_fault, units_left, warning_violation},
};
pub use crate::bounds::{MAX_BLOCKS, MAX_ENTRIES, MAX_TIERS};
use crate::{Algorithm, PolicyFault};

/// The minimum period in microseconds: 1 ms.
const MIN_PERIOD: u64 = 1_000;

/// The maximum period in microseconds: 366 days.
const MAX_PERIOD: u64 = 366 * 24 * 60 * 60 * 1_000_000;

/// The maximum threshold of a sliding window.
const MAX_LOG_UNITS: u64 = 1_000_000_000;

/// The maximum number of units anywhere.
const MAX_UNITS: u64 = u32::MAX as u64;

/// The minimum timeout of a call in flight in microseconds: 100 ms, in which a permit can be
/// renewed.
const MIN_CONCURRENCY_TIMEOUT: u64 = 100_000;

/// The maximum timeout of a call in flight in microseconds: one day.
const MAX_CONCURRENCY_TIMEOUT: u64 = 24 * 60 * 60 * 1_000_000;

/// The largest integer up to which all integers are exact in a double, the only number type of Lua
/// on Redis.
pub const MAX_EXACT_INTEGER: u64 = 1 << 53;

/// The numbers of a policy, as far as they are known. `None` is a value that is known only at run
/// time; it breaks no rule.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The tiers, in the order in which they were written. None are valid with `concurrency` alone.
    pub tiers: &'a [TierDraft],
    /// The size of a token bucket.
    pub burst: Setting,
    /// The units of one call.
    pub cost: Option<u64>,
    /// `true` if refused calls are recorded as well.
    pub count_rejected: bool,
    /// The calls in flight at one time.
    pub concurrency: Setting,
    /// The time in microseconds after which a call in flight that is not renewed counts no longer.
    pub concurrency_timeout: Setting,
    /// The time in microseconds for which a process takes units ahead.
    pub lease: Setting,
    /// The share in percent that the call leaves.
    pub leave: Option<u64>,
    /// `true` if a time zone is written.
    pub zone: bool,
    /// The lengths of blocks in microseconds; none without them.
    pub block: &'a [Option<u64>],
}

impl Draft<'_> {
    /// Returns `true` if the one bucket has a size of its own.
    fn has_burst(&self) -> bool {
        self.algorithm == Algorithm::TokenBucket && self.burst.is_explicit()
    }

    /// Returns the size of the bucket or those of the windows, as far as they are known and not 0.
    fn quotas(&self) -> impl Iterator<Item = u64> {
        let tiers = if self.has_burst() { &[] } else { self.tiers };
        let burst = self.burst.number().filter(|_| self.has_burst());
        burst.into_iter().chain(tiers.iter().filter_map(|it| it.threshold)).filter(|it| *it > 0)
    }
}

/// A number that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// It was not written.
    Default,
    /// The number that was written.
    Explicit(Option<u64>),
}

impl Setting {
    fn is_explicit(self) -> bool {
        self != Self::Default
    }

    fn number(self) -> Option<u64> {
        if let Self::Explicit(number) = self { number } else { None }
    }
}

/// The numbers of one tier.
#[derive(Clone, Copy, Debug)]
pub struct TierDraft {
    /// The period in microseconds.
    pub period: Option<u64>,
    /// The threshold in units.
    pub threshold: Option<u64>,
}

impl TierDraft {
    fn known(self) -> Option<(u64, u64)> {
        Some((self.period.filter(|it| *it > 0)?, self.threshold.filter(|it| *it > 0)?))
    }
}

/// The argument that breaks a rule; tiers by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The period of a tier.
    Period(usize),
    /// The threshold of a tier.
    Threshold(usize),
    /// A tier as a whole.
    Tier(usize),
    /// The burst.
    Burst,
    /// The cost.
    Cost,
    /// The flag `count_rejected`.
    CountRejected,
    /// The calls in flight.
    Concurrency,
    /// The timeout of a call in flight.
    ConcurrencyTimeout,
    /// The lease.
    Lease,
    /// The share that the call leaves.
    Leave,
    /// The time zone.
    Zone,
    /// A length of a block by its index.
    Block(usize),
}

/// The rules that are broken, each with the argument at fault.
#[derive(Default)]
struct Violations(Vec<(Argument, PolicyFault)>);

impl Violations {
    fn add(&mut self, place: Argument, fault: Option<PolicyFault>) {
        self.0.extend(fault.map(|fault| (place, fault)));
    }
}

/// Returns every rule that these numbers break, with the argument at fault.
#[must_use]
pub fn violations(draft: &Draft<'_>) -> Vec<(Argument, PolicyFault)> {
    let mut found = Violations::default();
    let Draft { algorithm, tiers, .. } = *draft;
    let most = MAX_TIERS - usize::from(!draft.block.is_empty());
    found.add(Argument::Tier(most), (tiers.len() > most).then_some(PolicyFault::TooManyTiers));
    found.add(Argument::Concurrency, concurrency_fault(draft.concurrency));
    found.add(Argument::ConcurrencyTimeout, concurrency_timeout_fault(draft));
    found.add(Argument::Leave, leave::fault(draft));
    if tiers.is_empty() {
        for (place, argument, is_written) in [
            (Argument::Lease, "lease", draft.lease.is_explicit()),
            (Argument::CountRejected, "count_rejected", draft.count_rejected),
            (Argument::Burst, "burst", draft.burst.is_explicit()),
            (Argument::Block(0), "block", !draft.block.is_empty()),
            (Argument::Cost, "cost", draft.cost.is_some_and(|cost| cost != 1)),
        ] {
            found.add(place, is_written.then_some(PolicyFault::NothingToCount { argument }));
        }
        return found.0;
    }
    found.add(
        Argument::CountRejected,
        (draft.count_rejected && algorithm == Algorithm::FixedWindow)
            .then_some(PolicyFault::CountRejectedInFixedWindow),
    );
    found.add(Argument::Burst, burst_fault(draft));
    calendar::find(draft, &mut found);
    for (index, tier) in tiers.iter().enumerate() {
        found.add(Argument::Period(index), tier.period.and_then(period_fault));
        let threshold = tier.threshold.and_then(|it| threshold_fault(algorithm, it));
        found.add(Argument::Threshold(index), threshold);
        if !draft.burst.is_explicit() && algorithm == Algorithm::TokenBucket {
            let bucket = tier.known().and_then(|known| bucket_fault(known, known.1));
            found.add(Argument::Threshold(index), bucket);
        }
        found.add(Argument::Tier(index), tier_fault(draft, index));
    }
    lease::find(draft, &mut found);
    block::find(draft, &mut found);
    found.add(Argument::Cost, cost_fault(draft));
    found.0
}

/// Returns `true` if a policy with this tier alone breaks no rule: [`violations`] finds none then.
#[must_use]
pub const fn is_valid_alone(
    algorithm: Algorithm,
    (period, threshold): (u64, u64),
    burst: Option<u32>,
    count_rejected: bool,
    lease: Option<u64>,
) -> bool {
    let is_bucket = matches!(algorithm, Algorithm::TokenBucket);
    let burst = match burst {
        None => threshold,
        Some(burst) if is_bucket => burst as u64,
        Some(_) => return false,
    };
    if matches!(algorithm, Algorithm::CalendarWindow)
        && (calendar::period_fault(period).is_some() || count_rejected || lease.is_some())
    {
        return false;
    }
    period_fault(period).is_none()
        && threshold_fault(algorithm, threshold).is_none()
        && (!is_bucket || burst > 0 && bucket_fault((period, threshold), burst).is_none())
        && !(count_rejected && matches!(algorithm, Algorithm::FixedWindow))
        && match lease {
            None => true,
            Some(lease) => {
                !count_rejected
                    && lease::length_fault(lease, period).is_none()
                    && (!is_bucket
                        || lease::bucket_fault(lease, (period, threshold), burst).is_none())
            }
        }
}

const fn period_fault(period: u64) -> Option<PolicyFault> {
    if period < MIN_PERIOD {
        Some(PolicyFault::PeriodTooShort { period })
    } else if period > MAX_PERIOD {
        Some(PolicyFault::PeriodTooLong)
    } else {
        None
    }
}

const fn threshold_fault(algorithm: Algorithm, threshold: u64) -> Option<PolicyFault> {
    let largest = match algorithm {
        Algorithm::SlidingWindow => MAX_LOG_UNITS,
        // The other algorithms count any `u32` exactly.
        _ => MAX_UNITS,
    };
    if threshold == 0 {
        Some(PolicyFault::ThresholdZero)
    } else if threshold > largest {
        Some(PolicyFault::ThresholdTooLarge { threshold, largest })
    } else {
        None
    }
}

fn burst_fault(draft: &Draft<'_>) -> Option<PolicyFault> {
    let Draft { algorithm, tiers, burst: Setting::Explicit(burst), .. } = *draft else {
        return None;
    };
    if algorithm != Algorithm::TokenBucket {
        return Some(PolicyFault::BurstWithoutBucket { algorithm });
    } else if tiers.len() > 1 {
        return Some(PolicyFault::BurstWithTiers);
    }
    match burst? {
        0 => Some(PolicyFault::BurstZero),
        burst => bucket_fault(tiers.first()?.known()?, burst),
    }
}

/// Returns a fault if the bucket is too large to be counted exactly. It is counted in parts of a
/// token, so small that all numbers are integers; a full bucket must be an exact integer in Lua.
const fn bucket_fault((period, threshold): (u64, u64), burst: u64) -> Option<PolicyFault> {
    let exact = (MAX_EXACT_INTEGER - 1) / (period / greatest_common_divisor(period, threshold));
    let largest = if exact < MAX_UNITS { exact } else { MAX_UNITS };
    if burst > largest { Some(PolicyFault::BucketTooLarge { burst, largest }) } else { None }
}

/// Returns a fault if the tier (p, t) can never refuse, because another tier (q, u) refuses first.
fn tier_fault(draft: &Draft<'_>, index: usize) -> Option<PolicyFault> {
    let Draft { algorithm, tiers, count_rejected, .. } = *draft;
    let (p, t) = tiers[index].known()?;
    tiers.iter().enumerate().find_map(|(other, tier)| {
        let (q, u) = tier.known().filter(|_| other != index)?;
        if (q, u) == (p, t) {
            return (other < index).then_some(PolicyFault::TierTwice);
        }
        let is_dead = match algorithm {
            // Recorded refusals may exceed `u`: only a window inside the other one counts no more.
            Algorithm::SlidingWindow if count_rejected => p <= q && u <= t,
            // A window of p is covered by ceil(p / q) windows of q, each with at most u units.
            Algorithm::SlidingWindow => p.div_ceil(q).saturating_mul(u) <= t,
            // Windows of equal length open together; a window of another length may overlap one
            // more.
            Algorithm::FixedWindow if p == q => u <= t,
            Algorithm::FixedWindow => (p.div_ceil(q) + 1).saturating_mul(u) <= t,
            // Several tiers are a fault by themselves.
            Algorithm::CalendarWindow => false,
            // Two estimates compare only over the same windows.
            Algorithm::SlidingCounter => p == q && u <= t,
            // A bucket that is at least as large and refills at least as fast is never the emptier
            // one.
            Algorithm::TokenBucket => {
                u <= t && u128::from(u) * u128::from(p) <= u128::from(t) * u128::from(q)
            }
        };
        is_dead.then_some(PolicyFault::DeadTier { period: q, threshold: u })
    })
}

fn concurrency_fault(concurrency: Setting) -> Option<PolicyFault> {
    (concurrency == Setting::Explicit(Some(0))).then_some(PolicyFault::ConcurrencyZero)
}

fn concurrency_timeout_fault(draft: &Draft<'_>) -> Option<PolicyFault> {
    let Setting::Explicit(timeout) = draft.concurrency_timeout else { return None };
    if !draft.concurrency.is_explicit() {
        return Some(PolicyFault::ConcurrencyTimeoutWithoutConcurrency);
    }
    let timeout = timeout?;
    let is_allowed = (MIN_CONCURRENCY_TIMEOUT..=MAX_CONCURRENCY_TIMEOUT).contains(&timeout);
    (!is_allowed).then_some(PolicyFault::ConcurrencyTimeoutOutOfRange { timeout })
}

fn cost_fault(draft: &Draft<'_>) -> Option<PolicyFault> {
    let cost = draft.cost?;
    if cost == 0 {
        return Some(PolicyFault::CostZero);
    }
    match draft.quotas().filter(|quota| *quota < cost).min() {
        Some(burst) if draft.has_burst() => Some(PolicyFault::CostOverBurst { cost, burst }),
        Some(threshold) => Some(PolicyFault::CostOverThreshold { cost, threshold }),
        None => lease::cost_fault(draft, cost),
    }
}

/// Returns the greatest common divisor of two numbers.
#[must_use]
pub const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
