//! Candidates beside pauses.

use super::*;

#[test]
fn a_candidate_that_admits_whom_a_pause_refuses_breaks_the_rule() {
    let paused = Story::new().note(1, 0, 20 * MS, Note::Paused(GATE, SECOND, 10 * MS));
    let refused = |process, at| Told { process, ..told(GATE, 1, at, at + MS, Reply::Refused) };
    let of_two = paused.call(refused(0, 500 * MS), &[]).call(refused(0, 600 * MS), &[]);
    let story = of_two.calls(GATE, [3 * SECOND]).call(refused(1, 700 * MS), &[]);
    let tried = |admitted, otherwise| {
        story.clone().note(0, 0, 9 * SECOND, Note::Tried(admitted, otherwise))
    };
    tried(0, 2).is_sound();
    tried(1, 2).breaks("candidate");
    tried(0, 1).breaks("candidate");
    // Each process counts its own calls.
    tried(0, 3).breaks("candidate");
    // For a caller with numbers of its own the candidate is not in force.
    let numbers = |at, what| Note::OfCaller(GATE, what, 0, at);
    let own = tried(0, 1).note(0, 0, 560 * MS, numbers(550 * MS, OfCaller::Number(90_000)));
    own.note(0, 0, 660 * MS, numbers(650 * MS, OfCaller::Removed)).is_sound();
}
