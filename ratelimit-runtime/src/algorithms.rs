//! The algorithms: the state of one caller under one policy, each beside its Lua script, which is the
//! same rule for Redis.
//!
//! Floor 3: pure, `now` is an argument. It imports `policy`, `request` and `time`; `memory` imports it.

mod fixed_window;
mod line;
mod packed;
mod per_tier;
mod request_ids;
mod sliding_counter;
mod sliding_window;
mod summary;
mod timestamps;
mod token_bucket;
mod weighted_window;

use self::{
    fixed_window::Window,
    line::TurnsAhead,
    per_tier::{ManyTiers, OneTier},
    sliding_counter::Counter,
    sliding_window::Log,
    token_bucket::Level,
    weighted_window::WeightedLog,
};
use crate::{
    policy::{Policy, StateKind},
    request::{Charged, Outcome, Place, Request, Settle, Standing},
    time::{Micros, Timestamp},
};

/// The state of each algorithm. A policy of one tier needs no heap, unless its log grows or calls wait.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(crate) enum State {
    SlidingWindow(Log),
    SlidingCounter(OneTier<Counter>),
    FixedWindow(OneTier<Window>),
    TokenBucket(OneTier<Level>),
    SlidingCounters(Box<ManyTiers<Counter>>),
    FixedWindows(Box<ManyTiers<Window>>),
    TokenBuckets(Box<ManyTiers<Level>>),
    WeightedWindow(WeightedLog),
    SlidingCounterLine(Box<TurnsAhead>),
    FixedWindowLine(Box<TurnsAhead>),
    TokenBucketLine(Box<TurnsAhead>),
}

/// The result of the straight path, [`State::take_one`]: one unit, one tier, and no override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Straight<D> {
    /// The unit is taken. The state counts for this long.
    Admitted { lasts: Micros, detail: D },
    /// No unit is left, and nothing has changed.
    Refused { wait: Micros, reset: Micros },
    /// The call needs [`State::decide`], and nothing has changed.
    Skipped,
}

/// The result of one unit under one tier, as any other part of the limiter decides it.
impl<D: Detail> From<Outcome> for Straight<D> {
    #[inline]
    fn from(outcome: Outcome) -> Self {
        let Outcome { admitted, lasts, wait, reset, .. } = outcome;
        if admitted {
            Self::Admitted { lasts, detail: D::new(|| outcome) }
        } else {
            Self::Refused { wait, reset }
        }
    }
}

/// The outcome of an admitted call, as far as it is read.
pub(crate) trait Detail {
    fn new(outcome: impl FnOnce() -> Outcome) -> Self;
}

/// Nothing is read.
impl Detail for () {
    #[inline]
    fn new(_: impl FnOnce() -> Outcome) -> Self {}
}

/// All of it is read.
impl Detail for Outcome {
    #[inline]
    fn new(outcome: impl FnOnce() -> Outcome) -> Self {
        outcome()
    }
}

/// Constructors of empty states, in the order of [`StateKind::ALL`].
static EMPTY: [fn() -> State; StateKind::ALL.len()] = [
    || State::SlidingWindow(Log::default()),
    || State::SlidingCounter(OneTier::new()),
    || State::FixedWindow(OneTier::new()),
    || State::TokenBucket(OneTier::new()),
    || State::WeightedWindow(WeightedLog::default()),
];

impl State {
    pub(crate) fn new(kind: StateKind) -> Self {
        EMPTY[kind as usize]()
    }

    #[inline]
    pub(crate) fn kind(&self) -> StateKind {
        match self {
            Self::SlidingWindow(_) => StateKind::SlidingWindow,
            Self::SlidingCounter(_) | Self::SlidingCounters(_) | Self::SlidingCounterLine(_) => {
                StateKind::SlidingCounter
            }
            Self::FixedWindow(_) | Self::FixedWindows(_) | Self::FixedWindowLine(_) => {
                StateKind::FixedWindow
            }
            Self::TokenBucket(_) | Self::TokenBuckets(_) | Self::TokenBucketLine(_) => {
                StateKind::TokenBucket
            }
            Self::WeightedWindow(_) => StateKind::WeightedWindow,
        }
    }

    /// Takes one unit under a valid policy that no override changes. It is a fast path for most
    /// calls, with the same outcome and the same state as [`decide`](Self::decide).
    #[inline]
    pub(crate) fn take_one<D: Detail>(&mut self, now: Timestamp, policy: &Policy) -> Straight<D> {
        let [tier] = policy.tiers() else { return Straight::Skipped };
        let taken = match self {
            Self::SlidingWindow(log) => log.take_one(now, tier),
            Self::SlidingCounter(one) => one.take_one(now, tier),
            Self::FixedWindow(one) => one.take_one(now, tier),
            Self::TokenBucket(one) => one.take_one(now, policy, tier),
            Self::SlidingCounters(_)
            | Self::FixedWindows(_)
            | Self::TokenBuckets(_)
            | Self::WeightedWindow(_)
            | Self::SlidingCounterLine(_)
            | Self::FixedWindowLine(_)
            | Self::TokenBucketLine(_) => Straight::Skipped,
        };
        match taken {
            // The refused call is recorded, which takes the long way.
            Straight::Refused { .. } if policy.counts_rejected() => Straight::Skipped,
            taken => taken,
        }
    }

