//! Decisions: an admitted call's numbers with names and units, and the receipt for a settle.
//!
//! Floor 3: pure, imports plain data below it. `limiter`, `observe` and `web` import it.

mod call_end;
mod limiters;
mod meter;
#[cfg(feature = "tower")]
mod paused;
mod receipt;

use std::{fmt, future::ready, pin::Pin, sync::Arc, time::Duration};

pub use self::meter::Meter;
pub(crate) use self::{
    call_end::{CallEnd, CandidateCharge},
    limiters::{LimiterId, Settler},
    receipt::{Receipt, SettleGuard},
};
use crate::{
    caller::Caller,
    error::RateLimitError,
    key::KeyRef,
    policy::{Flags, Policy, PolicyName, QuotaUnit, plans},
    request::{DecidedBy, Mark, Op, Outcome, OutcomeKind, Request},
    time::Micros,
};

/// The answer to a check.
pub(crate) type Answer<A = Decision> = Result<A, RateLimitError>;

/// The permit of a call in flight. It is free once the last clone of the decision is dropped.
pub(crate) trait Permit: Send + Sync {
    /// Returns `true` while the store counts the call as one in flight.
    fn is_held(&self) -> bool {
        true
    }

    /// Frees the permit already before it is dropped, and waits for the store, at most for its
    /// deadline.
    fn give_back(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }
}

/// An admitted call, and what is left after it.
///
/// With several tiers its numbers are those of the tier with the fewest units left, except
/// [`reset_after`](Self::reset_after).
///
/// The units that the call really took may be known only when it is over. [`settle`](Self::settle)
/// sends them without waiting, as a [`meter`](Self::meter) does.
/// [`Limiter::settle`](crate::Limiter::settle) waits for the store, and
/// [`Limiter::refund`](crate::Limiter::refund) settles at 0. A call is settled once, for all clones
/// of its decision; the first number counts.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Policy};
///
/// const EXPORT: Policy = Policy::sliding_window("export", Duration::from_secs(60), 10);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
/// let limiter = Limiter::in_memory();
/// let decision = limiter.check(&EXPORT, "alice").cost(3).await?;
/// assert_eq!(decision.cost(), 3);
/// assert_eq!(decision.remaining(), 7);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Decision {
    policy: PolicyName,
    period: Micros,
    replenish_after: Micros,
    reset_after: Micros,
    threshold: u32,
    quota: u32,
    remaining: u32,
    flags: Flags,
    is_dry_run: bool,
    decided_by: DecidedBy,
    kind: OutcomeKind,
    receipt: Option<Receipt>,
    permit: Option<Arc<dyn Permit>>,
    /// None for most calls, so that a decision stays small.
    end: Option<Box<CallEnd>>,
}

/// Does not show the caller: identities do not belong in logs.
impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("policy", &self.policy())
            .field("threshold", &self.threshold)
            .field("period", &self.period())
            .field("cost", &self.cost())
            .field("remaining", &self.remaining())
            .field("replenish_after", &self.replenish_after())
            .field("reset_after", &self.reset_after())
            .field("decided_by", &self.decided_by)
            .field("is_dry_run", &self.is_dry_run)
            .finish_non_exhaustive()
    }
}

impl Decision {
    /// Builds the decision of an admitted call that no store counted.
    pub(crate) fn new(policy: &Policy, outcome: Outcome) -> Self {
        Self::with_receipt(policy, outcome, None)
    }

    #[inline]
    fn with_receipt(policy: &Policy, outcome: Outcome, receipt: Option<Receipt>) -> Self {
        let tier = policy.tier_of(outcome.tier);
        Self {
            policy: policy.full_name(),
            period: tier.micros(),
            replenish_after: outcome.wait,
            reset_after: outcome.reset,
            threshold: tier.threshold(),
            quota: policy.quota_of(tier),
            remaining: outcome.remaining,
            flags: policy.flags(),
            is_dry_run: false,
            decided_by: outcome.decided_by,
            kind: outcome.kind,
            receipt,
            permit: None,
            end: None,
        }
    }

    /// Builds the decision of a call that a store counted, with its receipt.
    #[inline]
    pub(crate) fn counted(
        limiter: LimiterId,
        caller: &Caller,
        request: Request<'_>,
        outcome: Outcome,
    ) -> Self {
        let receipt = Receipt::new(limiter, caller, request, outcome);
        Self::with_receipt(request.policy, outcome, Some(receipt))
    }

    /// Builds the decision of a call that is not checked.
    pub(crate) fn of_skipped(policy: &Policy) -> Self {
        let request = Request::new(policy, Op::Peek, 0);
        Self::new(policy, Outcome::unlimited(request))
    }

