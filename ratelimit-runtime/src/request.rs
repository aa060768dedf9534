//! The request of a check to a store, and the store's outcome.
//!
//! Floor 2: plain data, imports `policy` and `time`. Every room above may import it.

mod id;
mod mark;
mod place;
mod plain_outcome;

pub(crate) use self::{
    id::next_id,
    mark::{Charged, EntryMark, Mark},
    place::{LinePlace, Standing},
    plain_outcome::{Answered, PlainAnswer, PlainNumbers, PlainOutcome, PlainTimes},
};

pub(crate) use crate::policy::OnStoreError;
use crate::{
    calendar::Zone,
    policy::{Policy, PolicyName, StateKind, Tier},
    time::{Micros, Timestamp},
};

/// The store's part of a check.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) policy: &'a Policy,
    /// The policy in the source code, which differs from `policy` if an override applies. The units
    /// that it counts are kept meanwhile, and are complete when the override is removed.
    pub(crate) written: &'a Policy,
    pub(crate) op: Op,
    /// The units of the call; 0 only for a peek, which then reports the units left.
    pub(crate) cost: u32,
    /// The request id: a repeated check under it is admitted without a charge.
    pub(crate) id: Option<u64>,
    /// The time that the call may wait for its turn; 0 for a call that is decided at once.
    pub(crate) max_wait: Micros,
    /// The maximum number of turns that lie ahead. A call that would be one more is refused.
    pub(crate) max_line: u32,
}

impl<'a> Request<'a> {
    /// Returns a request without an override, an id and a wait.
    pub(crate) const fn new(policy: &'a Policy, op: Op, cost: u32) -> Self {
        let max_wait = Micros::ZERO;
        Self { policy, written: policy, op, cost, id: None, max_wait, max_line: 0 }
    }

    /// Returns a copy for a function that is rarely called: otherwise all requests would be written
    /// to memory for it. No override changes the policy.
    #[inline(always)]
    pub(crate) fn apart(self) -> Self {
        Self { written: self.policy, ..self }
    }

    /// Returns `true` if units are taken at once, under a policy that no override changes.
    #[inline]
    pub(crate) fn takes_at_once(&self) -> bool {
        self.cost > 0
            && self.op == Op::Take
            && self.max_wait == Micros::ZERO
            && std::ptr::eq(self.policy, self.written)
    }

    /// Returns `true` if the call holds a permit once it is admitted.
    pub(crate) fn takes_permit(&self) -> bool {
        self.policy.get_concurrency().is_some() && self.op == Op::Take
    }
}

/// The effect of a request on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Reports the outcome that a take would have, and changes nothing.
    Peek,
    /// Takes the cost if every tier has room for it.
    Take,
}

/// A change of the units that an admitted call took. A refund settles them to 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settle {
    pub(crate) state: StateKind,
    /// The units that the call took.
    pub(crate) from: u32,
    /// The units that it takes instead.
    pub(crate) to: u32,
    /// The [`Outcome::mark`] of the call.
    pub(crate) mark: Mark,
    /// Its [`Request::id`].
    pub(crate) id: Option<u64>,
    /// The number of the settle. A store that has applied it does nothing.
    pub(crate) number: u64,
    /// The period and the threshold of the decision's tier, and the burst of its policy.
    pub(crate) period: Micros,
    pub(crate) threshold: u32,
    pub(crate) burst: Option<u32>,
    /// The zone of windows of the calendar.
    pub(crate) zone: Option<Zone>,
    /// The time from the charge until the full quota is back, without other calls.
    pub(crate) reset_after: Micros,
    /// `true` if the call takes nothing after all, and a block that began since for lack of its
    /// units is to be lifted.
    pub(crate) lifts_block: bool,
}

impl Settle {
    /// Returns the units that the call no longer takes; 0 if it takes more.
    pub(crate) fn lowered(self) -> u32 {
        self.from.saturating_sub(self.to)
    }

