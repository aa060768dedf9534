//! The calls of a queue that wait for a permit, in the order of their arrival.
//!
//! One question at a time is out, for the first call that still waits. It is asked when a permit of this process is
//! free, and once in a while if other processes have some. When a call has received a permit, the next one asks,
//! until one finds none. Nothing of this waits for the calls' futures, whose threads may be blocked.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{KeyQueue, waiter::Waiter};

/// The pause after which the first call asks again for a permit that another process may have freed, unless the
/// store names another one.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

impl KeyQueue {
    /// Returns `true` if calls wait for a permit.
    pub(in crate::limiter) fn has_permit_waiters(&self) -> bool {
        !self.permits.is_empty()
    }

    /// Returns `true` if the call waits for a permit: it does already, or it is added behind fewer than
    /// `max_line` others.
    pub(super) fn waits_for_permit(&mut self, waiter: &Arc<Waiter>) -> bool {
        // In memory a permit may have been freed since the first call was refused.
        self.may_be_free |= self.permits.is_empty() && !self.is_remote;
        let has_room = self.permits.len() < self.max_line;
        if has_room {
            self.permits.insert(waiter.number, Arc::clone(waiter));
        }
        has_room || self.permits.contains_key(&waiter.number)
    }

    /// Records that a call found no permit. If other processes may free one, the queue looks again after the pause of
    /// the store's reply, or a second.
    pub(super) fn found_no_permit(&mut self, waiter: &Waiter, pause: Duration) {
        self.asking = self.asking.take().filter(|number| *number != waiter.number);
        if self.is_remote {
            let pause = if pause.is_zero() { PAUSE } else { pause };
            self.asks_again = Some(Instant::now() + pause);
            self.after.later = Some((Arc::clone(&waiter.text), pause));
        }
    }

    /// Records that a permit may be free.
    pub(in crate::limiter) fn permit_is_free(&mut self) {
        self.may_be_free = true;
    }

    /// Asks for a permit that may be free, for the first call that waits for one.
    pub(super) fn ask_for_permit(&mut self) {
        let now = Instant::now();
        let is_time = self.may_be_free || self.asks_again.is_some_and(|again| again <= now);
        if self.asking.is_some() || !is_time {
            return;
        }
        // One whose wait is over leaves as soon as its future is polled.
        if let Some(first) = self.permits.values().find(|waiter| now < waiter.ends()).cloned() {
            (self.asking, self.may_be_free, self.asks_again) = (Some(first.number), false, None);
            self.ask(&first);
        }
    }

    /// Removes a call from those that wait. If it was asking, there may be a permit for the next one, too.
    pub(super) fn leave_permits(&mut self, waiter: &Waiter) {
        self.permits.remove(&waiter.number);
        if self.asking == Some(waiter.number) {
            (self.asking, self.may_be_free) = (None, true);
        }
    }
}
