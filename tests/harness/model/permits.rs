//! The permits of a caller: its calls in flight.

use std::collections::BTreeMap;

use super::{By, Call};

/// The timeout of a permit, in microseconds.
pub const TIMEOUT: u64 = 30_000_000;

/// The permits of a caller, each with the time from which it is free. One that has expired stays
/// until somebody needs its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Permits(BTreeMap<u64, u64>);

impl Permits {
    /// Returns the permits that are free for this call, at most `most`.
    pub(super) fn free(&mut self, most: u32, call: Call) -> u32 {
        let Call { now, record, permit, .. } = call;
        if record && self.0.len() >= number(most) {
            self.sweep(now);
            // After a clock has stepped back, no permit lasts longer than a timeout.
            self.0.values_mut().filter(|it| **it < u64::MAX).for_each(|it| {
                *it = (*it).min(now + TIMEOUT);
            });
        }
        let held = self.0.iter().filter(|(id, deadline)| **id != permit && **deadline > now);
        most.saturating_sub(u32::try_from(held.count()).expect("few permits"))
    }

    pub(super) fn take(&mut self, Call { now, permit, .. }: Call, by: By) {
        // In memory a permit ends with its process.
        let deadline = if by == By::Number { u64::MAX } else { now + TIMEOUT };
        self.0.insert(permit, deadline);
    }

    pub(super) fn release(&mut self, permit: u64) {
        self.0.remove(&permit);
    }

    /// Renews permits, and returns those whose place others have taken. One that is gone takes a
    /// free place again.
    pub(super) fn renew(&mut self, permits: &[u64], most: u32, now: u64) -> Vec<u64> {
        let mut renewed = 0;
        for permit in permits {
            if let Some(deadline) = self.0.get_mut(permit) {
                renewed += usize::from(*deadline != now + TIMEOUT);
                *deadline = now + TIMEOUT;
            }
        }
        if renewed < permits.len() {
            self.sweep(now);
        }
        let mut lost = Vec::new();
        for permit in permits {
            if self.0.contains_key(permit) {
                continue;
            }
            if self.0.len() < number(most) {
                self.0.insert(*permit, now + TIMEOUT);
            } else {
                lost.push(*permit);
            }
        }
        lost
    }

    fn sweep(&mut self, now: u64) {
        self.0.retain(|_, deadline| *deadline > now);
    }
}

fn number(most: u32) -> usize {
    most.try_into().expect("a number of permits")
}