    /// Marks the decision of a call that passes only because of a dry run.
    pub(crate) fn of_dry_run(self) -> Self {
        Self { is_dry_run: true, ..self }
    }

    /// Returns the numbers of the call, which this policy has decided.
    pub(crate) fn outcome(&self, policy: &Policy) -> Outcome {
        // Tiers have periods of their own.
        let tier = (0..).zip(policy.tiers()).find(|(_, tier)| tier.micros() == self.period);
        let tier = tier.map_or(0, |(index, _)| index);
        let Self { remaining, replenish_after, reset_after, decided_by, kind, .. } = *self;
        let admitted = Outcome::admitted(remaining, replenish_after, reset_after, Mark::NONE);
        Outcome { tier, decided_by, kind, ..admitted }
    }

    /// Returns the decision with the permit of its call, if that holds one.
    #[inline(always)]
    pub(crate) fn holding(self, permit: Option<Arc<dyn Permit>>) -> Self {
        Self { permit, ..self }
    }

    /// Returns the permit that the call holds.
    #[cfg(any(feature = "actix", feature = "tower"))]
    pub(crate) fn into_permit(self) -> Option<Arc<dyn Permit>> {
        self.permit
    }

    /// Frees the permit of a call that does not run after all. It is dropped next.
    pub(crate) async fn give_permit_back(&self) {
        if let Some(permit) = &self.permit {
            permit.give_back().await;
        }
    }

    /// Returns the receipt of the call and the key that it was charged to, unless the call passed
    /// without being counted.
    #[inline]
    pub(crate) fn charge(&self) -> Option<(KeyRef<'_>, &Receipt)> {
        let receipt = self.receipt.as_ref()?;
        let Receipt { state, caller, .. } = receipt;
        let key = KeyRef { state: *state, name: self.policy, caller: caller.parts().into() };
        Some((key, receipt))
    }

    /// Settles the call at the units that it really took, without waiting for the store.
    ///
    /// Fewer units than its [`cost`](Self::cost) give the rest back, and 0 gives back all. More are
    /// a debt: they count from now on, and the next calls wait longer. A call is settled once.
    /// Later settles and refunds of the decision or its clones do nothing.
    ///
    /// In memory the settle takes effect at once. On Redis it is sent at once, from any thread, and
    /// repeated while Redis cannot be reached. The guide has [what becomes of
    /// it](crate::guide::failures). It does nothing if the call is not [counted](Self::is_counted),
    /// or once all clones of the limiter are dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const ROWS: Policy = Policy::fixed_window("rows", Duration::from_secs(60), 1_000);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
    /// # let rows = [0; 40];
    /// let limiter = Limiter::in_memory();
    /// let decision = limiter.check(&ROWS, "alice").cost(100).await?;
    /// decision.settle(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    /// assert_eq!(limiter.peek(&ROWS, "alice").cost(0).await?.remaining(), 960);
    /// # Ok(())
    /// # }
    /// ```
    pub fn settle(&self, actual: u32) {
        self.settle_as(actual, false);
    }

    /// Settles the call without waiting for the store. One that takes nothing after all
    /// [lifts a block](crate::request::Settle::lifts_block).
    #[inline]
    pub(crate) fn settle_as(&self, actual: u32, lifts_block: bool) {
        if let Some(receipt) = &self.receipt
            && let Some(limiter) = receipt.limiter.get()
        {
            limiter.settle(self, actual, lifts_block);
        }
    }

