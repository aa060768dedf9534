//! Blocks of a caller.

use super::*;

/// Adds a call of a policy with blocks.
fn call(story: Story, at: u64, reply: Reply, wait: Option<u64>) -> Story {
    let it = Told { blocks: 1, ..told(BARRED, 1, at, at + MS, reply) };
    let noted = story.call(it, &[]);
    let Some(wait) = wait else { return noted };
    let number = noted.calls;
    noted.note(0, number, at + MS, Note::RefusedFor(wait))
}

fn refused(story: Story, at: u64, wait: u64) -> Story {
    call(story, at, Reply::Refused, Some(wait))
}

/// Fills the window at a time, by calls of a policy without blocks.
fn full(story: Story, at: u64) -> Story {
    story.calls(BARRED, [at; 6])
}

#[test]
fn a_call_that_is_admitted_in_a_block_breaks_the_rule() {
    let blocked = refused(full(Story::new(), 0), 0, 300 * MS);
    let with = |at| call(blocked.clone(), at, AT_ONCE, None);
    with(200 * MS).breaks("blocked");
    // The block may be over, or a reset has ended it.
    with(299 * MS + 1).is_sound();
    with(200 * MS).note(1, 0, 150 * MS, Note::Reset(BARRED, 100 * MS)).is_sound();
    with(200 * MS).note(1, 0, 150 * MS, Note::Reset(LEDGER, 100 * MS)).breaks("blocked");
    // Another process repeats the refusal of a block that a reset has ended.
    let repeated = refused(full(Story::new(), 50 * MS), 250 * MS, 200 * MS);
    let repeated = call(repeated, 300 * MS, AT_ONCE, None);
    repeated.breaks("blocked");
    repeated.note(1, 0, 230 * MS, Note::Reset(BARRED, 220 * MS)).is_sound();
    // Calls of a policy without blocks pass.
    blocked.clone().calls(BARRED, [200 * MS]).is_sound();
    // The wait may be that of the window, which others leave by refunds.
    let by_window = refused(full(Story::new(), 0), 140 * MS, 150 * MS);
    call(by_window, 200 * MS, AT_ONCE, None).is_sound();
    // A refusal in a block is no offence.
    refused(blocked.clone(), 100 * MS, 199 * MS).is_sound();
    refused(blocked.clone(), 100 * MS, 300 * MS).breaks("block moved");
    refused(blocked, 400 * MS, 300 * MS).is_sound();
}

#[test]
fn a_block_that_is_longer_than_its_step_breaks_the_rule() {
    refused(full(Story::new(), 0), 0, 300 * MS).is_sound();
    refused(full(Story::new(), 0), 0, 301 * MS).breaks("block length");
    let once = full(refused(full(Story::new(), 0), 0, 300 * MS), 305 * MS);
    // The second one, and the third one.
    let twice = refused(once.clone(), 310 * MS, 700 * MS);
    twice.is_sound();
    refused(once.clone(), 310 * MS, 701 * MS).breaks("block length");
    refused(full(twice.clone(), 1_050 * MS), 1_100 * MS, SECOND).is_sound();
    // After a quiet stretch, the second step is the first one again.
    refused(full(twice, 2_990 * MS), 3_000 * MS, SECOND).breaks("block length");
    // One without an answer may have offended too.
    let unknown = Told { blocks: 1, ..told(BARRED, 1, 305 * MS, 308 * MS, Reply::Left) };
    refused(once.clone().call(unknown, &[]), 310 * MS, SECOND).is_sound();
    let joint = Told { reply: Reply::Refused, is_joint: true, ..unknown };
    refused(once.call(joint, &[]), 310 * MS, SECOND).is_sound();
}
