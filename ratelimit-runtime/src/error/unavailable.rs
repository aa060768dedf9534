//! Why a store could not decide, and what an operator can do about it.

use std::{error::Error, fmt};

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
    /// The store in memory has no room for what the call needs: it is full, or the limit has its
    /// share of it, see [`LimiterBuilder::max_keys`](crate::LimiterBuilder::max_keys) and
    /// [`max_bytes`](crate::LimiterBuilder::max_bytes).
    StoreFull,
    /// Redis cannot take writes: it is a replica, perhaps since a failover. The connection is made
    /// anew.
    ReadOnly,
    /// Redis is not ready: it loads its data, has lost its master or its cluster, is busy with
    /// another client's script, or is a cluster whose nodes do not yet agree on who has the key.
    NotReady,
    /// Redis refuses to write: it is out of memory, cannot save, or has too few replicas.
    RefusesWrites,
    /// The user of the connection may not do what is needed, or is not authenticated.
    NotPermitted,
    /// Redis is a node of a cluster that does not have the key, and the limiter was not told of a
    /// cluster.
    Redirected,
    /// The hash of overrides has more than 10 000 fields, or 4 MB, and is not read. Of a hash of 4 MB
    /// and more, that holds for half a minute.
    OverridesTooLarge,
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
            Self::StoreFull => {
                "raise max_keys and max_bytes, or limit by something that has fewer values; see \
                 ratelimit_memory_keys and ratelimit_memory_bytes for which of the two is full"
            }
            Self::ReadOnly => {
                "let the URL lead to the primary: redis+sentinel:// and redis+cluster:// find it \
                 after a failover"
            }
            Self::NotReady => {
                "wait until Redis has loaded its data, has elected a primary, or has moved a slot; \
                 see INFO persistence, CLUSTER INFO, CLUSTER NODES and SLOWLOG"
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
            Self::OverridesTooLarge => {
                "take fields out of the hash of overrides (HSCAN shows them): it needs one for each \
                 limit that is overridden"
            }
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
            Self::OverridesTooLarge => {
                "the hash of overrides has more than 10000 fields or 4 MB, and is not read"
            }
            Self::StoreError => "the store answered with an error",
        })
    }
}
