//! Factors of all limits, shares of callers and of an outage, and calls with several budgets.

use ratelimit_runtime::{Enforcement, Limiter, Override};

use super::{permits::with_permits, *};

const BOTH: usize = 5;
const EXEMPT: Reply = Reply::Admitted { is_counted: false, waited: 0 };

#[test]
fn a_factor_bounds_windows_buckets_and_permits_by_the_rounded_number() {
    let scaled = |factor| Story::new().note(0, 0, 20, Note::Scales(factor, 10));
    let in_all = |factor| {
        let note = Note::Scales(factor, 10);
        (0..4).fold(Story::new(), |story, process| story.note(process, 0, 20, note))
    };
    // Calls of before have the number as it was.
    let at = 4 * SECOND;
    let log = |factor, count| in_all(factor).calls(LEDGER, spread(count, at, at + SECOND));
    log(2_000, 400).is_sound();
    log(2_000, 401).breaks("window");
    log(502, 101).is_sound();
    log(502, 102).breaks("window");
    // What was in force before it was another number.
    let late = in_all(2_000).calls(LEDGER, spread(400, at, at + SECOND));
    late.clone().note(0, 0, at + 2 * SECOND, Note::Scales(300, at + 2 * SECOND - 10)).is_sound();
    // Another process may have none yet.
    scaled(502).calls(LEDGER, spread(200, at, at + SECOND)).is_sound();
    let bucket = |factor, count| in_all(factor).calls(TOKENS, spread(count, at, at + 10));
    bucket(2_000, 60).is_sound();
    bucket(2_000, 62).breaks("window");
    bucket(500, 17).breaks("window");
    // One limit has a factor of its own.
    in_all(500).calls(CREDIT, spread(600, at, at + 10)).is_sound();
    // It is not in force any more, and multiplies what overrides set.
    let over = |factor| in_all(2_000).note(0, 0, 40, Note::Scales(factor, 30));
    let over =
        (1..4).fold(over(1_000), |it, process| it.note(process, 0, 40, Note::Scales(1_000, 30)));
    over.calls(LEDGER, spread(201, at, at + SECOND)).breaks("window");
    let set = in_all(500).note(0, 0, 40, Note::Overrides(LEDGER, 400, 30));
    set.clone().calls(LEDGER, spread(200, at, at + SECOND)).is_sound();
    set.calls(LEDGER, spread(201, at, at + SECOND)).breaks("window");
    let both = |factor, count| {
        let held: Vec<_> = (0..=20).map(|step| (at + step * 10 * MS, Note::Held)).collect();
        let one = told(BOTH, 1, at - 10 * MS, at, AT_ONCE);
        (0..count).fold(in_all(factor), |story, _| story.call(one, &held))
    };
    both(500, 2).is_sound();
    both(500, 3).breaks("permits");
    both(2_000, 6).is_sound();
    both(2_000, 7).breaks("permits");
    let slots = with_permits(8, 3 * SECOND, 3 * SECOND + 100 * MS);
    slots.breaks("permits");
    slots.note(0, 0, 20, Note::Scales(2_000, 10)).is_sound();
}

#[test]
fn a_small_plan_and_a_share_are_those_of_the_scaled_number() {
    let scaled = Story::new().note(0, 0, 20, Note::Scales(500, 10));
    let small = Told { is_small: true, ..told(LEDGER, 1, 5 * SECOND, 5 * SECOND + 1, AT_ONCE) };
    let with = |count, call: Told| {
        scaled.clone().calls(LEDGER, spread(count, 4 * SECOND, 5 * SECOND)).call(call, &[])
    };
    with(49, small).is_sound();
    with(50, small).breaks("plan");
    let leaving = Told { leave: 20, is_small: false, ..small };
    with(79, leaving).is_sound();
    with(80, leaving).breaks("share used");
    // A refusal by a window that has room for its scaled number.
    let refused = told(BARRED, 1, SECOND, SECOND + MS, Reply::Refused);
    let barred = |count| {
        let story = scaled.clone().calls(BARRED, spread(count, SECOND - 50 * MS, SECOND - 10 * MS));
        story.call(refused, &[])
    };
    barred(3).is_sound();
    barred(2).breaks("refused");
}

#[tokio::test]
async fn the_first_share_is_the_smallest_one_that_has_the_caller() {
    let limiter = Limiter::in_memory();
    let policy = LIMITS[LEDGER].policy();
    for (percent, expected) in
        [(FIRST_SHARE - 1, Enforcement::DryRun), (FIRST_SHARE, Enforcement::On)]
    {
        limiter.overrides().here().set("ledger", Override::new().enforce(percent)).unwrap();
        let usage = limiter.usage(&policy, MIXED_CALLER).await.unwrap();
        assert_eq!(usage.enforcement(), expected, "{percent}");
    }
}

