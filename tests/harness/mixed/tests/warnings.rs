//! Warnings of a caller.

use super::*;

fn warned(process: usize, at: u64) -> Story {
    of_calls([0, 500 * MS, 1_500 * MS, 2_500 * MS]).note(process, 0, at, Note::Warned(FIXED))
}

/// Calls whose caller is warned.
fn of_calls(at: impl IntoIterator<Item = u64>) -> Story {
    let warns = |at| Told { warn_at: 80, ..told(FIXED, 1, at, at + MS, AT_ONCE) };
    at.into_iter().fold(Story::new(), |story, at| story.call(warns(at), &[]))
}

#[test]
fn two_warnings_in_a_period_break_the_rule() {
    let with = |later| warned(0, 10 * MS).note(0, 0, later, Note::Warned(FIXED));
    with(510 * MS).breaks("warned");
    with(SECOND + 510 * MS).is_sound();
    // The first one was perhaps noted late.
    let mut late = with(510 * MS);
    late.gaps.push(Gap { process: Some(0), runtime: 0, span: (START, START + 200 * MS) });
    late.is_sound();
    with(510 * MS).note(1, 0, 300 * MS, Note::Reset(FIXED, 200 * MS)).is_sound();
    // Under another period it is another one.
    let slow = |limit| with(510 * MS).note(0, 0, 5 * MS, Note::Slows(limit, 4 * MS));
    let slow_until = |limit| slow(limit).note(0, 0, 300 * MS, Note::Overrides(limit, 0, 290 * MS));
    slow_until(FIXED).is_sound();
    slow_until(LEDGER).breaks("warned");
    slow(LEDGER).breaks("warned");
    with(510 * MS).note(1, 0, 300 * MS, Note::Reset(LEDGER, 200 * MS)).breaks("warned");
}

#[test]
fn a_warning_without_a_call_breaks_the_rule() {
    warned(0, 10 * MS).is_sound();
    warned(1, 10 * MS).breaks("warned");
    warned(0, SECOND).breaks("warned");
    Story::new().calls(FIXED, [0]).note(0, 0, MS, Note::Warned(FIXED)).breaks("warned");
}
