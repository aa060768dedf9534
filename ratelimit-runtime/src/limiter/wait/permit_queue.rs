//! The calls of this process that wait for a permit of one key, in the order of their arrival.
//!
//! One question at a time is out, for the first call that still waits. It is asked when a permit of this process is
//! free, and once in a while if other processes have some. When a call has received a permit, the next one asks,
//! until one finds none. Nothing of this waits for the calls' futures, whose threads may be blocked.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// The pause after which the first call asks again for a permit that another process may have freed, unless the
/// store names another one.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct PermitQueue<W> {
    /// The calls, with the ends of their waits.
    waiters: VecDeque<(W, Instant)>,
    /// The call for which a question is out.
    asking: Option<W>,
    /// `true` if a permit may be free.
    may_be_free: bool,
    /// The time from which a call asks again.
    asks_again: Option<Instant>,
    /// `true` if other processes hold permits of the key too.
    is_remote: bool,
}

impl<W: Clone + PartialEq> PermitQueue<W> {
    pub(super) fn new(is_remote: bool) -> Self {
        let (waiters, asking, may_be_free, asks_again) = Default::default();
        Self { waiters, asking, may_be_free, asks_again, is_remote }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Returns `true` if the call waits until `ends`: it is in the queue already, or it is added behind fewer
    /// than `max_line` others.
    pub(super) fn waits(&mut self, waiter: &W, ends: Instant, max_line: u32) -> bool {
        // In memory a permit may have been freed since the first call was refused.
        self.may_be_free |= self.is_empty() && !self.is_remote;
        let is_in_queue = self.waiters.iter().any(|(it, _)| it == waiter);
        let has_room = self.waiters.len() < usize::try_from(max_line).unwrap_or(usize::MAX);
        if !is_in_queue && has_room {
            self.waiters.push_back((waiter.clone(), ends));
        }
        is_in_queue || has_room
    }

    /// Records that a call of the queue found no permit. If other processes may free one, returns the pause before
    /// [`next`](Self::next) is called again: that of the store's reply, or a second.
    pub(super) fn found_none(&mut self, waiter: &W, pause: Duration) -> Option<Duration> {
        self.asking = self.asking.take().filter(|it| it != waiter);
        let pause = if pause.is_zero() { PAUSE } else { pause };
        self.asks_again = self.is_remote.then(|| Instant::now() + pause);
        self.is_remote.then_some(pause)
    }

    /// A permit may be free.
    pub(super) fn hurry(&mut self) {
        self.may_be_free = true;
    }

    /// Returns the call that is to ask now, if one is.
    pub(super) fn next(&mut self) -> Option<W> {
        if self.is_empty() || self.asking.is_some() {
            return None;
        }
        let now = Instant::now();
        if !self.may_be_free && self.asks_again.is_none_or(|asks_again| now < asks_again) {
            return None;
        }
        // One whose wait is over leaves as soon as its future is polled.
        let (first, _) = self.waiters.iter().find(|(_, ends)| now < *ends)?;
        (self.asking, self.may_be_free, self.asks_again) = (Some(first.clone()), false, None);
        self.asking.clone()
    }

    /// Removes a call. If it was asking, there may be a permit for the next one, too.
    pub(super) fn leave(&mut self, waiter: &W) {
        if let Some(index) = self.waiters.iter().position(|(it, _)| it == waiter) {
            self.waiters.remove(index);
        }
        if self.asking.as_ref() == Some(waiter) {
            self.asking = None;
            self.hurry();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);
    const MINUTE: Duration = Duration::from_secs(60);

    fn queue(is_remote: bool) -> PermitQueue<char> {
        let (mut queue, ends) = (PermitQueue::new(is_remote), Instant::now() + MINUTE);
        assert!("abc".chars().all(|waiter| queue.waits(&waiter, ends, 3)));
        assert!(!queue.waits(&'d', ends, 3));
        queue
    }

    #[test]
    fn calls_ask_in_turn_until_one_asks_in_vain() {
        let mut queue = queue(false);
        // The permit may have been freed while the first one was added.
        assert_eq!(queue.next(), Some('a'));
        // One is freed while it asks.
        queue.hurry();
        assert_eq!(queue.next(), None);
        assert_eq!(queue.found_none(&'a', Duration::ZERO), None);
        assert_eq!(queue.next(), Some('a'));
        queue.leave(&'a');
        assert_eq!(queue.next(), Some('b'));
        assert_eq!(queue.found_none(&'b', Duration::ZERO), None);
        assert_eq!(queue.next(), None);
        queue.hurry();
        assert_eq!(queue.next(), Some('b'));
        queue.leave(&'b');
        assert_eq!(queue.next(), Some('c'));
        queue.leave(&'c');
        assert!(queue.is_empty() && queue.next().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn permits_of_other_processes_are_asked_for_once_in_a_while_and_all_that_are_free_at_once()
     {
        let mut queue = queue(true);
        assert_eq!(queue.found_none(&'a', Duration::ZERO), Some(PAUSE));
        tokio::time::advance(PAUSE.saturating_sub(MILLI)).await;
        assert_eq!(queue.next(), None);
        tokio::time::advance(MILLI).await;
        assert_eq!(queue.next(), Some('a'));
        assert_eq!(queue.found_none(&'a', 5 * MILLI), Some(5 * MILLI));
        assert_eq!(queue.next(), None);
        tokio::time::advance(5 * MILLI).await;
        // No pause is between one that is found and the next.
        for waiter in "abc".chars() {
            assert_eq!(queue.next(), Some(waiter));
            queue.leave(&waiter);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_wait_is_over_asks_no_more_and_keeps_its_place_until_it_leaves() {
        let mut queue = PermitQueue::new(true);
        assert!(queue.waits(&'a', Instant::now() + MILLI, 2));
        assert!(queue.waits(&'b', Instant::now() + MINUTE, 2));
        tokio::time::advance(MILLI).await;
        queue.hurry();
        assert_eq!(queue.next(), Some('b'));
        assert!(!queue.waits(&'c', Instant::now() + MINUTE, 2));
        queue.leave(&'a');
        assert!(queue.waits(&'c', Instant::now() + MINUTE, 2));
    }
}
