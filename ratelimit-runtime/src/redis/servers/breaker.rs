//! The circuit breaker of one server.

#[cfg(all(test, not(ratelimit_loom)))]
#[path = "../../../../tests/models/breaker.rs"]
mod model;
#[cfg(all(test, ratelimit_loom))]
mod schedules;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use crate::{
    error::{ServerStatus, UnavailableReason},
    redis::backoff::Backoff,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    telemetry,
};

/// Consecutive failures that open the breaker.
const FAILURE_THRESHOLD: u32 = 5;

/// The time after which a breaker that has closed forgets its outage. One that opens again before
/// goes on with longer pauses, and is logged at debug.
const MEMORY: Duration = Duration::from_secs(10);

/// The pauses of an open breaker before each probe.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(800));

/// A circuit breaker: closed while there are fewer consecutive failures than
/// [`FAILURE_THRESHOLD`]. While it is open, commands fail at once, except for one probe at a time.
///
/// Each server of a cluster has its own: a failure of one does not affect calls to the others.
pub(crate) struct Breaker {
    /// The name of the server in logs and metrics.
    pub(crate) server: String,
    /// Consecutive failures. Written under the lock of `state`, and read without it, so that calls
    /// take no lock while the server is well.
    failures: AtomicU32,
    state: Mutex<BreakerState>,
}

#[derive(Default)]
struct BreakerState {
    /// The last outage, also after its end.
    outage: Option<Outage>,
    /// The number of probes so far; each one's number is the count after it.
    probes: u64,
}

struct Outage {
    backoff: Backoff,
    probe_at: Instant,
    /// The probe under way.
    probe: Option<u64>,
    reason: UnavailableReason,
    /// The time at which the breaker was opened.
    since: SystemTime,
    /// The time at which the breaker was closed.
    ended: Option<Instant>,
}

impl BreakerState {
    /// Returns the outage while the breaker is open.
    fn open(&mut self) -> Option<&mut Outage> {
        self.outage.as_mut().filter(|outage| outage.ended.is_none())
    }
}

/// Permission to send one command to a server; records its result in the breaker. Dropped without
/// a result, it counts for nothing.
pub(super) struct BreakerGuard {
    breaker: Arc<Breaker>,
    /// The number of the probe, if it is one.
    probe: Option<u64>,
    /// `true` if a reply proves only that the server answers. One that refuses scripts answers
    /// these, and would close and open the breaker in turn.
    is_of_hash: bool,
}

impl Breaker {
    pub(super) fn new(server: String) -> Arc<Self> {
        Arc::new(Self { server, failures: AtomicU32::new(0), state: Mutex::default() })
    }

    /// Permits one command. The reply to one about a hash proves only that the server answers. A
    /// server that answers and refuses scripts still has hashes: the overrides that end its trouble
    /// arrive.
    ///
    /// # Errors
    ///
    /// The reason of the last failure while the breaker is open and no probe is due; about a hash
    /// only if that failure was a silence.
    pub(super) fn guard(
        self: &Arc<Self>,
        is_of_hash: bool,
    ) -> Result<BreakerGuard, UnavailableReason> {
        let refuses_scripts = || self.failure().is_some_and(|reason| !reason.is_silence());
        let probe = if is_of_hash && refuses_scripts() { None } else { self.start_probe()? };
        Ok(BreakerGuard { breaker: Arc::clone(self), probe, is_of_hash })
    }

    /// Returns the reason of the last failure while the breaker is open.
    pub(crate) fn failure(&self) -> Option<UnavailableReason> {
        self.state.lock().open().map(|open| open.reason)
    }

    /// Returns the status of the server.
    pub(super) fn status(&self) -> ServerStatus {
        let failures = self.failures.load(Ordering::Relaxed);
        let mut state = self.state.lock();
        let outage = state.open();
        let (failure, since) = outage.map(|outage| (outage.reason, outage.since)).unzip();
        ServerStatus { name: self.server.clone(), failure, since, failures }
    }

    /// Starts a probe and returns its number; `None` while the breaker is closed.
    fn start_probe(&self) -> Result<Option<u64>, UnavailableReason> {
        if self.failures.load(Ordering::Relaxed) < FAILURE_THRESHOLD {
            return Ok(None);
        }
        let mut state = self.state.lock();
        let probe = state.probes + 1;
        // Another call may have closed it since.
        let Some(open) = state.open() else { return Ok(None) };
        if open.probe.is_some() || Instant::now() < open.probe_at {
            return Err(open.reason);
        }
        open.probe = Some(probe);
        state.probes = probe;
        Ok(Some(probe))
    }

