//! The rules of a lease: units that a process takes ahead of its calls.

use super::{Argument, Draft, Setting, Violations};
use crate::{Algorithm, PolicyFault};

/// The minimum length of a lease in microseconds: 1 ms.
const MIN_LEASE: u64 = 1_000;

/// The number of leases in the shortest period, at least.
const LEASES_IN_A_PERIOD: u64 = 10;

/// Finds every rule that the lease of a policy with a window breaks.
pub(super) fn find(draft: &Draft<'_>, found: &mut Violations) {
    let Setting::Explicit(lease) = draft.lease else { return };
    let fault = lease.and_then(|lease| {
        let periods = draft.tiers.iter().filter_map(|tier| tier.period);
        let shortest = periods.filter(|it| *it > 0).min().unwrap_or(u64::MAX);
        let mut buckets = buckets(draft);
        length_fault(lease, shortest)
            .or_else(|| buckets.find_map(|(tier, burst)| bucket_fault(lease, tier, burst)))
    });
    found.add(Argument::Lease, fault);
    for (argument, is_written) in [
        ("count_rejected", draft.count_rejected),
        ("concurrency", draft.concurrency.is_explicit()),
        ("block", !draft.block.is_empty()),
    ] {
        found.add(Argument::Lease, is_written.then_some(PolicyFault::LeaseWith { argument }));
    }
}

pub(super) const fn length_fault(lease: u64, shortest_period: u64) -> Option<PolicyFault> {
    if lease < MIN_LEASE {
        Some(PolicyFault::LeaseTooShort { lease })
    } else if lease > shortest_period / LEASES_IN_A_PERIOD {
        Some(PolicyFault::LeaseTooLong { lease, period: shortest_period })
    } else {
        None
    }
}

pub(super) const fn bucket_fault(lease: u64, tier: (u64, u64), burst: u64) -> Option<PolicyFault> {
    let smallest = refilled(tier, lease) + 1;
    if burst < smallest { Some(PolicyFault::BucketTooSmall { burst, smallest }) } else { None }
}

/// Returns the rule that a cost breaks which fits the bucket, and not what it holds under a lease.
pub(super) fn cost_fault(draft: &Draft<'_>, cost: u64) -> Option<PolicyFault> {
    let lease = draft.lease.number()?;
    let held = buckets(draft).map(|(tier, burst)| burst.saturating_sub(refilled(tier, lease)));
    let largest = held.min().filter(|largest| (1..cost).contains(largest))?;
    Some(PolicyFault::CostOverLeasedBucket { cost, largest })
}

/// Returns the tiers and sizes of a policy's buckets, as far as they are known.
fn buckets(draft: &Draft<'_>) -> impl Iterator<Item = ((u64, u64), u64)> {
    let tiers = if draft.algorithm == Algorithm::TokenBucket { draft.tiers } else { &[] };
    tiers.iter().filter_map(|tier| {
        let tier = tier.known()?;
        let size = if draft.burst.is_explicit() { draft.burst.number()? } else { tier.1 };
        (size > 0).then_some((tier, size))
    })
}

/// Returns the tokens that a bucket of this period and threshold regains during a lease, rounded
/// up. A bucket under a lease holds so many fewer.
///
/// Tokens on lease leave the bucket before they are used, and the bucket refills meanwhile.
#[must_use]
pub const fn refilled((period, threshold): (u64, u64), lease: u64) -> u64 {
    if period == 0 {
        return 0;
    }
    let tokens = (threshold as u128 * lease as u128).div_ceil(period as u128);
    #[expect(clippy::cast_possible_truncation, reason = "compared just before")]
    if tokens > u64::MAX as u128 - 1 { u64::MAX - 1 } else { tokens as u64 }
}
