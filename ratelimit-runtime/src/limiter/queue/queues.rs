//! The queues of a limiter, one for each key under which calls wait.
//!
//! One lock guards all queues and the progress of their calls. It is held for moves within a queue.
//! Stores are asked, and permits are dropped, without it.

use std::{collections::HashMap, mem, sync::Arc};

use super::{
    Aftermath, KeyQueue,
    waiter::{text_of, wake},
};
use crate::{
    key::KeyRef,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// All calls of a limiter that wait.
pub(in crate::limiter) struct Queues {
    by_key: Mutex<HashMap<Arc<[u8]>, KeyQueue>>,
    /// The number of queues, readable without the lock.
    count: AtomicUsize,
    /// `true` if other processes change turns and permits too.
    is_remote: bool,
    /// The maximum number of turns, and of calls ahead of one that waits.
    pub(in crate::limiter) max_line: u32,
}

impl Queues {
    pub(in crate::limiter) fn new(is_remote: bool, max_line: u32) -> Self {
        Self { by_key: Mutex::default(), count: AtomicUsize::new(0), is_remote, max_line }
    }

    /// Changes the queue of a key, which exists while calls wait in it. If a permit may be free
    /// then, the call that is first asks for it.
    pub(in crate::limiter) fn change<T>(
        &self,
        key: &Arc<[u8]>,
        change: impl FnOnce(&mut KeyQueue) -> T,
    ) -> (T, Aftermath) {
        let mut queues = self.by_key.lock();
        let new = || KeyQueue::new(self.is_remote, self.max_line);
        let queue = queues.entry(Arc::clone(key)).or_insert_with(new);
        let changed = change(queue);
        // Each change may have freed a permit, or have ended the question for one.
        queue.ask_for_permit();
        let after = queue.take_after();
        if queue.calls.is_empty() {
            queues.remove(key);
        }
        self.count.store(queues.len(), Ordering::SeqCst);
        (changed, after)
    }

    /// Changes the queue of a key, if any call waits.
    pub(in crate::limiter) fn change_if_any(
        &self,
        key: KeyRef<'_>,
        change: impl FnOnce(&mut KeyQueue),
    ) -> Aftermath {
        if self.is_empty() { Aftermath::default() } else { self.change(&text_of(key), change).1 }
    }

    /// Returns `true` if no call waits.
    pub(in crate::limiter) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Returns `true` if calls of this process wait for a permit of the key.
    pub(in crate::limiter) fn has_queue(&self, key: KeyRef<'_>) -> bool {
        self.by_key.lock().get(&text_of(key)).is_some_and(|queue| !queue.permits.is_empty())
    }

    /// Lets the first call of the key's queue ask whether its turn has come nearer.
    pub(in crate::limiter) fn hurry(&self, key: KeyRef<'_>) {
        if !self.is_empty() {
            // The woken call asks by itself, so that a settle has no aftermath to follow.
            let hurry = |queue: &mut KeyQueue| {
                queue.hurry();
                mem::take(&mut queue.line.woken)
            };
            let woken = self.by_key.lock().get_mut(&text_of(key)).map(hurry);
            wake(woken.into_iter().flatten());
        }
    }
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use std::{
        cell::Cell,
        future::{Future, IntoFuture},
        pin::pin,
        task::{Context, Waker},
        time::Duration,
    };

    use crate::{
        limiter::Limiter, policy::Policy, telemetry::foreign_recorder::with_foreign_recorder,
    };

    #[tokio::test]
    async fn a_recorder_is_called_without_the_lock_of_all_lines() {
        const HOUR: Duration = Duration::from_secs(3_600);
        const LINE: Policy = Policy::fixed_window("recorded line", HOUR, 1);
        let (limiter, seen) = (Limiter::in_memory(), Cell::new(0));
        let is_free = || {
            assert!(limiter.inner.queues.by_key.try_lock().is_some(), "locked");
            seen.set(seen.get() + 1);
        };
        for _ in 0..2 {
            let mut call = pin!(limiter.check(&LINE, "alice").max_wait(HOUR).into_future());
            with_foreign_recorder(is_free, || {
                let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            });
        }
        // The key is new, and the line grows.
        assert!(seen.get() >= 2, "{}", seen.get());
    }
}
