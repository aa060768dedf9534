//! Lines of few calls.

use super::*;

#[test]
fn a_call_that_does_not_wait_is_refused_while_others_do() {
    let policy = Policy::fixed_window("p", seconds(1), 10);
    let mut state = State::new(policy.state());
    assert!(decide(&mut state, SECOND, waiting(&policy, 8, 0)).admitted);
    let first = decide(&mut state, 3 * SECOND / 2, waiting(&policy, 5, SECOND));
    assert_eq!((first.admitted, first.turn.get()), (true, SECOND / 2));
    assert_eq!((first.remaining, first.reset.get()), (5, SECOND));
    let refused = decide(&mut state, 3 * SECOND / 2, waiting(&policy, 1, 0));
    assert!(!refused.admitted);
    assert_eq!((refused.remaining, refused.wait.get()), (0, SECOND / 2));
    assert_eq!((refused.more.get(), refused.reset.get()), (SECOND / 2, 3 * SECOND / 2));
    let peek = Request { op: Op::Peek, ..waiting(&policy, 0, 0) };
    let peek = decide(&mut state, 3 * SECOND / 2, peek);
    assert_eq!((peek.admitted, peek.remaining, peek.wait.get()), (true, 0, SECOND / 2));
    assert_eq!(decide(&mut state, 2 * SECOND, waiting(&policy, 1, 0)).remaining, 4);
    assert!(state.line().is_none());
}

#[test]
fn a_line_has_no_more_turns_than_it_may() {
    for new in ALGORITHMS {
        let policy = new("p", seconds(1), 1);
        let mut state = State::new(policy.state());
        let request = |max_line| Request { max_line, ..waiting(&policy, 1, 100 * SECOND) };
        let mut turns = (0..=3).map(|_| decide(&mut state, SECOND, request(3)).turn.get());
        assert!(turns.by_ref().is_sorted());
        drop(turns);
        let refused = decide(&mut state, SECOND, request(3));
        assert!(!refused.admitted && refused.wait.get() >= 4 * SECOND, "{refused:?}");
        // The first of them has come by then.
        assert!(decide(&mut state, 3 * SECOND, request(3)).admitted);
    }
}

#[test]
fn a_turn_of_a_former_state_is_no_turn_of_this_one() {
    let policy = Policy::token_bucket("p", seconds(1), 1);
    let [mut before, mut after] = [(); 2].map(|()| State::new(policy.state()));
    let marks = [&mut before, &mut after].map(|state| {
        decide(state, SECOND, waiting(&policy, 1, 0));
        decide(state, SECOND, waiting(&policy, 1, SECOND)).mark
    });
    assert_eq!(marks[0].at, marks[1].at);
    let [gone, kept] = marks.map(|mark| place(&policy, 1, mark));
    let now = Timestamp::new(SECOND + 1);
    assert_eq!([gone, kept].map(|place| after.is_promised(now, place)), [false, true]);
    assert_eq!(after.advance(now, gone), None);
    after.settle(now, &gone.leave());
    assert!(after.is_promised(now, kept));
    after.settle(now, &kept.leave());
    assert!(!after.is_promised(now, kept) && after.line().is_none());
    // A turn that has come is a charge like others.
    assert!(after.is_promised(kept.mark.at, kept));
}

#[test]
fn a_refund_leaves_windows_their_start_while_calls_wait() {
    let policy = Policy::fixed_window("p", seconds(1), 4).tier(seconds(10), 5);
    let mut state = State::new(policy.state());
    let first = decide(&mut state, 1_000 * SECOND, waiting(&policy, 1, 0)).mark;
    let turns = [1, 10].map(|after| {
        let outcome = decide(&mut state, 1_000 * SECOND, waiting(&policy, 4, 99 * SECOND));
        assert_eq!(outcome.turn.get(), after * SECOND);
        outcome.mark
    });
    state.settle(Timestamp::new(1_000 * SECOND + 1), &place(&policy, 1, first).leave());
    // The second turn is in the window that starts with it.
    let refused = decide(&mut state, 1_011 * SECOND, waiting(&policy, 4, 0));
    assert_eq!((refused.admitted, refused.wait.get()), (false, 9 * SECOND), "{turns:?}");
}

#[test]
fn a_turn_can_be_given_back_once_it_has_come_to_a_full_bucket() {
    let policy = Policy::token_bucket("p", seconds(1), 1).burst(4);
    for moves in [false, true] {
        let mut state = State::new(policy.state());
        let first = decide(&mut state, 1_000 * SECOND, waiting(&policy, 4, 0)).mark;
        let second = decide(&mut state, 1_000 * SECOND, waiting(&policy, 3, 99 * SECOND)).mark;
        let now = Timestamp::new(1_001 * SECOND);
        state.settle(now, &place(&policy, 4, first).leave());
        let turn = place(&policy, 3, second);
        let at = if moves { state.advance(now, turn).unwrap().0.at } else { second.at };
        assert_eq!(at, if moves { now } else { Timestamp::new(1_003 * SECOND) });
        let mark = Mark { at, ..second };
        let left = |state: &mut State| {
            let peek = Request { op: Op::Peek, ..waiting(&policy, 0, 0) };
            decide(state, at.get(), peek).remaining
        };
        assert_eq!(left(&mut state), 1);
        state.settle(at, &place(&policy, 3, mark).leave());
        assert_eq!(left(&mut state), 4, "{moves}");
    }
}

#[test]
fn a_debt_of_a_turn_that_has_come_counts_once_the_turns_behind_it_are_left() {
    let [fast, slow] = [1, 100].map(|period| Policy::token_bucket("p", seconds(period), 5));
    let mut state = State::new(fast.state());
    decide(&mut state, 1_000 * SECOND, waiting(&slow, 5, 0));
    let turns = [1, 2].map(|after| {
        let outcome = decide(&mut state, 1_000 * SECOND, waiting(&fast, 5, 99 * SECOND));
        assert_eq!(outcome.turn.get(), after * SECOND);
        outcome
    });
    // The slow bucket is empty at the last turn.
    assert_eq!(turns[1].lasts.get(), 102 * SECOND);
    let left = place(&fast, 5, turns[1].mark).leave();
    let lasts = state.settle(Timestamp::new(1_001 * SECOND), &left);
    // The first turn has taken five units from the slow bucket, which had refilled a twentieth of
    // one.
    assert_eq!(lasts.get(), 199 * SECOND);
    let peek =
        |after, cost| reference::peek(&state, 1_001 * SECOND + after, waiting(&slow, 0, 0), cost);
    assert!(!peek(103 * SECOND, 1).admitted);
    assert!(!peek(lasts.get() - 1, 5).admitted && peek(lasts.get(), 5).admitted);
}
