//! The permits that this process holds on Redis, and their renewal.
//!
//! A permit expires on Redis unless it is renewed, so that those of a process that dies are free again.
//! One task renews them, and exists only while there are any: all that are due under one key by one
//! command, once they are older than a third of their timeout. Calls that are shorter cost no renewal.

#[cfg(all(test, not(ratelimit_loom)))]
mod model;

use std::{collections::HashMap, mem, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{
    background::Worker,
    options::Content,
    outbox::Outbox,
    remote::Remote,
    script::{MAX_RENEWED, decode_lost, release, renew},
};
use crate::{
    decision::Permit,
    error::UnavailableReason,
    key::Key,
    request::{DecidedBy, Outcome, PermitClaim, PermitRequest, Request, next_id},
    sync::Mutex,
    telemetry::{self, CountedPermit},
    time::Micros,
};

/// A renewal comes this part of a timeout after it is due, so that one command renews several permits.
const GATHERING: u32 = 30;

/// A renewal that failed is repeated after this part of a timeout.
const RETRY: u32 = 10;

/// The most keys whose renewals are under way at one time.
const MAX_UNDER_WAY: usize = 64;

/// The permit of one call, which is renewed while it is held.
struct HeldPermit {
    key: Key,
    id: u64,
    timeout: Duration,
    /// The number of permits under the key.
    most: u32,
    /// The earliest time at which Redis may take the permit for expired; none once it is lost.
    until: Mutex<Option<Instant>>,
}

/// The permits that are held.
pub(super) struct PermitRegistry {
    remote: Arc<Remote>,
    outbox: Arc<Outbox>,
    /// The number of this limiter among those whose calls wait for permits.
    process: u64,
    state: Mutex<HeldPermits>,
    changed: Notify,
}

#[derive(Default)]
struct HeldPermits {
    held: HashMap<u64, RenewedPermit>,
    /// Renews them while there are any.
    task: Worker,
    /// The time at which the task looks again.
    wakes: Option<Instant>,
}

struct RenewedPermit {
    permit: Arc<HeldPermit>,
    /// The time from which it is to be renewed.
    due: Instant,
}

/// The permits of one key that are renewed together.
type Due = Vec<Arc<HeldPermit>>;

impl HeldPermit {
    fn due(&self, sent: Instant) -> Instant {
        sent + self.timeout / 3
    }

    /// Returns the time at which the task renews a permit that is due at `due`.
    fn wakes(&self, due: Instant) -> Instant {
        due + self.timeout / GATHERING
    }
}

/// Records which permits are renewed, and which are lost.
fn record_renewal(permits: &[Arc<HeldPermit>], lost: &[u64], sent: Instant) {
    let mut newly_lost = 0;
    for permit in permits {
        let is_lost = lost.contains(&permit.id);
        let until = (!is_lost).then(|| sent + permit.timeout);
        let before = mem::replace(&mut *permit.until.lock(), until);
        newly_lost += u64::from(is_lost && before.is_some());
    }
    if newly_lost > 0 {
        telemetry::permits_lost(permits[0].key.as_key_ref().name.text(), newly_lost);
    }
}

impl PermitRegistry {
    pub(super) fn new(remote: Arc<Remote>, outbox: Arc<Outbox>) -> Arc<Self> {
        let (process, state, changed) = (next_id(), Mutex::default(), Notify::default());
        Arc::new(Self { remote, outbox, process, state, changed })
    }

    /// Returns the permits that are due by now, in groups of one key each, and the time to look again;
    /// none once no permit is held.
    fn due(&self, now: Instant) -> (Vec<Due>, Option<Instant>) {
        let mut state = self.state.lock();
        let mut due: HashMap<(Vec<u8>, Duration, u32), Due> = HashMap::new();
        let mut next: Option<Instant> = None;
        for held in state.held.values_mut() {
            if held.due <= now {
                let HeldPermit { key, timeout, most, .. } = &*held.permit;
                let same = due.entry((key.as_bytes().to_vec(), *timeout, *most)).or_default();
                same.push(Arc::clone(&held.permit));
                held.due = held.permit.due(now);
            }
            let wakes = held.permit.wakes(held.due);
            next = Some(next.map_or(wakes, |next| next.min(wakes)));
        }
        state.wakes = next;
        if next.is_none() {
            state.task = Worker::default();
        }
        (due.into_values().collect(), next)
    }

    /// Renews permits until none is held.
    async fn renew_all(self: Arc<Self>) {
        loop {
            let (due, next) = self.due(Instant::now());
            let Some(next) = next else { return };
            let mut under_way = JoinSet::new();
            for due in due {
                if under_way.len() >= MAX_UNDER_WAY {
                    under_way.join_next().await;
                }
                under_way.spawn(Arc::clone(&self).renew(due));
            }
            under_way.join_all().await;
            // Woken earlier if a permit is due before.
            let _ = timeout_at(next, self.changed.notified()).await;
        }
    }

    /// Renews permits of one key.
    async fn renew(self: Arc<Self>, due: Due) {
        for permits in due.chunks(MAX_RENEWED) {
            let ids: Vec<u64> = permits.iter().map(|permit| permit.id).collect();
            let HeldPermit { key, timeout, most, .. } = &*permits[0];
            let sent = Instant::now();
            let command = |attempt| renew(key, Micros::from(*timeout), *most, &ids, attempt);
            let renewed = self.remote.ask(key.as_bytes(), command).await.and_then(decode_lost);
            if let Ok(lost) = &renewed {
                record_renewal(permits, lost, sent);
            }
            let mut freed = Vec::new();
            let mut state = self.state.lock();
            for permit in permits {
                match state.held.get_mut(&permit.id) {
                    None => freed.push(permit),
                    Some(held) if renewed.is_err() => {
                        held.due = Instant::now() + permit.timeout / RETRY;
                    }
                    Some(_) => {}
                }
            }
            drop(state);
            if renewed.is_err() {
                self.changed.notify_one();
            }
            // One that was freed meanwhile may have taken a place again, also by a renewal without a reply.
            for permit in freed {
                self.release(&permit.key, permit.id, permit.timeout);
            }
        }
    }

    /// Releases a permit on Redis without waiting. If it cannot be sent, its timeout frees it.
    fn release(&self, key: &Key, id: u64, timeout: Duration) {
        self.outbox.post(key.clone(), Content::Release { id, timeout });
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
        request.policy.max_concurrency()?;
        let claim = (request.max_wait > Micros::ZERO).then(|| PermitClaim {
            process: registry.process,
            held: registry.remote.fallback.held(key.as_key_ref()),
        });
        let permit = PermitRequest { id: next_id(), claim, is_sent: false };
        Some(Self { registry, key, request, asked, permit })
    }

    /// Returns the permit of an admitted call.
    pub(super) fn answered(
        mut self,
        outcome: Result<Outcome, UnavailableReason>,
    ) -> Option<Arc<dyn Permit>> {
        let outcome = outcome.ok()?;
        if outcome.decided_by == DecidedBy::Store && !outcome.admitted {
            self.permit.is_sent = false;
        }
        if !outcome.admitted || !outcome.decided_by.counts() || !self.request.takes_permit() {
            return None;
        }
        self.permit.is_sent = false;
        Some(Arc::new(self.hold(outcome.decided_by)))
    }

    /// Keeps the permit, and renews it until it is dropped.
    fn hold(&self, decided_by: DecidedBy) -> KeptPermit {
        let Self { registry, key, asked, permit: PermitRequest { id, .. }, .. } = *self;
        if decided_by != DecidedBy::Fallback {
            // The fallback starts from the permits that this process holds.
            registry.remote.fallback.hold(key.as_key_ref());
        }
        let policy = self.request.policy;
        let timeout = Duration::from(policy.permit_timeout());
        let most = policy.max_concurrency().unwrap_or(u32::MAX);
        let until = Mutex::new(Some(asked + timeout));
        let permit = Arc::new(HeldPermit { key: key.clone(), id, timeout, most, until });
        let due = permit.due(asked);
        let wakes = permit.wakes(due);
        let mut state = registry.state.lock();
        state.held.insert(id, RenewedPermit { permit: Arc::clone(&permit), due });
        if !state.task.is_running() {
            state.wakes = Some(wakes);
            state.task.start(Arc::clone(registry).renew_all());
        } else if state.wakes.is_none_or(|planned| wakes < planned) {
            state.wakes = Some(wakes);
            registry.changed.notify_one();
        }
        drop(state);
        let counted = CountedPermit::new(telemetry::counters_of(policy));
        KeptPermit { registry: Arc::clone(registry), permit, _counted: counted }
    }
}

impl Drop for PendingPermit<'_> {
    fn drop(&mut self) {
        if self.permit.is_sent && self.request.takes_permit() {
            let timeout = self.request.policy.permit_timeout().into();
            self.registry.release(self.key, self.permit.id, timeout);
        }
    }
}

/// The permit of a call, as its decision keeps it. The fallback may have granted it.
struct KeptPermit {
    registry: Arc<PermitRegistry>,
    permit: Arc<HeldPermit>,
    _counted: CountedPermit,
}

impl Permit for KeptPermit {
    /// Redis counts the permit if it was taken or renewed less than a timeout ago.
    fn is_held(&self) -> bool {
        self.permit.until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until Redis has released the permit, or the deadline. The drop releases it once more, in case that
    /// this has failed.
    fn give_back(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let (HeldPermit { key, id, .. }, remote) = (&*self.permit, &self.registry.remote);
            let _ = remote.run::<()>(key.as_bytes(), &release(key, *id)).await;
        })
    }
}

impl Drop for KeptPermit {
    fn drop(&mut self) {
        let (HeldPermit { key, id, timeout, .. }, registry) = (&*self.permit, &self.registry);
        registry.state.lock().held.remove(id);
        registry.remote.fallback.release(key.as_key_ref());
        registry.release(key, *id, *timeout);
    }
}
