//! Calls that wait for a permit.

use super::{super::permits::PAUSE, *};

const MINUTE: Duration = Duration::from_secs(60);

/// A queue of calls that wait for a permit, all for a minute.
struct Permits {
    queue: KeyQueue,
}

impl Permits {
    fn new(is_remote: bool) -> Self {
        let mut permits = Self { queue: KeyQueue::new(is_remote, 3) };
        assert!("abc".chars().all(|name| permits.waits(name, MINUTE)));
        assert!(!permits.waits('d', MINUTE));
        permits
    }

    fn waits(&mut self, name: char, max_wait: Duration) -> bool {
        let waits = self.queue.permits.waits(&waiter(name, max_wait));
        if waits {
            self.queue.calls.insert(u64::from(u32::from(name)), WaitStage::Queued);
        }
        waits
    }

    /// Returns the call that asks now, if one does.
    fn next(&mut self) -> Option<char> {
        self.queue.ask_for_permit();
        let asked = mem::take(&mut self.queue.after.asked);
        assert!(asked.len() < 2);
        asked.first().map(|question| name(&question.waiter))
    }

    /// Returns the pause after which the queue looks again.
    fn finds_none(&mut self, name: char, pause: Duration) -> Option<Duration> {
        self.queue.permits.found_none(&waiter(name, MINUTE), pause).map(|(_, pause)| pause)
    }

    fn leave(&mut self, name: char) {
        self.queue.withdraw(&waiter(name, MINUTE));
    }
}

#[test]
fn calls_ask_in_turn_until_one_asks_in_vain() {
    let mut permits = Permits::new(false);
    // The permit may have been freed while the first one was added.
    assert_eq!(permits.next(), Some('a'));
    // One is freed while it asks.
    permits.queue.permit_is_free();
    assert_eq!(permits.next(), None);
    assert_eq!(permits.finds_none('a', Duration::ZERO), None);
    assert_eq!(permits.next(), Some('a'));
    permits.leave('a');
    assert_eq!(permits.next(), Some('b'));
    assert_eq!(permits.finds_none('b', Duration::ZERO), None);
    assert_eq!(permits.next(), None);
    permits.queue.permit_is_free();
    assert_eq!(permits.next(), Some('b'));
    permits.leave('b');
    assert_eq!(permits.next(), Some('c'));
    permits.leave('c');
    assert!(permits.queue.calls.is_empty() && permits.next().is_none());
}

#[tokio::test(start_paused = true)]
async fn permits_of_other_processes_are_asked_for_once_in_a_while_and_all_that_are_free_at_once() {
    let mut permits = Permits::new(true);
    assert_eq!(permits.finds_none('a', Duration::ZERO), Some(PAUSE));
    tokio::time::advance(PAUSE.saturating_sub(MILLI)).await;
    assert_eq!(permits.next(), None);
    tokio::time::advance(MILLI).await;
    assert_eq!(permits.next(), Some('a'));
    assert_eq!(permits.finds_none('a', 5 * MILLI), Some(5 * MILLI));
    assert_eq!(permits.next(), None);
    tokio::time::advance(5 * MILLI).await;
    // No pause is between one that is found and the next.
    for waiter in "abc".chars() {
        assert_eq!(permits.next(), Some(waiter));
        permits.leave(waiter);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_wait_is_over_asks_no_more_and_keeps_its_place_until_it_leaves() {
    let mut permits = Permits { queue: KeyQueue::new(true, 2) };
    assert!(permits.waits('a', MILLI) && permits.waits('b', MINUTE));
    tokio::time::advance(MILLI).await;
    permits.queue.permit_is_free();
    assert_eq!(permits.next(), Some('b'));
    assert!(!permits.waits('c', MINUTE));
    permits.leave('a');
    assert!(permits.waits('c', MINUTE));
}

/// Replies may come in another order than their questions.
#[test]
fn calls_wait_for_permits_in_the_order_of_their_arrival() {
    let mut permits = Permits { queue: KeyQueue::new(false, 2) };
    assert!(permits.waits('b', MINUTE) && permits.waits('a', MINUTE));
    assert_eq!(permits.next(), Some('a'));
}
