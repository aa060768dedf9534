//! Units and keys that remain in Redis after all calls.

use super::*;

#[test]
fn units_in_redis_without_a_call_and_calls_without_units_break_the_rule() {
    let at = 3 * SECOND;
    let story = Story::new().calls(LEDGER, [SECOND / 2, 3 * SECOND / 2, 2 * SECOND]);
    story.clone().audit(LEDGER, at, 2).is_sound();
    story.clone().audit(LEDGER, at, 3).breaks("charged");
    story.clone().audit(LEDGER, at, 1).breaks("charged");
    let settled = |to| {
        let further = [(SECOND * 2 + 9, Note::Settles(to)), (SECOND * 2 + 90, Note::Settled)];
        story.clone().call(told(LEDGER, 3, SECOND * 2, SECOND * 2 + 1, AT_ONCE), &further)
    };
    for (to, units) in [(0, 2), (1, 3), (3, 5), (5, 7)] {
        settled(to).audit(LEDGER, at, units).is_sound();
        settled(to).audit(LEDGER, at, units + 1).breaks("charged");
    }
    let reset = story.clone().note(0, 0, 2 * SECOND + 900, Note::Reset(LEDGER, 2 * SECOND + 800));
    reset.audit(LEDGER, at, 0).is_sound();
    // A turn that a reset has deleted may be passed before its process notices, and not later.
    let lost = |reset: u64, turn: u64| {
        let story = Story::new().call(waited(LEDGER, turn - 300 * MS, turn, turn), &[]);
        story.note(0, 0, reset + 9, Note::Reset(LEDGER, reset)).audit(LEDGER, at + SECOND / 2, 0)
    };
    lost(2 * SECOND, 2 * SECOND + 900 * MS).is_sound();
    lost(SECOND + 500 * MS, 2 * SECOND + 900 * MS).breaks("charged");
    // A repeated id takes nothing, unless a reset has forgotten it.
    let named =
        |story: Story, at| story.call(Told { id: 5, ..told(LEDGER, 1, at, at + 1, AT_ONCE) }, &[]);
    let repeated = |between: Story| named(between, 5 * SECOND / 2).audit(LEDGER, at, 2);
    let first = || named(Story::new(), 3 * SECOND / 2);
    repeated(first()).breaks("charged");
    let reset = Note::Reset(FIXED, 2 * SECOND);
    repeated(first().note(0, 0, 2 * SECOND + 9, reset)).breaks("charged");
    let reset = named(Story::new(), 3 * SECOND / 2).note(
        0,
        0,
        2 * SECOND + 9,
        Note::Reset(LEDGER, 2 * SECOND),
    );
    named(reset, 5 * SECOND / 2).audit(LEDGER, at, 1).is_sound();
    story.audit(SLOTS, at, 1).breaks("permit kept");
    let mut unsent = Story::new().note(0, 0, at, Note::Flushed(1));
    unsent.breaks("unsent");
    unsent.outages.push((START, START + SECOND / 2));
    unsent.breaks("unsent");
    unsent.outages.push((START + SECOND, START + 2 * SECOND));
    unsent.is_sound();
    // Half of the window before counts, and the whole window.
    let counter = Story::new()
        .calls(COUNTER, spread(10, 100, 200))
        .calls(COUNTER, spread(7, SECOND, SECOND + 9));
    counter.clone().audit(COUNTER, 3 * SECOND / 2, 12).is_sound();
    counter.clone().audit(COUNTER, 3 * SECOND / 2, 14).breaks("charged");
    counter.audit(COUNTER, 3 * SECOND / 2, 9).breaks("charged");
}

#[test]
fn a_call_without_an_answer_may_be_charged_at_the_turn_that_it_waited_for() {
    let (asked, answered) = (SECOND / 4, 4 * SECOND / 5);
    let undecided = |max_wait| {
        let call = Told { max_wait, ..told(LEDGER, 2, asked, answered, Reply::Undecided) };
        let outages = vec![(START + asked, START + answered)];
        Story { outages, ..Story::new() }.call(call, &[]).audit(LEDGER, 3 * SECOND, 2)
    };
    undecided(SECOND / 2).is_sound();
    undecided(SECOND / 10).breaks("charged");
    // A busy Redis grants the lease for it, or its permit, after the answer.
    let open = |limit, is_leased, at, units| {
        let call = Told { is_leased, ..told(limit, 2, asked, answered, Reply::Undecided) };
        let outages = vec![(START + asked, START + answered)];
        Story { outages, ..Story::new() }.call(call, &[]).audit(limit, at, units)
    };
    open(LEDGER, true, 3 * SECOND + 400 * MS, 2).is_sound();
    open(LEDGER, true, 3 * SECOND + 600 * MS, 2).breaks("charged");
    open(SLOTS, false, 2 * SECOND + 200 * MS, 1).is_sound();
    open(SLOTS, false, 2 * SECOND + 400 * MS, 1).breaks("permit kept");
}

