//! What is known of one caller under one policy, whatever the algorithm.

use super::{
    fixed_window::FixedWindow, sliding_counter::SlidingCounter, sliding_window::Log,
    token_bucket::TokenBucket,
};
use crate::{
    rules::Algorithm,
    store::{Outcome, Refund, Request},
};

/// One of each algorithm's.
pub(super) enum State {
    SlidingWindow(Log),
    SlidingCounter(SlidingCounter),
    FixedWindow(FixedWindow),
    TokenBucket(TokenBucket),
}

impl State {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::SlidingWindow => Self::SlidingWindow(Log::default()),
            Algorithm::SlidingCounter => Self::SlidingCounter(SlidingCounter::default()),
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::default()),
            Algorithm::TokenBucket => Self::TokenBucket(TokenBucket::default()),
        }
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        match self {
            Self::SlidingWindow(_) => Algorithm::SlidingWindow,
            Self::SlidingCounter(_) => Algorithm::SlidingCounter,
            Self::FixedWindow(_) => Algorithm::FixedWindow,
            Self::TokenBucket(_) => Algorithm::TokenBucket,
        }
    }

    #[inline]
    pub(super) fn decide(&mut self, now: u64, request: Request<'_>, looks: bool) -> Outcome {
        match self {
            Self::SlidingWindow(log) => log.decide(now, request, looks),
            Self::SlidingCounter(counter) => counter.decide(now, request, looks),
            Self::FixedWindow(window) => window.decide(now, request, looks),
            Self::TokenBucket(bucket) => bucket.decide(now, request, looks),
        }
    }

    pub(super) fn refund(&mut self, refund: Refund<'_>) {
        match self {
            Self::SlidingWindow(log) => log.refund(refund),
            Self::SlidingCounter(counter) => counter.refund(refund),
            Self::FixedWindow(window) => window.refund(refund),
            Self::TokenBucket(bucket) => bucket.refund(refund),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::Policy;

    /// Only a refusal of several units gives another number than its wait.
    #[test]
    fn a_refusal_gives_the_time_until_one_more_unit_can_be_had() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let mut rng = fastrand::Rng::with_seed(7);
        let mut others = 0;
        for make in [
            Policy::sliding_window,
            Policy::sliding_counter,
            Policy::fixed_window,
            Policy::token_bucket,
        ] {
            for policy in [make("p", second, 9), make("p", second, 5).tier(minute, 20)] {
                let mut state = State::new(policy.algorithm());
                let policy = &policy;
                let mut now = 3_600_000_000;
                for _ in 0..10_000 {
                    now += rng.u64(..1_000_000);
                    let cost = rng.u32(1..=5);
                    let request = Request { policy, cost, record: true, id: None };
                    let outcome = state.decide(now, request, true);
                    if outcome.admitted {
                        assert_eq!(outcome.more, 0);
                        continue;
                    }
                    let cost = cost.min(outcome.remaining + 1);
                    let look = state.decide(now, Request { cost, record: false, ..request }, true);
                    assert_eq!(outcome.more, look.wait, "{policy:?}");
                    others += u32::from(outcome.more != outcome.wait);
                }
            }
        }
        assert!(others > 1_000, "{others}");
    }

    #[test]
    fn a_state_is_small() {
        assert_eq!(size_of::<State>(), 32);
    }
}
