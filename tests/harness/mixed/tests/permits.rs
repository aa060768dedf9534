//! Permits of calls in flight.

use super::*;

/// Calls with a permit over a span.
pub(super) fn with_permits(count: usize, from: u64, until: u64) -> Story {
    (0..count).fold(Story::new(), |story, process| with_permit(story, process % 4, from, until))
}

fn with_permit(story: Story, process: usize, from: u64, until: u64) -> Story {
    let mut further: Vec<_> =
        (from / 10_000..=until / 10_000).map(|at| (at * 10_000, Note::Held)).collect();
    further.push((until + 5, Note::Ended));
    let call = Told { process, ..told(SLOTS, 1, from - 5, from, AT_ONCE) };
    story.call(call, &further)
}

#[test]
fn more_permits_than_there_are_break_the_rule() {
    let four = with_permits(4, 100 * MS, 200 * MS);
    four.is_sound();
    let five = with_permit(four.clone(), 2, 150 * MS, 180 * MS);
    five.breaks("permits");
    with_permit(four, 2, 210 * MS, 250 * MS).is_sound();
    five.note(1, 0, 20 * MS, Note::Overrides(SLOTS, 8, 10)).is_sound();
}

#[test]
fn permits_that_stay_idle_while_a_call_waits_break_the_rule() {
    let busy = Told { max_wait: 4 * SECOND, ..told(SLOTS, 1, 200 * MS, 3 * SECOND, Reply::Busy) };
    with_permits(3, 100 * MS, 4 * SECOND).call(busy, &[]).breaks("idle");
    with_permits(4, 100 * MS, 4 * SECOND).call(busy, &[]).is_sound();
    with_permits(3, 100 * MS, 4 * SECOND).is_sound();
    // One that is served at last has waited beside a free permit too.
    let late =
        Told { promised: None, max_wait: 4 * SECOND, ..waited(SLOTS, 200 * MS, 0, 3 * SECOND) };
    with_permits(3, 100 * MS, 4 * SECOND).call(late, &[]).breaks("idle");
    // A process that stood still, a reset and a lowered number excuse it, and nothing before or
    // elsewhere does.
    let idle = with_permits(3, 100 * MS, 4 * SECOND).call(busy, &[]);
    let mut stood = idle.clone();
    stood.gaps.push(Gap {
        process: Some(2),
        runtime: 0,
        span: (START + SECOND, START + 2 * SECOND),
    });
    stood.is_sound();
    idle.clone().note(0, 0, 900 * MS, Note::Reset(SLOTS, 890 * MS)).is_sound();
    idle.clone().note(0, 0, 900 * MS, Note::Reset(FIXED, 890 * MS)).breaks("idle");
    idle.note(0, 0, 20 * MS, Note::Overrides(SLOTS, 8, 10)).breaks("idle");
}

#[test]
fn a_process_without_half_of_its_share_breaks_the_rule() {
    let story = |of_first: u64| {
        (0..4).fold(Story::new(), |story, process| {
            (0..if process == 0 { of_first } else { 60 }).fold(story, |story, n| {
                let at = n * 20 * MS + process as u64;
                let call = Told { process, promised: None, ..waited(SLOTS, at, at, at + 50) };
                story.call(call, &[])
            })
        })
    };
    story(40).is_sound();
    story(20).breaks("share");
    // Others may have found Redis again a second earlier.
    Story { outages: vec![(START - SECOND / 2, START)], ..story(20) }.is_sound();
}
