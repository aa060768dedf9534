//! The algorithms: the state of one caller under one policy, each beside its Lua script, which is
//! the same rule for Redis.
//!
//! Floor 3: pure, `now` is an argument. It imports `policy`, `request` and `time`; `memory` imports
//! it.

mod block;
mod calendar_window;
mod counts;
#[cfg(test)]
mod exhaustive;
mod fixed_window;
mod line;
mod log;
mod packed;
mod per_tier;
mod sliding_counter;
mod summary;
mod token_bucket;
mod window_units;

use self::{
    block::LastBlock, calendar_window::DatedWindow, counts::Counts, fixed_window::Window,
    line::TurnsAhead, log::Log, per_tier::OneTier, sliding_counter::Counter, token_bucket::Level,
};
use crate::{
    policy::{Policy, StateKind},
    request::{Charged, LinePlace, Outcome, PlainAnswer, Request, Settle, Standing},
    time::{Micros, Timestamp},
};

/// Asks whether the heap may grow by so many bytes: at most once in a decision, for all that it
/// needs. A state that may not decides later calls as before.
pub(crate) type AskForRoom<'a> = &'a mut dyn FnMut(usize) -> bool;

/// The state of each algorithm. A policy of one tier needs no heap, unless its log grows or calls
/// wait.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(crate) enum State {
    SlidingWindow(Log),
    SlidingCounter(OneTier<Counter>),
    FixedWindow(OneTier<Window>),
    TokenBucket(OneTier<Level>),
    CalendarWindow(OneTier<DatedWindow>),
    /// The counts of several tiers.
    Many(Box<Counts>),
    /// Counts with turns that lie ahead.
    Line(Box<TurnsAhead>),
    Block(LastBlock),
}

/// Constructors of empty states, in the order of [`StateKind::ALL`] and then of a block.
static EMPTY: [fn() -> State; StateKind::ALL.len() + 1] = [
    || State::SlidingWindow(Log::default()),
    || State::SlidingCounter(OneTier::new()),
    || State::FixedWindow(OneTier::new()),
    || State::TokenBucket(OneTier::new()),
    || State::CalendarWindow(OneTier::new()),
    || State::Block(LastBlock::default()),
];

impl State {
    pub(crate) fn new(kind: StateKind) -> Self {
        EMPTY[kind as usize]()
    }

    #[inline]
    pub(crate) fn kind(&self) -> StateKind {
        match self {
            Self::SlidingWindow(_) => StateKind::SlidingWindow,
            Self::SlidingCounter(_) => StateKind::SlidingCounter,
            Self::FixedWindow(_) => StateKind::FixedWindow,
            Self::TokenBucket(_) => StateKind::TokenBucket,
            Self::CalendarWindow(_) => StateKind::CalendarWindow,
            Self::Many(many) => many.kind(),
            Self::Line(line) => line.kind(),
            Self::Block(_) => StateKind::Block,
        }
    }

    /// Takes units under a valid policy of one tier that no override changes, or refuses one. Most
    /// calls are decided here, with the same outcome and the same state as by
    /// [`decide`](Self::decide). Returns nothing for a call that needs that one, or for a state of
    /// another kind: nothing has changed then. The state `expires` at a time by which a log knows
    /// its longest period. Each algorithm is a function of its own, which saves no more registers
    /// than it uses.
    #[inline(always)]
    pub(crate) fn take_units<A: PlainAnswer>(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        expires: Timestamp,
    ) -> Option<A> {
        let Request { policy, cost: units, .. } = request;
        match (policy.state(), self) {
            (StateKind::SlidingWindow, Self::SlidingWindow(log)) => {
                log.take_units(now, request, expires)
            }
            (StateKind::SlidingCounter, Self::SlidingCounter(one)) => {
                one.take_units(now, policy, units)
            }
            (StateKind::FixedWindow, Self::FixedWindow(one)) => one.take_units(now, policy, units),
            (StateKind::TokenBucket, Self::TokenBucket(one)) => one.take_units(now, policy, units),
            _ => None,
        }
    }

