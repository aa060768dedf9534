//! A call with more to say than its policy and its caller.

use std::{borrow::Cow, fmt, time::Duration};

use super::{
    Limiter,
    course::{Asked, judge},
    unavailable,
};
use crate::{
    caller::Caller,
    decision::{self, Decision},
    error::RateLimitError,
    key,
    overrides::Enforcement,
    policy::Policy,
    request::{OnStoreError, Op, Outcome, Request},
};

/// A call that is to be decided; made by [`Limiter::request`].
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Policy};
///
/// const EXPORT: Policy = Policy::sliding_window("export", Duration::from_millis(50), 10);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
/// let limiter = Limiter::in_memory();
/// limiter.request(&EXPORT, "alice").cost(10).request_id("job-7").check().await?;
/// // The same job, tried again: charged once.
/// limiter.request(&EXPORT, "alice").cost(10).request_id("job-7").check().await?;
/// // Another one: waits for its place.
/// let more = limiter.request(&EXPORT, "alice").cost(10).max_wait(Duration::from_secs(1));
/// more.check().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a request does nothing until it is checked"]
pub struct CheckRequest<'a> {
    limiter: &'a Limiter,
    policy: &'a Policy,
    caller: Caller,
    cost: u32,
    id: Option<u64>,
    terms: Terms,
    observed_as: Option<Caller>,
}

/// What a call makes of a refusal, and of a store that cannot decide.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) max_wait: Duration,
    /// The limiter's own setting, if not said otherwise.
    pub(crate) on_store_error: Option<OnStoreError>,
}

impl Terms {
    pub(super) fn without_wait(self) -> Self {
        Self { max_wait: Duration::ZERO, ..self }
    }

    /// The terms of a call that has waited so long.
    pub(super) fn less(self, waited: Duration) -> Self {
        Self { max_wait: self.max_wait.saturating_sub(waited), ..self }
    }
}

impl<'a> CheckRequest<'a> {
    pub(super) fn new(limiter: &'a Limiter, policy: &'a Policy, caller: Caller) -> Self {
        Self {
            limiter,
            policy,
            caller,
            cost: 1,
            id: None,
            terms: Terms::default(),
            observed_as: None,
        }
    }

    /// The units that the call takes, all or none; 1 by default. A call of 0 units is admitted and
    /// takes nothing.
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// Has observers take the answer for `caller`'s.
    #[cfg(feature = "tower")]
    pub(crate) fn observed_as(mut self, caller: Caller) -> Self {
        self.observed_as = Some(caller);
        self
    }

    /// Names the call, so that deciding it again charges it once: an admitted call that is checked
    /// again with the same id within its longest period is admitted again for free.
    ///
    /// Ids are those of one caller under one policy. They need a
    /// [sliding window](crate::Algorithm::SlidingWindow), which alone remembers each call, without
    /// [`count_rejected`](Policy::count_rejected).
    ///
    /// Take ids from the program, never from the client: with an id that it chooses, such as a header
    /// `idempotency-key`, a client repeats one id and is charged for one call however many it makes.
    pub fn request_id(mut self, id: impl fmt::Display) -> Self {
        self.id = Some(key::digest(&id));
        self
    }

    /// Waits up to this long for a place instead of being refused at once.
    ///
    /// The call sleeps until the limit would admit it, and asks again. It is refused at once when
    /// that would take longer than is left. Dropping the future while it waits costs nothing.
    ///
    /// Under [`count_rejected`](Policy::count_rejected) one refusal is recorded, when the call gives
    /// up. [Overrides](crate::Overrides) reach a waiting call at once.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.terms.max_wait = max_wait;
        self
    }

    /// What the call gets when the store cannot decide it in time; the limiter's own setting if
    /// not said otherwise.
    pub fn on_store_error(mut self, on_store_error: OnStoreError) -> Self {
        self.terms.on_store_error = Some(on_store_error);
        self
    }

    /// Decides the call.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`].
    pub async fn check(self) -> Result<Decision, RateLimitError> {
        let Self { limiter, policy, caller, cost, id, terms, observed_as } = self;
        let observed_as = observed_as.as_ref();
        let declared = Enforcement::On;
        let asked = Asked { policy, cost, id, declared, is_annotated: false, observed_as };
        limiter.decide_call(asked, false, Cow::Owned(caller), terms).await
    }

    /// The answer that [`check`](Self::check) would give now, without waiting; nothing is consumed.
    /// With a cost of 0 it reports what is left, and is never refused. What [`Overrides`](crate::Overrides) say of
    /// enforcement does not show in it: it tells what the limit counts.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`].
    pub async fn peek(self) -> Result<Decision, RateLimitError> {
        let Self { limiter, policy: written, caller, cost, id, terms, .. } = self;
        let effective = limiter.overrides().effective(written, Enforcement::On);
        let policy = effective.policy();
        let request = Request { policy, written, op: Op::Peek, cost, id };
        match judge(request) {
            // Of nothing, nothing is left.
            Err(RateLimitError::TooLarge(_)) if cost == 0 => {
                return Ok(decision::passed(policy, &Outcome::unlimited(request)));
            }
            judged => judged?,
        }
        let outcome = limiter.decide(&caller, request, terms).await;
        let outcome = unavailable(policy, outcome)?;
        Ok(decision::decide(policy, &outcome)?)
    }
}

/// Names neither the caller nor the id.
impl fmt::Debug for CheckRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckRequest")
            .field("policy", &self.policy)
            .field("cost", &self.cost)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
