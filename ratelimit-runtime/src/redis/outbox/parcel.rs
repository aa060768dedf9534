//! A command whose result no call awaits: its names, and the time in which it is of use.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    error::UnavailableReason,
    key::Key,
    redis::{options::Content, script::settle_is_known_for},
};

/// A command that waits or is under way.
pub(super) struct Parcel {
    pub(super) key: Key,
    pub(super) content: Content,
    /// The time from which the command changes nothing any more.
    pub(super) ends: Instant,
    /// The time of the first attempt that may have been executed.
    pub(super) sent: Option<Instant>,
    /// The failure of the last attempt.
    pub(super) failure: Option<UnavailableReason>,
}

impl Content {
    /// Returns the value of the field `command` in events and metrics.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Settle(_) => "settle",
            Self::Leave(_) => "leave",
            Self::Release { .. } => "release",
        }
    }

    /// Returns what follows if the command is lost.
    pub(super) const fn loss(self) -> &'static str {
        match self {
            Self::Settle(_) => "the call stays charged with what it reserved",
            Self::Leave(_) => "the place in the line stays taken until its turn has passed",
            Self::Release { .. } => "the permit stays held until it expires",
        }
    }

    /// Returns the time from now on in which the command is of use.
    fn lasts(self) -> Duration {
        match self {
            Self::Settle(settle) | Self::Leave(settle) => settle.lasts().into(),
            Self::Release { timeout, .. } => timeout,
        }
    }

    /// Returns the time from the first attempt in which further ones change nothing more.
    fn is_known_for(self) -> Duration {
        match self {
            Self::Settle(settle) | Self::Leave(settle) => settle_is_known_for(settle),
            Self::Release { timeout, .. } => timeout,
        }
    }
}

impl Parcel {
    pub(super) fn new(key: Key, content: Content) -> Self {
        let ends = Instant::now() + content.lasts();
        Self { key, content, ends, sent: None, failure: None }
    }

    /// Returns `true` if another attempt would come too late.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let is_forgotten = |sent: Instant| now >= sent + self.content.is_known_for();
        now >= self.ends || self.sent.is_some_and(is_forgotten)
    }
}