    /// Decides a call. Returns nothing, and counts nothing, if there is no room for the bytes that
    /// it needs.
    pub(crate) fn decide(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        room: AskForRoom<'_>,
    ) -> Option<Outcome> {
        let (outcome, successor) = match self {
            Self::SlidingWindow(log) => return log.decide(now, request, room),
            Self::Block(block) => return Some(block.decide(now, request)),
            Self::Line(_) => return self.decide_in_line(now, request, room),
            _ if request.max_wait > Micros::ZERO => return self.decide_in_line(now, request, room),
            Self::Many(many) => return many.decide_within(now, request, room),
            Self::SlidingCounter(one) => one.decide(now, request, Counts::Counters),
            Self::FixedWindow(one) => one.decide(now, request, Counts::Windows),
            Self::TokenBucket(one) => one.decide(now, request, Counts::Buckets),
            Self::CalendarWindow(one) => one.decide(now, request, Counts::Dated),
        };
        if let Some(many) = successor {
            if !room(size_of::<Counts>() + many.heap_bytes()) {
                return None;
            }
            *self = many.into_state();
        }
        Some(outcome)
    }

    /// Returns the memory on the heap.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::SlidingWindow(log) => log.heap_bytes(),
            Self::SlidingCounter(_)
            | Self::FixedWindow(_)
            | Self::TokenBucket(_)
            | Self::CalendarWindow(_)
            | Self::Block(_) => 0,
            Self::Many(many) => size_of::<Counts>() + many.heap_bytes(),
            Self::Line(line) => line.heap_bytes(),
        }
    }

    /// Changes the units of a call, as far as they still count. Returns the time for which the
    /// state then counts, if that is longer than before.
    #[inline]
    pub(crate) fn settle(&mut self, now: Timestamp, settle: &Settle) -> Micros {
        let lasts = match self {
            Self::SlidingWindow(log) => Some(log.settle(now, settle)),
            Self::Block(_) => None,
            Self::SlidingCounter(one) => one.settle(now, settle),
            Self::FixedWindow(one) => one.settle(now, settle),
            Self::TokenBucket(one) => one.settle(now, settle),
            Self::CalendarWindow(one) => one.settle(now, settle),
            Self::Many(many) => many.settle(now, settle, 0),
            Self::Line(_) => Some(self.settle_in_line(now, settle)),
        };
        lasts.unwrap_or_default()
    }

    /// Returns the time until the state decides like an absent one; nothing for one of which only
    /// its calls know: a log of single units, and a line.
    #[inline]
    pub(crate) fn lasts(&self, now: Timestamp) -> Option<Micros> {
        match self {
            Self::SlidingWindow(log) => log.newest_unit().is_none().then(|| log.lasts(now, now)),
            Self::SlidingCounter(one) => Some(one.lasts(now)),
            Self::FixedWindow(one) => Some(one.lasts(now)),
            Self::TokenBucket(one) => Some(one.lasts(now)),
            Self::CalendarWindow(one) => Some(one.lasts(now)),
            Self::Many(many) => Some(many.lasts(now)),
            Self::Line(_) | Self::Block(_) => None,
        }
    }

    /// Returns the time of the newest unit of a log that has only their times.
    #[inline]
    pub(crate) fn newest_unit(&self) -> Option<Timestamp> {
        if let Self::SlidingWindow(log) = self { log.newest_unit() } else { None }
    }

    /// Keeps what a policy of this period counts, which has decided before a log has had entries.
    /// Returns the time for which the state counts then.
    #[cold]
    pub(crate) fn keep_period(&mut self, now: Timestamp, period: Micros) -> Micros {
        let Self::SlidingWindow(log) = self else { return Micros::ZERO };
        log.keep_period(now, period)
    }

    /// Returns `true` if the state has the charge of a place, or its turn has come.
    #[cfg(test)]
    pub(crate) fn is_promised(&self, now: Timestamp, place: LinePlace<'_>) -> bool {
        self.has_come(now, place)
            || match self {
                Self::SlidingWindow(log) => log.turn_of(place).is_some(),
                _ => self.has_turn(place),
            }
    }

    /// Moves the first turn that lies ahead forwards, if it is the one of this place and has room.
    /// Returns the turn, unless the charge is gone, and the time for which the state then counts,
    /// if that is longer than before.
    pub(crate) fn advance(
        &mut self,
        now: Timestamp,
        place: LinePlace<'_>,
    ) -> Option<(Standing, Micros)> {
        if self.has_come(now, place) {
            let (at, turn) = (place.mark.at, Micros::ZERO);
            return Some((Standing { at, turn, has_room: true }, Micros::ZERO));
        }
        match self {
            Self::SlidingWindow(log) => {
                let standing = log.advance(now, place)?;
                // The policy may be another than that of the calls so far.
                Some((standing, log.lasts(now, now)))
            }
            _ => self.advance_turn(now, place),
        }
    }

    /// Returns the time of a place's charge, unless it is gone.
    pub(crate) fn turn_of(&self, place: LinePlace<'_>) -> Option<Timestamp> {
        if let Self::SlidingWindow(log) = self { log.turn_of(place) } else { None }
    }

    /// Admits nobody before `ends`, unless a longer pause goes on, and moves the turns that lie
    /// ahead behind it. Returns the time for which the state then counts. Only sliding windows have
    /// pauses.
    pub(crate) fn pause(&mut self, now: Timestamp, ends: Timestamp, policy: &Policy) -> Micros {
        let Self::SlidingWindow(log) = self else { return Micros::ZERO };
        log.pause(now, ends, policy)
    }

    /// Gives back units that were taken at a time, which lifts a block that began since for lack of
    /// them.
    pub(crate) fn lift_block(&mut self, taken: Timestamp, units: u32) {
        if let Self::Block(block) = self {
            block.lift(taken, units);
        }
    }

    /// Returns `true` if the turn of a place is not later than now. It is then a charge like
    /// others.
    fn has_come(&self, now: Timestamp, place: LinePlace<'_>) -> bool {
        let is_past = place.mark.charged != Charged::Nothing && place.mark.at <= now;
        // A pause may have moved it.
        is_past && self.turn_of(place).is_none_or(|turn| turn <= now)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::request::Op;

    /// Decides a call by `decide`. The heap grows by no more than was asked for, and a state
    /// without room decides the same once it has some.
    pub(in super::super) fn within_room<S: Clone>(
        state: &mut S,
        heap_bytes: fn(&S) -> usize,
        decide: impl Fn(&mut S, AskForRoom<'_>) -> Option<Outcome>,
    ) -> Outcome {
        let (mut asked, before) = (0, heap_bytes(state));
        // A copy of a large log takes too long.
        let full = (before < 4_096).then(|| state.clone());
        let outcome = decide(state, &mut |bytes| {
            assert_eq!(asked, 0, "asks once");
            asked = bytes;
            true
        });
        let (after, outcome) = (heap_bytes(state), outcome.expect("there is room"));
        assert!(after <= before + asked, "{after}, not {before} + {asked}");
        if let Some(mut full) = full {
            let later = decide(&mut full, &mut |bytes| bytes == 0);
            let later = later.or_else(|| decide(&mut full, &mut |_| true)).expect("there is room");
            let told = |it: Outcome| (it.admitted, it.remaining, it.wait, it.turn, it.mark.at);
            assert_eq!(told(later), told(outcome));
        }
        outcome
    }

    impl State {
        pub(crate) fn decided(&mut self, now: Timestamp, request: Request<'_>) -> Outcome {
            within_room(self, Self::heap_bytes, |state, room| state.decide(now, request, room))
        }
    }

    pub(in super::super) fn take(
        state: &mut State,
        policy: &Policy,
        now: u64,
        cost: u32,
    ) -> Outcome {
        let request = Request::new(policy, Op::Take, cost);
        state.decided(Timestamp::new(now), request)
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
                    let peek = state.decided(now, peek);
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
