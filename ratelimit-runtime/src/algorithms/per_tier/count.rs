//! The count of one tier, as each algorithm has it.

use crate::{
    policy::{Policy, Tier},
    time::{Micros, Timestamp},
};

/// Units of a charge that are given back.
#[derive(Clone, Copy)]
pub(crate) struct GivenBack {
    pub(crate) units: u32,
    /// The time of the charge.
    pub(crate) at: Timestamp,
    /// The units that each window keeps at least, of those that it has.
    pub(crate) least: u32,
}

/// The count of one tier.
pub(crate) trait Count: Copy {
    /// The count and the time of its last write, in at most 28 bytes.
    type Packed: Copy + Default;
    /// `true` if refused calls are counted under policies with `count_rejected`. If not, a refusal
    /// is no write either.
    const COUNTS_REFUSED: bool;

    /// Returns the count and the time of its last write, or `None` if it was never written.
    fn unpack(packed: Self::Packed) -> Option<(Timestamp, Self)>;

    fn pack(self, written: Timestamp) -> Self::Packed;

    /// Returns a count without a unit in it.
    fn new(policy: &Policy, tier: Tier, now: Timestamp) -> Self;

    /// Returns `true` if both count the same units.
    fn is_same(&self, other: &Self) -> bool;

    /// Returns this new count with the units that the other counts record for its period, rounded
    /// up. It knows which of their charges these contain.
    fn carried(self, others: &[Self], written: Timestamp, now: Timestamp) -> Self;

    /// Moves the count to `now`. Returns `true` if the clock had stepped back behind it.
    fn advance(&mut self, written: Timestamp, now: Timestamp) -> bool;

    /// Moves the count that has advanced to the window of the policy's tier, if it is one of the
    /// calendar.
    #[inline]
    fn date(&mut self, _: &Policy, _: &Tier, _: Timestamp) {}

    /// Returns `true` if counts that have advanced are as those of a new state.
    fn are_renewed(_: &[Self]) -> bool {
        false
    }

    /// Returns the units of the tier that calls under the policy leave. Windows have none: their
    /// thresholds are lower.
    fn kept(_: &Policy, _: &Tier) -> u32 {
        0
    }

    /// Returns `true` if this many units can be taken; at least one.
    fn has_room(&self, now: Timestamp, tier: &Tier, units: u32) -> bool;

    /// Returns the units that the tier has left.
    fn left(&self, now: Timestamp, tier: &Tier) -> u32;

    /// Returns the time until this many units are left, or as many as ever.
    fn until(&self, now: Timestamp, tier: &Tier, units: u32) -> Micros;

    /// Takes units for the tier, or records those of a refused call. Returns the units that this is
    /// in the counts of other policies.
    fn take(&mut self, tier: &Tier, units: u32) -> u32;

    /// Takes units that a call under another policy has taken. A call that was admitted is a charge
    /// of this time, and may be given back.
    fn follow(&mut self, units: u32, _charged: Option<Timestamp>) {
        self.raise(units);
    }

    /// Returns the time from which on the count has all units of each charge, 0 if it has from its
    /// first one on. Only of buckets: a charge is in a window with all its units, or not at all.
    fn since(&self) -> Timestamp {
        Timestamp::default()
    }

    /// Gives back what this count, last written at `written`, contains of a charge. It took over at
    /// most `limit` units of a charge that is earlier than [`since`](Self::since). Returns the
    /// units that it contained.
    fn lower(&mut self, written: Timestamp, charge: GivenBack, limit: u32) -> u32;

    /// Adds units beyond what a call was admitted with, whatever room there is.
    fn raise(&mut self, units: u32);

    /// Returns the time until the count is as if it had never counted.
    fn lasts(&self, now: Timestamp) -> Micros;
}
