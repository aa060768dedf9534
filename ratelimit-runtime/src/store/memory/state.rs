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
    use super::*;

    #[test]
    fn a_state_is_small() {
        assert_eq!(size_of::<State>(), 32);
    }
}
