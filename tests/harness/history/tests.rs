//! Bad histories are found, and good ones are not blamed.

use super::*;

const PROMISE: Promise = Promise {
    period: 100,
    threshold: 2,
    late: 0,
    refills: false,
    losses: Vec::new(),
    set_back: Vec::new(),
};
const LOST: Outcome = Outcome::Unavailable(UnavailableReason::Disconnected);

/// Calls of one caller: asked, answered, what.
fn history(calls: &[(u64, u64, Outcome)]) -> History {
    let call = |&(asked, answered, outcome)| Call {
        caller: 1,
        asked,
        answered,
        outcome,
        cost: 1,
        settled: None,
    };
    History::new(calls.iter().map(call).collect())
}

fn log(units: &[u64]) -> Log {
    let mut log = Log::default();
    for (name, at) in units.iter().enumerate() {
        log.add(1, &name.to_string(), *at);
    }
    log
}

const fn admitted(asked: u64, answered: u64) -> (u64, u64, Outcome) {
    (asked, answered, Outcome::Admitted)
}

const fn refused(asked: u64, answered: u64) -> (u64, u64, Outcome) {
    (asked, answered, Outcome::Refused)
}

#[test]
fn a_window_that_certainly_admits_too_many_is_a_fault() {
    let calls = [admitted(1_000, 1_010), admitted(1_020, 1_030), admitted(1_080, 1_099)];
    assert_eq!(history(&calls).faults(&PROMISE).len(), 1);
    // The last one may have been decided when the first had left.
    let calls = [admitted(1_000, 1_010), admitted(1_020, 1_030), admitted(1_080, 1_100)];
    assert_eq!(history(&calls).faults(&PROMISE), [""; 0]);
    // After a loss as many again, and not one more.
    let calls: Vec<_> = (0..4).map(|n| admitted(1_000 + n, 1_001 + n)).collect();
    let lost = Promise { losses: vec![1_002..=1_002], ..PROMISE };
    assert!(!history(&calls).faults(&PROMISE).is_empty());
    assert_eq!(history(&calls).faults(&lost), [""; 0]);
    let calls: Vec<_> = (0..5).map(|n| admitted(1_000 + n, 1_001 + n)).collect();
    assert!(!history(&calls).faults(&lost).is_empty());
    // Another caller has a window of its own.
    let mut calls = history(&[admitted(1_000, 1_010), admitted(1_020, 1_030)]).calls;
    calls.push(Call { caller: 2, ..calls[0] });
    assert_eq!(History::new(calls).faults(&PROMISE), [""; 0]);
}

#[test]
fn a_refusal_without_a_reason_is_a_fault() {
    let calls = [admitted(1_000, 1_010), refused(1_050, 1_060)];
    assert_eq!(history(&calls).faults(&PROMISE).len(), 1);
    let calls = [admitted(1_000, 1_010), admitted(1_001, 1_011), refused(1_111, 1_120)];
    assert_eq!(history(&calls).faults(&PROMISE).len(), 1);
    let calls = [admitted(1_000, 1_010), admitted(1_001, 1_011), refused(1_109, 1_120)];
    assert_eq!(history(&calls).faults(&PROMISE), [""; 0]);
    // An unavailable call may have been counted, and later still by a late store.
    let calls = [admitted(1_000, 1_010), (1_000, 1_005, LOST), refused(1_101, 1_110)];
    assert_eq!(history(&calls).faults(&PROMISE), [""; 0]);
    let calls = [admitted(1_050, 1_060), (1_000, 1_005, LOST), refused(1_120, 1_130)];
    assert_eq!(history(&calls).faults(&PROMISE).len(), 1);
    let late = Promise { late: 20, ..PROMISE };
    assert_eq!(history(&calls).faults(&late), [""; 0]);
}

