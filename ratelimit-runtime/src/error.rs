//! Why a call did not get through, and why a limiter could not be made.

use std::{error::Error, fmt, time::Duration};

use crate::{policy::Tier, rules::PolicyFault};

/// Why an annotated function returned without running its body.
///
/// Messages name the policy and the wait; never the caller, the key, the store's address or a
/// credential, so they can be shown to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateLimitError {
    /// The limit is reached; the call may be repeated after [`Exceeded::retry_after`].
    Exceeded(Exceeded),
    /// The store could not decide in time.
    Unavailable(Unavailable),
    /// The policy, as the call's values made it, breaks a rule.
    InvalidPolicy(InvalidPolicy),
}

impl fmt::Display for RateLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exceeded(error) => error.fmt(f),
            Self::Unavailable(error) => error.fmt(f),
            Self::InvalidPolicy(error) => error.fmt(f),
        }
    }
}

impl Error for RateLimitError {}

impl From<Exceeded> for RateLimitError {
    fn from(error: Exceeded) -> Self {
        Self::Exceeded(error)
    }
}

impl From<Unavailable> for RateLimitError {
    fn from(error: Unavailable) -> Self {
        Self::Unavailable(error)
    }
}

impl From<InvalidPolicy> for RateLimitError {
    fn from(error: InvalidPolicy) -> Self {
        Self::InvalidPolicy(error)
    }
}

/// A call refused by its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    pub(crate) policy: &'static str,
    pub(crate) tier: Tier,
    pub(crate) remaining: u32,
    pub(crate) retry_after: Duration,
    pub(crate) reset_after: Duration,
}

impl Exceeded {
    /// The name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// The threshold of the tier that refused; of several, the one with the longest wait.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.tier.threshold()
    }

    /// The period of the tier that refused.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.tier.period()
    }

    /// The units left in the tier that refused: fewer than the call's cost.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// The exact time, in microseconds, after which the same call is admitted if no other comes
    /// before it.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// The time until the full quota is back, if no other call comes.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rate limit `{}` exceeded: at most {} per {:?}, retry after {:?}",
            self.policy,
            self.threshold(),
            self.period(),
            ceil_to_millis(self.retry_after),
        )
    }
}

impl Error for Exceeded {}

/// A caller waits on this number: it is rounded up.
fn ceil_to_millis(wait: Duration) -> Duration {
    let micros = wait.as_micros().next_multiple_of(1_000);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// The store could not decide in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    policy: &'static str,
    reason: UnavailableReason,
}

impl Unavailable {
    pub(crate) fn new(policy: &'static str, reason: UnavailableReason) -> Self {
        Self { policy, reason }
    }

    /// The name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// What kept the store from deciding.
    #[must_use]
    pub fn reason(&self) -> UnavailableReason {
        self.reason
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rate limit `{}` could not be decided: {}", self.policy, self.reason)
    }
}

impl Error for Unavailable {}

/// What kept the store from deciding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnavailableReason {
    /// No answer within the limiter's deadline. The call may have been counted all the same.
    DeadlineExceeded,
    /// The connection is down or was lost.
    Disconnected,
    /// The key holds a value of another type: something else writes under the limiter's prefix.
    /// The value is left as it is.
    WrongType,
    /// The store in memory holds as many live keys as it may, see
    /// [`LimiterBuilder::max_keys`](crate::LimiterBuilder::max_keys), and the call needs another.
    StoreFull,
    /// Redis cannot take writes: it is a replica, perhaps since a failover. The connection is made
    /// anew.
    ReadOnly,
    /// Redis is not ready: it loads its data, has lost its master or its cluster, or is busy with
    /// another client's script.
    NotReady,
    /// Redis refuses to write: it is out of memory, cannot save, or has too few replicas.
    RefusesWrites,
    /// The user of the connection may not do what is needed, or is not authenticated.
    NotPermitted,
    /// Redis is a node of a cluster that does not have the key, and the limiter was not told of a
    /// cluster.
    Redirected,
    /// The store answered with an error.
    StoreError,
}

