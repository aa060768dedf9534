//! The rule of the line in few words: states without a line, all turns counted anew, and turns
//! found by trial.

use super::*;

/// A state without turns, those that lie ahead, and the state with all of them.
#[derive(Clone)]
pub(super) struct Reference {
    pub(super) base: State,
    pub(super) tail: State,
    pub(super) turns: Vec<Promised>,
    promised: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Promised {
    pub(super) at: u64,
    pub(super) cost: u32,
    generation: Generation,
}

/// Counts a turn.
fn add_turn(state: &mut State, Promised { at, cost, generation }: Promised) {
    let mut counts = Counts::of(state).expect("counts");
    counts.add_turn(Timestamp::new(at), cost, generation);
    *state = counts.into_state();
}

/// Settles a charge that has passed, and keeps windows open if several of them count.
fn settle_before_turns(state: &mut State, now: u64, settle: Settle) {
    let mut counts = Counts::of(state).expect("counts");
    let least = counts.has_linked_windows().into();
    counts.settle(Timestamp::new(now), &settle, least);
    *state = counts.into_state();
}

/// Returns `true` if the state has the generation of a charge: then it can be raised before it
/// expires.
fn is_of(state: &State, now: u64, settle: Settle) -> bool {
    let mark = Mark { at: Timestamp::new(u64::MAX / 2), ..settle.mark };
    let mut raised = state.clone();
    raised.settle(Timestamp::new(now), &Settle { from: 0, to: 1, mark, ..settle });
    raised != *state
}

pub(super) fn peek(state: &State, at: u64, request: Request<'_>, cost: u32) -> Outcome {
    let policy = request.policy.without_count_rejected();
    let request = Request { op: Op::Peek, cost, max_wait: Micros::ZERO, ..request };
    state.clone().decided(Timestamp::new(at), Request { policy: &policy, ..request })
}

fn take(state: &mut State, at: u64, request: Request<'_>) -> Outcome {
    let request = Request { op: Op::Take, max_wait: Micros::ZERO, ..request };
    state.decided(Timestamp::new(at), request)
}

/// Returns the first time from `end` on at which the call is admitted, if its policy counts from
/// then on.
pub(super) fn first_time(state: &State, end: u64, request: Request<'_>) -> u64 {
    let mut state = state.clone();
    take(&mut state, end, Request { cost: 0, ..request });
    let has_room = |wait| peek(&state, end + wait, request, request.cost).admitted;
    if has_room(0) {
        return end;
    }
    let (mut early, mut late) = (0, 1);
    while !has_room(late) {
        (early, late) = (late, 2 * late);
    }
    while early + 1 < late {
        let middle = u64::midpoint(early, late);
        *(if has_room(middle) { &mut late } else { &mut early }) = middle;
    }
    end + late
}

impl Reference {
    pub(super) fn new(state: &State) -> Self {
        Self { base: state.clone(), tail: state.clone(), turns: Vec::new(), promised: 0 }
    }

    pub(super) fn end(&self, now: u64) -> u64 {
        self.turns.last().map_or(now, |last| last.at.max(now))
    }

    fn is_over(&self, now: u64) -> bool {
        self.end(now) == now || self.promised > now + SECOND
    }

    fn fold(&mut self, now: u64) {
        if self.is_over(now) {
            self.base = self.tail.clone();
            self.turns.clear();
        }
        self.turns.retain(|turn| {
            if turn.at <= now {
                add_turn(&mut self.base, *turn);
            }
            turn.at > now
        });
    }

    fn renew_tail(&mut self) {
        self.tail = self.base.clone();
        for turn in &self.turns {
            add_turn(&mut self.tail, *turn);
        }
    }

    pub(super) fn decide(&mut self, now: u64, request: Request<'_>) -> Outcome {
        if request.op == Op::Peek {
            let mut copy = self.clone();
            if copy.is_over(now) {
                let request = Request { max_wait: Micros::ZERO, ..request };
                return copy.tail.decided(Timestamp::new(now), request);
            }
            copy.fold(now);
            copy.add_counts(now, request);
            return copy.refuse(now, request);
        }
        self.fold(now);
        if self.turns.is_empty() {
            return self.arrive(now, request);
        }
        self.add_counts(now, request);
        self.promise(now, request).unwrap_or_else(|| self.refuse(now, request))
    }

    /// Decides a call while nobody waits.
    fn arrive(&mut self, now: u64, request: Request<'_>) -> Outcome {
        let before = self.base.clone();
        let policy = request.policy.without_count_rejected();
        if !take(&mut self.base, now, Request { policy: &policy, ..request }).admitted {
            self.tail = self.base.clone();
            if let Some(outcome) = self.promise(now, request) {
                return outcome;
            }
        }
        self.base = before;
        let outcome = take(&mut self.base, now, request);
        self.tail = self.base.clone();
        outcome
    }

