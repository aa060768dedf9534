//! The calls of a queue that wait for a permit, in the order of their arrival.
//!
//! One question at a time is out, for the first call that still waits. It is asked when a permit of
//! this process is free, and once in a while if other processes have some. When a call has received
//! a permit, the next one asks, until one finds none. Nothing of this waits for the calls' futures,
//! whose threads may be blocked.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::waiter::Waiter;

/// The pause after which the first call asks again for a permit that another process may have
/// freed, unless the store names another one.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The calls of a queue that wait for a permit.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct PermitLine {
    /// The calls, in the order of their arrival.
    waiting: BTreeMap<u64, Arc<Waiter>>,
    /// The call of these for which a question is out.
    asking: Option<u64>,
    /// `true` if a permit may be free.
    may_be_free: bool,
    /// The time from which a call asks again for a permit that another process may have freed.
    asks_again: Option<Instant>,
    /// `true` if other processes have permits too.
    is_remote: bool,
    /// The maximum number of calls that wait.
    max_line: usize,
}

impl PermitLine {
    pub(super) fn new(is_remote: bool, max_line: u32) -> Self {
        let max_line = usize::try_from(max_line).unwrap_or(usize::MAX);
        Self { is_remote, max_line, ..Self::default() }
    }

    /// Returns `true` if no call waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns `true` if the call waits for a permit: it does already, or it is added behind fewer
    /// than `max_line` others.
    pub(super) fn waits(&mut self, waiter: &Arc<Waiter>) -> bool {
        // In memory a permit may have been freed since the first call was refused.
        self.may_be_free |= self.waiting.is_empty() && !self.is_remote;
        let has_room = self.waiting.len() < self.max_line;
        if has_room {
            self.waiting.insert(waiter.number, Arc::clone(waiter));
        }
        has_room || self.waiting.contains_key(&waiter.number)
    }

    /// Records that a call found no permit. If other processes may free one, the queue looks again
    /// after the pause of the store's reply, or a second: returns the text of its key, and that
    /// pause.
    pub(super) fn found_none(
        &mut self,
        waiter: &Waiter,
        pause: Duration,
    ) -> Option<(Arc<[u8]>, Duration)> {
        // A call that asked on arrival may be answered while one of those that wait asks.
        self.asking = self.asking.take().filter(|number| *number != waiter.number);
        if !self.is_remote {
            return None;
        }
        let pause = if pause.is_zero() { PAUSE } else { pause };
        self.asks_again = Some(Instant::now() + pause);
        Some((Arc::clone(&waiter.text), pause))
    }

    /// Records that a permit may be free.
    pub(super) fn freed(&mut self) {
        self.may_be_free = true;
    }

    /// Returns the first call that waits, if it is to ask for a permit that may be free.
    pub(super) fn next(&mut self) -> Option<Arc<Waiter>> {
        let now = Instant::now();
        let is_time = self.may_be_free || self.asks_again.is_some_and(|again| again <= now);
        if self.asking.is_some() || !is_time {
            return None;
        }
        // One whose wait is over leaves as soon as its future is polled.
        let first = self.waiting.values().find(|waiter| now < waiter.ends()).cloned()?;
        self.asking = Some(first.number);
        self.may_be_free = false;
        self.asks_again = None;
        Some(first)
    }

    /// Removes a call from those that wait. If it was asking, there may be a permit for the next
    /// one, too.
    pub(super) fn leave(&mut self, waiter: &Waiter) {
        self.waiting.remove(&waiter.number);
        if self.asking == Some(waiter.number) {
            self.asking = None;
            self.may_be_free = true;
        }
    }
}
