//! The algorithms: the state of one caller under one policy, each beside its Lua script.
//!
//! Floor 3: pure, `now` is an argument. It imports `policy`, `request` and `time`; `memory` imports it.

mod fixed_window;
mod packed;
mod per_tier;
mod sliding_counter;
mod sliding_window;
mod summary;
mod timestamps;
mod token_bucket;

use ratelimit_core::Algorithm;

use self::{
    fixed_window::Window,
    per_tier::{Alone, Several},
    sliding_counter::Counter,
    sliding_window::Log,
    token_bucket::Level,
};
use crate::{
    request::{Detail, Outcome, Refund, Request},
    time::Timestamp,
};

/// A call is recorded only if the state may take so many more bytes of memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NeedsRoom {
    pub(crate) bytes: usize,
}

impl NeedsRoom {
    /// Nothing, if this many bytes are no more than there is room for.
    #[inline]
    pub(crate) fn unless_fits(bytes: usize, room: usize) -> Result<(), Self> {
        if bytes > room { Err(Self { bytes }) } else { Ok(()) }
    }
}

/// One of each algorithm's. All that a policy of one tier needs stands in place.
pub(crate) enum State {
    SlidingWindow(Log),
    SlidingCounter(Alone<Counter>),
    FixedWindow(Alone<Window>),
    TokenBucket(Alone<Level>),
    SlidingCounters(Box<Several<Counter>>),
    FixedWindows(Box<Several<Window>>),
    TokenBuckets(Box<Several<Level>>),
}

/// Constructors of empty states, in the order of [`Algorithm::ALL`].
static EMPTY: [fn() -> State; Algorithm::ALL.len()] = [
    || State::SlidingWindow(Log::default()),
    || State::SlidingCounter(Alone::new()),
    || State::FixedWindow(Alone::new()),
    || State::TokenBucket(Alone::new()),
];

impl State {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        EMPTY[algorithm as usize]()
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        match self {
            Self::SlidingWindow(_) => Algorithm::SlidingWindow,
            Self::SlidingCounter(_) | Self::SlidingCounters(_) => Algorithm::SlidingCounter,
            Self::FixedWindow(_) | Self::FixedWindows(_) => Algorithm::FixedWindow,
            Self::TokenBucket(_) | Self::TokenBuckets(_) => Algorithm::TokenBucket,
        }
    }

    /// Decides a call. Nothing is recorded of one that needs more than `room` bytes for it.
    #[inline]
    pub(crate) fn decide(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        detail: Detail,
        room: usize,
    ) -> Result<Outcome, NeedsRoom> {
        let decided = match self {
            Self::SlidingWindow(log) => return log.decide(now, request, detail, room),
            Self::SlidingCounter(alone) => alone.decide(now, request, detail),
            Self::FixedWindow(alone) => alone.decide(now, request, detail),
            Self::TokenBucket(alone) => alone.decide(now, request, detail),
            Self::SlidingCounters(several) => return several.decide(now, request, detail, room),
            Self::FixedWindows(several) => return several.decide(now, request, detail, room),
            Self::TokenBuckets(several) => return several.decide(now, request, detail, room),
        };
        match decided {
            Some(outcome) => Ok(outcome),
            None => self.decide_anew(now, request, detail, room),
        }
    }

    /// Decides a call that a state of one tier does not know, such as the first one.
    #[cold]
    fn decide_anew(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        detail: Detail,
        room: usize,
    ) -> Result<Outcome, NeedsRoom> {
        let (outcome, several) = match self {
            Self::SlidingCounter(alone) => {
                let (outcome, several) = alone.decide_anew(now, request, detail, room)?;
                (outcome, several.map(Self::SlidingCounters))
            }
            Self::FixedWindow(alone) => {
                let (outcome, several) = alone.decide_anew(now, request, detail, room)?;
                (outcome, several.map(Self::FixedWindows))
            }
            Self::TokenBucket(alone) => {
                let (outcome, several) = alone.decide_anew(now, request, detail, room)?;
                (outcome, several.map(Self::TokenBuckets))
            }
            known => return known.decide(now, request, detail, room),
        };
        if let Some(several) = several {
            *self = several;
        }
        Ok(outcome)
    }

    /// The memory that it has on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::SlidingWindow(log) => log.heap_bytes(),
            Self::SlidingCounter(_) | Self::FixedWindow(_) | Self::TokenBucket(_) => 0,
            Self::SlidingCounters(several) => several.heap_bytes(),
            Self::FixedWindows(several) => several.heap_bytes(),
            Self::TokenBuckets(several) => several.heap_bytes(),
        }
    }

    pub(crate) fn refund(&mut self, refund: Refund<'_>) {
        match self {
            Self::SlidingWindow(log) => log.refund(refund),
            Self::SlidingCounter(alone) => alone.refund(refund),
            Self::FixedWindow(alone) => alone.refund(refund),
            Self::TokenBucket(alone) => alone.refund(refund),
            Self::SlidingCounters(several) => several.refund(refund),
            Self::FixedWindows(several) => several.refund(refund),
            Self::TokenBuckets(several) => several.refund(refund),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{policy::Policy, request::Op, time::Micros};

    pub(in super::super) fn take(
        state: &mut State,
        policy: &Policy,
        now: u64,
        cost: u32,
    ) -> Outcome {
        let request = Request { policy, written: policy, op: Op::Take, cost, id: None };
        state.decide(Timestamp::new(now), request, Detail::Full, usize::MAX).unwrap()
    }

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
                let mut now = Timestamp::new(3_600_000_000);
                for _ in 0..10_000 {
                    now = now + Micros::new(rng.u64(..1_000_000));
                    let cost = rng.u32(1..=5);
                    let outcome = take(&mut state, policy, now.get(), cost);
                    if outcome.admitted {
                        assert_eq!(outcome.more, Micros::ZERO);
                        continue;
                    }
                    let cost = cost.min(outcome.remaining + 1);
                    let peek = Request { policy, written: policy, op: Op::Peek, cost, id: None };
                    let peek = state.decide(now, peek, Detail::Full, 0).unwrap();
                    assert_eq!(outcome.more, peek.wait, "{policy:?}");
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