    fn add_counts(&mut self, now: u64, request: Request<'_>) {
        let at_once = Request { max_wait: Micros::ZERO, ..request };
        let at_once = Request { op: Op::Take, ..at_once };
        let is_new =
            self.tail.clone().decide(Timestamp::new(now), at_once, &mut |more| more == 0).is_none();
        if is_new {
            take(&mut self.base, now, Request { cost: 0, ..request });
            self.renew_tail();
        }
    }

    fn promise(&mut self, now: u64, request: Request<'_>) -> Option<Outcome> {
        let Request { cost, max_wait, max_line, .. } = request;
        let turn = first_time(&self.tail, self.end(now), request);
        let has_place = self.turns.len() < max_line as usize;
        if turn == now || turn - now > max_wait.get() || !has_place {
            return None;
        }
        let policy = request.policy.without_count_rejected();
        let taken = take(&mut self.tail, turn, Request { policy: &policy, ..request });
        assert!(taken.admitted, "{turn} for {cost}");
        let generation = Counts::of(&self.tail).expect("counts").generation();
        self.turns.push(Promised { at: turn, cost, generation });
        self.promised = now;
        let ahead = Micros::new(turn - now);
        Some(Outcome { turn: ahead, lasts: ahead + taken.lasts, ..taken })
    }

    fn refuse(&mut self, now: u64, request: Request<'_>) -> Outcome {
        let (cost, end) = (request.cost, self.end(now));
        if request.policy.counts_rejected() && cost > 0 {
            take(&mut self.tail, end, request);
            take(&mut self.base, now, request);
        }
        let until = |time: u64| Micros::new(time - now);
        let refused = peek(&self.tail, end, request, cost);
        let all = peek(&self.tail, end, request, 0);
        let one = until(first_time(&self.tail, end, Request { cost: 1, ..request }));
        let own = until(first_time(&self.tail, end, request));
        Outcome {
            admitted: cost == 0,
            tier: if cost == 0 || !refused.admitted { refused.tier } else { 0 },
            remaining: 0,
            wait: if cost == 0 { one } else { own },
            more: if cost == 0 { Micros::ZERO } else { one },
            reset: until(end) + all.reset,
            lasts: until(end) + all.lasts,
            mark: Mark::NONE,
            kind: if cost == 0 { all.kind } else { crate::request::OutcomeKind::Gated },
            ..all
        }
    }

    pub(super) fn settle(&mut self, now: u64, settle: Settle) {
        self.fold(now);
        let Settle { from, to, mark, .. } = settle;
        let is_it = |turn: &Promised| (turn.at, turn.cost) == (mark.at.get(), from);
        if let Some(index) = self.turns.iter().position(is_it) {
            if to < from && self.is_fixed(mark.at.get()) {
                return;
            }
            self.turns[index].cost = to;
            self.turns.retain(|turn| turn.cost > 0);
        } else {
            let before = self.base.clone();
            if self.turns.is_empty() {
                self.base.settle(Timestamp::new(now), &settle);
            } else {
                settle_before_turns(&mut self.base, now, settle);
            }
            if before == self.base && !is_of(&before, now, settle) {
                return;
            }
        }
        self.renew_tail();
    }

    /// Returns `true` if a turn at this time has to stay for the sake of those behind it.
    fn is_fixed(&self, at: u64) -> bool {
        self.is_linked() && self.turns.iter().any(|turn| turn.at > at)
    }

    fn is_linked(&self) -> bool {
        Counts::of(&self.base).is_some_and(|counts| counts.has_linked_windows())
    }

    /// Returns the time to which a turn moves.
    pub(super) fn advance(&mut self, now: u64, (at, request): (u64, Request<'_>)) -> u64 {
        let ahead: Vec<_> = self.turns.iter().filter(|turn| turn.at > now).collect();
        if ahead[0].at < at || (self.is_linked() && ahead.len() > 1) {
            return at;
        }
        let mut base = self.base.clone();
        for turn in self.turns.iter().filter(|turn| turn.at <= now) {
            add_turn(&mut base, *turn);
        }
        let to = first_time(&base, now, request);
        if to < at {
            let is_it = |turn: &Promised| (turn.at, turn.cost) == (at, request.cost);
            let index = self.turns.iter().position(is_it).expect("a turn");
            let moved = Promised { at: to, ..self.turns.remove(index) };
            self.turns.retain(|turn| turn.at > now);
            self.base = base;
            if to == now {
                add_turn(&mut self.base, moved);
            } else {
                self.turns.insert(0, moved);
            }
            self.renew_tail();
        }
        at.min(to)
    }
}
