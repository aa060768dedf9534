//! A primary that is killed, with what its replica did not have.

use super::*;

const KILLED: u64 = 900 * MS;

fn killed(mut story: Story) -> Story {
    story.kills.push((START + KILLED, START + KILLED));
    story
}

#[test]
fn only_charges_of_the_last_moments_are_lost_with_a_primary() {
    let full = Story::new().calls(LEDGER, spread(200, 0, 500 * MS));
    let over = |at| full.clone().calls(LEDGER, [at]);
    let late = over(800 * MS);
    late.breaks("window");
    killed(late).is_sound();
    // Earlier and later ones are counted.
    killed(over(KILLED - 250 * MS)).breaks("window");
    killed(over(KILLED + 100 * MS)).breaks("window");
    // What is lost leaves no more room than it took.
    let again = full.clone().calls(LEDGER, spread(40, 800 * MS, 810 * MS));
    killed(again.clone()).is_sound();
    killed(again.calls(LEDGER, [SECOND])).breaks("window");
}

#[test]
fn permits_blocks_and_warnings_of_the_last_moments_are_lost_too() {
    let five = |at| {
        (0..5).fold(Story::new(), |story, _| {
            let held = [(at + 2, Note::Held), (SECOND, Note::Held), (SECOND + 1, Note::Ended)];
            story.call(told(SLOTS, 1, at, at + 1, AT_ONCE), &held)
        })
    };
    five(960 * MS).breaks("permits");
    killed(five(960 * MS)).breaks("permits");
    killed(five(KILLED - 10 * MS)).is_sound();
    let warns = |at| Told { warn_at: 80, ..told(FIXED, 1, at, at + MS, AT_ONCE) };
    let twice = |first| {
        let calls = Story::new().call(warns(first), &[]).call(warns(SECOND), &[]);
        calls.note(0, 0, first + MS, Note::Warned(FIXED)).note(
            0,
            0,
            SECOND + MS,
            Note::Warned(FIXED),
        )
    };
    twice(850 * MS).breaks("warned");
    killed(twice(850 * MS)).is_sound();
    killed(twice(400 * MS)).breaks("warned");
}
