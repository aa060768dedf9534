//! A waiting call, as its future and its queue share it.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    key::{Key, KeyRef},
    limiter::owned_call::OwnedCall,
};

/// A call that waits.
pub(in crate::limiter) struct Waiter {
    /// Its number in the order of arrivals.
    pub(super) number: u64,
    pub(in crate::limiter) call: OwnedCall,
    pub(in crate::limiter) key: Key,
    /// The text by which its queue is found.
    pub(in crate::limiter) text: Arc<[u8]>,
    pub(in crate::limiter) arrived: Instant,
    /// The number of times that Redis has not decided the call.
    pub(in crate::limiter) failures: AtomicU32,
    /// Notified when the call is to look again.
    pub(in crate::limiter) changed: Notify,
}

/// A question of a call to its store, for a turn, a permit or both. An answer under another number
/// than that of the call's last question is given back.
#[cfg_attr(test, derive(Clone))]
pub(in crate::limiter) struct Question {
    pub(in crate::limiter) waiter: Arc<Waiter>,
    pub(super) number: u64,
}

impl Waiter {
    /// Returns a call that arrives now. Its key on Redis has the prefix.
    pub(in crate::limiter) fn new(prefix: &str, call: OwnedCall) -> Arc<Self> {
        static ARRIVALS: AtomicU64 = AtomicU64::new(0);
        let key = KeyRef::new(&call.policy, call.caller.parts());
        let (text, key) = (text_of(key), Key::compose(prefix, key));
        Arc::new(Self {
            number: ARRIVALS.fetch_add(1, Ordering::Relaxed),
            call,
            key,
            text,
            arrived: Instant::now(),
            failures: AtomicU32::new(0),
            changed: Notify::new(),
        })
    }

    /// Returns the time until which the call may wait.
    pub(in crate::limiter) fn ends(&self) -> Instant {
        self.arrived + self.call.options.max_wait
    }

    /// Returns the start of the deadline of a question that is asked now: the end of the wait, if
    /// that is over. So the call has its answer at most one deadline after its wait.
    pub(in crate::limiter) fn asked(&self) -> Instant {
        Instant::now().min(self.ends())
    }
}

/// Returns the text by which a limiter finds a key's queue.
pub(super) fn text_of(key: KeyRef<'_>) -> Arc<[u8]> {
    Key::compose("", key).as_bytes().into()
}

/// Wakes calls, so that they look again.
pub(in crate::limiter) fn wake(waiters: impl IntoIterator<Item = Arc<Waiter>>) {
    for waiter in waiters {
        // A call that does not sleep yet finds this notice when it does.
        waiter.changed.notify_one();
    }
}
