//! What is known of one caller under one policy, whatever the algorithm.

use super::{
    fixed_window::FixedWindow, sliding_counter::SlidingCounter, sliding_window::Log,
    token_bucket::TokenBucket,
};
use crate::{
    rules::Algorithm,
    store::{Outcome, Refund, Request},
};

/// A call is recorded only if the state may take so many more bytes of memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NeedsRoom {
    pub(super) bytes: usize,
}

impl NeedsRoom {
    /// Nothing, if this many bytes are no more than there is room for.
    #[inline]
    pub(super) fn unless_fits(bytes: usize, room: usize) -> Result<(), Self> {
        if bytes > room { Err(Self { bytes }) } else { Ok(()) }
    }
}

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

    /// Decides a call. Nothing is recorded of one that needs more than `room` bytes for it.
    #[inline]
    pub(super) fn decide(
        &mut self,
        now: u64,
        request: Request<'_>,
        looks: bool,
        room: usize,
    ) -> Result<Outcome, NeedsRoom> {
        let tiers = if request.record { request.policy.tiers().len() } else { 0 };
        let fits = |growth| NeedsRoom::unless_fits(growth, room);
        match self {
            Self::SlidingWindow(log) => log.decide(now, request, looks, room),
            Self::SlidingCounter(counter) => {
                fits(counter.growth(tiers)).map(|()| counter.decide(now, request, looks))
            }
            Self::FixedWindow(window) => {
                fits(window.growth(tiers)).map(|()| window.decide(now, request, looks))
            }
            Self::TokenBucket(bucket) => {
                fits(bucket.growth(tiers)).map(|()| bucket.decide(now, request, looks))
            }
        }
    }

    /// The memory that it has on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::SlidingWindow(log) => log.heap_bytes(),
            Self::SlidingCounter(counter) => counter.heap_bytes(),
            Self::FixedWindow(window) => window.heap_bytes(),
            Self::TokenBucket(bucket) => bucket.heap_bytes(),
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
                    let outcome = state.decide(now, request, true, usize::MAX).unwrap();
                    if outcome.admitted {
                        assert_eq!(outcome.more, 0);
                        continue;
                    }
                    let cost = cost.min(outcome.remaining + 1);
                    let look = state
                        .decide(now, Request { cost, record: false, ..request }, true, 0)
                        .unwrap();
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
