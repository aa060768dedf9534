//! The promised turns of a queue, in their order, and the questions for the first of them.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    queued_turn::{QueuedTurn, TurnPosition},
    waiter::Waiter,
};

/// The time for which a turn on Redis counts as promised after it was last seen there.
pub(super) const SEEN: Duration = Duration::from_secs(1);

/// The promised turns of a queue.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct TurnLine {
    /// The turns, in their order.
    pub(super) turns: BTreeMap<TurnPosition, QueuedTurn>,
    /// The number of turns that have been added.
    added: u64,
    /// `true` if each call that becomes the first asks whether its turn has come nearer. In memory
    /// it always does, because the question costs nothing; on Redis after an override.
    pub(super) asks_each: bool,
    /// The time at which the first turn was last known to be promised.
    pub(super) seen: Option<Instant>,
    /// The last question to a store for the first turn.
    pub(super) asked: Option<TurnQuestion>,
    /// `true` if the first turn may have come nearer.
    pub(super) hurries: bool,
    /// `true` if a pause has moved the first turn, until the turns behind it are known.
    pub(super) is_moving: bool,
    /// The grace of calls that have not passed, although they were woken.
    pub(super) grace: Option<Grace>,
    /// The calls that a change has woken, which look again.
    pub(super) woken: Vec<Arc<Waiter>>,
}

/// The time that a call gives those before it, which were woken.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug))]
pub(super) struct Grace {
    /// The end of the present nap.
    pub(super) ends: Instant,
    pub(super) naps: u32,
}

/// A question to a store for the first turn.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug))]
pub(super) struct TurnQuestion {
    pub(super) at: Instant,
    pub(super) is_answered: bool,
    /// `true` if the turn has come nearer: the next one may then, too.
    pub(super) has_moved: bool,
}

impl TurnLine {
    pub(super) fn new(asks_each: bool) -> Self {
        Self { asks_each, ..Self::default() }
    }

    pub(super) fn first(&self) -> Option<&QueuedTurn> {
        self.turns.values().next()
    }

    fn wake_first(&mut self) {
        let first = self.first().map(|first| Arc::clone(&first.waiter));
        self.woken.extend(first);
    }

    /// Returns the position of a turn. Only those of its instant are compared.
    pub(super) fn position_of(&self, turn: &QueuedTurn) -> Option<TurnPosition> {
        let at = turn.outcome.mark.at;
        let mut turns = self.turns.range((at, 0)..=(at, u64::MAX));
        turns.find(|(_, own)| own.is_charged_as(turn)).map(|(position, _)| *position)
    }

    /// Adds a turn behind those that are earlier or the same. Replies may come in another order
    /// than their turns, and late: a call before this one passes no later.
    pub(super) fn insert(&mut self, turn: QueuedTurn) -> TurnPosition {
        // The first turn of an empty line was promised after the pause, which does not move it.
        self.is_moving &= !self.turns.is_empty();
        self.added += 1;
        let (position, mut comes) = ((turn.outcome.mark.at, self.added), turn.comes);
        let before = self.turns.range_mut(..position).rev().map(|(_, before)| before);
        for before in before.take_while(|before| before.comes > comes) {
            before.comes = comes;
            self.woken.push(Arc::clone(&before.waiter));
        }
        if let Some((_, next)) = self.turns.range(position..).next() {
            comes = comes.min(next.comes);
        }
        self.turns.insert(position, QueuedTurn { comes, ..turn });
        self.hurries |= self.asks_each && self.is_first(position);
        position
    }

    pub(super) fn is_first(&self, position: TurnPosition) -> bool {
        self.turns.keys().next() == Some(&position)
    }

    /// Removes a turn. If it was the first, the next one may have come nearer with it.
    pub(super) fn remove(&mut self, position: TurnPosition) -> QueuedTurn {
        let is_first = self.is_first(position);
        let turn = self.turns.remove(&position).expect("a turn of the queue");
        if is_first {
            self.grace = None;
            let has_moved = self.asked.as_mut().map(|asked| mem::take(&mut asked.has_moved));
            self.hurries |= has_moved == Some(true) || self.asks_each;
            self.wake_first();
        }
        turn
    }

    /// Lets the first call ask at once whether its turn has come nearer.
    pub(super) fn hurry(&mut self) {
        self.hurries = true;
        self.wake_first();
    }

    /// Returns a function from a turn to the time until which it counts as promised. The first turn
    /// is checked for all. Its promise may be older than a call's own.
    pub(super) fn known_until(&self) -> impl Fn(&QueuedTurn) -> Instant + use<> {
        // Copies, because `ask_anew` calls the function while the line changes.
        let (first, seen) = (self.first().map(|first| first.promised), self.seen);
        move |turn| {
            let promised = first.map_or(turn.promised, |first| first.min(turn.promised));
            seen.map_or(promised, |seen| seen.max(promised)) + SEEN
        }
    }

    /// Lets the first call look again after a check, and those whose turn has come.
    pub(super) fn end_check(&mut self, now: Instant) {
        self.asked = self.asked.map(|asked| TurnQuestion { is_answered: true, ..asked });
        let turns = self.turns.values().enumerate();
        let looks = turns.take_while(|(index, turn)| *index == 0 || turn.comes <= now);
        self.woken.extend(looks.map(|(_, turn)| Arc::clone(&turn.waiter)));
    }
}
