//! Leaves a store alone that fails, and looks now and then whether it is back.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::error::UnavailableReason;

/// So many failures in a row open the breaker.
const FAILURES: u32 = 5;

/// How long an open breaker waits before one call may look whether the store is back; doubled
/// after each that finds it is not.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// Closed as long as there are fewer failures in a row than [`FAILURES`].
#[derive(Default)]
pub(super) struct Breaker {
    failures: AtomicU32,
    open: Mutex<Option<Open>>,
}

struct Open {
    pause: Duration,
    probe_at: Instant,
    /// A call is looking right now.
    is_probed: bool,
    reason: UnavailableReason,
}

/// Leave to ask the store; says what became of it.
pub(super) struct Permit<'a> {
    breaker: &'a Breaker,
    is_probe: bool,
}

impl Breaker {
    /// Leave to ask the store, or, while it is left alone, why.
    pub(super) fn permit(&self) -> Result<Permit<'_>, UnavailableReason> {
        if self.failures.load(Ordering::Relaxed) < FAILURES {
            return Ok(Permit { breaker: self, is_probe: false });
        }
        match &mut *self.open() {
            Some(open) if open.is_probed || Instant::now() < open.probe_at => Err(open.reason),
            Some(open) => {
                open.is_probed = true;
                Ok(Permit { breaker: self, is_probe: true })
            }
            // Another call has just found the store again.
            None => Ok(Permit { breaker: self, is_probe: false }),
        }
    }

    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// Says what became of the call.
    pub(super) fn settle<T>(self, answer: &Result<T, UnavailableReason>) {
        match answer {
            // A key of another type is not the store's failing.
            Ok(_) | Err(UnavailableReason::WrongType) => self.succeeded(),
            Err(reason) => self.failed(*reason),
        }
    }

    /// The store has answered.
    fn succeeded(self) {
        if self.breaker.failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.breaker.failures.store(0, Ordering::Relaxed);
        if self.breaker.open().take().is_some() {
            tracing::info!("the rate limit store answers again");
        }
    }

    /// The store could not decide.
    fn failed(self, reason: UnavailableReason) {
        let failures = self.breaker.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures < FAILURES {
            return;
        }
        let mut open = self.breaker.open();
        let pause = match &mut *open {
            Some(open) if !self.is_probe => {
                // One of those that were under way when it opened.
                open.reason = reason;
                return;
            }
            Some(open) => (open.pause * 2).min(LONGEST_PAUSE),
            None => {
                tracing::warn!(%reason, "the rate limit store fails and is left alone for a while");
                FIRST_PAUSE
            }
        };
        // Spread, so that processes that lost it together do not come back together.
        let spread = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        let probe_at = Instant::now() + spread;
        *open = Some(Open { pause, probe_at, is_probed: false, reason });
    }
}

/// A call that is dropped while it looks lets the next one look.
impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.is_probe
            && let Some(open) = &mut *self.breaker.open()
        {
            open.is_probed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: UnavailableReason = UnavailableReason::Disconnected;

    fn fail(breaker: &Breaker, times: u32) {
        for _ in 0..times {
            breaker.permit().expect("leave to ask").failed(LOST);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn five_failures_in_a_row_open_it_and_one_answer_closes_it() {
        let breaker = Breaker::default();
        fail(&breaker, FAILURES - 1);
        breaker.permit().unwrap().succeeded();
        fail(&breaker, FAILURES);
        assert_eq!(breaker.permit().err(), Some(LOST));
        tokio::time::advance(FIRST_PAUSE).await;
        breaker.permit().unwrap().succeeded();
        fail(&breaker, FAILURES - 1);
        assert!(breaker.permit().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_at_a_time_looks_whether_the_store_is_back() {
        let breaker = Breaker::default();
        fail(&breaker, FAILURES);
        tokio::time::advance(FIRST_PAUSE).await;
        let probe = breaker.permit().unwrap();
        assert_eq!(breaker.permit().err(), Some(LOST));
        drop(probe);
        breaker.permit().unwrap().failed(LOST);
        // Twice the pause now.
        tokio::time::advance(FIRST_PAUSE / 2).await;
        assert_eq!(breaker.permit().err(), Some(LOST));
        tokio::time::advance(FIRST_PAUSE * 2).await;
        assert!(breaker.permit().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_stays_short_enough_to_find_the_store_within_two_seconds() {
        let breaker = Breaker::default();
        fail(&breaker, FAILURES);
        for _ in 0..20 {
            tokio::time::advance(LONGEST_PAUSE).await;
            breaker.permit().expect("a pause of less than a second").failed(LOST);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_calls_under_way_do_not_prolong_the_pause() {
        let breaker = Breaker::default();
        let under_way: Vec<_> = (0..64).map(|_| breaker.permit().unwrap()).collect();
        for permit in under_way {
            permit.failed(LOST);
        }
        tokio::time::advance(FIRST_PAUSE).await;
        assert!(breaker.permit().is_ok());
    }
}
