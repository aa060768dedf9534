//! The counts of a state as plain data: a copy costs little, and none is a log.

use super::{
    AskForRoom, State, calendar_window::DatedWindow, fixed_window::Window, packed::Generation,
    per_tier::ManyTiers, sliding_counter::Counter, token_bucket::Level,
};
use crate::{
    policy::StateKind,
    request::{Outcome, Request, Settle},
    time::{Micros, Timestamp},
};

/// The counts of a state of any number of tiers.
#[derive(Clone)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) enum Counts {
    Counters(ManyTiers<Counter>),
    Windows(ManyTiers<Window>),
    Buckets(ManyTiers<Level>),
    Dated(ManyTiers<DatedWindow>),
}

/// Evaluates an expression for the counts of any algorithm.
macro_rules! of_any {
    ($counts:expr, $many:ident => $value:expr) => {
        match $counts {
            Counts::Counters($many) => $value,
            Counts::Windows($many) => $value,
            Counts::Buckets($many) => $value,
            Counts::Dated($many) => $value,
        }
    };
}

impl Counts {
    /// Returns a copy of the counts in a state in which calls can wait, unless it is a log.
    pub(super) fn of(state: &State) -> Option<Self> {
        Some(match state {
            State::SlidingCounter(one) => Self::Counters(one.to_many()),
            State::FixedWindow(one) => Self::Windows(one.to_many()),
            State::TokenBucket(one) => Self::Buckets(one.to_many()),
            // Nobody waits for a window of the calendar.
            State::Many(many) if !matches!(**many, Self::Dated(_)) => Self::clone(many),
            State::Line(line) => line.tail().clone(),
            _ => return None,
        })
    }

    /// Returns the state that has these counts.
    pub(super) fn into_state(self) -> State {
        let one = match &self {
            Self::Counters(many) => many.to_one().map(State::SlidingCounter),
            Self::Windows(many) => many.to_one().map(State::FixedWindow),
            Self::Buckets(many) => many.to_one().map(State::TokenBucket),
            Self::Dated(many) => many.to_one().map(State::CalendarWindow),
        };
        one.unwrap_or_else(|| State::Many(Box::new(self)))
    }

    pub(super) fn kind(&self) -> StateKind {
        match self {
            Self::Counters(_) => StateKind::SlidingCounter,
            Self::Windows(_) => StateKind::FixedWindow,
            Self::Buckets(_) => StateKind::TokenBucket,
            Self::Dated(_) => StateKind::CalendarWindow,
        }
    }

    /// Returns the outcome that the call would have.
    pub(super) fn peek(&self, now: Timestamp, request: Request<'_>) -> Outcome {
        of_any!(self, many => many.peek(now, request))
    }

    /// Decides a call, whatever memory it needs.
    pub(super) fn decide(&mut self, now: Timestamp, request: Request<'_>) -> Outcome {
        self.decide_within(now, request, &mut |_| true).expect("there is room")
    }

    /// Decides a call: see [`State::decide`].
    pub(super) fn decide_within(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        room: AskForRoom<'_>,
    ) -> Option<Outcome> {
        of_any!(self, many => many.decide(now, request, room))
    }

    /// Adds the units of a turn at this time, whatever room there is. If that renews the state, its
    /// generation is the one in the mark of the call.
    pub(super) fn add_turn(&mut self, at: Timestamp, units: u32, promised: Generation) {
        of_any!(self, many => many.add_turn(at, units, promised));
    }

    /// Returns the generation of which a charge is that was made last.
    pub(super) fn generation(&self) -> Generation {
        of_any!(self, many => many.generation())
    }

    /// Changes the units of a call. Returns the time for which the counts then last, if that is
    /// longer than before; nothing if they have not changed. A window keeps at least so many of its
    /// units.
    pub(super) fn settle(&mut self, now: Timestamp, settle: &Settle, least: u32) -> Option<Micros> {
        of_any!(self, many => many.settle(now, settle, least))
    }

    /// Returns the time until no count has a unit.
    pub(super) fn lasts(&self, at: Timestamp) -> Micros {
        of_any!(self, many => many.lasts(at))
    }

    /// Returns `true` if there are counts for the policy of this call.
    pub(super) fn has_counts(&self, now: Timestamp, request: Request<'_>) -> bool {
        of_any!(self, many => many.has_counts(now, request))
    }

    /// Returns the memory on the heap, without this value itself.
    pub(super) fn heap_bytes(&self) -> usize {
        of_any!(self, many => many.heap_bytes())
    }

    /// Returns `true` if a charge that is taken out can let a window start later, and so last
    /// longer than a turn behind it has been promised by.
    pub(super) fn has_linked_windows(&self) -> bool {
        matches!(self, Self::Windows(many) if many.len() > 1)
    }
}