    /// Returns the units that the call takes beyond those that it took; 0 if it takes fewer.
    pub(crate) fn raised(self) -> u32 {
        self.to.saturating_sub(self.from)
    }

    /// Returns the time before which the charge's state cannot have expired. If it is gone or
    /// another one before then, the caller was reset.
    pub(crate) fn ends(self) -> Timestamp {
        let lasts = match self.state {
            // Others may have settled: only the call's own tokens are certain to have been missing.
            StateKind::TokenBucket => {
                let bucket = self.tier().bucket(self.burst.unwrap_or(self.threshold));
                bucket.until(0, bucket.token.saturating_mul(self.from.into()))
            }
            _ => self.reset_after,
        };
        self.mark.at + lasts
    }

    /// Returns the time for which the settle may be repeated: the longest period.
    pub(crate) fn lasts(self) -> Micros {
        self.period.max(self.reset_after)
    }

    /// Returns the decision's tier; that of a log has the longest period, for which it keeps calls
    /// and so counts them in each tier. Most settles do without it, and its fractions take
    /// divisions.
    pub(crate) fn tier(self) -> Tier {
        let period = if self.state.names_charges() { self.lasts() } else { self.period };
        Tier::new(period.into(), self.threshold)
    }

    /// Returns a policy of the decision's tier alone. What exceeds a charge that has expired counts
    /// under it.
    pub(crate) fn policy(self, name: PolicyName) -> Policy {
        let Self { state, burst, zone, .. } = self;
        let policy = state.policy(name.text(), self.tier());
        let policy = zone.map_or(policy, |zone| policy.zone(zone.name()));
        burst.map_or(policy, |burst| policy.burst(burst))
    }

    /// Returns the settle of a call under a policy of one tier.
    #[cfg(test)]
    pub(crate) fn of_one_tier(policy: &Policy, from: u32, to: u32, mark: Mark) -> Self {
        let place = LinePlace { policy, cost: from, mark, id: None };
        Self { to, zone: policy.get_zone().and_then(Zone::new), ..place.leave() }
    }
}

/// The numbers of a store's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) admitted: bool,
    /// The index of the tier that the numbers are about. Refused: the one with the longest wait,
    /// after the refusal is recorded. Admitted: the one with the fewest units left, of several the
    /// one with the longest wait.
    pub(crate) tier: u8,
    /// The units left in that tier.
    pub(crate) remaining: u32,
    /// Refused: the time until the same call is admitted. Admitted: the time until more than
    /// `remaining` units are left.
    pub(crate) wait: Micros,
    /// Refused: the time until `remaining + 1` units are left, which for a cost of no more is
    /// `wait`; of a blocked caller, the rest of the block.
    pub(crate) more: Micros,
    /// Admitted: the time from now until the call may pass; 0 if it passes at once. The other
    /// numbers are those of this instant, also [`Mark::at`].
    pub(crate) turn: Micros,
    /// The time until the full quota is back.
    pub(crate) reset: Micros,
    /// The time from now until the state in memory decides like an absent one.
    pub(crate) lasts: Micros,
    pub(crate) mark: Mark,
    pub(crate) decided_by: DecidedBy,
    pub(crate) kind: OutcomeKind,
}

/// The usage of a policy by one caller.
pub(crate) struct CallerUsage {
    /// The outcomes of looks at each tier by itself.
    pub(crate) tiers: Vec<Outcome>,
    /// The permits that are free.
    pub(crate) free: u32,
    /// The time for which the caller is still blocked.
    pub(crate) blocked: Micros,
}

/// The kind of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutcomeKind {
    Plain,
    /// The call was refused because no permit was free. The numbers have no meaning then, except
    /// `more`: the time after which a waiting call asks Redis again.
    Busy,
    /// The call was refused by a block, a pause or a line, whatever room the tiers have. A refusal
    /// by the tiers that begins a block is plain.
    Gated,
    /// The call was admitted before, under its request id, and took nothing now.
    Repeated,
}

