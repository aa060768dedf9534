//! One unit of a log of plain timestamps, on the straight path.

use super::{Bounds, Timestamps, units, wrapped};
use crate::{
    algorithms::{Detail, Straight},
    policy::Tier,
    request::{Mark, Outcome},
    time::{Micros, Timestamp},
};

impl Timestamps {
    /// Takes one unit of a window, or refuses it.
    #[inline]
    pub(in super::super) fn take_one<D: Detail>(
        &mut self,
        now: Timestamp,
        tier: &Tier,
    ) -> Straight<D> {
        let (period, capacity) = (tier.micros(), tier.threshold() as usize);
        if self.capacity() != capacity {
            return Straight::Skipped;
        }
        let taken = match self {
            Self::Inline { bounds, buffer, .. } => {
                let mut ring = (bounds.first(), bounds.count());
                let taken = take_one(&mut ring, buffer, now, period, capacity);
                *bounds = Bounds::new(ring.0, ring.1, capacity);
                taken
            }
            Self::Heap { first, count, buffer, .. } => {
                let mut ring = (*first as usize, *count as usize);
                let taken = take_one(&mut ring, buffer, now, period, capacity);
                (*first, *count) = (units(ring.0), units(ring.1));
                taken
            }
        };
        match taken {
            Straight::Admitted { lasts, .. } => {
                let detail = D::new(|| self.admission(now, tier));
                Straight::Admitted { lasts, detail }
            }
            Straight::Refused { wait, reset } => Straight::Refused { wait, reset },
            Straight::Skipped => Straight::Skipped,
        }
    }

    /// Returns the outcome of a unit that was taken just now.
    fn admission(&self, now: Timestamp, tier: &Tier) -> Outcome {
        let (ring, period) = (self.ring(), tier.micros());
        let expired = match ring.get(0) {
            Some(oldest) if oldest + period > now => 0,
            _ => ring.partition_point(|stamp| *stamp + period <= now),
        };
        let left = tier.threshold().saturating_sub(units(ring.len() - expired));
        let oldest = ring.get(expired).unwrap_or(now);
        let mark = Mark { at: now, charged: self.generation().charged() };
        Outcome::admitted(left, oldest + period - now, period, mark)
    }
}

/// Takes one unit if fewer than `capacity` are younger than the period: only one slot is written.
#[inline]
fn take_one(
    (first, count): &mut (usize, usize),
    buffer: &mut [Timestamp],
    now: Timestamp,
    period: Micros,
    capacity: usize,
) -> Straight<()> {
    let (len, end) = (buffer.len(), *first + *count);
    let is_full = *count >= capacity;
    let newest = match *count {
        0 => None,
        _ => buffer.get(wrapped(end - 1, len)).copied(),
    };
    // A clock that stepped back, or a buffer that has to grow.
    if newest > Some(now) || (!is_full && *count == len) {
        return Straight::Skipped;
    }
    if is_full
        && let (Some(oldest), Some(newest)) = (buffer.get(*first), newest)
        && *oldest + period > now
    {
        return Straight::Refused { wait: *oldest + period - now, reset: newest + period - now };
    }
    if let Some(slot) = buffer.get_mut(wrapped(end, len)) {
        *slot = now;
    }
    if is_full {
        *first = wrapped(*first + 1, len);
    } else {
        *count += 1;
    }
    Straight::Admitted { lasts: period, detail: () }
}
