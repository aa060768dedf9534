//! A waiting call, as its future and its line share it.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::seats::{Claim, Seat};
use crate::{
    decision::Permit,
    key::{Key, KeyRef},
    limiter::{
        call::{Call, OwnedCall},
        permit::Decided,
    },
    policy::Policy,
    request::{OnStoreError, Outcome, next_id},
    sync::Mutex,
};

/// The longest time for which a call waits, some hundred years.
const LONGEST: Duration = Duration::from_secs(1 << 33);

/// A call that waits.
pub(super) struct Waiter {
    call: OwnedCall,
    pub(super) key: Key,
    /// The text by which its queue is found.
    pub(super) text: Box<[u8]>,
    pub(super) arrived: Instant,
    /// The policy that it waits under, if an override changes it.
    overridden: Mutex<Option<Policy>>,
    pub(super) stage: Mutex<WaitStage>,
    /// How often Redis has not decided the call.
    pub(super) failures: AtomicU32,
    /// Notified when the call is to look again.
    pub(super) changed: Notify,
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

/// The progress of a waiting call.
#[derive(Default)]
pub(super) enum WaitStage {
    /// It has not arrived, or has left. Answers to its questions are given back.
    #[default]
    Outside,
    /// The [question](Question) of this number is out.
    Asking(u64),
    /// It has a turn, and maybe a permit.
    InLine(Option<Arc<dyn Permit>>),
    /// It waits for a permit.
    Queued,
    /// It waits for Redis, which could not decide, and asks again at this time.
    Paused(Instant),
    Answered(Decided),
}

/// A question of a call to its store, for a turn, a permit or both. An answer under another number than that
/// of the call's last question is given back.
pub(super) struct Question {
    pub(super) waiter: Arc<Waiter>,
    pub(super) number: u64,
    pub(super) claim: Claim,
}

impl Waiter {
    pub(super) fn new(call: OwnedCall) -> Arc<Self> {
        let Call { limiter, policy, caller, .. } = call.as_call();
        let key = KeyRef::new(policy, caller.parts());
        let (text, key) = (text_of(key), Key::compose(limiter.inner.backend.prefix(), key));
        Arc::new(Self {
            call,
            key,
            text,
            arrived: Instant::now(),
            overridden: Mutex::default(),
            stage: Mutex::default(),
            failures: AtomicU32::new(0),
            changed: Notify::new(),
        })
    }

    pub(super) fn call(&self) -> Call<'_> {
        self.call.as_call()
    }

    /// Returns a question under the policy that the call waits under.
    pub(super) fn question(self: &Arc<Self>) -> Question {
        Question { waiter: Arc::clone(self), number: next_id(), claim: self.claim() }
    }

    /// Returns the time until which the call may wait.
    pub(super) fn ends(&self) -> Instant {
        self.arrived + self.call().options.max_wait.min(LONGEST)
    }

    /// Returns the start of the deadline of a question that is asked now: the end of the wait, if that is over. So
    /// the call has its answer at most one deadline after its wait.
    pub(super) fn asked(&self) -> Instant {
        Instant::now().min(self.ends())
    }

    /// Returns the time at which a call that Redis has not decided asks again: after a pause, and at the latest at
    /// the end of its wait. Returns nothing if there is an answer, or if asking again does not help.
    pub(super) fn asks_again(&self, decided: &Decided) -> Option<Instant> {
        decided.outcome.err().filter(|reason| reason.may_pass())?;
        let Call { limiter, options, .. } = self.call();
        let (backend, now) = (&limiter.inner.backend, Instant::now());
        let redis = backend.redis()?;
        if now >= self.ends()
            && backend.on_store_error(options.on_store_error) == OnStoreError::Deny
        {
            return None;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        Some((now + redis.pause(failures)).min(self.ends()))
    }

    pub(super) fn max_line(&self) -> u32 {
        self.call().limiter.inner.max_line
    }

    /// Returns the policy that the call waits under.
    pub(super) fn policy(&self) -> Policy {
        self.overridden.lock().unwrap_or(*self.call().policy)
    }

    /// Sets the policy that the call waits under.
    pub(super) fn wait_under(&self, policy: &Policy) {
        let written = self.call().policy;
        *self.overridden.lock() = (policy != written).then_some(*policy);
    }

    /// Returns the charge that the call asks for.
    pub(super) fn claim(&self) -> Claim {
        let Call { options, .. } = self.call();
        Claim { policy: self.policy(), cost: options.cost, id: options.id }
    }
}

impl Question {
    /// Returns the turn of an answer.
    pub(super) fn seat(&self, outcome: Outcome) -> Seat<Arc<Waiter>> {
        let (promised, claim, waiter) = (Instant::now(), self.claim, Arc::clone(&self.waiter));
        let turn = promised + outcome.turn().into();
        Seat { outcome, turn, promised, claim, is_asleep: false, is_moved: false, waiter }
    }
}

/// Returns the text by which a limiter finds a key's queue.
pub(super) fn text_of(key: KeyRef<'_>) -> Box<[u8]> {
    Key::compose("", key).as_bytes().into()
}
