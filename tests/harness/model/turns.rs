//! The line of a state that counts for each tier: the state without the turns that lie ahead, which
//! is that of the caller, and the same state with them, the tail.

use super::{Answer, By, Call, Charge, MAX_LINE, Model, Rules, states::State};

/// A clock that steps back by more than this many microseconds since the last promise ends a line.
const STEP: u64 = 1_000_000;

/// The turns of a caller's waiting calls.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    tail: State,
    ahead: Vec<Turn>,
    /// The turns whose units the state of the caller has.
    passed: Vec<Turn>,
    /// The time of the last promise.
    promised: u64,
}

/// A turn. Its call finds it by the time and the cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    at: u64,
    cost: u32,
    /// The generation in its mark. A bucket that is full when the turn comes gets it.
    life: u64,
    /// The time before it moved. A repeated advance finds it by that.
    before: Option<u64>,
}

/// The state of a caller, and the line.
#[derive(Clone, Debug)]
struct InLine {
    base: Option<State>,
    turns: Option<Turns>,
}

/// A decision by some state at some time, and the state after it.
struct Tried {
    at: u64,
    answer: Answer,
    charge: Option<Charge>,
    after: Option<State>,
}

impl Turns {
    /// The time from which the state with all turns is equal to an empty one, if a turn lies ahead.
    pub(super) fn ends(&self) -> Option<u64> {
        Some(self.tail.ends().max(self.last()?))
    }

    fn last(&self) -> Option<u64> {
        self.ahead.iter().map(|it| it.at).max()
    }

    /// Returns the turn of a charge, and `true` if it has passed. Redis does not find it by its
    /// generation.
    fn find(&self, charge: Charge, by: By) -> Option<(Turn, bool)> {
        let is_alike =
            |it: &Turn| it.cost == charge.cost && (by == By::Instant || it.life == charge.life);
        let is_it = |it: &&Turn| it.at == charge.at && is_alike(it);
        let was_it = |it: &&Turn| it.before == Some(charge.at) && is_alike(it);
        let of = |turns: &[Turn], is: &dyn Fn(&&Turn) -> bool| turns.iter().find(is).copied();
        let [ahead, passed] = [&self.ahead[..], &self.passed[..]];
        let exact = of(ahead, &is_it).map(|it| (it, false));
        let exact = exact.or_else(|| Some((of(passed, &is_it)?, true)));
        let moved = || of(passed, &was_it).map(|it| (it, true));
        exact.or_else(moved).or_else(|| Some((of(ahead, &was_it)?, false)))
    }

    fn remove(&mut self, turn: Turn) {
        let index = self.ahead.iter().position(|it| *it == turn).expect("a turn ahead");
        self.ahead.remove(index);
    }
}

impl InLine {
    /// Returns the last turn that lies ahead.
    fn end(&self) -> Option<u64> {
        self.turns.as_ref()?.last()
    }

    /// Makes the tail anew.
    fn refold(&mut self) {
        if let (Some(base), Some(turns)) = (&self.base, &mut self.turns) {
            turns.tail = base.clone();
            fold(&mut turns.tail, &turns.ahead);
        }
    }

    /// Returns `true` if several windows start with a turn. One that comes earlier or not at all
    /// may let later ones come too early.
    fn starts_windows(&self) -> bool {
        self.base.as_ref().is_some_and(State::has_windows)
    }
}

