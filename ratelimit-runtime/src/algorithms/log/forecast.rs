//! The numbers of a log during a decision, alike for single units and for entries.

use super::{entries::CallEntries, request_ids::NamedCharge, units::Ring};
use crate::{
    policy::Tier,
    time::{Micros, Timestamp},
};

/// The log during a decision, with the call's own units as if they were recorded.
pub(super) struct Forecast<'a> {
    pub(super) log: View<'a>,
    /// The time that the call is decided for.
    pub(super) at: Timestamp,
    /// The units that the call records.
    pub(super) own: u32,
    /// The earlier charge under the same request id.
    pub(super) charged: Option<&'a NamedCharge>,
    pub(super) admitted: bool,
    /// The time until an entry can be added; 0 unless the log has as many as it may.
    pub(super) full: Micros,
}

/// The two forms of a log, to read.
#[derive(Clone, Copy)]
pub(super) enum View<'a> {
    Units(Ring<'a>),
    Entries(&'a CallEntries),
}

impl View<'_> {
    pub(super) fn newest(self, at: Timestamp) -> Option<Timestamp> {
        match self {
            // A unit of the future, after a clock has stepped back, counts from now on.
            Self::Units(ring) => ring.newest(0).map(|newest| newest.min(at)),
            Self::Entries(entries) => entries.newest(),
        }
    }

    /// Returns the units that are younger than the period.
    fn live(self, period: Micros, at: Timestamp) -> u64 {
        match self {
            Self::Units(ring) => (ring.len() - ring.expired(period, at)) as u64,
            Self::Entries(entries) => entries.live(period, at),
        }
    }

    /// Returns the time of the call with which so many of the live units have left, or `None` if
    /// there are fewer.
    fn leaving(self, period: Micros, at: Timestamp, units: u64) -> Option<Timestamp> {
        match self {
            Self::Units(ring) => {
                let index = ring.expired(period, at) as u64 + units - 1;
                ring.get(usize::try_from(index).ok()?).map(|stamp| stamp.min(at))
            }
            Self::Entries(entries) => entries.leaving(period, at, units),
        }
    }
}

impl Forecast<'_> {
    /// Returns the units that the tier has left.
    pub(super) fn left(&self, tier: Tier) -> u32 {
        let live = self.log.live(tier.micros(), self.at);
        let left = u64::from(tier.threshold()).saturating_sub(live + u64::from(self.own));
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// Returns the time until the tier has room for this many units, 0 for more than its threshold.
    pub(super) fn wait(&self, tier: Tier, units: u32) -> Micros {
        let Some(most) = tier.threshold().checked_sub(units) else { return Micros::ZERO };
        let (period, most) = (tier.micros(), u64::from(most));
        let live = self.log.live(period, self.at);
        let Some(excess) = (live + u64::from(self.own)).checked_sub(most).filter(|it| *it > 0)
        else {
            return Micros::ZERO;
        };
        // Once the entries do not suffice, the call's own leave last.
        let stamp = self.log.leaving(period, self.at, excess);
        stamp.unwrap_or(self.at) + period - self.at
    }
}
