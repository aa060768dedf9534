//! The permits that this process holds on Redis, and their renewal.
//!
//! A permit expires on Redis unless it is renewed, so that those of a process that dies are free again.
//! One task renews them, and exists only while there are any: all that are due under one key by one
//! command, once they are older than a third of their timeout. Calls that are shorter cost no renewal.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use once_cell::sync::Lazy;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{
    RedisBackend, background,
    outbox::Content,
    script::{MAX_RENEWED, Renewal},
};
use crate::{
    key::Key,
    policy::Policy,
    request::{DecidedBy, PermitClaim, PermitRequest, next_id},
    telemetry,
    time::Micros,
};

/// A renewal comes this part of a timeout after it is due, so that one command renews several permits.
const GATHERING: u32 = 30;

/// A renewal that failed is repeated after this part of a timeout.
const RETRY: u32 = 10;

/// The most keys whose renewals are under way at one time.
const MAX_UNDER_WAY: usize = 64;

/// The instant from which permits count their microseconds.
static ORIGIN: Lazy<Instant> = Lazy::new(Instant::now);

/// The permit of one call, which is renewed while it is held.
pub(crate) struct HeldPermit {
    key: Key,
    id: u64,
    timeout: Duration,
    /// The number of permits under the key.
    most: u32,
    /// The earliest time at which Redis may take the permit for expired, in microseconds since [`ORIGIN`];
    /// 0 once it is lost.
    until: AtomicU64,
}

/// The permits that are held.
pub(super) struct PermitRegistry {
    /// The number of this limiter among those whose calls wait for permits.
    process: u64,
    state: Mutex<HeldPermits>,
    changed: Notify,
}

#[derive(Default)]
struct HeldPermits {
    held: HashMap<u64, RenewedPermit>,
    /// The time at which the task looks again; none without a task.
    wakes: Option<Instant>,
}

struct RenewedPermit {
    permit: Arc<HeldPermit>,
    /// The time from which it is to be renewed.
    due: Instant,
}

/// The permits of one key that are renewed together.
type Due = Vec<Arc<HeldPermit>>;

fn since_origin(at: Instant) -> u64 {
    let passed = at.saturating_duration_since(*ORIGIN).as_micros();
    u64::try_from(passed).unwrap_or(u64::MAX)
}

impl HeldPermit {
    fn new(key: Key, id: u64, policy: &Policy, asked: Instant) -> Arc<Self> {
        let timeout = Duration::from(policy.permit_timeout());
        let most = policy.max_in_flight().unwrap_or(u32::MAX);
        let permit = Self { key, id, timeout, most, until: AtomicU64::new(0) };
        permit.extend(asked);
        Arc::new(permit)
    }

    /// Returns `true` while Redis counts the permit: it was taken or renewed less than a timeout ago.
    pub(crate) fn is_held(&self) -> bool {
        since_origin(Instant::now()) < self.until.load(Ordering::Relaxed)
    }

    fn extend(&self, sent: Instant) {
        self.until.store(since_origin(sent + self.timeout), Ordering::Relaxed);
    }

    fn due(&self, sent: Instant) -> Instant {
        sent + self.timeout / 3
    }

    /// Returns the time at which the task renews a permit that is due at `due`.
    fn wakes(&self, due: Instant) -> Instant {
        due + self.timeout / GATHERING
    }
}

impl Default for PermitRegistry {
    fn default() -> Self {
        Self { process: next_id(), state: Mutex::default(), changed: Notify::default() }
    }
}

impl PermitRegistry {
    fn state(&self) -> MutexGuard<'_, HeldPermits> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the permits that are due by now, in groups of one key each, and the time to look again;
    /// none once no permit is held.
    fn due(&self, now: Instant) -> (Vec<Due>, Option<Instant>) {
        let mut state = self.state();
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
        (due.into_values().collect(), next)
    }

