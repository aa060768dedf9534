//! Calls that leave a share of a limit.

use super::{permits::with_permits, *};

const BOTH: usize = 5;

/// A call of one unit that leaves a share, in percent.
fn leaving(limit: usize, leave: u64, at: u64) -> Told {
    Told { leave, ..told(limit, 1, at, at + 1, AT_ONCE) }
}

#[test]
fn a_call_that_leaves_less_than_its_share_breaks_the_rule() {
    // 20 % of 200 units are left, so that the call is the last of 160.
    let before = |count| Story::new().calls(LEDGER, spread(count, 0, SECOND));
    let with = |count, at| before(count).call(leaving(LEDGER, 20, at), &[]);
    with(159, SECOND + 10).is_sound();
    with(160, SECOND + 10).breaks("share used");
    // Calls after it may have the rest, and units of an earlier window do not count.
    with(159, SECOND + 10).calls(LEDGER, spread(40, SECOND + 20, SECOND + 90)).is_sound();
    with(160, 2 * SECOND + 10 * MS).is_sound();
    // A higher number of its own process has a higher share, of another one it does not.
    let raised = Note::Overrides(LEDGER, 400, 10);
    with(160, SECOND + 10).note(0, 0, 20, raised).is_sound();
    with(160, SECOND + 10).note(1, 0, 20, raised).breaks("share used");
    with(160, SECOND + 10).note(1, 0, 20, Note::Reset(LEDGER, 10)).is_sound();
    let refunded = [(10, Note::Settles(0)), (20, Note::Settled), (21, Note::Ended)];
    let returned = before(159).call(told(LEDGER, 1, 0, 1, AT_ONCE), &refunded);
    returned.call(leaving(LEDGER, 20, SECOND + 10), &[]).is_sound();
}

#[test]
fn shares_of_buckets_fixed_windows_and_counters_are_left_too() {
    // Half of 30 tokens are left, and one comes back in 16 ms.
    let bucket = |count, at| {
        Story::new().calls(TOKENS, spread(count, 0, 10 * MS)).call(leaving(TOKENS, 50, at), &[])
    };
    bucket(15, 11 * MS).is_sound();
    bucket(16, 11 * MS).breaks("share used");
    bucket(16, 40 * MS).is_sound();
    // The window before may have had all of 40 units.
    let fixed = |count| {
        let story = Story::new().calls(FIXED, spread(count, 0, SECOND / 2));
        story.call(leaving(FIXED, 50, SECOND / 2 + 10), &[])
    };
    fixed(59).is_sound();
    fixed(60).breaks("share used");
    // Half of the window before counts.
    let counter = |count| {
        let story = Story::new().calls(COUNTER, spread(20, 0, SECOND / 10));
        let story = story.calls(COUNTER, spread(count, 3 * SECOND / 2, 3 * SECOND / 2 + 10));
        story.call(leaving(COUNTER, 50, 3 * SECOND / 2 + 20), &[])
    };
    counter(10).is_sound();
    counter(11).breaks("share used");
}

#[test]
fn permits_are_left_too() {
    let with = |count, leave| {
        with_permits(count, 100 * MS, 200 * MS).call(leaving(SLOTS, leave, 150 * MS), &[])
    };
    with(2, 20).is_sound();
    with(3, 20).breaks("share used");
    with(1, 50).is_sound();
    with(2, 50).breaks("share used");
    with(3, 20).note(0, 0, 20, Note::Overrides(SLOTS, 8, 10)).is_sound();
    // The limit of both has three permits, whatever its window.
    let held: Vec<_> = (10..=20).map(|at| (at * 10 * MS, Note::Held)).collect();
    let both = |count| {
        let one = told(BOTH, 1, 90 * MS, 95 * MS, AT_ONCE);
        let story = (0..count).fold(Story::new(), |story, _| story.call(one, &held));
        story.call(leaving(BOTH, 50, 150 * MS), &[])
    };
    both(0).is_sound();
    both(1).breaks("share used");
}

#[test]
fn a_call_of_a_small_plan_is_admitted_in_its_own_number_of_units() {
    let small = |at| Told { is_small: true, ..told(LEDGER, 1, at, at + 1, AT_ONCE) };
    let before = |count| Story::new().calls(LEDGER, spread(count, 0, SECOND));
    let with = |count| before(count).call(small(SECOND + 10), &[]);
    with(99).is_sound();
    with(100).breaks("plan");
    // The units of one plan count for all, and the whole plan has the others.
    with(99).calls(LEDGER, spread(100, SECOND + 20, SECOND + 200)).is_sound();
    with(99).call(small(SECOND + 30), &[]).breaks("plan");
    // An override of the limit is that of its plans, and a share is one of the plan.
    with(160).note(0, 0, 20, Note::Overrides(LEDGER, 400, 10)).is_sound();
    let leaving = Told { leave: 20, ..small(SECOND + 10) };
    before(79).call(leaving, &[]).is_sound();
    before(80).call(leaving, &[]).breaks("share used");
    // One that has waited has passed at its turn.
    let waited = Told { is_small: true, ..waited(LEDGER, SECOND, SECOND + 10, SECOND + 10) };
    before(100).call(waited, &[]).is_sound();
}
