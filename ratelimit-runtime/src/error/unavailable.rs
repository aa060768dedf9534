//! The reasons why a store cannot decide, with advice for operators.

use std::{fmt, time::Duration};

use super::guess::{GUESS, spread};
use crate::time::Micros;

/// The error of a check, reset or refund that the store could not carry out;
/// [`reason`](Self::reason) is the cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rate limit `{policy}` could not be decided: {reason}")]
pub struct Unavailable {
    policy: &'static str,
    retry_after: Micros,
    reason: UnavailableReason,
}

impl Unavailable {
    pub(crate) fn new(policy: &'static str, reason: UnavailableReason) -> Self {
        Self { policy, retry_after: spread(GUESS), reason }
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the wait that clients are told: a guess between 1 and 2 s, so that they do not all
    /// repeat their calls together. A [circuit breaker](crate::guide::failures) tests a failing
    /// server at least once a second.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after.into()
    }

    /// Returns the reason.
    #[must_use]
    pub fn reason(&self) -> UnavailableReason {
        self.reason
    }
}

/// The reply of a store, or the reason why there is none.
pub(crate) type Replied<T> = Result<T, UnavailableReason>;

/// The reason why a store could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnavailableReason {
    /// No reply came within the limiter's deadline. The call may have been counted; under
    /// [`Deny`](crate::OnStoreError::Deny) it [gets its units back](crate::guide::failures) if the
    /// reply comes later.
    DeadlineExceeded,
    /// The connection is down or was lost.
    Disconnected,
    /// The key's value has another type, because something else writes under the limiter's prefix.
    /// The value stays unchanged.
    WrongType,
    /// The store in memory has no room for the call: it is full, or the limit has used up its
    /// share. See [`LimiterBuilder::max_keys`](crate::LimiterBuilder::max_keys) and
    /// [`max_bytes`](crate::LimiterBuilder::max_bytes).
    StoreFull,
    /// Redis is a replica, perhaps since a failover, and does not accept writes. The limiter
    /// reconnects.
    ReadOnly,
    /// Redis is not ready: it loads its data, has lost its primary or its cluster, or runs another
    /// client's script. In a cluster, it may also be that the nodes do not agree on the key's slot
    /// yet.
    NotReady,
    /// Redis refuses writes: it is out of memory, cannot save, or has too few replicas.
    RefusesWrites,
    /// The user of the connection lacks a permission, or is not authenticated.
    NotPermitted,
    /// The server runs no scripts, or none for the user of the connection, and limits are scripts.
    NoScripts,
    /// Redis is a node of a cluster without the key's slot, but the URL names a single server.
    Redirected,
    /// The hash of overrides has more than 10 000 fields or 4 MB, and is not read. After 4 MB, it
    /// is not read again for 30 s.
    OverridesTooLarge,
    /// The server, or a proxy before it, sent what cannot be the reply: more than 1 MiB, a reply
    /// that nobody asked for, that of another call, or bytes of another protocol. The limiter
    /// reconnects.
    UnexpectedReply,
    /// The store replied with another error.
    StoreError,
}

impl UnavailableReason {
    /// Returns `true` if a call that waits may find the store well again.
    pub(crate) fn may_pass(self) -> bool {
        // Memory has no room, or somebody has to remove the key.
        !matches!(self, Self::StoreFull | Self::WrongType)
    }

    /// Returns advice for operators. It is logged with the reason when a circuit breaker opens or
    /// memory is full.
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
                "check Redis's latency (SLOWLOG, INFO commandstats) and the network; if Redis is far \
                 away, raise the limiter's deadline"
            }
            Self::Disconnected => {
                "check that Redis runs, and the address, port and TLS of the URL; attempts to \
                 connect are logged at debug"
            }
            Self::WrongType => {
                "set another prefix, or stop what else writes keys under the limiter's prefix"
            }
            Self::StoreFull => {
                "raise max_keys or max_bytes, or limit by a key with fewer values; the metrics \
                 ratelimit_memory_keys and ratelimit_memory_bytes show which bound is reached"
            }
            Self::ReadOnly => {
                "use a URL of the primary; redis+sentinel:// and redis+cluster:// follow a failover"
            }
            Self::NotReady => {
                "wait until Redis has loaded its data, elected a primary, or moved a slot; check INFO \
                 persistence, CLUSTER INFO, CLUSTER NODES and SLOWLOG"
            }
            Self::RefusesWrites => {
                "check maxmemory and its policy, the last save (INFO persistence), and \
                 min-replicas-to-write"
            }
            Self::NotPermitted => {
                "grant the URL's user the commands and the key pattern that the documentation lists \
                 (ACL LOG shows the missing one), or correct the password"
            }
            Self::NoScripts => {
                "grant the URL's user EVAL and EVALSHA, or use a server that has them: Redis, or Valkey with \
                 its engine for Lua"
            }
            Self::Redirected => "write redis+cluster:// in place of redis://",
            Self::OverridesTooLarge => {
                "remove fields from the hash of overrides (HSCAN lists them); it needs one for each \
                 overridden limit"
            }
            Self::UnexpectedReply => {
                "check that the URL leads to Redis, and the proxy between, if there is one; what was wrong \
                 is in the log, at debug"
            }
            Self::StoreError => "read the error of Redis in the log, at debug",
        }
    }

    /// Returns `true` if the server gave no reply.
    pub(crate) fn is_silence(self) -> bool {
        matches!(self, Self::DeadlineExceeded | Self::Disconnected)
    }
}

impl fmt::Display for UnavailableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeadlineExceeded => "the store did not reply within the deadline",
            Self::Disconnected => "the store is unreachable",
            Self::WrongType => "the value of its key in the store has another type",
            Self::StoreFull => "the store is full",
            Self::ReadOnly => "the store is a replica, which accepts no writes",
            Self::NotReady => "the store is not ready",
            Self::RefusesWrites => "the store refuses writes",
            Self::NotPermitted => "the store's user lacks a permission",
            Self::NoScripts => "the store runs no scripts",
            Self::Redirected => "the store is a cluster, but the URL names a single server",
            Self::OverridesTooLarge => "the hash of overrides has more than 10000 fields or 4 MB",
            Self::UnexpectedReply => "the store sent what is no reply to the call",
            Self::StoreError => "the store replied with an error",
        })
    }
}