#[test]
fn keys_that_do_not_expire_break_the_rule() {
    let story = Story::new().calls(LEDGER, [SECOND]);
    story.is_sound();
    Story { left_over: vec!["a key".to_owned()], ..story }.breaks("left over");
}

#[test]
fn units_on_lease_of_a_process_that_stood_still_are_charged_late() {
    let asks =
        CallNote { limit: LEDGER, cost: 2, runtime: 1, is_leased: true, ..CallNote::default() };
    let asks = Note::Asks(asks);
    let leased = Story::new().note(0, 1, SECOND / 2, asks);
    let leased = leased.note(0, 1, SECOND / 2 + 9, Note::Answered(AT_ONCE));
    let leased = leased.note(0, 1, SECOND / 2 + 9, Note::Ended).audit(LEDGER, 3 * SECOND, 2);
    leased.breaks("charged");
    let gap = Note::Gap(0, 600 * MS);
    let still = |process| leased.clone().note(process, 0, 3 * SECOND / 2, gap);
    still(0).is_sound();
    still(1).breaks("charged");
    // It may lose the reply to a lease of more units than it has used.
    let later = Story::new().note(0, 1, 2 * SECOND, asks);
    let later = later.note(0, 1, 2 * SECOND + 9, Note::Answered(AT_ONCE));
    let more = later.note(0, 1, 2 * SECOND + 9, Note::Ended).audit(LEDGER, 3 * SECOND, 9);
    more.breaks("charged");
    more.clone().note(0, 0, 3 * SECOND / 2, gap).is_sound();
    more.note(1, 0, 3 * SECOND / 2, gap).breaks("charged");
}

#[test]
fn a_bucket_lacks_what_its_calls_have_taken_and_not_got_back() {
    // Ten tokens a second come back.
    let story = Story::new().calls(CREDIT, spread(50, 0, 10));
    let at = |story: &Story, units| story.clone().audit(CREDIT, 2 * SECOND, units);
    at(&story, 30).is_sound();
    at(&story, 27).breaks("charged");
    at(&story, 33).breaks("charged");
    let settled = |to, applied: bool| {
        let further = [(20, Note::Settles(to)), (30, Note::Settled), (31, Note::Ended)];
        let further = if applied { &further[..] } else { &[further[0], further[2]][..] };
        story.clone().call(told(CREDIT, 20, 10, 11, AT_ONCE), further)
    };
    for (to, units) in [(0, 30), (5, 35), (25, 55)] {
        at(&settled(to, true), units).is_sound();
        at(&settled(to, true), units + 3).breaks("charged");
        at(&settled(to, true), units - 3).breaks("charged");
    }
    // A process that was killed may not have given them back.
    let mut killed = settled(0, false);
    at(&killed, 50).breaks("charged");
    killed.processes[0].is_killed = true;
    at(&killed, 50).is_sound();
    let reset = story.note(0, 0, 900 * MS, Note::Reset(CREDIT, 890 * MS));
    at(&reset, 0).is_sound();
    at(&reset, 30).breaks("charged");
}

#[test]
fn a_new_bucket_lacks_what_the_emptiest_one_of_its_key_lacks() {
    let small = |at| Told { is_small: true, ..told(CREDIT, 20, at, at + 1, AT_ONCE) };
    let own = |at| told(CREDIT, 1, at, at + 1, AT_ONCE);
    let ended = |it: Told| [(it.answered + 1, Note::Ended)];
    let story =
        |calls: &[Told]| calls.iter().fold(Story::new(), |story, it| story.call(*it, &ended(*it)));
    let at = |story: &Story, units| story.clone().audit(CREDIT, 2 * SECOND, units);
    // Of the plan of half of the number, five come back in a second.
    let late = story(&[small(0), own(SECOND)]);
    at(&late, 6).is_sound();
    at(&late, 9).breaks("charged");
    let early = story(&[own(0), small(10)]);
    at(&early, 1).is_sound();
    at(&early, 4).breaks("charged");
    // A reset takes both buckets away.
    let reset = story(&[own(0)]).note(0, 0, 5, Note::Reset(CREDIT, 4));
    let reset =
        [small(10), own(SECOND)].iter().fold(reset, |story, it| story.call(*it, &ended(*it)));
    at(&reset, 6).is_sound();
    at(&reset, 9).breaks("charged");
}
