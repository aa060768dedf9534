//! What came of a command instead of a reply, and what that means for a call.

use redis::{ErrorKind, RedisError};

use crate::error::UnavailableReason;

pub(super) enum Failure {
    /// The server does not know the script; nothing was executed.
    UnknownScript,
    /// Another node of the cluster has the key, for good or during a move of its slot; nothing was
    /// executed.
    Moved(Address),
    Ask(Address),
    /// The connection was lost before the reply came: executed or not, nobody knows.
    Lost,
    Because(UnavailableReason),
}

/// A node's address as a cluster tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Failure {
    pub(super) fn of(error: &RedisError) -> Self {
        let reason = match error.code() {
            Some("NOSCRIPT") => return Self::UnknownScript,
            Some("MOVED") => {
                return address(error).map_or(UnavailableReason::StoreError.into(), Self::Moved);
            }
            Some("ASK") => {
                return address(error).map_or(UnavailableReason::StoreError.into(), Self::Ask);
            }
            Some("WRONGTYPE") => UnavailableReason::WrongType,
            Some("READONLY") => UnavailableReason::ReadOnly,
            Some("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY") => {
                UnavailableReason::NotReady
            }
            Some("OOM" | "MISCONF" | "NOREPLICAS") => UnavailableReason::RefusesWrites,
            Some("NOPERM" | "NOAUTH" | "WRONGPASS") => UnavailableReason::NotPermitted,
            // A command that the user may not run inside a script.
            Some(_) if describe(error).contains("can't run this command") => {
                UnavailableReason::NotPermitted
            }
            Some(_) => UnavailableReason::StoreError,
            None if error.kind() == ErrorKind::AuthenticationFailed => {
                UnavailableReason::NotPermitted
            }
            None => return Self::Lost,
        };
        reason.into()
    }

    /// Whether the connection is of no more use: it is broken, or leads to where nothing can be
    /// written.
    pub(super) fn is_of_the_connection(&self) -> bool {
        matches!(self, Self::Lost | Self::Because(UnavailableReason::ReadOnly))
    }

    /// Whether another attempt would charge the call once: nothing was executed, or it would be
    /// noticed.
    pub(super) fn may_be_repeated(&self, is_noticed: bool) -> bool {
        match self {
            Self::Lost => is_noticed,
            failure => matches!(failure, Self::Because(UnavailableReason::ReadOnly)),
        }
    }
}

/// The address in `MOVED slot host:port` and `ASK slot host:port`.
fn address(error: &RedisError) -> Option<Address> {
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    Some(Address { host: host.to_owned(), port: port.parse().ok()? })
}

impl From<UnavailableReason> for Failure {
    fn from(reason: UnavailableReason) -> Self {
        Self::Because(reason)
    }
}

impl From<Failure> for UnavailableReason {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Because(reason) => reason,
            Failure::Lost => Self::Disconnected,
            Failure::Moved(_) | Failure::Ask(_) => Self::Redirected,
            Failure::UnknownScript => Self::StoreError,
        }
    }
}

/// The server's or the system's words, without what the client puts around them.
pub(super) fn describe(error: &RedisError) -> String {
    if error.kind() == ErrorKind::Parse {
        return "what answers there does not speak Redis's protocol".to_owned();
    }
    error.detail().map_or_else(
        // What follows the words is the client's own classification.
        || error.to_string().split(" - ").next().unwrap_or_default().to_owned(),
        str::to_owned,
    )
}