#[test]
fn an_unavailable_call_gives_its_unit_back_to_a_bucket_that_has_been_refilled() {
    let over = [admitted(1_000, 1_010), admitted(1_001, 1_011), admitted(1_090, 1_095)];
    let refills = Promise { refills: true, ..PROMISE };
    assert_eq!(history(&over).faults(&refills).len(), 1);
    for (asked, faults) in [(900, 1), (990, 0), (1_050, 0), (1_100, 1)] {
        let calls: Vec<_> = over.into_iter().chain([(asked, asked + 10, LOST)]).collect();
        assert_eq!(history(&calls).faults(&PROMISE).len(), 1);
        assert_eq!(history(&calls).faults(&refills).len(), faults, "{asked}");
    }
}

#[test]
fn a_clock_set_back_explains_refusals_for_a_period_from_then_on() {
    let calls = [admitted(1_000, 1_010), admitted(1_001, 1_011), refused(1_180, 1_181)];
    assert_eq!(history(&calls).faults(&PROMISE).len(), 1);
    for (set_back, faults) in [
        (1_170..=1_175, 0),
        (1_070..=1_080, 0),
        (1_181..=1_300, 0),
        // It was over by then, or came later.
        (1_070..=1_079, 1),
        (1_182..=1_300, 1),
    ] {
        let set_back = vec![set_back];
        let promise = Promise { set_back, ..PROMISE };
        assert_eq!(history(&calls).faults(&promise).len(), faults, "{promise:?}");
    }
}

#[test]
fn a_window_of_the_log_with_too_many_units_is_a_fault() {
    let calls = history(&[admitted(1_000, 1_200), admitted(1_000, 1_200), admitted(1_000, 1_200)]);
    assert_eq!(calls.faults_in(&log(&[1_000, 1_010, 1_099]), &PROMISE).len(), 1);
    assert_eq!(calls.faults_in(&log(&[1_000, 1_010, 1_100]), &PROMISE), [""; 0]);
}

#[test]
fn an_admitted_call_has_its_unit_and_a_unit_its_call() {
    let calls = history(&[admitted(1_000, 1_010), refused(1_020, 1_030)]);
    assert_eq!(calls.faults_in(&log(&[1_005]), &PROMISE), [""; 0]);
    assert_eq!(calls.faults_in(&log(&[]), &PROMISE).len(), 1);
    // Nothing is counted twice, and no refused call is.
    assert_eq!(calls.faults_in(&log(&[1_005, 1_006]), &PROMISE).len(), 1);
    assert_eq!(calls.faults_in(&log(&[1_005, 1_025]), &PROMISE).len(), 1);
    // A unit of another time is not the call's.
    assert_eq!(calls.faults_in(&log(&[1_011]), &PROMISE).len(), 2);
    let mut foreign = log(&[1_005]);
    foreign.add(7, "unit", 1_005);
    assert_eq!(calls.faults_in(&foreign, &PROMISE).len(), 1);
}

#[test]
fn an_unavailable_call_may_have_its_unit_or_none() {
    let calls = history(&[admitted(1_000, 1_020), (1_000, 1_010, LOST)]);
    assert_eq!(calls.faults_in(&log(&[1_005]), &PROMISE), [""; 0]);
    assert_eq!(calls.faults_in(&log(&[1_005, 1_006]), &PROMISE), [""; 0]);
    assert_eq!(calls.faults_in(&log(&[1_005, 1_030]), &PROMISE).len(), 1);
    let late = Promise { late: 20, ..PROMISE };
    assert_eq!(calls.faults_in(&log(&[1_005, 1_030]), &late), [""; 0]);
}

/// A call of so many units.
const fn of_cost(cost: usize, asked: u64, outcome: Outcome) -> Call {
    Call { caller: 1, asked, answered: asked + 1, outcome, cost, settled: None }
}

const fn taken(cost: usize, asked: u64) -> Call {
    of_cost(cost, asked, Outcome::Admitted)
}

impl Call {
    /// Settles the call within ten microseconds.
    const fn settled(self, to: usize, asked: u64) -> Self {
        let applied = Some(asked + 10);
        Self { settled: Some(Settled { to, asked, applied }), ..self }
    }