    /// Makes permits due again soon: their renewal failed.
    fn retry(&self, permits: &[Arc<HeldPermit>], now: Instant) {
        let mut state = self.state();
        for permit in permits {
            if let Some(held) = state.held.get_mut(&permit.id) {
                held.due = now + permit.timeout / RETRY;
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Returns those of the permits that are held no longer.
    fn freed(&self, permits: &[Arc<HeldPermit>]) -> Vec<Arc<HeldPermit>> {
        let state = self.state();
        let is_freed = |permit: &&Arc<HeldPermit>| !state.held.contains_key(&permit.id);
        permits.iter().filter(is_freed).cloned().collect()
    }
}

/// Records which permits are renewed, and which are lost.
fn record_renewal(permits: &[Arc<HeldPermit>], lost: &[u64], sent: Instant) {
    let mut newly_lost = 0;
    for permit in permits {
        if lost.contains(&permit.id) {
            newly_lost += u64::from(permit.until.swap(0, Ordering::Relaxed) > 0);
        } else {
            permit.extend(sent);
        }
    }
    if newly_lost > 0 {
        telemetry::permits_lost(permits[0].key.as_key_ref().name.text(), newly_lost);
    }
}

/// The task that renews permits. Dropped before its end, as by a panic, it leaves the registry without a
/// task, and the next permit starts another one.
struct RenewalTask {
    backend: Arc<RedisBackend>,
    has_ended: bool,
}

impl Drop for RenewalTask {
    fn drop(&mut self) {
        if !self.has_ended {
            self.backend.permits.state().wakes = None;
        }
    }
}

impl RenewalTask {
    async fn run(mut self) {
        let backend = Arc::clone(&self.backend);
        loop {
            let (due, next) = backend.permits.due(Instant::now());
            let Some(next) = next else {
                self.has_ended = true;
                return;
            };
            let mut under_way = JoinSet::new();
            for due in due {
                if under_way.len() >= MAX_UNDER_WAY {
                    under_way.join_next().await;
                }
                under_way.spawn(Arc::clone(&backend).renew(due));
            }
            under_way.join_all().await;
            // Woken earlier if a permit is due before.
            let _ = timeout_at(next, backend.permits.changed.notified()).await;
        }
    }
}

impl RedisBackend {
    /// Returns the permit that a call is to ask for.
    pub(crate) fn ask_for_permit(&self, key: &Key, max_wait: Micros) -> PermitRequest {
        let (id, process) = (next_id(), self.permits.process);
        let claim = (max_wait > Micros::ZERO)
            .then(|| PermitClaim { process, held: self.fallback.held(key.as_key_ref()) });
        PermitRequest { id, claim, is_sent: false }
    }

    /// Keeps a permit that was asked for at this time, and renews it until it is [freed](Self::free).
    pub(crate) fn hold(
        self: &Arc<Self>,
        key: Key,
        id: u64,
        policy: &Policy,
        asked: Instant,
        decided_by: DecidedBy,
    ) -> Arc<HeldPermit> {
        let permit = HeldPermit::new(key, id, policy, asked);
        if decided_by != DecidedBy::Fallback {
            // The fallback starts from the permits that this process holds.
            self.fallback.hold(permit.key.as_key_ref());
        }
        let due = permit.due(asked);
        let wakes = permit.wakes(due);
        let mut state = self.permits.state();
        state.held.insert(permit.id, RenewedPermit { permit: Arc::clone(&permit), due });
        match state.wakes {
            Some(planned) if planned <= wakes => {}
            Some(_) => {
                state.wakes = Some(wakes);
                drop(state);
                self.permits.changed.notify_one();
            }
            None => {
                state.wakes = Some(wakes);
                drop(state);
                let task = RenewalTask { backend: Arc::clone(self), has_ended: false };
                background::spawn(task.run());
            }
        }
        permit
    }

    /// Frees a permit.
    pub(crate) fn free(self: &Arc<Self>, permit: &Arc<HeldPermit>) {
        self.permits.state().held.remove(&permit.id);
        self.fallback.release(permit.key.as_key_ref());
        self.release(permit.key.clone(), permit.id, permit.timeout);
    }

    /// Releases a permit that is dropped next, and waits until Redis has done it or the deadline. The drop
    /// releases it once more, in case that this has failed.
    pub(crate) async fn give_back(&self, permit: &HeldPermit) {
        let _ = self.client.release(&permit.key, permit.id, Instant::now() + self.deadline).await;
    }

    /// Releases a permit on Redis without waiting. If it cannot be sent, its timeout frees it.
    pub(crate) fn release(self: &Arc<Self>, key: Key, id: u64, timeout: Duration) {
        self.post(key, Content::Release { id, timeout });
    }

    /// Renews permits of one key.
    async fn renew(self: Arc<Self>, due: Due) {
        for permits in due.chunks(MAX_RENEWED) {
            let ids: Vec<u64> = permits.iter().map(|permit| permit.id).collect();
            let HeldPermit { key, timeout, most, .. } = &*permits[0];
            let renewal = Renewal { key, timeout: Micros::from(*timeout), most: *most, ids: &ids };
            let sent = Instant::now();
            match self.client.renew(&renewal, sent + self.deadline).await {
                Ok(lost) => record_renewal(permits, &lost, sent),
                Err(_) => self.permits.retry(permits, Instant::now()),
            }
            // One that was freed meanwhile may have taken a place again, also by a renewal without a reply.
            for permit in self.permits.freed(permits) {
                self.release(permit.key.clone(), permit.id, permit.timeout);
            }
        }
    }
}
