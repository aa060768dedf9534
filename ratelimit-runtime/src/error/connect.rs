//! The errors of making and installing a limiter.

use std::fmt;

use super::{Fault, OneLine};

/// The error of a limiter that could not be built.
///
/// The message names the origin, such as an environment variable, the address, and the cause. It
/// never contains a password.
#[derive(thiserror::Error)]
#[error("{origin}: {}", OneLine(fault))]
pub struct ConnectError {
    /// The origin of the faulty setting, such as an environment variable.
    pub(crate) origin: &'static str,
    pub(crate) fault: Fault,
}

/// The schemes of a store's URL, for messages.
pub(crate) const SCHEMES: &str =
    "memory://, redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://";

impl Fault {
    /// The URL of a store cannot be read.
    pub(crate) fn malformed_url(why: impl fmt::Display) -> Self {
        Self::new(format!(
            "malformed URL ({why}); write for example redis://127.0.0.1:6379, the schemes are {SCHEMES}"
        ))
    }
}

/// The message, because a `main` that returns this error prints it.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error of a second call of [`install`](crate::install) in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rate limiter is already installed in this process")]
pub struct AlreadyInstalled;
