//! One unit of a log of plain timestamps, for plain calls: 609 instructions of a call that is
//! admitted and 759 of one that is refused. By the functions of `Log::decide` it is 807 and 868,
//! and with the ring's position and bounds written by `Timestamps` 3 % more than here
//! (`--bench instructions`).

use super::{Bounds, Timestamps, units, wrapped};
use crate::{
    policy::{Policy, Tier},
    request::{PlainAnswer, PlainNumbers, PlainTimes},
    time::Timestamp,
};

impl Timestamps {
    /// Takes one unit of a window, or refuses it.
    #[inline(never)]
    pub(in super::super) fn take_one<A: PlainAnswer>(
        &mut self,
        now: Timestamp,
        policy: &Policy,
        expires: Timestamp,
    ) -> Option<A> {
        let [tier] = policy.tiers() else { return None };
        // Another policy counts here as well, or this one has not decided yet.
        if self.capacity() != tier.threshold() as usize {
            return None;
        }
        let times = match self {
            Self::Inline { bounds, buffer, .. } => {
                let mut ring = (bounds.first(), bounds.count());
                let times = take_one(&mut ring, buffer, now, tier, expires)?;
                *bounds = Bounds::new(ring.0, ring.1, tier.threshold() as usize);
                times
            }
            Self::Heap { first, count, buffer, .. } => {
                let mut ring = (*first as usize, *count as usize);
                let times = take_one(&mut ring, buffer, now, tier, expires)?;
                (*first, *count) = (units(ring.0), units(ring.1));
                times
            }
        };
        match times.refusal() {
            None => Some(A::taken(times.reset(), || self.numbers(now, tier))),
            Some(wait) => A::refused_unit(policy, 1, wait, times.reset()),
        }
    }

    /// Returns the numbers of a unit that was taken just now.
    fn numbers(&self, now: Timestamp, tier: &Tier) -> PlainNumbers {
        let (ring, period) = (self.ring(), tier.micros());
        let expired = ring.expired(period, now);
        let remaining = tier.threshold().saturating_sub(units(ring.len() - expired));
        let oldest = ring.get(expired).unwrap_or(now);
        let (wait, charged) = (oldest + period - now, self.generation().charged());
        PlainNumbers { remaining, wait, charged }
    }
}

/// Takes one unit if fewer than the threshold are younger than the period: only one slot is
/// written.
#[inline]
fn take_one(
    (first, count): &mut (usize, usize),
    buffer: &mut [Timestamp],
    now: Timestamp,
    tier: &Tier,
    expires: Timestamp,
) -> Option<PlainTimes> {
    let (len, period) = (buffer.len(), tier.micros());
    let is_full = *count >= tier.threshold() as usize;
    let mut free = *first;
    if *count > 0 {
        let at = wrapped(*first + *count - 1, len);
        let newest = *buffer.get(at)?;
        // A clock that stepped back, or a policy of another period that has written.
        if newest > now || newest + period != expires {
            return None;
        }
        if is_full {
            let oldest = *buffer.get(*first)?;
            if oldest + period > now {
                return Some(PlainTimes::refused(oldest + period - now, newest + period - now));
            }
        }
        free = if at + 1 == len { 0 } else { at + 1 };
    }
    // The buffer has to grow.
    if !is_full && *count == len {
        return None;
    }
    *buffer.get_mut(free)? = now;
    if is_full {
        *first = wrapped(*first + 1, len);
    } else {
        *count += 1;
    }
    Some(PlainTimes::admitted(period))
}
