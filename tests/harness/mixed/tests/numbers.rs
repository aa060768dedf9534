//! Overrides of the caller, before those of the limit.

use super::*;

/// An override of the caller at this time, by all processes.
fn of_caller(what: OfCaller, at: u64, until: u64) -> Story {
    in_all(Story::new(), Note::OfCaller(LEDGER, what, until, at))
}

fn in_all(story: Story, note: Note) -> Story {
    let (Note::OfCaller(.., at) | Note::Overrides(_, _, at) | Note::Off(_, at)) = note else {
        panic!("an override: {note:?}");
    };
    (0..4).fold(story, |story, process| story.note(process, 0, at + 10, note))
}

fn answered(story: &Story, at: u64, reply: Reply) -> Story {
    story.clone().call(told(LEDGER, 1, at, at + 1, reply), &[])
}

const EXEMPT: Reply = Reply::Admitted { is_counted: false, waited: 0 };

#[test]
fn only_a_caller_that_is_shut_out_is_denied() {
    answered(&Story::new(), SECOND, Reply::Denied).breaks("denied");
    let denied = of_caller(OfCaller::Denied, 10, 2 * SECOND);
    for (at, reply) in [(SECOND, Reply::Denied), (2 * SECOND + 100 * MS, Reply::Refused)] {
        answered(&denied, at, reply).is_sound();
    }
    answered(&denied, SECOND, Reply::Refused).breaks("denied");
    answered(&denied, 2 * SECOND + 100 * MS, Reply::Denied).breaks("denied");
    // Its process has read the time of Redis late.
    let still = denied.clone().note(0, 0, SECOND * 2, Note::Gap(0, SECOND * 19 / 10));
    answered(&still, 2 * SECOND + 100 * MS, Reply::Denied).is_sound();
    let mut still = denied.clone();
    still.gaps.push(Gap {
        process: None,
        runtime: 0,
        span: (START + SECOND, START + SECOND * 11 / 10),
    });
    answered(&still, 2 * SECOND + 100 * MS, Reply::Denied).is_sound();
    // One that is shut out again has a lowered number, however late the first override ended.
    let again = in_all(still.clone(), Note::OfCaller(LEDGER, OfCaller::Denied, 0, 2_100 * MS));
    let waits = Told { reply: Reply::Denied, ..waited(LEDGER, 2_050 * MS, 3 * SECOND, 2_150 * MS) };
    again.call(waits, &[]).is_sound();
    assert!(answered(&denied, SECOND, AT_ONCE).broken().contains(&"denied"));
    // At its edges it is doubtful, and a limit that is off shuts the caller out too.
    answered(&denied, 2 * SECOND, Reply::Denied).is_sound();
    answered(&denied, 2 * SECOND, Reply::Refused).is_sound();
    let off = in_all(denied, Note::Off(LEDGER, 30));
    assert!(answered(&off, SECOND, EXEMPT).broken().contains(&"denied"));
    // Of two limits together one may have done so.
    let joint = Told { is_joint: true, ..told(LEDGER, 1, SECOND, SECOND + 1, Reply::Denied) };
    Story::new().call(joint, &[]).is_sound();
}

#[test]
fn only_a_caller_that_is_exempt_is_not_counted() {
    answered(&Story::new(), SECOND, EXEMPT).breaks("off");
    // A permit was lost before the answer.
    Story::new().call(told(SLOTS, 1, SECOND, 3 * SECOND / 2, EXEMPT), &[]).is_sound();
    let off = of_caller(OfCaller::Off, 10, 0);
    answered(&off, SECOND, EXEMPT).is_sound();
    answered(&off, SECOND, Reply::Refused).breaks("off");
    answered(&off, SECOND, AT_ONCE).breaks("off");
    let removed = in_all(off, Note::OfCaller(LEDGER, OfCaller::Removed, 0, SECOND / 2));
    answered(&removed, SECOND, AT_ONCE).is_sound();
    answered(&removed, SECOND, EXEMPT).breaks("off");
    // Numbers of the caller leave the limit off.
    let numbers = in_all(of_caller(OfCaller::Number(400), 10, 0), Note::Off(LEDGER, 30));
    answered(&numbers, SECOND, EXEMPT).is_sound();
}

#[test]
fn numbers_of_the_caller_are_in_force_before_those_of_the_limit_until_they_end() {
    let calls = |story: Story, at| story.calls(LEDGER, spread(300, at, at + SECOND));
    calls(of_caller(OfCaller::Number(400), 10, 0), 4 * SECOND).is_sound();
    calls(of_caller(OfCaller::Number(400), 10, 2 * SECOND), 4 * SECOND).breaks("window");
    // The limit's number is not in force meanwhile, and is again later.
    let both = |until| {
        let story = of_caller(OfCaller::Number(100), 10, until);
        calls(in_all(story, Note::Overrides(LEDGER, 400, 30)), 4 * SECOND)
    };
    both(3 * SECOND).is_sound();
    both(0).breaks("window");
    // One that had ended before it was set was never in force.
    let ended = of_caller(OfCaller::Number(400), SECOND, 10);
    calls(ended, 4 * SECOND).breaks("window");
}

#[test]
fn a_doubled_period_is_in_force_again_after_numbers_of_the_caller() {
    let late = |slow: bool| {
        let story =
            if slow { Story::new().note(0, 0, 20, Note::Slows(FIXED, 10)) } else { Story::new() };
        let number = |what, at| Note::OfCaller(FIXED, what, 0, at);
        let story = story.note(0, 0, 40, number(OfCaller::Number(40), 30));
        let story = story.note(0, 0, 120 * MS, number(OfCaller::Removed, 110 * MS));
        story.call(waited(FIXED, 50 * MS, 300 * MS, 600 * MS), &[])
    };
    late(true).is_sound();
    late(false).breaks("promise");
}
