//! Leaves a server alone that fails, and looks now and then whether it is back.

#[cfg(all(test, ratelimit_loom))]
mod schedules;

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::backoff::Backoff;
use crate::{
    error::UnavailableReason,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    telemetry,
};

/// So many failures in a row open the breaker.
const FAILURES: u32 = 5;

/// How long an open breaker waits before one call may look whether the store is back; doubled
/// after each that finds it is not.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// What is known of one server: what fails there may well work on another of a cluster.
///
/// It is closed as long as there are fewer failures in a row than [`FAILURES`].
pub(super) struct Breaker {
    /// What operators call the server.
    server: String,
    /// Written under the lock of `state`; readable without it, so that calls take no lock as long as
    /// all is well.
    failures: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    /// How many calls have had leave to look: the number of each.
    probes: u64,
}

struct Open {
    backoff: Backoff,
    probe_at: Instant,
    /// The call that is looking right now.
    probe: Option<u64>,
    reason: UnavailableReason,
}

/// Permission to send one command to a server; records its result in the breaker. Dropped without
/// a result, it counts for nothing.
pub(super) struct Trial {
    breaker: Arc<Breaker>,
    /// The number of a call that looks whether the server is back.
    probe: Option<u64>,
}

impl Breaker {
    pub(super) fn new(server: String) -> Arc<Self> {
        Arc::new(Self { server, failures: AtomicU32::new(0), state: Mutex::default() })
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Leave to ask the server, or, while it is left alone, why.
    pub(super) fn trial(self: &Arc<Self>) -> Result<Trial, UnavailableReason> {
        let probe = self.probe()?;
        Ok(Trial { breaker: Arc::clone(self), probe })
    }

    /// Why the server is left alone, if it is.
    pub(super) fn failure(&self) -> Option<UnavailableReason> {
        self.state().open.as_ref().map(|open| open.reason)
    }

    /// The number of a call that asks now to look whether the server is back; none if there is
    /// nothing to find out; or why none may ask.
    fn probe(&self) -> Result<Option<u64>, UnavailableReason> {
        if self.failures.load(Ordering::Relaxed) < FAILURES {
            return Ok(None);
        }
        let State { open, probes } = &mut *self.state();
        match open {
            Some(open) if open.probe.is_some() || Instant::now() < open.probe_at => {
                Err(open.reason)
            }
            Some(open) => {
                *probes += 1;
                open.probe = Some(*probes);
                Ok(open.probe)
            }
            // Another call has just found the server again.
            None => Ok(None),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells recorders how it is, until it is still so afterwards. They are told outside of the
    /// lock: they may want to know of servers themselves.
    fn tell(&self) {
        loop {
            let is_up = self.failure().is_none();
            telemetry::server_is_up(&self.server, is_up);
            if self.failure().is_none() == is_up {
                break;
            }
        }
    }
}

/// A server that has left, or whose limiter is gone, is nobody's trouble any more.
impl Drop for Breaker {
    fn drop(&mut self) {
        if self.failure().is_some() {
            telemetry::server_is_up(&self.server, true);
            tracing::info!(self.server, "a rate limit store that failed is asked no more");
        }
    }
}

impl Trial {
    /// Records that the server has answered.
    pub(super) fn succeeded(self) {
        let breaker = &self.breaker;
        if breaker.failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = breaker.state();
        breaker.failures.store(0, Ordering::Relaxed);
        let was_open = state.open.take().is_some();
        drop(state);
        if was_open {
            tracing::info!(breaker.server, "the rate limit store answers again");
            breaker.tell();
        }
    }

    /// Records that the server could not do what was asked.
    pub(super) fn failed(self, reason: UnavailableReason) {
        let breaker = &self.breaker;
        let mut state = breaker.state();
        let failures = breaker.failures.load(Ordering::Relaxed).saturating_add(1);
        breaker.failures.store(failures, Ordering::Relaxed);
        if failures < FAILURES {
            return;
        }
        let mut backoff = match &mut state.open {
            Some(open) if self.probe.is_none() || open.probe != self.probe => {
                // One of those that were under way when it opened.
                open.reason = reason;
                return;
            }
            Some(open) => open.backoff.clone(),
            None => Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        };
        let was_closed = state.open.is_none();
        let probe_at = Instant::now() + backoff.next();
        state.open = Some(Open { backoff, probe_at, probe: None, reason });
        drop(state);
        if was_closed {
            tracing::warn!(
                breaker.server,
                %reason,
                advice = reason.advice(),
                "the rate limit store fails and is left alone for a while"
            );
            breaker.tell();
        }
    }
}

/// A call that is dropped while it looks lets the next one look; not one that looked when the server
/// was lost before.
impl Drop for Trial {
    fn drop(&mut self) {
        if self.probe.is_some()
            && let Some(open) = &mut self.breaker.state().open
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
            breaker.trial().expect("leave to ask").failed(LOST);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn five_failures_in_a_row_open_it_and_one_answer_closes_it() {
        let breaker = new();
        fail(&breaker, FAILURES - 1);
        assert_eq!(breaker.failure(), None);
        breaker.trial().unwrap().succeeded();
        fail(&breaker, FAILURES);
        assert_eq!(breaker.failure(), Some(LOST));
        assert_eq!(breaker.trial().err(), Some(LOST));
        tokio::time::advance(FIRST_PAUSE).await;
        breaker.trial().unwrap().succeeded();
        fail(&breaker, FAILURES - 1);
        assert!(breaker.trial().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_at_a_time_looks_whether_the_store_is_back() {
        let breaker = new();
        fail(&breaker, FAILURES);
        tokio::time::advance(FIRST_PAUSE).await;
        let probe = breaker.trial().unwrap();
        assert_eq!(breaker.trial().err(), Some(LOST));
        drop(probe);
        breaker.trial().unwrap().failed(LOST);
        // Twice the pause now.
        tokio::time::advance(FIRST_PAUSE / 2).await;
        assert_eq!(breaker.trial().err(), Some(LOST));
        tokio::time::advance(FIRST_PAUSE * 2).await;
        assert!(breaker.trial().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_looked_in_an_earlier_outage_lets_nobody_look_in_this_one() {
        for ends in [drop, |probe: Trial| probe.failed(LOST)] {
            let breaker = new();
            let under_way = breaker.trial().unwrap();
            fail(&breaker, FAILURES);
            tokio::time::advance(FIRST_PAUSE).await;
            let slow = breaker.trial().unwrap();
            under_way.succeeded();
            fail(&breaker, FAILURES);
            tokio::time::advance(FIRST_PAUSE).await;
            let probe = breaker.trial().unwrap();
            ends(slow);
            assert_eq!(breaker.trial().err(), Some(LOST));
            drop(probe);
            assert!(breaker.trial().is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_stays_short_enough_to_find_the_store_within_two_seconds() {
        let breaker = new();
        fail(&breaker, FAILURES);
        for _ in 0..20 {
            tokio::time::advance(LONGEST_PAUSE).await;
            breaker.trial().expect("a pause of less than a second").failed(LOST);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_calls_under_way_do_not_prolong_the_pause() {
        let breaker = new();
        let under_way: Vec<_> = (0..64).map(|_| breaker.trial().unwrap()).collect();
        for trial in under_way {
            trial.failed(LOST);
        }
        tokio::time::advance(FIRST_PAUSE).await;
        assert!(breaker.trial().is_ok());
    }
}
