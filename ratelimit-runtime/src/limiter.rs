//! The limiter and its one pipeline: policy + caller -> check -> backend -> outcome -> decision.
//!
//! Floor 8: imports every room below, and no framework. `macro_support` and `web` import it.

mod admission;
mod all;
mod backend;
mod builder;
mod call;
mod candidate;
mod check;
mod environment;
mod first;
#[cfg(feature = "metrics")]
mod gauges;
mod handle;
mod installed;
#[cfg(feature = "testing")]
mod isolated;
mod late;
mod notices;
mod owned_call;
mod pause;
mod permit;
mod pipeline;
mod queue;
mod refused;
mod settle;
mod spread;
mod start;
mod usage;
mod wait;
mod warn;
mod warning;

#[cfg(all(feature = "testing", feature = "calendar"))]
pub(crate) use self::isolated::set_calendar;
#[cfg(feature = "testing")]
pub(crate) use self::isolated::{PlannedAnswer, PlannedRefusal, change_planned, run_isolated};
pub(crate) use self::{admission::Admission, all::FunctionCall, call::Call, owned_call::CallKind};
pub use self::{
    admission::PermitGuard,
    all::{JointCheck, admit_all, admitted, decide_all},
    builder::LimiterBuilder,
    check::{Check, CheckFuture},
    handle::Limiter,
    installed::{install, limiter},
    owned_call::Options,
    refused::RefusedCaller,
    start::Started,
    usage::{LimitRef, LimitUsage, TierUsage, UsageError},
    warning::Warning,
};
use std::array;

use self::{all::ask_all, handle::Inner};
use crate::{
    caller::IntoCaller,
    decision::Decision,
    error::{ConnectError, FlushError, RateLimitError, ServerStatus, Unavailable},
    key::KeyRef,
    policy::Policy,
    redis::RedisBackend,
    request::Op,
};