impl UnavailableReason {
    /// What an operator can do about it; it is logged with the reason when the store is lost.
    ///
    /// ```
    /// use ratelimit_runtime::UnavailableReason;
    ///
    /// let advice = UnavailableReason::Redirected.advice();
    /// assert!(advice.contains("redis+cluster://"));
    /// ```
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::DeadlineExceeded => {
                "look at Redis's latency (SLOWLOG, INFO commandstats) and the network; if it is \
                 far away, raise the limiter's deadline"
            }
            Self::Disconnected => {
                "see whether Redis runs, and whether address, port and TLS of the URL are right; \
                 the attempts to connect are logged at debug"
            }
            Self::WrongType => {
                "find what else writes keys under the limiter's prefix, and give the limiter \
                 another prefix"
            }
            Self::StoreFull => "raise max_keys, or limit by something that has fewer values",
            Self::ReadOnly => {
                "let the URL lead to the primary: redis+sentinel:// and redis+cluster:// find it \
                 after a failover"
            }
            Self::NotReady => {
                "wait until Redis has loaded its data or has elected a primary; see INFO \
                 persistence, CLUSTER INFO and SLOWLOG"
            }
            Self::RefusesWrites => {
                "see maxmemory and its policy, the last save (INFO persistence), and \
                 min-replicas-to-write"
            }
            Self::NotPermitted => {
                "give the user of the URL the commands and the key pattern that the documentation \
                 lists (ACL LOG tells which was missing), or mend its password"
            }
            Self::Redirected => "write redis+cluster:// in place of redis://",
            Self::StoreError => "see what Redis answers: it is logged at debug",
        }
    }
}

impl fmt::Display for UnavailableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeadlineExceeded => "the store did not answer within the deadline",
            Self::Disconnected => "the store cannot be reached",
            Self::WrongType => "its key in the store holds a value of another type",
            Self::StoreFull => "the store is full",
            Self::ReadOnly => "the store is a replica and takes no writes",
            Self::NotReady => "the store is not ready",
            Self::RefusesWrites => "the store refuses to write",
            Self::NotPermitted => "the store's user is not permitted to do what is needed",
            Self::Redirected => "the store is a cluster, and was not said to be one",
            Self::StoreError => "the store answered with an error",
        })
    }
}

/// A policy that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPolicy {
    policy: &'static str,
    fault: PolicyFault,
}

impl InvalidPolicy {
    pub(crate) fn new(policy: &'static str, fault: PolicyFault) -> Self {
        Self { policy, fault }
    }

    /// The name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// The rule that is broken.
    #[must_use]
    pub fn fault(&self) -> PolicyFault {
        self.fault
    }
}

impl fmt::Display for InvalidPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid rate limit policy `{}`: {}", self.policy, self.fault)
    }
}

impl Error for InvalidPolicy {}

/// Why a limiter could not be connected to its store.
///
/// The message says what was wrong and where: the variable or the URL's scheme, the address, the
/// cause. It never holds a password.
pub struct ConnectError {
    /// Where the URL came from, as an operator knows it.
    pub(crate) origin: &'static str,
    pub(crate) cause: ConnectFault,
}

#[derive(Debug)]
pub(crate) enum ConnectFault {
    UnknownScheme(String),
    Malformed(String),
    Unreachable { addresses: String, cause: String },
    NotUnicode,
}

/// The schemes a store's URL may have, for messages.
pub(crate) const SCHEMES: &str =
    "memory://, redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://";

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.origin)?;
        match &self.cause {
            ConnectFault::UnknownScheme(scheme) => {
                write!(f, ": unknown scheme `{scheme}`; the URL has to start with {SCHEMES}")
            }
            ConnectFault::Malformed(why) => {
                write!(
                    f,
                    ": malformed URL ({why}); write for example redis://127.0.0.1:6379, the schemes are {SCHEMES}"
                )
            }
            ConnectFault::Unreachable { addresses, cause } => {
                write!(f, ": cannot connect to {addresses}: {cause}")
            }
            ConnectFault::NotUnicode => {
                write!(f, ": not valid UTF-8; the URL has to start with {SCHEMES}")
            }
        }
    }
}

/// The message: it is what a `main` that returns this error prints.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for ConnectError {}

/// [`install`](crate::install) was called a second time in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyInstalled;

impl fmt::Display for AlreadyInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate limiter is already installed in this process")
    }
}

impl Error for AlreadyInstalled {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    #[test]
    fn a_wait_is_rounded_up_in_messages() {
        let policy = Policy::sliding_window("reply", Duration::from_secs(60), 5);
        let exceeded = Exceeded {
            policy: policy.name(),
            tier: policy.tiers()[0],
            remaining: 0,
            retry_after: Duration::from_micros(1_500_001),
            reset_after: Duration::from_secs(60),
        };
        assert_eq!(
            exceeded.to_string(),
            "rate limit `reply` exceeded: at most 5 per 60s, retry after 1.501s"
        );
    }
}
