//! The line: calls that wait for their turns.
//!
//! While turns lie ahead, a call is decided as if it came at the last of them. One that may wait is
//! charged at the time at which it is admitted there.

use super::{Answer, By, Call, Charge, MAX_LINE, Model, Rules, soonest::soonest, states::State};

/// The time for which a call is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) at: u64,
    pub(super) is_admitted: bool,
    /// `true` if this is the call's turn; otherwise others are before it.
    has_turn: bool,
    /// A repeated call's time until the turn of its charge.
    until_charge: Option<u64>,
}

impl Place {
    /// Completes the answer of a call at its turn, or behind others. `one` is the time until one
    /// unit can be had then.
    pub(super) fn finish(self, answer: &mut Answer, arrival: u64, one: impl FnOnce() -> u64) {
        let ahead = self.at - arrival;
        if self.has_turn {
            if self.is_admitted {
                answer.more = ahead;
            }
            return;
        }
        let one = ahead + one();
        (answer.remaining, answer.reset) = (0, ahead + answer.reset);
        if self.is_admitted {
            answer.wait = one;
        } else {
            (answer.wait, answer.more) = (ahead + answer.wait, one);
        }
        if let Some(turn) = self.until_charge {
            answer.wait = turn;
        }
    }
}

impl State {
    /// Returns the place of a call at the end of the line, where it is admitted or not.
    pub(super) fn place(
        &self,
        rules: &Rules,
        (end, is_admitted): (u64, bool),
        call: Call,
        charged: Option<Charge>,
    ) -> Place {
        let Call { now, cost, record, max_wait, .. } = call;
        let is_line = end > now;
        let latest = if record { now + max_wait } else { now };
        let place = Place { at: end, is_admitted, has_turn: !is_line, until_charge: None };
        if let Some(charge) = charged {
            return match charge.at {
                at if is_line && at > latest => {
                    Place { is_admitted: false, until_charge: Some(at - now), ..place }
                }
                at if is_line && at > now => {
                    Place { at, is_admitted: true, has_turn: true, ..place }
                }
                _ => Place { is_admitted: true, ..place },
            };
        }
        if is_admitted && (!is_line || cost == 0) {
            return place;
        }
        let turn = end + soonest(|wait| self.admits(rules, end + wait, cost));
        if turn > latest || self.turns_ahead(now) >= MAX_LINE {
            return Place { is_admitted: false, ..place };
        }
        Place { at: turn, is_admitted: true, has_turn: true, until_charge: None }
    }

    /// Returns `true` if all tiers have room.
    pub(super) fn admits(&self, rules: &Rules, now: u64, cost: u32) -> bool {
        cost == 0 || (0..rules.tiers.len()).all(|tier| self.has_room(rules, tier, now, cost))
    }

    /// The last turn that lies ahead, or now.
    pub(super) fn line_end(&self, rules: &Rules, now: u64) -> u64 {
        match self {
            Self::Calls(log) => log.line_end(rules, now),
            _ => now,
        }
    }

    /// Counts as of the turn of a call.
    pub(super) fn move_to(&mut self, at: u64) {
        if let Self::Calls(log) = self {
            log.move_to(at);
        }
    }

    /// Forgets a line that is over.
    pub(super) fn forget_line(&mut self) {
        if let Self::Calls(log) = self {
            log.forget_line();
        }
    }

    fn turns_ahead(&self, now: u64) -> u64 {
        match self {
            Self::Calls(log) => log.turns_ahead(now),
            _ => 0,
        }
    }
}

impl Model {
    /// Returns `true` if the state has a charge that is not settled.
    pub fn is_promised(&self, charge: Charge) -> bool {
        match self.callers.get(&charge.caller) {
            Some(State::Calls(log)) => log.position(charge).is_some(),
            Some(State::Units(log)) => log.charges.iter().any(|it| it.number == charge.number),
            _ => self.is_promised_in_line(charge),
        }
    }

    /// Admits none of a caller's calls before `ends`.
    pub fn pause(&mut self, rules: &Rules, caller: usize, now: u64, ends: u64) {
        self.numbers += 1;
        let generation = if self.by == By::Number { self.numbers } else { now };
        let empty = || State::empty(rules, generation, self.by);
        let state = self.callers.entry(caller).or_insert_with(empty);
        // What units have just become is dropped by the next call, which may be one of another
        // policy.
        let drops = !matches!(state, State::Units(_));
        state.become_calls(rules, now, now);
        match state {
            State::Calls(log) => log.pause(rules, now, ends, drops),
            other => unreachable!("{other:?} has no pauses"),
        }
        self.extend(caller, now);
    }

    /// Moves a charge of a caller to where the state has it. Returns its time, if the state has it.
    pub fn follow(&self, caller: usize, charge: &mut Charge) -> Option<u64> {
        let Some(State::Calls(log)) = self.callers.get(&caller) else { return None };
        let at = log.turn(*charge).filter(|_| charge.caller == caller)?;
        charge.ends = charge.ends + at - charge.at;
        charge.at = at;
        Some(at)
    }

    /// Moves the first turn that lies ahead forwards, if it is the one of this charge and has room.
    /// Returns `false` if the charge is gone.
    pub fn advance(&mut self, charge: &mut Charge, rules: &Rules, now: u64) -> bool {
        let before = charge.at;
        let is_kept = match self.callers.get_mut(&charge.caller) {
            Some(State::Calls(log)) => log.advance(charge, rules, now),
            Some(State::Units(log)) => log.charges.iter().any(|it| it.number == charge.number),
            _ => self.advance_in_line(charge, rules, now),
        };
        charge.ends -= before.saturating_sub(charge.at);
        self.extend(charge.caller, 0);
        is_kept
    }
}
