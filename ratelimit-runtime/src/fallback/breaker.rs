//! Leaves a store alone that fails, and looks now and then whether it is back.

#[cfg(all(test, ratelimit_loom))]
mod schedules;

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    error::UnavailableReason,
    report,
    sync::{
        Mutex, MutexGuard, RwLock,
        atomic::{AtomicU32, Ordering},
    },
};

/// So many failures in a row open the breaker.
const FAILURES: u32 = 5;

/// How long an open breaker waits before one call may look whether the store is back; doubled
/// after each that finds it is not.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// One breaker for each server: what fails on one of a cluster may well work on the others.
#[derive(Default)]
pub(super) struct Breakers {
    of_servers: RwLock<Vec<Arc<Breaker>>>,
}

impl Breakers {
    /// Leave to ask the server with this number, which is small, or, while it is left alone, why.
    pub(super) fn permit(&self, server: usize) -> Result<Permit, UnavailableReason> {
        let breaker = self.of(server);
        let probe = breaker.probe()?;
        Ok(Permit { breaker, server, probe })
    }

    /// Why each server that was asked is left alone, if it is, by its number.
    pub(super) fn states(&self) -> Vec<Option<UnavailableReason>> {
        let known = self.of_servers.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|it| it.state().open.as_ref().map(|open| open.reason)).collect()
    }

    fn of(&self, server: usize) -> Arc<Breaker> {
        let known = self.of_servers.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(breaker) = known.get(server) {
            return Arc::clone(breaker);
        }
        drop(known);
        let mut known = self.of_servers.write().unwrap_or_else(PoisonError::into_inner);
        while known.len() <= server {
            known.push(Arc::default());
        }
        Arc::clone(&known[server])
    }
}

/// Closed as long as there are fewer failures in a row than [`FAILURES`].
#[derive(Default)]
struct Breaker {
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
    pause: Duration,
    probe_at: Instant,
    /// The call that is looking right now.
    probe: Option<u64>,
    reason: UnavailableReason,
}

/// Leave to ask a server; says what became of it.
pub(super) struct Permit {
    breaker: Arc<Breaker>,
    server: usize,
    /// The number of a call that looks whether the server is back.
    probe: Option<u64>,
}

impl Breaker {
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
}

impl Permit {
    /// Passes on what the server answered, and learns from it; `name` tells operators which.
    pub(super) fn settle<T>(
        self,
        answer: Result<T, UnavailableReason>,
        name: impl FnOnce(usize) -> String,
    ) -> Result<T, UnavailableReason> {
        match answer {
            // A key of another type is not the server's failing.
            Ok(_) | Err(UnavailableReason::WrongType) => self.succeeded(name),
            Err(reason) => self.failed(reason, name),
        }
        answer
    }

    /// The server has answered.
    fn succeeded(self, name: impl FnOnce(usize) -> String) {
        let failures = &self.breaker.failures;
        if failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.breaker.state();
        failures.store(0, Ordering::Relaxed);
        if state.open.take().is_some() {
            let server = name(self.server);
            report::server_is_up(&server, true);
            tracing::info!(server, "the rate limit store answers again");
        }
    }

    /// The server could not decide.
    fn failed(self, reason: UnavailableReason, name: impl FnOnce(usize) -> String) {
        let mut state = self.breaker.state();
        let failures = self.breaker.failures.load(Ordering::Relaxed).saturating_add(1);
        self.breaker.failures.store(failures, Ordering::Relaxed);
        if failures < FAILURES {
            return;
        }
        let pause = match &mut state.open {
            Some(open) if self.probe.is_none() || open.probe != self.probe => {
                // One of those that were under way when it opened.
                open.reason = reason;
                return;
            }
            Some(open) => (open.pause * 2).min(LONGEST_PAUSE),
            None => {
                let server = name(self.server);
                report::server_is_up(&server, false);
                tracing::warn!(
                    server,
                    %reason,
                    advice = reason.advice(),
                    "the rate limit store fails and is left alone for a while"
                );
                FIRST_PAUSE
            }
        };
        // Spread, so that processes that lost it together do not come back together.
        let spread = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        let probe_at = Instant::now() + spread;
        state.open = Some(Open { pause, probe_at, probe: None, reason });
    }
}

/// A call that is dropped while it looks lets the next one look; not one that looked when the server
/// was lost before.
impl Drop for Permit {
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

    fn no_name(_: usize) -> String {
        String::new()
    }

    const LOST: UnavailableReason = UnavailableReason::Disconnected;

    fn fail(breaker: &Breakers, times: u32) {
        for _ in 0..times {
            breaker.permit(0).expect("leave to ask").failed(LOST, no_name);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn five_failures_in_a_row_open_it_and_one_answer_closes_it() {
        let breaker = Breakers::default();
        fail(&breaker, FAILURES - 1);
        assert_eq!(breaker.states(), [None]);
        breaker.permit(0).unwrap().succeeded(no_name);
        fail(&breaker, FAILURES);
        assert_eq!(breaker.states(), [Some(LOST)]);
        assert_eq!(breaker.permit(0).err(), Some(LOST));
        tokio::time::advance(FIRST_PAUSE).await;
        breaker.permit(0).unwrap().succeeded(no_name);
        fail(&breaker, FAILURES - 1);
        assert!(breaker.permit(0).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_at_a_time_looks_whether_the_store_is_back() {
        let breaker = Breakers::default();
        fail(&breaker, FAILURES);
        tokio::time::advance(FIRST_PAUSE).await;
        let probe = breaker.permit(0).unwrap();
        assert_eq!(breaker.permit(0).err(), Some(LOST));
        drop(probe);
        breaker.permit(0).unwrap().failed(LOST, no_name);
        // Twice the pause now.
        tokio::time::advance(FIRST_PAUSE / 2).await;
        assert_eq!(breaker.permit(0).err(), Some(LOST));
        tokio::time::advance(FIRST_PAUSE * 2).await;
        assert!(breaker.permit(0).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_looked_in_an_earlier_outage_lets_nobody_look_in_this_one() {
        for ends in [drop, |probe: Permit| probe.failed(LOST, no_name)] {
            let breaker = Breakers::default();
            let under_way = breaker.permit(0).unwrap();
            fail(&breaker, FAILURES);
            tokio::time::advance(FIRST_PAUSE).await;
            let slow = breaker.permit(0).unwrap();
            under_way.succeeded(no_name);
            fail(&breaker, FAILURES);
            tokio::time::advance(FIRST_PAUSE).await;
            let probe = breaker.permit(0).unwrap();
            ends(slow);
            assert_eq!(breaker.permit(0).err(), Some(LOST));
            drop(probe);
            assert!(breaker.permit(0).is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_stays_short_enough_to_find_the_store_within_two_seconds() {
        let breaker = Breakers::default();
        fail(&breaker, FAILURES);
        for _ in 0..20 {
            tokio::time::advance(LONGEST_PAUSE).await;
            breaker.permit(0).expect("a pause of less than a second").failed(LOST, no_name);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_calls_under_way_do_not_prolong_the_pause() {
        let breaker = Breakers::default();
        let under_way: Vec<_> = (0..64).map(|_| breaker.permit(0).unwrap()).collect();
        for permit in under_way {
            permit.failed(LOST, no_name);
        }
        tokio::time::advance(FIRST_PAUSE).await;
        assert!(breaker.permit(0).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn servers_do_not_answer_for_each_other() {
        let breakers = Breakers::default();
        fail(&breakers, FAILURES);
        assert!(breakers.permit(0).is_err());
        assert!(breakers.permit(2).is_ok());
    }
}