impl Model {
    /// Decides a call of a state that counts for each tier.
    pub(super) fn decide_in_line(
        &mut self,
        rules: &Rules,
        caller: usize,
        call: Call,
    ) -> (Answer, Option<Charge>) {
        let Call { now, cost, record, max_wait, .. } = call;
        let alone = Call { max_wait: 0, ..call };
        let unpunished = &Rules { count_rejected: false, ..rules.clone() };
        let mut line = self.bring(caller, now);
        let can_wait = record && max_wait > 0;
        let Some(end) = line.end() else {
            let plain = self.try_on(rules, caller, line.base.clone(), alone);
            if can_wait && !plain.answer.admitted && line.base.is_some() {
                let refused = self.try_on(unpunished, caller, line.base.clone(), alone);
                let from = now + refused.answer.wait;
                let found = self.search(unpunished, caller, (refused.after.clone(), from), call);
                if let Some(found) = found {
                    line.base = refused.after;
                    return self.promise(caller, line, call, found);
                }
            }
            if record {
                line.base = plain.after;
                self.keep(caller, line);
            }
            return (plain.answer, plain.charge);
        };

        let tail = |line: &InLine| line.turns.as_ref().map(|it| it.tail.clone());
        if !tail(&line).is_some_and(|tail| tail.counts_for(rules)) {
            let take = Call { cost: 0, record: true, ..alone };
            line.base = self.try_on(rules, caller, line.base, take).after;
            line.refold();
        }
        let peek = |cost| Call { now: end, cost, record: false, ..alone };
        let first = self.try_on(unpunished, caller, tail(&line), peek(cost)).answer;
        let ahead = line.turns.as_ref().map_or(0, |it| it.ahead.len());
        if can_wait && (ahead as u64) < MAX_LINE {
            let from = if first.admitted { end } else { end + first.wait };
            if let Some(found) = self.search(unpunished, caller, (tail(&line), from), call) {
                return self.promise(caller, line, call, found);
            }
        }

        let mut after = tail(&line);
        if rules.count_rejected && cost > 0 {
            let take = Call { now: end, record: true, ..alone };
            after = self.try_on(rules, caller, after, take).after;
        }
        let mut of = |cost| self.try_on(unpunished, caller, after.clone(), peek(cost)).answer;
        let (own, one, none) = (of(cost), of(1), of(0));
        let ahead = end - now;
        let until_one = ahead + if one.admitted { 0 } else { one.wait };
        let (remaining, reset) = (0, ahead + none.reset);
        let answer = match own {
            own if cost == 0 => Answer { remaining, wait: until_one, reset, more: 0, ..own },
            own => {
                let (tier, wait) = if own.admitted { (0, 0) } else { (own.tier, own.wait) };
                let (admitted, wait, more) = (false, ahead + wait, until_one);
                Answer { admitted, tier, remaining, wait, reset, more, ..own }
            }
        };
        if record {
            if let (true, Some(turns), Some(after)) = (rules.count_rejected, &mut line.turns, after)
            {
                turns.tail = after;
                line.base = self.try_on(rules, caller, line.base, alone).after;
            }
            self.keep(caller, line);
        }
        (answer, None)
    }

    /// Records a turn that was found.
    fn promise(
        &mut self,
        caller: usize,
        mut line: InLine,
        call: Call,
        found: Tried,
    ) -> (Answer, Option<Charge>) {
        let Tried { at, answer, charge, after } = found;
        let tail = after.expect("a state after a charge");
        let (ahead, passed) = line.turns.map_or_else(Default::default, |it| (it.ahead, it.passed));
        let mut turns = Turns { tail, ahead, passed, promised: call.now };
        let charge = charge.map(|charge| Charge { at, ..charge });
        let told = charge.expect("a charge of the turn").life;
        let turn = Turn { at, cost: call.cost, life: told, before: None };
        turns.ahead.push(turn);
        line.turns = Some(turns);
        self.keep(caller, line);
        (Answer { more: at - call.now, ..answer }, charge)
    }

    /// Finds the first time at which a state admits a call.
    fn search(
        &mut self,
        rules: &Rules,
        caller: usize,
        (mut state, mut at): (Option<State>, u64),
        call: Call,
    ) -> Option<Tried> {
        if rules.tiers.iter().any(|tier| tier.capacity < call.cost) {
            return None;
        }
        while at <= call.now + call.max_wait {
            let take = Call { now: at, record: true, max_wait: 0, ..call };
            let tried = self.try_on(rules, caller, state, take);
            if tried.answer.admitted {
                return Some(tried);
            }
            assert!(tried.answer.wait > 0, "it is refused now");
            (state, at) = (tried.after, at + tried.answer.wait);
        }
        None
    }

    /// Decides a call by some state, in place of the caller's.
    fn try_on(&mut self, rules: &Rules, caller: usize, state: Option<State>, call: Call) -> Tried {
        let own = self.put(caller, state);
        let (answer, charge) = self.decide_alone(rules, caller, call);
        let after = self.put(caller, own);
        Tried { at: call.now, answer, charge, after }
    }

    fn put(&mut self, caller: usize, state: Option<State>) -> Option<State> {
        match state {
            Some(state) => self.callers.insert(caller, state),
            None => self.callers.remove(&caller),
        }
    }

    /// Returns the state and the line at `now`, in which the turns that have come are counted.
    fn bring(&mut self, caller: usize, now: u64) -> InLine {
        let base = self.callers.get(&caller).cloned();
        let mut line = InLine { base, turns: self.lines.get(&caller).cloned() };
        let InLine { base, turns: Some(turns) } = &mut line else { return line };
        let Some(last) = turns.last() else { return line };
        if last <= now || turns.promised > now + STEP {
            *base = Some(turns.tail.clone());
            turns.passed.append(&mut turns.ahead);
            return line;
        }
        let (come, ahead): (Vec<_>, Vec<_>) = turns.ahead.iter().partition(|it| it.at <= now);
        turns.ahead = ahead;
        if let Some(base) = base {
            fold(base, &come);
        }
        turns.passed.extend(come);
        line
    }