    /// Decides a call.
    pub(crate) fn decide(&mut self, now: Timestamp, request: Request<'_>) -> Outcome {
        let (outcome, successor) = match self {
            Self::SlidingWindow(log) => return log.decide(now, request),
            Self::WeightedWindow(log) => return log.decide(now, request),
            Self::SlidingCounterLine(_) | Self::FixedWindowLine(_) | Self::TokenBucketLine(_) => {
                return self.decide_in_line(now, request);
            }
            _ if request.max_wait > Micros::ZERO => return self.decide_in_line(now, request),
            Self::SlidingCounters(many) => return many.decide(now, request),
            Self::FixedWindows(many) => return many.decide(now, request),
            Self::TokenBuckets(many) => return many.decide(now, request),
            Self::SlidingCounter(one) => {
                let (outcome, many) = one.decide(now, request);
                (outcome, many.map(Self::SlidingCounters))
            }
            Self::FixedWindow(one) => {
                let (outcome, many) = one.decide(now, request);
                (outcome, many.map(Self::FixedWindows))
            }
            Self::TokenBucket(one) => {
                let (outcome, many) = one.decide(now, request);
                (outcome, many.map(Self::TokenBuckets))
            }
        };
        if let Some(successor) = successor {
            *self = successor;
        }
        outcome
    }

    /// Returns `true` if a decision of the call changes the memory on the heap neither way.
    #[inline]
    pub(crate) fn keeps_size(&self, now: Timestamp, request: Request<'_>) -> bool {
        match self {
            Self::SlidingCounterLine(_) | Self::FixedWindowLine(_) | Self::TokenBucketLine(_) => {
                false
            }
            _ => self.growth(now, request) == 0,
        }
    }

    /// Returns the bytes by which the heap grows at most if the call is decided now; 0 if the
    /// decision needs no memory.
    #[inline]
    pub(crate) fn growth(&self, now: Timestamp, request: Request<'_>) -> usize {
        match self {
            Self::SlidingWindow(log) => log.growth(now, request),
            Self::WeightedWindow(log) => log.growth(now, request),
            Self::SlidingCounterLine(line)
            | Self::FixedWindowLine(line)
            | Self::TokenBucketLine(line) => line.growth(now, request),
            _ if request.max_wait > Micros::ZERO => self.growth_of_line(now, request),
            Self::SlidingCounter(one) => one.growth(now, request),
            Self::FixedWindow(one) => one.growth(now, request),
            Self::TokenBucket(one) => one.growth(now, request),
            Self::SlidingCounters(many) => many.growth(now, request),
            Self::FixedWindows(many) => many.growth(now, request),
            Self::TokenBuckets(many) => many.growth(now, request),
        }
    }

    /// Returns the memory on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::SlidingWindow(log) => log.heap_bytes(),
            Self::SlidingCounter(_) | Self::FixedWindow(_) | Self::TokenBucket(_) => 0,
            Self::SlidingCounters(many) => many.heap_bytes(),
            Self::FixedWindows(many) => many.heap_bytes(),
            Self::TokenBuckets(many) => many.heap_bytes(),
            Self::WeightedWindow(log) => log.heap_bytes(),
            Self::SlidingCounterLine(line)
            | Self::FixedWindowLine(line)
            | Self::TokenBucketLine(line) => line.heap_bytes(),
        }
    }

    /// Changes the units of a call, as far as they still count. Returns the time for which the state
    /// then counts, if that is longer than before.
    pub(crate) fn settle(&mut self, now: Timestamp, settle: Settle) -> Micros {
        match self {
            Self::SlidingWindow(log) => {
                log.settle(settle);
                Micros::ZERO
            }
            Self::SlidingCounter(one) => one.settle(now, settle),
            Self::FixedWindow(one) => one.settle(now, settle),
            Self::TokenBucket(one) => one.settle(now, settle),
            Self::SlidingCounters(many) => many.settle(now, settle, 0).unwrap_or_default(),
            Self::FixedWindows(many) => many.settle(now, settle, 0).unwrap_or_default(),
            Self::TokenBuckets(many) => many.settle(now, settle, 0).unwrap_or_default(),
            Self::WeightedWindow(log) => log.settle(now, settle),
            Self::SlidingCounterLine(_) | Self::FixedWindowLine(_) | Self::TokenBucketLine(_) => {
                self.settle_in_line(now, settle)
            }
        }
    }

    /// Returns `true` if the state has the charge of a place, or its turn has come.
    pub(crate) fn is_promised(&self, now: Timestamp, place: Place<'_>) -> bool {
        has_come(now, place)
            || match self {
                Self::WeightedWindow(log) => log.is_promised(place),
                _ => self.has_turn(place),
            }
    }

    /// Moves the first turn that lies ahead forwards, if it is the one of this place and has room.
    /// Returns the turn, unless the charge is gone, and the time for which the state then counts, if that
    /// is longer than before.
    pub(crate) fn advance(
        &mut self,
        now: Timestamp,
        place: Place<'_>,
    ) -> Option<(Standing, Micros)> {
        if has_come(now, place) {
            let (at, turn) = (place.mark.at, Micros::ZERO);
            return Some((Standing { at, turn, has_room: true }, Micros::ZERO));
        }
        match self {
            Self::WeightedWindow(log) => Some((log.advance(now, place)?, Micros::ZERO)),
            _ => self.advance_turn(now, place),
        }
    }
}

/// Returns `true` if the turn of a place is not later than now. It is then a charge like others.
fn has_come(now: Timestamp, place: Place<'_>) -> bool {
    place.mark.charged != Charged::Nothing && place.mark.at <= now
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
        let request = Request::new(policy, Op::Take, cost);
        state.decide(Timestamp::new(now), request)
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
                let mut state = State::new(policy.state());
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
                    let peek = Request::new(policy, Op::Peek, cost);
                    let peek = state.decide(now, peek);
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
