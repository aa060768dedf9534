//! The place of a waiting call in its line.

use super::{Mark, Settle, next_id};
use crate::{
    policy::Policy,
    time::{Micros, Timestamp},
};

/// A charge that lies ahead: the place of a waiting call.
///
/// It leaves the line by the settle of its charge at 0 units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinePlace<'a> {
    pub(crate) policy: &'a Policy,
    /// The units that the call takes.
    pub(crate) cost: u32,
    /// The [`Outcome::mark`](super::Outcome::mark) of the call.
    pub(crate) mark: Mark,
    /// Its [`Request::id`](super::Request::id).
    pub(crate) id: Option<u64>,
}

/// The turn of a call whose charge the store still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The [`Mark::at`] of the charge, which differs from the former one if it has moved.
    pub(crate) at: Timestamp,
    /// The time from now until then.
    pub(crate) turn: Micros,
    /// `false` if the place's policy admits the charge only later. Each turn but the first that
    /// lies ahead has room.
    pub(crate) has_room: bool,
}

impl LinePlace<'_> {
    /// Returns the settle by which the call leaves the line.
    pub(crate) fn leave(self) -> Settle {
        let Self { policy, cost, mark, id } = self;
        let tier = policy.tier_of(0);
        Settle {
            state: policy.state(),
            from: cost,
            to: 0,
            mark,
            id,
            number: next_id(),
            period: tier.micros(),
            threshold: tier.threshold(),
            burst: policy.get_burst(),
            zone: None,
            reset_after: policy.longest_period(),
            lifts_block: false,
        }
    }
}