    /// Returns the time from which a caller's state is equal to an empty one, unless a turn lies
    /// ahead.
    pub(super) fn ends_without_turns(&mut self, caller: usize, now: u64) -> Option<u64> {
        let line = self.bring(caller, now);
        if line.end().is_none() { Some(line.base?.ends()) } else { None }
    }

    fn keep(&mut self, caller: usize, line: InLine) {
        let InLine { base, turns } = line;
        self.put(caller, base);
        self.lines.remove(&caller);
        self.lines.extend(turns.map(|turns| (caller, turns)));
    }

    /// Settles a charge beside a line.
    pub(super) fn settle_in_line(&mut self, charge: Charge, rules: &Rules, now: u64, to: u32) {
        let mut line = self.bring(charge.caller, now);
        let turn =
            line.turns.as_ref().filter(|_| charge.at > now).and_then(|it| it.find(charge, self.by));
        let lies_ahead = |it: &(Turn, bool)| !it.1 && it.0.at > now;
        if to == charge.cost {
            return;
        }
        if let Some((turn, _)) = turn.filter(lies_ahead) {
            let is_kept = to < charge.cost && line.starts_windows();
            let Some(turns) =
                line.turns.as_mut().filter(|it| !is_kept || it.last() == Some(turn.at))
            else {
                return;
            };
            turns.remove(turn);
            if to > 0 {
                turns.ahead.push(Turn { cost: to, ..turn });
            }
        } else {
            let own = line.base.clone();
            let before = self.put(charge.caller, line.base.take());
            let is_applied = self.settle_alone(charge, rules, now, to);
            line.base = self.put(charge.caller, before);
            let has_turns = line.end().is_some();
            if let (Some(base), Some(own), true) = (&mut line.base, own, has_turns) {
                base.keep_open(&own);
            }
            if !is_applied {
                return;
            }
        }
        line.refold();
        self.keep(charge.caller, line);
    }

    /// Returns `true` if it is known whether a turn is still promised, which it is for a while once
    /// it has come.
    pub fn knows(&self, charge: Charge) -> bool {
        let found = self.lines.get(&charge.caller).and_then(|it| it.find(charge, self.by));
        !found.is_some_and(|(_, has_passed)| has_passed)
    }

    pub(super) fn is_promised_in_line(&self, charge: Charge) -> bool {
        self.lines.get(&charge.caller).is_some_and(|it| it.find(charge, self.by).is_some())
    }

    /// Moves the first turn that lies ahead forwards. Returns `false` if the turn is gone.
    pub(super) fn advance_in_line(&mut self, charge: &mut Charge, rules: &Rules, now: u64) -> bool {
        let caller = charge.caller;
        let Some((turn, _)) = self.lines.get(&caller).and_then(|it| it.find(*charge, self.by))
        else {
            // It has come, unless the state is another one.
            let is_same = |state: State| state.life() == charge.life;
            return charge.at <= now && self.bring(caller, now).base.is_some_and(is_same);
        };
        charge.at = turn.at;
        let mut line = self.bring(caller, now);
        let Some(turns) = line.turns.clone().filter(|it| it.ahead.contains(&turn)) else {
            return true;
        };
        let is_first = turns.ahead.iter().all(|it| it.at >= turn.at);
        if !is_first || line.starts_windows() && turns.ahead.len() > 1 {
            return true;
        }
        let unpunished = &Rules { count_rejected: false, ..rules.clone() };
        let call = Call {
            now,
            cost: turn.cost,
            record: true,
            id: None,
            permit: 0,
            max_wait: turn.at - 1 - now,
        };
        let Some(found) = self.search(unpunished, caller, (line.base.clone(), now), call) else {
            return true;
        };
        let moved = Turn { at: found.at, before: Some(turn.at), ..turn };
        charge.at = moved.at;
        let turns = line.turns.as_mut().expect("a line");
        turns.remove(turn);
        if moved.at > now {
            turns.ahead.push(moved);
        } else {
            turns.passed.push(moved);
            if let Some(base) = &mut line.base {
                fold(base, &[moved]);
            }
        }
        line.refold();
        self.keep(caller, line);
        true
    }
}

/// Counts turns in a state, whatever room there is.
fn fold(state: &mut State, turns: &[Turn]) {
    let mut turns = turns.to_vec();
    turns.sort_by_key(|it| it.at);
    for Turn { at, cost, life, .. } in turns {
        state.add_turn(at, cost, life);
    }
}
