//! Refusals without a reason.

use super::*;

fn refused(limit: usize, at: u64) -> Told {
    told(limit, 1, at, at + MS, Reply::Refused)
}

#[test]
fn a_refusal_by_a_window_with_room_breaks_the_rule() {
    let some = |units| Story::new().calls(BARRED, spread(units, 0, 100 * MS));
    let with = |units, at| some(units).call(refused(BARRED, at), &[]);
    with(6, 110 * MS).is_sound();
    with(5, 110 * MS).breaks("refused");
    with(6, 400 * MS).breaks("refused");
    // A share of the limit is left, the call is of a smaller plan, or an override has lowered the
    // limit.
    with(5, 110 * MS).call(Told { leave: 20, ..refused(BARRED, 111 * MS) }, &[]).breaks("refused");
    some(5).call(Told { leave: 20, ..refused(BARRED, 111 * MS) }, &[]).is_sound();
    some(3).call(Told { is_small: true, ..refused(BARRED, 111 * MS) }, &[]).is_sound();
    let lowered = some(3).note(0, 0, 20, Note::Overrides(BARRED, 3, 10));
    lowered.call(refused(BARRED, 110 * MS), &[]).is_sound();
}

#[test]
fn units_that_are_given_back_are_no_reason() {
    let call = told(BARRED, 1, 0, 1, AT_ONCE);
    let given_back = [(10, Note::Settles(0)), (20, Note::Settled), (21, Note::Ended)];
    let with = |further: &[(u64, Note)]| {
        let story = Story::new().calls(BARRED, spread(5, 0, 90 * MS)).call(call, further);
        story.call(refused(BARRED, 100 * MS), &[])
    };
    with(&[]).is_sound();
    with(&given_back).breaks("refused");
    // Without an answer it may count still.
    with(&[given_back[0], given_back[2]]).is_sound();
}

#[test]
fn a_process_repeats_a_refusal_although_another_one_has_given_units_back() {
    let settled =
        [(120 * MS, Note::Settles(0)), (121 * MS, Note::Settled), (122 * MS, Note::Ended)];
    let taken = Told { process: 1, ..told(BARRED, 1, 0, 1, AT_ONCE) };
    let story = Story::new().calls(BARRED, spread(5, 0, 90 * MS)).call(taken, &settled);
    let larger = Told { cost: 2, ..refused(BARRED, 100 * MS) };
    let story = story.call(larger, &[(100 * MS, Note::RefusedFor(150 * MS))]);
    let with = |process, at| story.clone().call(Told { process, ..refused(BARRED, at) }, &[]);
    with(0, 200 * MS).is_sound();
    with(1, 200 * MS).breaks("refused");
    with(0, 260 * MS).breaks("refused");
}

#[test]
fn a_block_is_a_reason_until_it_is_over() {
    let offence = Told { blocks: 1, ..refused(BARRED, 100 * MS) };
    let full = Story::new().calls(BARRED, spread(6, 0, 90 * MS)).call(offence, &[]);
    let with = |at| full.clone().call(Told { blocks: 1, ..refused(BARRED, at) }, &[]);
    with(SECOND).is_sound();
    with(1_500 * MS).breaks("refused");
    // Policies without blocks know none.
    full.clone().call(refused(BARRED, SECOND), &[]).breaks("refused");
}

#[test]
fn units_of_two_limits_are_no_reason_once_one_has_refused() {
    let joint = Told { is_joint: true, ..told(BARRED, 2, 80 * MS, 100 * MS, Reply::Refused) };
    let some = Story::new().calls(BARRED, spread(5, 0, 70 * MS)).call(joint, &[]);
    let with = |at| some.clone().call(refused(BARRED, at), &[]);
    with(95 * MS).is_sound();
    with(105 * MS).breaks("refused");
    let mut outage = with(105 * MS);
    outage.outages.push((START + 90 * MS, START + 99 * MS));
    outage.is_sound();
    // A block that began meanwhile is lifted with them, and a process may not know that for a
    // second.
    let blocked = |process, at| Told { process, blocks: 1, ..refused(BARRED, at) };
    let with =
        |process, at| some.clone().call(blocked(0, 95 * MS), &[]).call(blocked(process, at), &[]);
    with(0, 98 * MS).is_sound();
    with(0, 600 * MS).is_sound();
    with(1, 98 * MS).is_sound();
    with(1, 600 * MS).breaks("refused");
}

#[test]
fn a_pause_is_a_reason_until_its_process_learns_of_a_reset() {
    Story::new().call(refused(GATE, SECOND), &[]).breaks("refused");
    let paused = Story::new().note(1, 0, 20 * MS, Note::Paused(GATE, SECOND, 10 * MS));
    paused.clone().call(refused(GATE, 500 * MS), &[]).is_sound();
    paused.clone().call(refused(GATE, 1_100 * MS), &[]).breaks("refused");
    // A reset ends it, of which an admission by Redis tells the process.
    let reset = paused.note(2, 0, 110 * MS, Note::Reset(GATE, 100 * MS));
    let with = |further: &[(u64, Note)]| {
        let admitted = told(GATE, 1, 200 * MS, 201 * MS, AT_ONCE);
        let end = (205 * MS, Note::Ended);
        let further: Vec<_> = further.iter().copied().chain([end]).collect();
        reset.clone().call(admitted, &further).call(refused(GATE, 500 * MS), &[])
    };
    with(&[]).breaks("refused");
    with(&[(200 * MS, Note::Here)]).is_sound();
}