impl Limiter {
    /// Builds a limiter that counts in this process's memory.
    ///
    /// Its clock is tokio's: a test with `start_paused = true` moves it by `tokio::time::advance`.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::builder().in_memory()
    }

    /// Builds a limiter on the store that `url` names: `memory://`,
    /// `redis://[user:password@]host[:port][/db]`, `unix:///path/to/socket`,
    /// `redis+cluster://host[:port],host[:port],..[/db]`, or
    /// `redis+sentinel://host[:port],host[:port],../primary[/db]`. With the feature `tls`, `rediss`
    /// in place of `redis` is the same over TLS. The page [`guide::redis`](crate::guide::redis) has
    /// all parameters.
    ///
    /// The current tokio runtime carries the bytes of the connection. Once that runtime has ended,
    /// a thread of the limiters does. Calls may come from any runtime.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if the URL is malformed, its scheme unknown, or the store out of reach.
    /// Without the feature `redis`, which is on by default, any URL but `memory://` is an error.
    ///
    /// The timeouts are 1 s for one server and 1.5 s for each named address of a cluster. Behind
    /// Sentinels it is 2 s, one for the Sentinels and one for the primary.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url).await
    }

    /// Builds a limiter on the store that the environment variable `RATELIMIT_URL` names, or in
    /// memory if it is not set.
    ///
    /// `RATELIMIT_ENFORCEMENT` is the global enforcement: `on`, `dry_run` or `off`. It replaces
    /// that of the document in `RATELIMIT_OVERRIDES`, and nothing else of it. `RATELIMIT_CALENDAR`
    /// chooses the [database of time zones](Policy::zone): `newest`, `system` or `bundled`. With
    /// the feature `overrides`, `RATELIMIT_OVERRIDES` contains a document of overrides, and
    /// `RATELIMIT_OVERRIDES_FILE` names a file of them, which is watched.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and if an override is invalid; the message names the
    /// variable.
    pub async fn from_env() -> Result<Self, ConnectError> {
        Self::builder().from_env().await
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::new()
    }

    /// Returns a check of one unit of `caller`'s quota under `policy`, to be awaited. [`Check`] has
    /// further settings: a cost, an id under which the call is charged once, and a maximum wait.
    ///
    /// # Errors
    ///
    /// The check returns:
    ///
    /// - [`RateLimitError::Exceeded`] if the limit is reached. The call takes nothing, unless the
    ///   policy [counts rejected calls](Policy::count_rejected).
    /// - [`RateLimitError::TooLarge`] if the limit can never admit the call.
    /// - [`RateLimitError::Unavailable`] if Redis fails under
    ///   [`OnStoreError::Deny`](crate::OnStoreError::Deny), the key has a value of another type, or
    ///   memory is full.
    /// - [`RateLimitError::InvalidPolicy`] if the policy breaks a rule.
    pub fn check<'a>(&'a self, policy: &'a Policy, caller: impl IntoCaller<'a>) -> Check<'a> {
        Check::new(self, policy, caller.into_caller())
    }

    /// Decides several checks together: all are admitted, or none takes anything. This limiter
    /// decides them, whichever made them.
    ///
    /// They are asked one after another, each within the deadline, and the first refusal is
    /// returned. Order them from the narrowest limit to the widest: a refused call has then taken
    /// only from limits narrower than the one that refused. What it has taken is given back before
    /// the refusal is returned, or after the limiter's deadline if Redis does not answer. Refusals
    /// that this process remembers are asked first. Of several, the one with the longest wait is
    /// returned.
    ///
    /// Several keys are not changed at one instant. Until the units are given back, for one round
    /// trip to Redis, they may refuse another call of the same narrower limit. If it lacked no more
    /// than these, that is no offence: the [block](Policy::block) that it began ends when they are
    /// given back. No limit ever admits more than its threshold. Metrics count a call that is given
    /// back as admitted.
    ///
    /// One of the checks may have a [`max_wait`](Check::max_wait), and is asked first. A check with
    /// a [request id](Check::request_id) keeps its charge, which may be that of an earlier call:
    /// repeat the call with the same id.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const USER: Policy = Policy::sliding_window("by-user", Duration::from_secs(60), 5);
    /// const TENANT: Policy = Policy::sliding_window("by-tenant", Duration::from_secs(60), 2);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
    /// let limiter = Limiter::in_memory();
    /// let checks = || [limiter.check(&USER, "alice"), limiter.check(&TENANT, "acme")];
    /// limiter.check_all(checks()).await?;
    /// let [user, tenant] = limiter.check_all(checks()).await?;
    /// assert_eq!((user.remaining(), tenant.remaining()), (3, 0));
    /// // The tenant's limit refuses, and the user's keeps its units.
    /// assert!(limiter.check_all(checks()).await.is_err());
    /// assert_eq!(limiter.peek(&USER, "alice").cost(0).await?.remaining(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check), and [`RateLimitError::InvalidPolicy`] if two of the checks have a
    /// `max_wait`.
    pub fn check_all<const N: usize>(
        &self,
        mut checks: [Check<'_>; N],
    ) -> impl Future<Output = Result<[Decision; N], RateLimitError>> {
        checks.iter_mut().for_each(Check::join);
        // An `async fn` would move the checks once more.
        async move {
            let mut calls = checks.each_ref().map(|check| self.join(check));
            ask_all(&mut calls).await?;
            Ok(array::from_fn(|index| admitted(calls[index].take_answer())))
        }
    }

    /// Returns a check that takes nothing: its answer is the one that [`check`](Self::check) would
    /// return now, without waiting. With a [cost](Check::cost) of 0 it reports what is left, and is
    /// never refused.
    ///
    /// Enforcement does not change the answer: a peek under a dry run is refused as well.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn peek<'a>(&'a self, policy: &'a Policy, caller: impl IntoCaller<'a>) -> Check<'a> {
        self.check(policy, caller).op(Op::Peek)
    }

    /// Removes everything that is counted for `caller` under `policy` or another one of its
    /// [plans](crate::Plans), and ends its [block](Policy::block). A
    /// [candidate](crate::Overrides::candidate) keeps its own counts.
    ///
    /// # Errors
    ///
    /// [`RateLimitError::Unavailable`] if the store cannot do it within the deadline.
    pub async fn reset<'a>(
        &self,
        policy: &Policy,
        caller: impl IntoCaller<'a>,
    ) -> Result<(), RateLimitError> {
        let caller = caller.into_caller();
        let reset = self.inner.backend.reset(policy, &caller).await;
        self.inner.spread.forget((policy.name(), &caller));
        // A call under another plan, or an override, may have been warned of.
        if self.warns()
            && let Some(tier) = policy.tiers().first()
        {
            let (limit, of_policy) = warn::limit_of(policy, tier.period(), &caller);
            // The counts are gone already: without it, the next warning comes after the period.
            let _ = self.inner.backend.reset(&limit, &of_policy).await;
        }
        // Calls that wait lose their turns, also if only the answer is lost.
        let key = KeyRef::new(policy, caller.parts());
        self.follow(self.inner.queues.change_if_any(key, |queue| queue.ask_anew(|_| true)));
        reset.map_err(|reason| Unavailable::new(policy.name(), reason).into())
    }

    /// Refunds an admitted call, once: a login that succeeded need not count.
    ///
    /// A sliding window is then as if the call had never been. A fixed window or sliding counter
    /// no longer counts its units, unless they have expired already. A token bucket receives its
    /// tokens, as far as there is room. A second refund of a decision, or one of a
    /// [peek](Self::peek), does nothing. A refund is a [settle](Self::settle) at 0 units.
    ///
    /// Units on [lease](Policy::lease) return to their lease while it lasts. After its end they
    /// stay counted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const FAILURES: Policy =
    ///     Policy::sliding_window("login-failures", Duration::from_secs(900), 3);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
    /// # let password_is_right = true;
    /// let limiter = Limiter::in_memory();
    /// let decision = limiter.check(&FAILURES, "alice").await?;
    /// if password_is_right {
    ///     limiter.refund(&decision).await?;
    /// }
    /// assert_eq!(limiter.peek(&FAILURES, "alice").cost(0).await?.remaining(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`RateLimitError::Unavailable`] if the store cannot refund within the deadline. The refund
    /// can then be repeated, as a [settle](Self::settle) can.
    pub async fn refund(&self, decision: &Decision) -> Result<(), RateLimitError> {
        self.settle(decision, 0).await
    }

    /// Settles an admitted call at the units that it really took, once.
    ///
    /// Fewer units than its [`cost`](Decision::cost) give the rest back, as far as it still counts.
    /// A token bucket receives its tokens as far as there is room. More units are a debt: they
    /// count from now on, and the next calls wait longer. The debt of a token bucket is at most one
    /// full bucket; the rest is forgiven. A call whose caller was [reset](Self::reset) since then
    /// owes nothing, and nothing is given back.
    ///
    /// The first settle of a decision or one of its clones counts, and a refund is one. Later ones
    /// do nothing. [`Decision::settle`] does not wait for the store.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const ROWS: Policy = Policy::token_bucket("rows", Duration::from_secs(60), 1_000);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
    /// let limiter = Limiter::in_memory();
    /// let decision = limiter.check(&ROWS, "alice").cost(100).await?;
    /// limiter.settle(&decision, 1_040).await?;
    /// // The next call waits until the 40 rows are paid for.
    /// assert!(limiter.check(&ROWS, "alice").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// | algorithm | settled below the cost | settled above the cost |
    /// |---|---|---|
    /// | `sliding_window` | the units are gone, as if never taken | counted from the settle on |
    /// | `sliding_counter` | subtracted from the window of the call, if it is the present or the previous one | added to the present window |
    /// | `fixed_window` | subtracted from the windows of the call that are still open | added to the present window, or opens one |
    /// | `calendar_window` | subtracted from the window of the call, if it is not over | added to the present window |
    /// | `token_bucket` | returned, at most until the bucket is full | taken below zero, by at most one full bucket |
    ///
    /// If an override, a plan or a deploy has changed the numbers since the call, its units come
    /// back all the same: under the old numbers, and under the new ones as far as they have taken
    /// them over. Units above the cost count in every tier. If nothing else of the caller is
    /// counted any more, that is true of a `sliding_window`; under another algorithm they count in
    /// the tier that the decision tells.
    ///
    /// # Errors
    ///
    /// [`RateLimitError::Unavailable`] if the store cannot settle within the deadline. The settle
    /// can then be repeated, as after its future was dropped. It is applied once, at the number of
    /// units of the first attempt. Within a minute, and the longest period, of that attempt, a
    /// repetition never settles twice.
    pub async fn settle(&self, decision: &Decision, actual: u32) -> Result<(), RateLimitError> {
        let settled = self.inner.backend.settle(decision, actual, false).await;
        self.inner.hurry_after(decision, actual);
        settled
    }

    /// Sends the settles and releases that wait in this process to Redis, gives units on
    /// [lease](Policy::lease) back, and waits for all of them, as before the process ends. In
    /// memory there is nothing to send.
    ///
    /// It also waits for late replies to calls that
    /// [`OnStoreError::Deny`](crate::OnStoreError::Deny) has refused, and gives back what these
    /// have taken.
    ///
    /// # Errors
    ///
    /// [`FlushError`] with the number of settles, releases and leases that could not be sent, and
    /// of late replies that have not come within two deadlines. What may still be of use is sent
    /// when Redis is back, or by the next flush.
    pub async fn flush(&self) -> Result<(), FlushError> {
        match self.inner.backend.redis() {
            None => Ok(()),
            Some(redis) => redis.flush().await,
        }
    }

    /// Returns the status of each Redis server; of a cluster, of each node that has slots.
    /// Unassigned slots have an entry while their circuit breaker is open. In memory there is none.
    ///
    /// ```
    /// use ratelimit_runtime::Limiter;
    ///
    /// let is_healthy = |limiter: &Limiter| limiter.servers().iter().all(|it| it.failure().is_none());
    /// assert!(is_healthy(&Limiter::in_memory()));
    /// ```
    #[must_use]
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.inner.backend.redis().map_or_else(Vec::new, RedisBackend::servers)
    }
}
