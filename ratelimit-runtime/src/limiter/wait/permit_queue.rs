//! The calls of this process that wait for a permit of one key, in the order of their arrival.
//!
//! The first one asks again when a permit of this process is free, and once in a while if other processes
//! hold some. The others wait behind it.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// The pause after which the first call asks again for a permit that another process may have freed.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct PermitQueue<W> {
    waiters: VecDeque<W>,
    /// The permits that were freed and not asked for yet.
    free: usize,
    /// The time at which the first call asks in any case, after a pause by the store's last answer.
    next: Instant,
    pause: Duration,
    /// `true` while the first call asks.
    is_asking: bool,
    /// `true` if other processes hold permits of the key too.
    is_remote: bool,
}

/// The next step of a call in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermitStep {
    /// It asks for a permit.
    Ask,
    /// It sleeps, at most until then.
    Sleep(Option<Instant>),
    /// It has waited for as long as it may.
    Over,
}

impl<W: Clone + PartialEq> PermitQueue<W> {
    pub(super) fn new(is_remote: bool) -> Self {
        // In memory a permit may have been freed since the first call was refused.
        let free = usize::from(!is_remote);
        let (waiters, next) = (VecDeque::new(), Instant::now() + PAUSE);
        Self { waiters, free, next, pause: PAUSE, is_asking: false, is_remote }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Lets the first call ask again after this time.
    pub(super) fn pause_for(&mut self, pause: Duration) {
        self.pause = pause;
        self.next = Instant::now() + pause;
    }

    pub(super) fn has_room(&self, max_line: u32) -> bool {
        self.waiters.len() < usize::try_from(max_line).unwrap_or(usize::MAX)
    }

    pub(super) fn push(&mut self, waiter: W) {
        self.waiters.push_back(waiter);
    }

    fn is_first(&self, waiter: &W) -> bool {
        self.waiters.front() == Some(waiter)
    }

    /// Returns `true` if the call is in the queue already: it has asked in vain.
    pub(super) fn still_waits(&mut self, waiter: &W) -> bool {
        if self.is_first(waiter) {
            self.is_asking = false;
            self.next = Instant::now() + self.pause;
        }
        self.waiters.contains(waiter)
    }

    /// Counts a free permit. Returns the call that is to ask for it.
    pub(super) fn permit_is_free(&mut self) -> Option<W> {
        self.free = (self.free + 1).min(self.waiters.len());
        self.waiters.front().cloned()
    }

    /// Removes a call. Returns the one that is first now.
    pub(super) fn leave(&mut self, waiter: &W) -> Option<W> {
        if self.is_first(waiter) {
            self.waiters.pop_front();
            self.is_asking = false;
            self.next = Instant::now() + self.pause;
            return self.waiters.front().cloned();
        }
        self.waiters.retain(|it| it != waiter);
        None
    }

    /// Returns the next step of a call that waits until `ends`.
    pub(super) fn look(&mut self, waiter: &W, ends: Instant, now: Instant) -> PermitStep {
        if now >= ends {
            return PermitStep::Over;
        }
        if !self.is_first(waiter) || self.is_asking {
            return PermitStep::Sleep(Some(ends));
        }
        if self.free == 0 && (!self.is_remote || now < self.next) {
            return PermitStep::Sleep(Some(if self.is_remote {
                self.next.min(ends)
            } else {
                ends
            }));
        }
        self.free = self.free.saturating_sub(1);
        self.is_asking = true;
        PermitStep::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    /// Returns the steps of the calls that are not told to sleep until they give up.
    fn looks(queue: &mut PermitQueue<char>, now: Instant) -> Vec<(char, PermitStep)> {
        let ends = now + 60 * PAUSE;
        let waiters: Vec<_> = queue.waiters.iter().copied().collect();
        let steps = waiters.into_iter().map(|it| (it, queue.look(&it, ends, now)));
        steps.filter(|(_, step)| *step != PermitStep::Sleep(Some(ends))).collect()
    }

    fn queue(is_remote: bool) -> PermitQueue<char> {
        let mut queue = PermitQueue::new(is_remote);
        "abc".chars().for_each(|waiter| queue.push(waiter));
        queue
    }

    #[test]
    fn the_first_call_asks_once_for_each_permit_that_is_free() {
        let (mut queue, now) = (queue(false), Instant::now());
        // The permit may have been freed while it was added.
        assert_eq!(looks(&mut queue, now), [('a', PermitStep::Ask)]);
        assert_eq!(queue.permit_is_free(), Some('a'));
        assert_eq!(queue.permit_is_free(), Some('a'));
        assert!(queue.still_waits(&'a'));
        assert_eq!(looks(&mut queue, now), [('a', PermitStep::Ask)]);
        assert_eq!(queue.leave(&'a'), Some('b'));
        assert_eq!(looks(&mut queue, now), [('b', PermitStep::Ask)]);
        assert_eq!(queue.leave(&'b'), Some('c'));
        assert_eq!(looks(&mut queue, now + 10 * PAUSE), []);
        assert_eq!(queue.leave(&'c'), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn permits_of_other_processes_are_asked_for_once_in_a_while() {
        let (mut queue, now) = (queue(true), Instant::now());
        assert!(matches!(looks(&mut queue, now)[..], [('a', PermitStep::Sleep(_))]));
        assert_eq!(looks(&mut queue, now + PAUSE + MILLI), [('a', PermitStep::Ask)]);
        assert!(queue.still_waits(&'a'));
        assert!(matches!(looks(&mut queue, Instant::now())[..], [('a', PermitStep::Sleep(_))]));
    }

    #[test]
    fn a_call_that_gives_up_leaves_those_behind_it() {
        let (mut queue, now) = (queue(true), Instant::now());
        assert_eq!(queue.look(&'b', now, now), PermitStep::Over);
        assert_eq!(queue.leave(&'b'), None);
        assert_eq!(queue.leave(&'a'), Some('c'));
        assert!(!queue.still_waits(&'a') && queue.has_room(2) && !queue.has_room(1));
    }
}
