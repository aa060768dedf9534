//! The answer to calls that Redis cannot decide, and a policy's share while this process decides
//! alone.

use std::{fmt, str::FromStr};

/// The answer to a call that Redis cannot decide in time, or for which memory is full.
///
/// A key with a value of another type is no outage. Such a call always fails with
/// [`UnavailableReason::WrongType`](crate::UnavailableReason::WrongType), and the value is not
/// changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnStoreError {
    /// The memory store decides, for this process alone, until Redis is back. A call for which
    /// memory has no room fails as with [`Deny`](Self::Deny).
    #[default]
    Local,
    /// The same under a share of the limit: [`OnStoreError::local`].
    LocalShare(LocalShare),
    /// The call fails with [`RateLimitError::Unavailable`](crate::RateLimitError::Unavailable).
    Deny,
    /// The call passes.
    Allow,
}

/// A share of a limit, in whole percent from 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalShare(u8);

impl LocalShare {
    /// Returns the share of so many percent, if that is 1 to 100.
    #[must_use]
    pub const fn new(percent: u8) -> Option<Self> {
        match percent {
            1..=100 => Some(Self(percent)),
            _ => None,
        }
    }

    /// Returns the share in percent.
    #[must_use]
    pub const fn percent(self) -> u8 {
        self.0
    }
}

impl OnStoreError {
    /// Lets the memory store decide under a share of the limit, in percent. Another share than 1 to
    /// 100 does not compile.
    ///
    /// While Redis is away, each process admits that share of the thresholds, of a burst and of the
    /// calls in flight, rounded up. So ten processes under 10 % admit about as much as the limit. A
    /// call that costs more than the share fails as with [`Deny`](Self::Deny). One that
    /// [leaves](crate::Check::leave) a part to others leaves it of the share. Units on
    /// [lease](crate::Policy::lease) that the process has used count.
    ///
    /// A share that is known at run time is [`LocalShare::new`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{DecidedBy, Limiter, OnStoreError, Policy};
    ///
    /// const LOGIN: Policy = Policy::sliding_window("login", Duration::from_secs(60), 10)
    ///     .on_store_error(OnStoreError::local::<20>());
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // Nothing listens on this port.
    /// let limiter = Limiter::builder().connect_lazy("redis://127.0.0.1:1/")?;
    /// let decision = limiter.check(&LOGIN, "alice").await?;
    /// assert_eq!((decision.decided_by(), decision.threshold()), (DecidedBy::Fallback, 2));
    /// limiter.check(&LOGIN, "alice").await?;
    /// assert!(limiter.check(&LOGIN, "alice").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn local<const PERCENT: u8>() -> Self {
        const { assert!(PERCENT >= 1 && PERCENT <= 100, "a share is 1 to 100 percent") }
        Self::LocalShare(LocalShare(PERCENT))
    }
}

/// As the attribute and overrides write it: `local`, `local(20)`, `deny` or `allow`.
impl fmt::Display for OnStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::LocalShare(share) => write!(f, "local({})", share.percent()),
            Self::Deny => f.write_str("deny"),
            Self::Allow => f.write_str("allow"),
        }
    }
}

/// Reads what [`Display`](fmt::Display) writes.
impl FromStr for OnStoreError {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shares = (1..=100).filter_map(LocalShare::new).map(Self::LocalShare);
        let mut known = [Self::Local, Self::Deny, Self::Allow].into_iter().chain(shares);
        known.find(|answer| answer.to_string() == text).ok_or(
            "`local`, `deny`, `allow`, or `local` with a share of 1 to 100 percent such as `local(20)`",
        )
    }
}
