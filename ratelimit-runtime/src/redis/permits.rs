//! The permits that this process holds on Redis, and their renewal.
//!
//! A permit expires on Redis unless it is renewed, so that those of a process that dies are free
//! again. One task renews them, and exists only while there are any: all that are due under one key
//! by one command, once they are older than a third of their timeout. Calls that are shorter cost
//! no renewal.

#[cfg(all(test, not(ratelimit_loom)))]
#[path = "../../../tests/models/permits.rs"]
mod model;

use std::{collections::HashMap, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    options::Content,
    outbox::Outbox,
    script::{MAX_RENEWED, decode_lost, release, renew},
    store::RedisStore,
};
use crate::{
    background::{self, Worker},
    decision::Permit,
    error::{Replied, UnavailableReason},
    key::Key,
    request::{DecidedBy, Outcome, PermitClaim, PermitRequest, Request, next_id},
    sync::Mutex,
    telemetry::{self, CountedPermit},
    time::Micros,
};

/// A permit is renewed once it is older than this part of its timeout.
// A deploy may so halve the timeout: processes of the old one still renew in time.
const AGE: u32 = 3;

/// A renewal comes this part of a timeout after it is due, so that one command renews several
/// permits.
const GATHERING: u32 = 30;

/// A renewal that failed is repeated after this part of a timeout.
const RETRY: u32 = 10;

/// The key of a permit, and the numbers by which it is renewed. Permits of equal ones are renewed
/// together.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RenewalGroup {
    key: Key,
    timeout: Duration,
    /// The number of permits under the key.
    most: u32,
}

/// The permit of one call, which is renewed while it is held.
struct HeldPermit {
    group: RenewalGroup,
    /// The earliest time at which Redis may take the permit for expired; none once it is lost.
    until: Option<Instant>,
    /// The time from which it is to be renewed.
    due: Instant,
}

/// The permits that are held.
pub(super) struct PermitRegistry {
    store: Arc<RedisStore>,
    outbox: Arc<Outbox>,
    /// The number of this limiter among those whose calls wait for permits.
    process: u64,
    /// `true` if permits that are held are counted.
    is_instrumented: bool,
    state: Mutex<HeldPermits>,
    changed: Notify,
}

#[derive(Default)]
struct HeldPermits {
    held: HashMap<u64, HeldPermit>,
    /// Renews them while there are any.
    task: Worker,
    /// The time at which the task looks again.
    wakes: Option<Instant>,
}

impl HeldPermit {
    /// Returns the time at which the task renews it.
    fn wakes(&self) -> Instant {
        self.due + self.group.timeout / GATHERING
    }
}

impl PermitRegistry {
    pub(super) fn new(
        store: Arc<RedisStore>,
        outbox: Arc<Outbox>,
        is_instrumented: bool,
    ) -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Notify::default());
        Arc::new(Self { store, outbox, process: next_id(), is_instrumented, state, changed })
    }

    /// Returns the permits that are due by now, in groups of one key each, and the time to look
    /// again; none once no permit is held.
    fn due(&self, now: Instant) -> (HashMap<RenewalGroup, Vec<u64>>, Option<Instant>) {
        let mut state = self.state.lock();
        let mut due: HashMap<RenewalGroup, Vec<u64>> = HashMap::new();
        for (id, permit) in &mut state.held {
            if permit.due <= now {
                due.entry(permit.group.clone()).or_default().push(*id);
                // As if it were renewed. After a failure `renew` brings it forward.
                permit.due = now + permit.group.timeout / AGE;
            }
        }
        let next = state.held.values().map(HeldPermit::wakes).min();
        state.wakes = next;
        // Under the lock that `hold` takes: the next permit starts another task.
        if next.is_none() {
            state.task = Worker::default();
        }
        (due, next)
    }

    /// Renews permits until none is held.
    async fn renew_all(self: Arc<Self>) {
        loop {
            let (due, next) = self.due(Instant::now());
            let Some(next) = next else { return };
            for (group, ids) in due {
                // A task of its own: one at a server that does not answer holds up no other one.
                background::spawn(Arc::clone(&self).renew(group, ids));
            }
            // Woken earlier if a permit is due before.
            let _ = timeout_at(next, self.changed.notified()).await;
        }
    }

    /// Renews permits of one key.
    async fn renew(self: Arc<Self>, group: RenewalGroup, ids: Vec<u64>) {
        let RenewalGroup { key, timeout, most } = &group;
        for ids in ids.chunks(MAX_RENEWED) {
            let sent = Instant::now();
            let command = |attempt| renew(key, Micros::from(*timeout), *most, ids, attempt);
            let lost = self.store.ask(key, command, decode_lost);
            // Until they are due again: a permit has one renewal under way.
            let lost = timeout_at(sent + *timeout / AGE, lost).await;
            let lost = lost.unwrap_or(Err(UnavailableReason::DeadlineExceeded));
            let (mut freed, mut newly_lost) = (Vec::new(), 0);
            let mut state = self.state.lock();
            for id in ids {
                match (state.held.get_mut(id), &lost) {
                    (None, _) => freed.push(*id),
                    (Some(permit), Ok(lost)) => {
                        let until = (!lost.contains(id)).then(|| sent + *timeout);
                        newly_lost += u64::from(until.is_none() && permit.until.is_some());
                        permit.until = until;
                    }
                    (Some(permit), Err(_)) => permit.due = Instant::now() + *timeout / RETRY,
                }
            }
            drop(state);
            if newly_lost > 0 {
                telemetry::permits_lost(key.name.text(), newly_lost);
            }
            if lost.is_err() {
                self.changed.notify_one();
            }
            // One that was freed meanwhile may have taken a place again, also by a renewal without
            // a reply.
            for id in freed {
                self.release(key.clone(), id, *timeout);
            }
        }
    }

    /// Releases a permit on Redis without waiting. If it cannot be sent, its timeout frees it.
    fn release(&self, key: Key, id: u64, timeout: Duration) {
        self.outbox.post(key, Content::Release { id, timeout });
    }
}

