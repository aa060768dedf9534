//! The errors of calls and of limiters.
//!
//! Floor 3: pure, imports `policy` and `request`. Limiter, backends, telemetry and web may import
//! it.

mod busy;
mod connect;
mod denied;
mod fault;
mod flush;
mod guess;
mod one_line;
mod status;
mod unavailable;

use std::{error::Error, fmt, time::Duration};

#[cfg(feature = "redis")]
pub(crate) use self::connect::SCHEMES;
pub use self::{
    busy::Busy,
    connect::{AlreadyInstalled, ConnectError},
    denied::Denied,
    flush::FlushError,
    status::ServerStatus,
    unavailable::{Unavailable, UnavailableReason},
};
pub(crate) use self::{fault::Fault, guess::GUESS, one_line::OneLine, unavailable::Replied};
use crate::{
    policy::{Flags, InvalidPolicy, Policy, QuotaUnit, TooLarge, plans},
    request::Outcome,
    time::Micros,
};

/// The error of a call that is not admitted. An annotated function returns it without running its
/// body.
///
/// Messages can be shown to clients: they name the policy and the wait, and never the caller, the
/// key, the store's address or a credential.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Policy, RateLimitError};
///
/// const MAIL: Policy = Policy::sliding_window("mail", Duration::from_secs(60), 1);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RateLimitError> {
/// let limiter = Limiter::in_memory();
/// limiter.check(&MAIL, "alice").await?;
/// match limiter.check(&MAIL, "alice").await.unwrap_err() {
///     RateLimitError::Exceeded(error) => assert!(error.retry_after() <= Duration::from_secs(60)),
///     error => return Err(error),
/// }
/// let error = limiter.check(&MAIL, "alice").cost(2).await.unwrap_err();
/// assert!(matches!(error, RateLimitError::TooLarge(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum RateLimitError {
    /// The limit is reached; the call may be repeated after [`Exceeded::retry_after`].
    Exceeded(#[from] Exceeded),
    /// The caller has as many calls in flight as the limit allows. A call may be repeated once
    /// another ends.
    Busy(#[from] Busy),
    /// An override shuts the caller out; the call may be repeated after [`Denied::retry_after`], if
    /// that is known.
    Denied(#[from] Denied),
    /// The limit can never admit the call: its cost is above a threshold or burst, or one of these
    /// is 0.
    TooLarge(#[from] TooLarge),
    /// The call was not decided: Redis failed under
    /// [`OnStoreError::Deny`](crate::OnStoreError::Deny), the key has a value of another type, or
    /// memory is full.
    Unavailable(#[from] Unavailable),
    /// The policy breaks a rule, with the values of this call.
    InvalidPolicy(#[from] InvalidPolicy),
}

impl RateLimitError {
    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        match self {
            Self::Exceeded(error) => error.policy(),
            Self::Busy(error) => error.policy(),
            Self::Denied(error) => error.policy(),
            Self::TooLarge(error) => error.policy(),
            Self::Unavailable(error) => error.policy(),
            Self::InvalidPolicy(error) => error.policy(),
        }
    }
}

/// The error of a call that is refused until its limit has room again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    policy: &'static str,
    period: Micros,
    retry_after: Micros,
    told_after: Micros,
    reset_after: Micros,
    threshold: u32,
    remaining: u32,
    quota: u32,
    flags: Flags,
}

impl Exceeded {
    /// Builds the error of a refused call. If it `is_shared`, several clients share the limit.
    #[inline]
    pub(crate) fn new(policy: &Policy, outcome: Outcome, is_shared: bool) -> Self {
        let tier = policy.tier_of(outcome.tier);
        Self {
            policy: policy.name(),
            period: tier.micros(),
            retry_after: outcome.wait,
            told_after: outcome.wait,
            reset_after: outcome.reset,
            threshold: tier.threshold(),
            remaining: outcome.remaining,
            quota: policy.quota_of(tier),
            flags: policy.flags().with(Flags::SHARED, is_shared),
        }
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the threshold of the tier that refused; of several, the one with the longest wait.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Returns the period of the tier that refused.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period.into()
    }

    /// Returns the units of that tier's full quota: its threshold, or the burst of a token bucket.
    #[must_use]
    pub fn quota(&self) -> u32 {
        self.quota
    }

    /// Returns what a unit of the quota is.
    #[must_use]
    pub fn unit(&self) -> QuotaUnit {
        self.flags.unit()
    }

    /// Returns `true` if the policy counts refused calls.
    #[cfg(feature = "testing")]
    pub(crate) fn counts_rejected(&self) -> bool {
        self.flags.has(Flags::COUNT_REJECTED)
    }

    /// Returns `true` if several clients share the limit, and `false` if it is the caller's own.
    ///
    /// After the wait, a client of its own limit is admitted. A shared limit may have been used up
    /// by others again. A limit is shared if it counts all calls without a caller together, if the
    /// parts of its `key` are literals, or if the [ambient caller](crate::caller::scope) is not in
    /// its key. By hand and without an ambient caller, each caller counts as one client.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy, RateLimitError, caller};
    ///
    /// const SEARCH: Policy = Policy::sliding_window("search", Duration::from_secs(60), 1);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limiter = Limiter::in_memory();
    /// for (key, is_shared) in [("alice", false), ("acme", true)] {
    ///     let call = || caller::scope("alice", limiter.check(&SEARCH, key).into_future());
    ///     call().await.unwrap();
    ///     let Err(RateLimitError::Exceeded(refused)) = call().await else { panic!("refused") };
    ///     assert_eq!(refused.is_shared(), is_shared);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.flags.has(Flags::SHARED)
    }

    /// Returns the name of the plan, if the policy is one of [`Plans`](crate::Plans).
    #[must_use]
    pub fn plan(&self) -> Option<&'static str> {
        plans::plan(self.policy, self.flags)
    }

    /// Returns the name by which clients know the policy: `api@pro` for a plan.
    pub(crate) fn shown_name(&self) -> &'static str {
        plans::shown(self.policy, self.flags)
    }

    /// Returns the remaining units of the tier that refused: fewer than the call's cost.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Returns the wait in whole microseconds: after it the same call is admitted, if no other call
    /// comes before.
    ///
    /// It is exact if the store refused this call. It is too long if units come back before, by a
    /// settle, a refund or a reset. The deny cache may return a shorter wait for a call of another
    /// cost than the one that Redis refused. Under a [lease](crate::Policy::lease) it may be too
    /// long by the length of two leases.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after.into()
    }

    /// Returns the wait that clients are told. It is [`retry_after`](Self::retry_after), or longer
    /// where several clients share the limit: each gets another time, so that they do not all come
    /// back [together](crate::guide::clients#a-herd).
    #[must_use]
    pub fn told_after(&self) -> Duration {
        self.told_after.into()
    }

    /// Sets the wait that clients are told.
    pub(crate) fn tell(&mut self, wait: Duration) {
        self.told_after = Micros::rounded_up(wait);
    }

    /// Returns the time until the full quota of every tier is back, if no other call comes.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after.into()
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A wait of more than the window is that of a block, or of a pause.
        let is_blocked = self.flags.has(Flags::BLOCKS) && self.retry_after > self.period;
        write!(
            f,
            "rate limit `{}` exceeded: at most {} per {}, {}retry after {:?}",
            self.shown_name(),
            self.threshold(),
            self.flags.period_text(self.period),
            if is_blocked { "blocked, " } else { "" },
            ceil_to_millis(self.retry_after()),
        )
    }
}