    /// Closes the breaker: the server answers.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        self.failures.store(0, Ordering::Relaxed);
        let Some(open) = state.open() else { return };
        open.ended = Some(Instant::now());
        drop(state);
        tracing::info!(server = self.server, "rate limit store answering, circuit breaker closed");
        self.report_health();
    }

    /// Reports to metrics if the breaker is closed, again if that changed during the report. No
    /// lock is taken around the report: recorders may call
    /// [`Limiter::servers`](crate::Limiter::servers).
    fn report_health(&self) {
        loop {
            let is_up = self.failure().is_none();
            telemetry::server_is_up(&self.server, is_up);
            if self.failure().is_none() == is_up {
                break;
            }
        }
    }
}

/// Reports an open breaker as healthy when its server leaves the cluster or its limiter is dropped.
impl Drop for Breaker {
    fn drop(&mut self) {
        if self.failure().is_some() {
            telemetry::server_is_up(&self.server, true);
            tracing::info!(server = self.server, "failing rate limit store removed");
        }
    }
}

impl BreakerGuard {
    /// Records a reply. One about a hash closes a breaker that silence has opened.
    pub(super) fn succeeded(self) {
        let breaker = &self.breaker;
        let is_silent = || breaker.failure().is_some_and(UnavailableReason::is_silence);
        if breaker.failures.load(Ordering::Relaxed) > 0 && (!self.is_of_hash || is_silent()) {
            breaker.close();
        }
    }

    /// Records a failure.
    pub(crate) fn failed(self, reason: UnavailableReason) {
        // An error is a reply, too, and proves as much.
        if self.is_of_hash && !reason.is_silence() {
            return self.succeeded();
        }
        let breaker = &self.breaker;
        let mut state = breaker.state.lock();
        let failures = breaker.failures.load(Ordering::Relaxed).saturating_add(1);
        // No further attempt tells more.
        let is_hopeless = reason == UnavailableReason::NoScripts;
        let failures = if is_hopeless { failures.max(FAILURE_THRESHOLD) } else { failures };
        breaker.failures.store(failures, Ordering::Relaxed);
        if failures < FAILURE_THRESHOLD {
            return;
        }
        let mut since = None;
        if let Some(open) = state.open() {
            if self.probe.is_none() || open.probe != self.probe {
                // A command that was under way when the breaker opened.
                open.reason = reason;
                return;
            }
            since = Some(open.since);
        }
        let was_closed = since.is_none();
        let is_remembered = |it: &Outage| it.ended.is_none_or(|end| end.elapsed() < MEMORY);
        let last = state.outage.take().filter(is_remembered);
        let is_flapping = was_closed && last.is_some();
        let mut backoff = last.map_or(BACKOFF, |last| last.backoff);
        let probe_at = Instant::now() + backoff.next();
        let since = since.unwrap_or_else(SystemTime::now);
        state.outage = Some(Outage { backoff, probe_at, probe: None, reason, since, ended: None });
        drop(state);
        if was_closed {
            let server = &breaker.server;
            let advice = reason.advice();
            if is_flapping {
                tracing::debug!(server, %reason, advice, "rate limit store failing again, circuit breaker open");
            } else {
                tracing::warn!(server, %reason, advice, "rate limit store failing, circuit breaker open");
            }
            breaker.report_health();
        }
    }
}