    /// Settles the call, and nobody knows when.
    const fn posted(self, to: usize, asked: u64) -> Self {
        Self { settled: Some(Settled { to, asked, applied: None }), ..self }
    }
}

fn faults(calls: &[Call]) -> usize {
    let mut windows = History::new(calls.to_vec()).faults(&Promise { threshold: 100, ..PROMISE });
    // A window is found from each of its calls.
    windows.truncate(1);
    windows.len()
}

#[test]
fn a_window_of_costs_that_certainly_admits_too_many_units_is_a_fault() {
    for (last, expected) in [(10, 0), (11, 1)] {
        assert_eq!(faults(&[taken(60, 1_000), taken(30, 1_020), taken(last, 1_040)]), expected);
    }
    assert_eq!(faults(&[taken(60, 1_000), taken(60, 1_098)]), 1);
    assert_eq!(faults(&[taken(60, 1_000), taken(60, 1_099)]), 0);
}

#[test]
fn what_is_given_back_is_as_if_never_taken_from_its_settle_on() {
    let lowered = taken(60, 1_000).settled(10, 1_030);
    assert_eq!(faults(&[lowered, taken(90, 1_050)]), 0);
    assert_eq!(faults(&[lowered, taken(91, 1_050)]), 1);
    // Before the settle all of it counts, also if it is lowered later in the same window.
    assert_eq!(faults(&[lowered, taken(41, 1_020)]), 1);
    assert_eq!(faults(&[lowered, taken(41, 1_029)]), 0);
    assert_eq!(faults(&[lowered, taken(41, 1_020), taken(9, 1_050)]), 1);
    // It may be applied at once, although nobody awaits it.
    assert_eq!(faults(&[taken(60, 1_000).posted(0, 1_030), taken(100, 1_031)]), 0);
}

#[test]
fn an_excess_counts_from_when_it_is_known() {
    let raised = taken(10, 1_000).settled(80, 1_130);
    // The call has left the window of these, and its excess is in it.
    assert_eq!(faults(&[raised, taken(30, 1_150)]), 0);
    assert_eq!(faults(&[raised, taken(31, 1_150)]), 1);
    assert_eq!(faults(&[raised, taken(31, 1_139)]), 0);
    assert_eq!(faults(&[raised, taken(31, 1_230)]), 0);
    // It is a debt: it may exceed the threshold, and then admits nobody.
    let debt = taken(90, 1_000).settled(500, 1_030);
    assert_eq!(faults(&[debt]), 0);
    assert_eq!(faults(&[debt, taken(1, 1_041)]), 1);
    // Nobody knows when, or whether, this one was applied.
    assert_eq!(faults(&[taken(10, 1_000).posted(80, 1_030), taken(90, 1_090)]), 0);
}

#[test]
fn a_refusal_of_units_for_which_there_was_room_is_a_fault() {
    let refused = |cost, asked| of_cost(cost, asked, Outcome::Refused);
    assert_eq!(faults(&[taken(60, 1_000), refused(40, 1_020)]), 1);
    assert_eq!(faults(&[taken(60, 1_000), refused(41, 1_020)]), 0);
    // Until a settle is applied the whole cost may count.
    let lowered = taken(60, 1_000).settled(10, 1_030);
    assert_eq!(faults(&[lowered, refused(90, 1_039)]), 0);
    assert_eq!(faults(&[lowered, refused(90, 1_040)]), 1);
    assert_eq!(faults(&[taken(60, 1_000).posted(10, 1_030), refused(90, 1_080)]), 0);
    // An excess may count from its settle on, and for a period from when it is applied.
    let raised = taken(10, 1_000).settled(80, 1_030);
    assert_eq!(faults(&[raised, refused(30, 1_028)]), 1);
    assert_eq!(faults(&[raised, refused(30, 1_029)]), 0);
    assert_eq!(faults(&[raised, refused(31, 1_139)]), 0);
    assert_eq!(faults(&[raised, refused(31, 1_140)]), 1);
}
