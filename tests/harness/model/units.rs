//! The log of a sliding window while all calls take one unit.

use super::{By, Charge};

/// The most units that a log on Redis drops at once.
pub(super) const AT_ONCE: usize = 500;

/// The largest threshold of such a log.
pub(super) const MOST: u32 = 100_000;

/// The recorded units, oldest first. The newest are kept: as many, and for as long, as any policy
/// so far needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Units {
    pub(super) generation: u64,
    pub(super) charges: Vec<Charge>,
    pub(super) capacity: u64,
    pub(super) period: u64,
    /// `true` if all units were given back.
    pub(super) was_emptied: bool,
    /// The unit of the period.
    pub(super) tick: u64,
}

impl Units {
    pub(super) fn by(&self) -> By {
        if self.tick > 1 { By::Instant } else { By::Number }
    }

    pub(super) fn record(&mut self, charge: Charge, by: By) {
        // Redis drops expired units, and a clock that steps back does not restore them; unless they
        // are many at once.
        if by == By::Instant && self.charges.len() <= AT_ONCE {
            self.charges.retain(|it| it.at + self.period > charge.at);
        }
        if charge.cost == 0 {
            return;
        }
        self.charges.push(charge);
        self.charges.sort_by_key(|it| it.at);
        let most = usize::try_from(self.capacity).expect("a threshold");
        self.charges.drain(..self.charges.len().saturating_sub(most));
    }

    /// Gives a unit back.
    pub(super) fn remove(&mut self, charge: Charge, by: By) {
        let is_it = |it: &Charge| match by {
            By::Instant => it.number == charge.number,
            // Units of one instant are equal.
            By::Number => it.at == charge.at && self.generation == charge.life,
        };
        let own = self.charges.iter().position(|it| it.number == charge.number);
        if let Some(index) = own.or_else(|| self.charges.iter().position(is_it)) {
            self.charges.remove(index);
        }
    }
}
