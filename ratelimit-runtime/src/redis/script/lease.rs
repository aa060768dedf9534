//! The command that gives units on lease back and takes others.

use redis::Value;

use super::{Arguments, Attempt, MILLISECOND, Number, Numbers, SCRIPTS, ScriptOp};
use crate::{
    error::{Replied, UnavailableReason},
    key::Key,
    policy::{Policy, StateKind},
    redis::transport::{Command, next_echo},
    request::{Mark, Outcome, next_id},
    time::{Micros, Timestamp},
};

/// The suffix of the key of those that ask for leases, beside the key of their caller.
const ASKING: &str = "l";

/// The numbers by which a lease is found on Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseMark {
    /// The time at which it was taken.
    pub(crate) at: Timestamp,
    /// The birth of the state.
    pub(crate) birth: u64,
    /// The id of its entry in a log, otherwise 0.
    pub(crate) id: u64,
}

/// A lease that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndedLease {
    pub(crate) mark: LeaseMark,
    pub(crate) units: u32,
    /// The units that calls took, and the time from the request of the lease until the last of
    /// them.
    pub(crate) used: u32,
    pub(crate) age: Micros,
}

/// The units that a process gives back, and those that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    /// 0 to give back alone.
    pub(crate) want: u32,
    /// The units that the calls of the process ask for in the length of a lease.
    pub(crate) demand: u64,
    pub(crate) returned: Option<EndedLease>,
}

/// The reply to a request for units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The units on lease, at most as many as were wanted.
    pub(crate) units: u32,
    /// The time from the request for which they may be used.
    pub(crate) allowed: Micros,
    /// The tier with the fewest units left; without any units on lease, the one with the longest
    /// wait.
    pub(crate) tier: u8,
    /// The units that this tier has left, without those on lease.
    pub(crate) remaining: u32,
    /// The time until there are more of them.
    pub(crate) wait: Micros,
    /// The time until the full quota is back.
    pub(crate) reset: Micros,
    pub(crate) mark: LeaseMark,
}

impl Grant {
    /// Returns the outcome of a call that takes the units, or of one unit that is refused.
    pub(crate) fn outcome(self) -> Outcome {
        let Self { units, tier, remaining, wait, reset, .. } = self;
        if units > 0 {
            Outcome { tier, ..Outcome::admitted(remaining, wait, reset, Mark::NONE) }
        } else {
            Outcome { tier, remaining, ..Outcome::refused(wait, reset) }
        }
    }
}

/// One exchange of leases. It is not repeated: a second one would take other units.
pub(crate) struct LeaseCall<'a> {
    pub(crate) key: &'a Key,
    policy: &'a Policy,
    process: u64,
    request: LeaseRequest,
    /// The id of the entry of the new lease, and of the exchange itself.
    id: u64,
}

impl<'a> LeaseCall<'a> {
    /// Returns the exchange of the task with this number.
    pub(crate) fn new(
        key: &'a Key,
        policy: &'a Policy,
        process: u64,
        request: LeaseRequest,
    ) -> Self {
        let id = match policy.state() {
            StateKind::SlidingWindow => entry_id(next_id()),
            _ => next_echo(),
        };
        Self { key, policy, process, request, id }
    }

    /// Builds the command of an attempt.
    pub(crate) fn command(&self, attempt: Attempt) -> Command {
        let Self { key, policy, process, request, id } = *self;
        let LeaseRequest { want, demand, returned } = request;
        let script = &SCRIPTS[policy.state() as usize];
        let mut command = script.lease.start(attempt, &[key.as_bytes(), &key.companion(ASKING)]);
        let length = policy.lease_micros().unwrap_or(Micros::new(MILLISECOND));
        command.arg(process).arg(want).arg(length.get()).arg(demand);
        let EndedLease { mark, units, used, age } = returned.unwrap_or_default();
        command.arg(units).arg(used).arg(age.get());
        command.arg(mark.at.get()).arg(mark.birth).arg(mark.id);
        let take = Arguments { cost: want.into(), id, ..Arguments::of(ScriptOp::Take) };
        script.push(&mut command, take, policy);
        Command::echoed(command, id)
    }

    /// Reads the reply: nothing if no units were wanted.
    pub(crate) fn decode(&self, reply: &Value) -> Replied<Option<Grant>> {
        // Without wanted units, only the arrival of the reply matters.
        if self.request.want == 0 {
            return Ok(None);
        }
        let grant = || {
            let reply = Numbers::read(reply)?;
            let number = |name| reply.number(name, None);
            let units = u32::try_from(number(Number::Units)?).ok()?;
            let tier = u8::try_from(number(Number::Tier)?).ok()?;
            let is_possible = units <= self.request.want;
            self.policy.tiers().get(usize::from(tier)).filter(|_| is_possible)?;
            let (birth, id) = (number(Number::Birth)?, number(Number::Entry)?);
            Some(Grant {
                units,
                allowed: Micros::new(number(Number::Allowed)?),
                tier,
                remaining: u32::try_from(number(Number::Remaining)?).ok()?,
                wait: Micros::new(number(Number::Wait)?),
                reset: Micros::new(number(Number::Reset)?),
                mark: LeaseMark { at: Timestamp::new(number(Number::At)?), birth, id },
            })
        };
        grant().map(Some).ok_or(UnavailableReason::StoreError)
    }
}

/// Returns the id of an entry of a log: a multiple of 4, below the ids of entries that belong to no
/// call. The three ids after it are those of its companions.
pub(super) fn entry_id(id: u64) -> u64 {
    4 + 4 * (id % 22_499_999_900)
}