/// The permit that a call asks Redis for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitRequest {
    pub(crate) id: u64,
    /// The claim of the call's process, if the call may wait.
    pub(crate) claim: Option<PermitClaim>,
    /// `true` once a command with the id may be executed.
    pub(crate) is_sent: bool,
}

/// The number of a limiter whose call waits for a permit, and of the permits that it has under the
/// key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitClaim {
    pub(crate) process: u64,
    pub(crate) held: u32,
}

/// The part of a limiter that decided a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The limiter's store, in memory or on Redis.
    Store,
    /// The deny cache: this process repeated a refusal of Redis.
    DenyCache,
    /// Units that this process has taken from Redis ahead: [`Policy::lease`].
    Lease,
    /// The memory store of this process, in place of Redis: [`OnStoreError::Local`].
    Fallback,
    /// No store: Redis failed, or memory was full, and the call passed uncounted
    /// ([`OnStoreError::Allow`]) or was unavailable ([`OnStoreError::Deny`]). Also a call while
    /// [enforcement](crate::Enforcement) is off.
    Nobody,
    /// The limiter itself: the policy is invalid, or can never admit the call.
    Limiter,
}

impl DecidedBy {
    /// All variants.
    pub(crate) const ALL: &'static [Self] =
        &[Self::Store, Self::DenyCache, Self::Lease, Self::Fallback, Self::Nobody, Self::Limiter];

    /// Returns `true` if a store counted the call.
    pub(crate) fn counts(self) -> bool {
        !matches!(self, Self::Nobody | Self::Limiter)
    }

    /// Returns the value of the field `decided_by` in events and metrics; `none` for
    /// [`Nobody`](Self::Nobody).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny_cache",
            Self::Lease => "lease",
            Self::Fallback => "fallback",
            Self::Nobody => "none",
            Self::Limiter => "limiter",
        }
    }
}

impl Outcome {
    /// Returns `true` if the call was refused because no permit was free.
    pub(crate) fn is_busy(&self) -> bool {
        self.kind == OutcomeKind::Busy
    }

    /// Returns `true` if the call was refused for another reason than that its tiers have no room.
    pub(crate) fn is_refused_otherwise(&self) -> bool {
        matches!(self.kind, OutcomeKind::Busy | OutcomeKind::Gated)
    }

    /// Returns the admission of a call by the only tier, whose full quota is back after `reset`.
    #[inline]
    pub(crate) fn admitted(remaining: u32, wait: Micros, reset: Micros, mark: Mark) -> Self {
        let (admitted, more) = (true, Micros::ZERO);
        Self { admitted, remaining, more, mark, ..Self::refused(wait, reset) }
    }

    /// Returns the refusal of a call that finds no permit free.
    pub(crate) fn busy() -> Self {
        Self { kind: OutcomeKind::Busy, ..Self::refused(Micros::ZERO, Micros::ZERO) }
    }

    /// Returns the refusal of one unit by the only tier, which has none left.
    #[inline]
    pub(crate) fn refused(wait: Micros, reset: Micros) -> Self {
        Self {
            admitted: false,
            tier: 0,
            remaining: 0,
            wait,
            more: wait,
            turn: Micros::ZERO,
            reset,
            lasts: reset,
            mark: Mark::NONE,
            decided_by: DecidedBy::Store,
            kind: OutcomeKind::Plain,
        }
    }

    /// A call that passes without having been counted.
    pub(crate) fn unlimited(request: Request<'_>) -> Self {
        let tiers = (0..).zip(request.policy.tiers());
        let least = tiers.min_by_key(|(_, tier)| tier.threshold()).map(|(index, _)| index);
        let tier = least.unwrap_or_default();
        let quota = request.policy.quota_of(request.policy.tier_of(tier));
        let remaining = quota.saturating_sub(request.cost);
        let passed = Self::admitted(remaining, Micros::ZERO, Micros::ZERO, Mark::NONE);
        Self { tier, decided_by: DecidedBy::Nobody, ..passed }
    }
}