    /// Returns a meter, which starts at 0 and settles the call when its last clone is dropped. Of
    /// several meters and settles the first one to settle counts.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter::new(self.clone())
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy.text()
    }

    /// Returns the name of the plan, if the policy is one of [`Plans`](crate::Plans).
    #[must_use]
    pub fn plan(&self) -> Option<&'static str> {
        plans::plan(self.policy(), self.flags)
    }

    /// Returns the name by which clients and operators know the policy: `api@pro` for a plan.
    pub(crate) fn shown_name(&self) -> &'static str {
        plans::shown(self.policy(), self.flags)
    }

    /// Returns the units that the call took; 0 if it is not [counted](Self::is_counted).
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.receipt.as_ref().map_or(0, |receipt| receipt.cost)
    }

    /// Returns `true` if a store counted units of the call, which a settle or a refund changes.
    ///
    /// It is `false`, and both do nothing, for a [peek](crate::Limiter::peek), for a call that took
    /// 0 units, and for a call that passed without a check, in a dry run, or under
    /// [`OnStoreError::Allow`](crate::OnStoreError::Allow). It is `false` too for a call under a
    /// [policy without a window](crate::Policy::concurrency_limit), which takes a permit and no
    /// units: [`has_permit`](Self::has_permit) returns whether it still has the permit.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.receipt.is_some()
    }

    /// Returns `true` while the call holds a permit of its policy's
    /// [`concurrency`](crate::Policy::concurrency): until the last clone of this decision is
    /// dropped.
    ///
    /// On Redis a permit that is not renewed within its
    /// [timeout](crate::Policy::concurrency_timeout) is lost: the process was cut off from Redis,
    /// or Redis lost its state. It is then `false`, and the call goes on beside the one that may
    /// have taken its place. A permit that finds a free place again is held again. Without
    /// `concurrency`, and in the copies that [`observe`](crate::observe) returns, there is no
    /// permit.
    #[must_use]
    pub fn has_permit(&self) -> bool {
        self.permit.as_ref().is_some_and(|permit| permit.is_held())
    }

    /// Returns the time for which the call has waited for its turn, or for a permit; zero if it was
    /// decided at once. The copies that [`observe`](crate::observe) returns have it too. See
    /// [`Check::max_wait`](crate::Check::max_wait).
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.end.as_ref().map_or(Duration::ZERO, |end| end.waited)
    }

    /// Returns the part of the limiter that admitted the call.
    ///
    /// [`DecidedBy::Fallback`] and [`DecidedBy::Nobody`] show an outage of Redis: other processes
    /// do not know of the call. The deny cache admits nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{DecidedBy, Limiter, OnStoreError, Policy};
    ///
    /// const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 5);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // Nothing listens on this port.
    /// let limiter = Limiter::builder().connect_lazy("redis://127.0.0.1:1/")?;
    /// let decision = limiter.check(&POLICY, "alice").await?;
    /// assert_eq!(decision.decided_by(), DecidedBy::Fallback);
    /// let passed = limiter.check(&POLICY, "alice").on_store_error(OnStoreError::Allow).await?;
    /// assert_eq!(passed.decided_by(), DecidedBy::Nobody);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn decided_by(&self) -> DecidedBy {
        self.decided_by
    }

    /// Returns `true` if the call would have failed, by a refusal or otherwise, without a dry run.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Returns the threshold of the tier with the fewest units left.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Returns the period of the tier with the fewest units left.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period.into()
    }

    /// Returns the units of that tier's full quota, which are available at once after a pause: its
    /// threshold, or the burst of a token bucket.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const PAGES: Policy = Policy::token_bucket("pages", Duration::from_secs(60), 5).burst(10);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
    /// let decision = Limiter::in_memory().check(&PAGES, "alice").await?;
    /// assert_eq!((decision.quota(), decision.remaining()), (10, 9));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn quota(&self) -> u32 {
        self.quota
    }

    /// Returns what a unit of the quota is: [`Policy::quota_unit`](crate::Policy::quota_unit).
    #[must_use]
    pub fn unit(&self) -> QuotaUnit {
        self.flags.unit()
    }

    /// Returns the units that are available at once after this call, at most the
    /// [`quota`](Self::quota).
    ///
    /// Once the call is settled or refunded, by any clone, it is the number after that: a settle at
    /// fewer units adds the difference, and one at more subtracts it. Other calls since the check,
    /// and units that have come back since, are not in it. A [peek](crate::Limiter::peek) knows
    /// them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const TOKENS: Policy = Policy::token_bucket("tokens", Duration::from_secs(60), 1_000);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
    /// let limiter = Limiter::in_memory();
    /// let decision = limiter.check(&TOKENS, "alice").cost(600).await?;
    /// assert_eq!(decision.remaining(), 400);
    /// decision.settle(4);
    /// assert_eq!(decision.remaining(), 996);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> u32 {
        let settled = self.receipt.as_ref().and_then(|it| Some((it.cost, it.settled_at()?)));
        match settled {
            None => self.remaining,
            Some((cost, to)) => {
                let left = self.remaining.saturating_add(cost.saturating_sub(to));
                left.saturating_sub(to.saturating_sub(cost)).min(self.quota)
            }
        }
    }

    /// Returns the time until more than [`remaining`](Self::remaining) units are available, if no
    /// other call comes; 0 once a settle has given back all that was missing. A settle changes it
    /// in no other way.
    #[must_use]
    pub fn replenish_after(&self) -> Duration {
        let left = self.remaining();
        if left > self.remaining && left == self.quota {
            return Duration::ZERO;
        }
        self.replenish_after.into()
    }

    /// Returns the time from the check until the full quota of every tier is back, if no other call
    /// comes. A settle does not change it.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after.into()
    }
}