impl Error for Exceeded {}

/// Rounds a wait up to milliseconds, because callers wait for it.
fn ceil_to_millis(wait: Duration) -> Duration {
    let micros = wait.as_micros().next_multiple_of(1_000);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use ratelimit_core::CalendarUnit;

    use super::*;
    use crate::Policy;

    #[test]
    fn an_error_is_small() {
        // No word more than a refusal: calls move their results.
        assert_eq!((size_of::<Exceeded>(), size_of::<Result<(), RateLimitError>>()), (64, 64));
    }

    fn refused(policy: &Policy) -> String {
        let exceeded = Exceeded {
            policy: policy.name(),
            period: policy.tiers()[0].micros(),
            retry_after: Micros::new(1_500_001),
            told_after: Micros::new(1_500_001),
            reset_after: Micros::new(60_000_000),
            threshold: 5,
            remaining: 0,
            quota: 5,
            flags: policy.flags(),
        };
        exceeded.to_string()
    }

    #[test]
    fn a_wait_is_rounded_up_in_messages() {
        assert_eq!(
            refused(&Policy::sliding_window("reply", Duration::from_secs(60), 5)),
            "rate limit `reply` exceeded: at most 5 per 60s, retry after 1.501s"
        );
    }

    #[test]
    fn messages_tell_why_a_wait_is_longer_than_the_window() {
        let policy = Policy::sliding_window("login", Duration::from_secs(1), 5);
        let policy = policy.block(&[Duration::from_secs(60)]);
        assert_eq!(
            refused(&policy),
            "rate limit `login` exceeded: at most 5 per 1s, blocked, retry after 1.501s"
        );
    }

    #[test]
    fn messages_name_the_window_of_the_calendar_and_not_its_nominal_length() {
        assert_eq!(
            refused(&Policy::calendar_window("bill", CalendarUnit::Month, 5)),
            "rate limit `bill` exceeded: at most 5 per month, retry after 1.501s"
        );
    }
}
