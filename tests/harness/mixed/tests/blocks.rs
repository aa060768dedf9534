//! Blocks of a caller.

use super::*;

const BARRED: usize = 6;

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

#[test]
fn a_call_that_is_admitted_in_a_block_breaks_the_rule() {
    let blocked = refused(Story::new(), 0, 500 * MS);
    let with = |at| call(blocked.clone(), at, AT_ONCE, None);
    with(300 * MS).breaks("blocked");
    // The block may be over, or a reset has ended it.
    with(499 * MS + 1).is_sound();
    with(300 * MS).note(1, 0, 200 * MS, Note::Reset(BARRED, 100 * MS)).is_sound();
    with(300 * MS).note(1, 0, 200 * MS, Note::Reset(LEDGER, 100 * MS)).breaks("blocked");
    // Calls of a policy without blocks pass.
    blocked.clone().calls(BARRED, [300 * MS]).is_sound();
    // A refusal in a block is no offence.
    refused(blocked.clone(), 300 * MS, 199 * MS).is_sound();
    refused(blocked.clone(), 300 * MS, 500 * MS).breaks("block moved");
    refused(blocked, 700 * MS, 500 * MS).is_sound();
}

#[test]
fn a_block_that_is_longer_than_its_step_breaks_the_rule() {
    // The first step, or the window.
    refused(Story::new(), 0, 500 * MS).is_sound();
    refused(Story::new(), 0, 700 * MS).breaks("block length");
    let once = refused(Story::new(), 0, 500 * MS);
    // The second one, and the third one.
    let twice = refused(once.clone(), 510 * MS, 700 * MS);
    twice.is_sound();
    refused(once.clone(), 510 * MS, 701 * MS).breaks("block length");
    refused(twice.clone(), 1_300 * MS, SECOND).is_sound();
    // After a quiet stretch, the second step is the first one again.
    refused(twice, 3_000 * MS, SECOND).breaks("block length");
    // One without an answer may have offended too.
    let unknown = Told { blocks: 1, ..told(BARRED, 1, 505 * MS, 508 * MS, Reply::Left) };
    refused(once.call(unknown, &[]), 510 * MS, SECOND).is_sound();
}
