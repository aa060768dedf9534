//! Pauses of a key.

use super::*;

#[test]
fn a_call_that_is_admitted_in_a_pause_breaks_the_rule() {
    let paused = Story::new().note(1, 0, 20 * MS, Note::Paused(LEDGER, SECOND, 10 * MS));
    let with = |at| paused.clone().calls(LEDGER, [at]);
    with(500 * MS).breaks("paused");
    // It is over, it was asked for when the call was already, and is of one key.
    with(SECOND + 11 * MS).is_sound();
    with(15 * MS).is_sound();
    paused.clone().calls(FIXED, [500 * MS]).is_sound();
    with(500 * MS).note(0, 0, 400 * MS, Note::Reset(LEDGER, 300 * MS)).is_sound();
    with(500 * MS).note(0, 0, 700 * MS, Note::Reset(LEDGER, 600 * MS)).breaks("paused");
    // Without an answer it may not be in force.
    let asked = Story::new().note(1, 0, 10 * MS, Note::Pauses(LEDGER, SECOND, 10 * MS));
    asked.calls(LEDGER, [500 * MS]).is_sound();
}

#[test]
fn a_pause_moves_turns_of_its_key() {
    let late = Story::new().call(waited(LEDGER, 0, 300 * MS, 900 * MS), &[]);
    late.breaks("promise");
    late.clone().note(1, 0, 100 * MS, Note::Pauses(LEDGER, 600 * MS, 100 * MS)).is_sound();
    late.clone().note(1, 0, 100 * MS, Note::Pauses(FIXED, 600 * MS, 100 * MS)).breaks("promise");
    late.note(1, 0, 3 * SECOND, Note::Pauses(LEDGER, 600 * MS, 3 * SECOND)).breaks("promise");
}