/// A permit that a call asks Redis for. Dropped without an answer, it is released by its id: the
/// command may be executed although nobody waits for its reply.
pub(super) struct PendingPermit<'a> {
    registry: &'a Arc<PermitRegistry>,
    key: &'a Key,
    request: Request<'a>,
    /// The time before the first command: the permit's timeout is counted from here.
    asked: Instant,
    pub(super) permit: PermitRequest,
}

impl<'a> PendingPermit<'a> {
    /// Asks for a permit if the request needs one.
    pub(super) fn new(
        registry: &'a Arc<PermitRegistry>,
        key: &'a Key,
        request: Request<'a>,
        asked: Instant,
    ) -> Option<Self> {
        request.policy.get_concurrency()?;
        let claim = (request.max_wait > Micros::ZERO).then(|| PermitClaim {
            process: registry.process,
            held: registry.store.fallback.held(key.as_key_ref()),
        });
        let permit = PermitRequest { id: next_id(), claim, is_sent: false };
        Some(Self { registry, key, request, asked, permit })
    }

    /// Returns the permit of an admitted call.
    pub(super) fn answered(mut self, outcome: Replied<Outcome>) -> Option<Arc<dyn Permit>> {
        let outcome = outcome.ok()?;
        // Redis has given none: there is nothing to release.
        if outcome.decided_by == DecidedBy::Store && !outcome.admitted {
            self.permit.is_sent = false;
        }
        if !outcome.admitted || !outcome.decided_by.counts() || !self.request.takes_permit() {
            return None;
        }
        // From here on, the drop of the `KeptPermit` releases it.
        self.permit.is_sent = false;
        Some(Arc::new(self.hold(outcome.decided_by)))
    }

    /// Keeps the permit, and renews it until it is dropped.
    fn hold(&self, decided_by: DecidedBy) -> KeptPermit {
        let Self { registry, key, asked, permit: PermitRequest { id, .. }, .. } = *self;
        if decided_by != DecidedBy::Fallback {
            // The fallback starts from the permits that this process holds.
            registry.store.fallback.hold(key.as_key_ref());
        }
        let policy = self.request.policy;
        let timeout = Duration::from(policy.permit_timeout());
        let most = policy.get_concurrency().unwrap_or(u32::MAX);
        let (until, due) = (Some(asked + timeout), asked + timeout / AGE);
        let group = RenewalGroup { key: key.clone(), timeout, most };
        let permit = HeldPermit { group, until, due };
        let wakes = permit.wakes();
        let mut state = registry.state.lock();
        state.held.insert(id, permit);
        if !state.task.is_running() {
            state.wakes = Some(wakes);
            state.task.start(Arc::clone(registry).renew_all());
        } else if state.wakes.is_none_or(|planned| wakes < planned) {
            state.wakes = Some(wakes);
            registry.changed.notify_one();
        }
        drop(state);
        let counters = registry.is_instrumented.then(|| telemetry::counters_of(policy));
        let counted = counters.map(CountedPermit::new);
        KeptPermit { registry: Arc::clone(registry), id, _counted: counted }
    }
}

impl Drop for PendingPermit<'_> {
    fn drop(&mut self) {
        if self.permit.is_sent && self.request.takes_permit() {
            let timeout = self.request.policy.permit_timeout().into();
            self.registry.release(self.key.clone(), self.permit.id, timeout);
        }
    }
}

/// The permit of a call, as its decision keeps it. The fallback may have granted it.
struct KeptPermit {
    registry: Arc<PermitRegistry>,
    id: u64,
    _counted: Option<CountedPermit>,
}

impl KeptPermit {
    fn read<T>(&self, read: impl FnOnce(&HeldPermit) -> Option<T>) -> Option<T> {
        self.registry.state.lock().held.get(&self.id).and_then(read)
    }
}

impl Permit for KeptPermit {
    /// Redis counts the permit if it was taken or renewed less than a timeout ago.
    fn is_held(&self) -> bool {
        self.read(|permit| permit.until).is_some_and(|until| Instant::now() < until)
    }

    /// Waits until Redis has released the permit, or the deadline. The drop releases it once more,
    /// in case that this has failed.
    fn give_back(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            if let Some(key) = self.read(|permit| Some(permit.group.key.clone())) {
                let release = |_| release(&key, self.id).into();
                let _ = self.registry.store.ask(&key, release, |_| Some(())).await;
            }
        })
    }
}

impl Drop for KeptPermit {
    fn drop(&mut self) {
        let Self { registry, id, .. } = self;
        let permit = registry.state.lock().held.remove(id);
        if let Some(HeldPermit { group: RenewalGroup { key, timeout, .. }, .. }) = permit {
            registry.store.fallback.release(key.as_key_ref());
            registry.release(key, *id, timeout);
        }
    }
}
