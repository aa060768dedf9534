//! The log of a sliding window.

use super::{By, Charge};

/// The most units that a log on Redis drops at once.
pub(super) const AT_ONCE: u64 = 500;

/// The recorded units, oldest first. The newest are kept: as many, and for as long, as any policy so far
/// needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub(super) generation: u64,
    pub(super) charges: Vec<Charge>,
    pub(super) units: u64,
    pub(super) period: u64,
    /// `true` if all units were given back.
    pub(super) was_emptied: bool,
    /// The unit of the period.
    pub(super) tick: u64,
}

impl Log {
    pub(super) fn record(&mut self, charge: Charge, by: By) {
        // Redis drops expired units, and a clock that steps back does not restore them; unless they
        // are many at once.
        if by == By::Instant
            && self.charges.iter().map(|it| u64::from(it.cost)).sum::<u64>() <= AT_ONCE
        {
            self.charges.retain(|it| it.at + self.period > charge.at);
        }
        self.charges.push(charge);
        self.charges.sort_by_key(|it| it.at);
        let mut room = u32::try_from(self.units).expect("a threshold");
        for it in self.charges.iter_mut().rev() {
            it.cost = room.min(it.cost);
            room -= it.cost;
        }
        self.charges.retain(|it| it.cost > 0);
    }

    pub(super) fn lower(&mut self, charge: Charge, to: u32, by: By) {
        let is_it = |it: &Charge| match charge.id {
            Some(_) => it.id == charge.id && it.at == charge.at && it.life == charge.life,
            None => it.number == charge.number,
        };
        let lowered = charge.cost - to;
        let mut given = 0;
        if let Some(it) = self.charges.iter_mut().find(|it| is_it(it)) {
            // Several decisions of one id are settled once.
            if it.settled {
                return;
            }
            // On Redis, the units that have left the log were the first, and the last are given back.
            let gone = if by == By::Instant { charge.cost.saturating_sub(it.cost) } else { 0 };
            given = match by {
                By::Instant => it.cost - to.saturating_sub(gone).min(it.cost),
                By::Number => lowered.min(it.cost),
            };
            it.cost -= given;
            it.settled = charge.id.is_some();
        }
        self.charges.retain(|it| it.cost > 0);
        if by == By::Number && charge.id.is_none() && self.generation == charge.life {
            // Units of one instant are equal: a refund takes another for one that has left the log.
            let mut left = lowered - given;
            for it in self.charges.iter_mut().rev().filter(|it| it.at == charge.at) {
                let given = left.min(it.cost);
                (it.cost, left) = (it.cost - given, left - given);
            }
            self.charges.retain(|it| it.cost > 0);
        }
    }
}
