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

use super::line::{Claim, LineId};
use crate::{
    decision::Permit,
    key::{Key, KeyRef},
    limiter::{check::Call, permit::Decided, pipeline::PendingCall},
    policy::Policy,
    request::DecidedBy,
    sync::Mutex,
};

/// The longest time for which a call waits, some hundred years.
const LONGEST: Duration = Duration::from_secs(1 << 33);

/// A call that waits.
pub(super) struct Waiter {
    call: PendingCall,
    pub(super) key: Key,
    /// The text by which its lines are found.
    pub(super) text: Box<[u8]>,
    pub(super) arrived: Instant,
    /// The policy that it waits under, if an override changes it.
    pub(super) overridden: Mutex<Option<Policy>>,
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
    /// It is in no line.
    #[default]
    Outside,
    /// A store is asked for a turn.
    Asking,
    /// It has a turn, and maybe a permit.
    InLine(LineId, Option<Arc<dyn Permit>>),
    /// It waits for a permit.
    Queued,
    /// It waits for Redis, which could not decide, and asks again at this time.
    Paused(Instant),
    Answered(Decided),
    /// Its future is dropped.
    Dropped,
}

impl Waiter {
    pub(super) fn new(call: PendingCall) -> Arc<Self> {
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

    /// Returns the time until which the call may wait.
    pub(super) fn ends(&self) -> Instant {
        self.arrived + self.call().options.max_wait.min(LONGEST)
    }

    /// Returns the time at which the call asks again after Redis has not decided it: after a pause, at the
    /// latest when its wait ends. Returns nothing if there is an answer, or if time does not help.
    pub(super) fn asks_again(&self, decided: &Decided) -> Option<Instant> {
        decided.outcome.err().filter(|reason| reason.may_pass())?;
        let redis = self.call().limiter.inner.backend.redis()?;
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        Some((Instant::now() + redis.pause(failures)).min(self.ends()))
    }

    pub(super) fn max_line(&self) -> u32 {
        self.call().limiter.inner.max_line
    }

    /// Returns `true` if other processes change the turns that this decider promises.
    pub(super) fn is_remote(&self, decided_by: DecidedBy) -> bool {
        !self.call().limiter.is_in_memory() && decided_by != DecidedBy::Fallback
    }

    /// Returns the policy that an override makes of the call's own.
    pub(super) fn overridden(&self) -> Option<Policy> {
        *self.overridden.lock()
    }

    /// Returns the charge that the call asks for.
    pub(super) fn claim(&self) -> Claim {
        let Call { policy, options, .. } = self.call();
        let policy = self.overridden().unwrap_or(*policy);
        Claim { policy, cost: options.cost, id: options.id }
    }
}

/// Returns the text by which a limiter finds a key's lines.
pub(super) fn text_of(key: KeyRef<'_>) -> Box<[u8]> {
    Key::compose("", key).as_bytes().into()
}