#[test]
fn a_call_that_the_share_leaves_out_is_never_refused_and_any_other_one_counts() {
    let share = |percent| Story::new().note(0, 0, 20, Note::Share(LEDGER, percent, 10));
    let with = |story: Story, reply| story.call(told(LEDGER, 1, SECOND, SECOND + 1, reply), &[]);
    for reply in [EXEMPT, AT_ONCE] {
        with(share(FIRST_SHARE - 1), reply).is_sound();
    }
    with(share(FIRST_SHARE - 1), Reply::Refused).breaks("left out");
    with(share(FIRST_SHARE), Reply::Refused).is_sound();
    with(share(FIRST_SHARE), EXEMPT).breaks("off");
    with(share(100), EXEMPT).breaks("off");
    // An override in its place, of the limit or of the caller, is one for all.
    let back = |note| with(share(1).note(0, 0, 40, note), EXEMPT);
    back(Note::Overrides(LEDGER, 0, 30)).breaks("off");
    back(Note::OfCaller(LEDGER, OfCaller::Number(400), 0, 30)).is_sound();
    let denied = share(1).note(0, 0, 40, Note::OfCaller(LEDGER, OfCaller::Denied, 0, 30));
    with(denied, Reply::Denied).is_sound();
    // Units beyond the limit are not counted.
    let full = share(1).calls(LEDGER, spread(200, SECOND / 2, SECOND));
    with(full.clone(), EXEMPT).is_sound();
    with(full, AT_ONCE).breaks("window");
}

#[test]
fn each_process_admits_its_share_while_redis_is_away() {
    let alone = |story: Story, process, count, at| {
        spread(count, at, at + 100 * MS).fold(story, |story, at| {
            let call = Told { process, ..told(SPARE, 1, at, at + 1, AT_ONCE) };
            story.call(call, &[(at + 1, Note::Here), (at + 1, Note::Ended)])
        })
    };
    let whole = Story::new().calls(SPARE, spread(60, 0, SECOND));
    let with = |count| alone(whole.clone(), 0, count, SECOND);
    with(12).is_sound();
    with(13).breaks("local share");
    alone(with(12), 1, 12, SECOND).is_sound();
    alone(with(12), 0, 1, 2 * SECOND).breaks("local share");
    alone(with(12), 0, 12, 4 * SECOND).is_sound();
    // Numbers of an override are shared out too, and a reset begins anew.
    let raised = |process| with(24).note(process, 0, 20, Note::Overrides(SPARE, 120, 10));
    raised(0).is_sound();
    raised(1).breaks("local share");
    with(24).note(2, 0, SECOND, Note::Reset(SPARE, SECOND - 10)).is_sound();
    whole.calls(SPARE, [SECOND]).breaks("window");
}

#[test]
fn one_budget_pays_once_and_the_first_one_has_refused() {
    let paid = |first: Reply, second: Reply| {
        let call =
            |limit, budget, reply| Told { budget, ..told(limit, 3, SECOND, SECOND + MS, reply) };
        let full = Story::new().calls(BARRED, spread(6, SECOND - 50 * MS, SECOND - 10 * MS));
        full.call(call(BARRED, 1, first), &[]).call(call(CREDIT, 2, second), &[])
    };
    let by_second = paid(Reply::Refused, AT_ONCE);
    by_second.clone().audit(CREDIT, SECOND + 2 * MS, 3).is_sound();
    by_second.clone().audit(CREDIT, SECOND + 2 * MS, 6).breaks("charged");
    by_second.audit(CREDIT, SECOND + 2 * MS, 0).breaks("charged");
    paid(AT_ONCE, Reply::Spared).breaks("window");
    // One that was not asked has paid nothing, and has no need for a reason.
    let spared = Told { budget: 2, ..told(CREDIT, 3, 0, MS, Reply::Spared) };
    let spared = Story::new().call(spared, &[]);
    spared.clone().audit(CREDIT, 2 * MS, 0).is_sound();
    spared.audit(CREDIT, 2 * MS, 3).breaks("charged");
    let early = Told { budget: 1, ..told(BARRED, 1, SECOND, SECOND + MS, Reply::Refused) };
    Story::new().call(early, &[]).breaks("refused");
    let ends = |answered| Told { budget: 1, ..told(FIXED, 1, 0, answered, Reply::Refused) };
    Story::new().call(ends(SECOND), &[]).is_sound();
    Story::new().call(ends(1_300 * MS), &[]).breaks("end");
}