/// Permits the next probe when one is dropped, but not when one of an earlier outage is.
impl Drop for BreakerGuard {
    fn drop(&mut self) {
        if self.probe.is_some()
            && let Some(open) = self.breaker.state.lock().open()
            && open.probe == self.probe
        {
            open.probe = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> Arc<Breaker> {
        Breaker::new(String::new())
    }

    const LOST: UnavailableReason = UnavailableReason::Disconnected;

    fn fail(breaker: &Arc<Breaker>, times: u32) {
        for _ in 0..times {
            breaker.guard(false).expect("a permitted command").failed(LOST);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn five_consecutive_failures_open_it_and_one_reply_closes_it() {
        let breaker = new();
        fail(&breaker, FAILURE_THRESHOLD - 1);
        assert_eq!(breaker.failure(), None);
        breaker.guard(false).unwrap().succeeded();
        fail(&breaker, FAILURE_THRESHOLD);
        assert_eq!(breaker.failure(), Some(LOST));
        assert_eq!(breaker.guard(false).err(), Some(LOST));
        tokio::time::advance(BACKOFF.first).await;
        breaker.guard(false).unwrap().succeeded();
        fail(&breaker, FAILURE_THRESHOLD - 1);
        assert!(breaker.guard(false).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_has_the_start_and_the_failures_of_an_outage_until_a_reply() {
        let breaker = new();
        fail(&breaker, FAILURE_THRESHOLD - 1);
        assert_eq!((breaker.status().since(), breaker.status().failures()), (None, 4));
        fail(&breaker, 1);
        let since = breaker.status().since();
        assert!(since.is_some_and(|since| since <= SystemTime::now()));
        for failures in 6..9 {
            tokio::time::advance(BACKOFF.longest).await;
            fail(&breaker, 1);
            assert_eq!((breaker.status().since(), breaker.status().failures()), (since, failures));
        }
        tokio::time::advance(BACKOFF.longest).await;
        breaker.guard(false).unwrap().succeeded();
        assert_eq!((breaker.status().since(), breaker.status().failures()), (None, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_closes_what_silence_has_opened_and_nothing_else() {
        for (reason, is_closed) in [(LOST, true), (UnavailableReason::RefusesWrites, false)] {
            let breaker = new();
            for _ in 0..FAILURE_THRESHOLD {
                breaker.guard(false).unwrap().failed(reason);
            }
            assert_eq!(breaker.guard(true).is_err(), is_closed, "{reason}");
            tokio::time::advance(BACKOFF.first).await;
            breaker.guard(true).unwrap().succeeded();
            assert_eq!(breaker.failure().is_none(), is_closed, "{reason}");
            assert!(breaker.guard(false).is_ok(), "{reason}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_opens_again_soon_goes_on_with_longer_pauses() {
        let breaker = new();
        fail(&breaker, FAILURE_THRESHOLD);
        tokio::time::advance(BACKOFF.first).await;
        breaker.guard(false).unwrap().failed(LOST);
        tokio::time::advance(BACKOFF.longest).await;
        breaker.guard(false).unwrap().succeeded();
        for (after, longer) in [(MEMORY / 2, true), (MEMORY, false)] {
            tokio::time::advance(after).await;
            fail(&breaker, FAILURE_THRESHOLD);
            tokio::time::advance(BACKOFF.first * 2).await;
            assert_eq!(breaker.guard(false).is_err(), longer, "after {after:?}");
            tokio::time::advance(BACKOFF.longest).await;
            breaker.guard(false).unwrap().succeeded();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_at_a_time_is_permitted() {
        let breaker = new();
        fail(&breaker, FAILURE_THRESHOLD);
        tokio::time::advance(BACKOFF.first).await;
        let probe = breaker.guard(false).unwrap();
        assert_eq!(breaker.guard(false).err(), Some(LOST));
        drop(probe);
        breaker.guard(false).unwrap().failed(LOST);
        // Twice the pause now.
        tokio::time::advance(BACKOFF.first / 2).await;
        assert_eq!(breaker.guard(false).err(), Some(LOST));
        tokio::time::advance(BACKOFF.first * 2).await;
        assert!(breaker.guard(false).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_of_an_earlier_outage_permits_none_in_this_one() {
        for ends in [drop, |probe: BreakerGuard| probe.failed(LOST)] {
            let breaker = new();
            let under_way = breaker.guard(false).unwrap();
            fail(&breaker, FAILURE_THRESHOLD);
            tokio::time::advance(BACKOFF.first).await;
            let slow = breaker.guard(false).unwrap();
            under_way.succeeded();
            fail(&breaker, FAILURE_THRESHOLD);
            tokio::time::advance(BACKOFF.longest).await;
            let probe = breaker.guard(false).unwrap();
            ends(slow);
            assert_eq!(breaker.guard(false).err(), Some(LOST));
            drop(probe);
            assert!(breaker.guard(false).is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_stays_short_enough_to_find_the_store_within_two_seconds() {
        let breaker = new();
        fail(&breaker, FAILURE_THRESHOLD);
        for _ in 0..20 {
            tokio::time::advance(BACKOFF.longest).await;
            breaker.guard(false).expect("a pause of less than a second").failed(LOST);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_calls_under_way_do_not_prolong_the_pause() {
        let breaker = new();
        let under_way: Vec<_> = (0..64).map(|_| breaker.guard(false).unwrap()).collect();
        for guard in under_way {
            guard.failed(LOST);
        }
        tokio::time::advance(BACKOFF.first).await;
        assert!(breaker.guard(false).is_ok());
    }
}
