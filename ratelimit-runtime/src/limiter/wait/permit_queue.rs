//! The calls of this process that wait for a permit of one key, in the order of their arrival.
//!
//! The first one asks again when a permit of this process is free, and once in a while if other processes
//! hold some. The others wait behind it. Once it has a permit, the next one asks: until one asks in vain.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// The pause after which the first call asks again for a permit that another process may have freed, unless the
/// store names another one.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct PermitQueue<W> {
    waiters: VecDeque<W>,
    /// `true` if a permit may be free: the first call asks at once.
    may_be_free: bool,
    /// The time at which the first call last asked in vain, and the pause until it asks again.
    asked: Option<Instant>,
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

impl<W> Default for PermitQueue<W> {
    fn default() -> Self {
        let (waiters, may_be_free, asked, is_asking, is_remote) = Default::default();
        Self { waiters, may_be_free, asked, pause: PAUSE, is_asking, is_remote }
    }
}

impl<W: Clone + PartialEq> PermitQueue<W> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Adds a call, if there are fewer than `max_line`.
    pub(super) fn push(&mut self, waiter: &W, is_remote: bool, max_line: u32) -> bool {
        if self.is_empty() {
            // In memory a permit may have been freed since the first call was refused.
            (self.may_be_free, self.is_remote) = (!is_remote, is_remote);
            self.asked = Some(Instant::now());
        }
        let has_room = self.waiters.len() < usize::try_from(max_line).unwrap_or(usize::MAX);
        if has_room {
            self.waiters.push_back(waiter.clone());
        }
        has_room
    }

    fn is_first(&self, waiter: &W) -> bool {
        self.waiters.front() == Some(waiter)
    }

    /// Returns `true` if the call is in the queue already: it has asked in vain.
    pub(super) fn still_waits(&mut self, waiter: &W) -> bool {
        if self.is_first(waiter) {
            (self.is_asking, self.asked) = (false, Some(Instant::now()));
        }
        self.waiters.contains(waiter)
    }

    /// Sets the pause until the first call asks again, as the store has told it.
    pub(super) fn pause_for(&mut self, pause: Option<Duration>) {
        self.pause = pause.unwrap_or(PAUSE);
    }

    /// Lets the first call ask at once, and returns it.
    pub(super) fn hurry(&mut self) -> Option<W> {
        self.may_be_free = true;
        self.waiters.front().cloned()
    }

    /// Removes a call. Returns the one that is first now: there may be a permit for it, too.
    pub(super) fn leave(&mut self, waiter: &W) -> Option<W> {
        if self.is_first(waiter) {
            self.waiters.pop_front();
            self.is_asking = false;
            return self.hurry();
        }
        self.waiters.retain(|it| it != waiter);
        None
    }

    /// Returns the next step of a call that waits until `ends`.
    pub(super) fn look(&mut self, waiter: &W, ends: Instant, now: Instant) -> PermitStep {
        let polls = self.asked.filter(|_| self.is_remote).map(|asked| asked + self.pause);
        let next = polls.map_or(ends, |next| next.min(ends));
        if now >= ends {
            PermitStep::Over
        } else if !self.is_first(waiter) || self.is_asking {
            PermitStep::Sleep(Some(ends))
        } else if now < next && !self.may_be_free {
            PermitStep::Sleep(Some(next))
        } else {
            (self.may_be_free, self.is_asking) = (false, true);
            PermitStep::Ask
        }
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
        let mut queue = PermitQueue::default();
        assert!("abc".chars().all(|waiter| queue.push(&waiter, is_remote, 3)));
        assert!(!queue.push(&'d', is_remote, 3));
        queue
    }

    #[test]
    fn calls_ask_in_turn_until_one_asks_in_vain() {
        let (mut queue, now) = (queue(false), Instant::now());
        // The permit may have been freed while it was added.
        assert_eq!(looks(&mut queue, now), [('a', PermitStep::Ask)]);
        // One is freed while it asks.
        assert_eq!(queue.hurry(), Some('a'));
        assert!(queue.still_waits(&'a'));
        assert_eq!(looks(&mut queue, now), [('a', PermitStep::Ask)]);
        assert_eq!(queue.leave(&'a'), Some('b'));
        assert_eq!(looks(&mut queue, now), [('b', PermitStep::Ask)]);
        assert!(queue.still_waits(&'b'));
        assert_eq!(looks(&mut queue, now + 10 * PAUSE), []);
        assert_eq!(queue.hurry(), Some('b'));
        assert_eq!(looks(&mut queue, now), [('b', PermitStep::Ask)]);
        assert_eq!(queue.leave(&'b'), Some('c'));
        assert_eq!(queue.leave(&'c'), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn permits_of_other_processes_are_asked_for_once_in_a_while_and_all_that_are_free_at_once() {
        let (mut queue, now) = (queue(true), Instant::now());
        assert!(matches!(looks(&mut queue, now)[..], [('a', PermitStep::Sleep(_))]));
        assert_eq!(looks(&mut queue, now + PAUSE + MILLI), [('a', PermitStep::Ask)]);
        assert!(queue.still_waits(&'a'));
        assert!(matches!(looks(&mut queue, Instant::now())[..], [('a', PermitStep::Sleep(_))]));
        let now = Instant::now() + PAUSE;
        assert_eq!(looks(&mut queue, now), [('a', PermitStep::Ask)]);
        assert_eq!(queue.leave(&'a'), Some('b'));
        assert_eq!(looks(&mut queue, now), [('b', PermitStep::Ask)]);
    }

    #[test]
    fn a_call_that_gives_up_leaves_those_behind_it() {
        let (mut queue, now) = (queue(true), Instant::now());
        assert_eq!(queue.look(&'b', now, now), PermitStep::Over);
        assert_eq!(queue.leave(&'b'), None);
        assert_eq!(queue.leave(&'a'), Some('c'));
        assert!(
            !queue.still_waits(&'a') && queue.push(&'d', true, 2) && !queue.push(&'e', true, 2)
        );
    }
}
