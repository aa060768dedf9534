//! The calendar in the time of a store.

use super::{Clock, EPOCH};
use crate::{
    calendar::{self, Zone},
    policy::Policy,
    request::Request,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Timestamp,
};

/// The difference above which the system's clock was set, in microseconds. Below, the windows stay
/// where they are: none ends twice.
const STEP: u64 = 1_000_000;

/// The system's clock as seen from the store's.
pub(super) struct WallClock {
    /// The store's time less the microseconds since the UNIX epoch, modulo 2^64.
    ahead: AtomicU64,
    /// `true` if it follows the system's clock where that is set.
    follows: AtomicBool,
}

/// A request whose policies are those of the present window.
pub(in super::super) struct Dated {
    policy: Policy,
    written: Policy,
}

impl WallClock {
    pub(super) fn new(follows: bool) -> Self {
        let ahead = EPOCH.get().wrapping_sub(calendar::now());
        Self { ahead: AtomicU64::new(ahead), follows: AtomicBool::new(follows) }
    }

    /// Returns the time of the store less the one since the UNIX epoch.
    fn ahead(&self, now: Timestamp) -> u64 {
        let ahead = self.ahead.load(Ordering::Relaxed);
        if !self.follows.load(Ordering::Relaxed) {
            return ahead;
        }
        let present = now.get().wrapping_sub(calendar::now());
        let difference = present.wrapping_sub(ahead).cast_signed().unsigned_abs();
        if difference <= STEP {
            return ahead;
        }
        self.ahead.store(present, Ordering::Relaxed);
        present
    }
}

impl Clock {
    /// Sets the time since the UNIX epoch at an instant of the store, and follows the system's
    /// clock no more.
    #[cfg(any(feature = "replay", all(feature = "testing", feature = "calendar")))]
    pub(in super::super) fn set_calendar(&self, now: Timestamp, unix: u64) {
        self.calendar.follows.store(false, Ordering::Relaxed);
        self.calendar.ahead.store(now.get().wrapping_sub(unix), Ordering::Relaxed);
    }

    /// Returns the policies of a request in the present window of the calendar; nothing for an
    /// unknown zone.
    #[cold]
    pub(in super::super) fn dated(
        &self,
        now: Timestamp,
        request: Request<'_>,
        zone: Option<Zone>,
    ) -> Option<Dated> {
        let ahead = self.calendar.ahead(now);
        let windows = request.policy.windows_at(now.get().wrapping_sub(ahead))?;
        let dated = |policy: &Policy| policy.dated(zone, windows, ahead);
        Some(Dated { policy: dated(request.policy), written: dated(request.written) })
    }
}

impl Dated {
    /// Returns the request under these policies.
    pub(in super::super) fn of<'a>(&'a self, request: Request<'a>) -> Request<'a> {
        let is_changed = !std::ptr::eq(request.policy, request.written);
        let written = if is_changed { &self.written } else { &self.policy };
        Request { policy: &self.policy, written, ..request }
    }
}
