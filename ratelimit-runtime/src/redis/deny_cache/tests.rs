use super::*;
use crate::{
    caller::Caller,
    request::{DecidedBy, Mark, Op},
    time::Micros,
};

const MICRO: Duration = Duration::from_micros(1);
const SECOND: Duration = Duration::from_secs(1);
const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 5);
const REQUEST: Request<'_> =
    Request { policy: &POLICY, written: &POLICY, op: Op::Take, cost: 2, id: None };
const REFUSED: Outcome = Outcome {
    admitted: false,
    tier: 0,
    remaining: 1,
    wait: Micros::new(3_000_000),
    more: Micros::new(3_000_000),
    reset: Micros::new(9_000_000),
    lasts: Micros::new(9_000_000),
    mark: Mark::NONE,
    decided_by: DecidedBy::Store,
};

fn key(caller: &str) -> Key {
    Key::compose("", &POLICY, Caller::from(caller).parts())
}

/// As of a store that answers at once.
fn keep(refusals: &DenyCache, caller: &str, request: Request<'_>, outcome: Outcome, sent: Instant) {
    refusals.keep(&key(caller), request, outcome, Trip { sent, answered: sent });
}

fn find(refusals: &DenyCache, caller: &str, request: Request<'_>, now: Instant) -> Option<Outcome> {
    refusals.find(&key(caller), request, Duration::ZERO, now)
}

fn is_known(refusals: &DenyCache, caller: &str, cost: u32, now: Instant) -> bool {
    find(refusals, caller, Request { cost, ..REQUEST }, now).is_some()
}

fn refused(remaining: u32, wait: Duration, more: Duration) -> Outcome {
    Outcome { remaining, wait: wait.into(), more: more.into(), ..REFUSED }
}

fn admitted(remaining: u32) -> Outcome {
    Outcome { admitted: true, remaining, ..REFUSED }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_stands_until_its_wait_is_over_and_not_longer() {
    let refusals = DenyCache::new(16, 10 * SECOND);
    let sent = Instant::now();
    keep(&refusals, "alice", REQUEST, REFUSED, sent);
    let at = |micros| find(&refusals, "alice", REQUEST, sent + micros * MICRO);
    let repeated = Outcome {
        more: Micros::ZERO,
        lasts: Micros::ZERO,
        decided_by: DecidedBy::DenyCache,
        ..REFUSED
    };
    assert_eq!(at(0), Some(repeated));
    assert_eq!(
        at(1_000_000),
        Some(Outcome { wait: Micros::new(2_000_000), reset: Micros::new(8_000_000), ..repeated })
    );
    assert_eq!(at(2_999_999).map(|outcome| outcome.wait), Some(Micros::new(1)));
    assert_eq!(at(3_000_000), None);
}

#[tokio::test(start_paused = true)]
async fn one_call_in_a_while_asks_the_store() {
    let refusals = DenyCache::new(16, SECOND);
    let sent = Instant::now();
    keep(&refusals, "alice", REQUEST, REFUSED, sent);
    let later = sent + SECOND;
    assert!(!is_known(&refusals, "alice", 2, later));
    assert!(is_known(&refusals, "alice", 2, later));
    // No answer came.
    assert!(!is_known(&refusals, "alice", 2, later + SECOND));
}

#[tokio::test(start_paused = true)]
async fn of_a_refusal_follow_those_of_larger_costs() {
    let (refusals, now) = (DenyCache::new(16, 10 * SECOND), Instant::now());
    let four = Request { cost: 4, ..REQUEST };
    keep(&refusals, "alice", four, refused(1, 9 * SECOND, 3 * SECOND), now);
    let wait = |cost, now| {
        find(&refusals, "alice", Request { cost, ..REQUEST }, now)
            .map(|it| it.wait.get() / 1_000_000)
    };
    assert_eq!(
        [1, 2, 3, 4, 5].map(|cost| wait(cost, now)),
        [None, Some(3), Some(3), Some(9), Some(9)]
    );
    // Once a smaller cost could be admitted, it is asked for; the larger one still is refused.
    let later = now + 3 * SECOND;
    assert_eq!([2, 3, 4].map(|cost| wait(cost, later)), [None, None, Some(6)]);
    // A call that may wait as long asks.
    let asks = |max_wait| refusals.find(&key("alice"), four, max_wait, now).is_none();
    assert!(asks(9 * SECOND) && !asks(8_999_999 * MICRO));
}

#[tokio::test(start_paused = true)]
async fn of_a_refusal_follow_those_of_smaller_thresholds_where_both_see_the_same_count() {
    let period = Duration::from_secs(60);
    for (of, is_window) in [
        (Policy::sliding_window as fn(_, _, _) -> _, true),
        (Policy::fixed_window, true),
        (Policy::sliding_counter, false),
        (Policy::token_bucket, false),
    ] {
        let (refusals, now) = (DenyCache::new(16, 10 * SECOND), Instant::now());
        let [five, four, six]: [Policy; 3] = [5, 4, 6].map(|threshold| of("p", period, threshold));
        keep(&refusals, "alice", Request { policy: &five, ..REQUEST }, REFUSED, now);
        let wait = |policy, cost| {
            let found = find(&refusals, "alice", Request { policy, cost, ..REQUEST }, now)?;
            Some((found.wait.get(), found.remaining))
        };
        let known = |remaining| is_window.then_some((3_000_000, remaining));
        assert_eq!(wait(&five, 2), Some((3_000_000, 1)));
        assert_eq!(wait(&five, 1), None);
        assert_eq!(wait(&four, 1), known(0));
        assert_eq!(wait(&six, 2), None);
        assert_eq!(wait(&six, 3), known(2));
        let other = of("p", 2 * period, 5);
        assert_eq!(wait(&other, 2), None);
        assert_eq!(wait(&five.tier(period * 60, 10), 2), None);
    }
}

#[tokio::test(start_paused = true)]
async fn it_speaks_for_no_other_call() {
    let refusals = DenyCache::new(1, 10 * SECOND);
    let now = Instant::now();
    keep(&refusals, "alice", REQUEST, REFUSED, now);
    for other in [
        Request { cost: 1, ..REQUEST },
        Request { op: Op::Peek, ..REQUEST },
        Request { id: Some(1), ..REQUEST },
        Request { policy: &POLICY.count_rejected(), ..REQUEST },
    ] {
        assert_eq!(find(&refusals, "alice", other, now), None);
    }
    assert!(!is_known(&refusals, "bob", 2, now));
    refusals.forget(&key("bob"), now);
    assert!(is_known(&refusals, "alice", 2, now));
    refusals.forget(&key("alice"), now);
    assert!(!is_known(&refusals, "alice", 2, now));
    // Room for one: the newer refusal takes it.
    let later = now + MICRO;
    keep(&refusals, "alice", REQUEST, REFUSED, later);
    keep(&refusals, "bob", REQUEST, REFUSED, later);
    assert!(!is_known(&refusals, "alice", 2, later) && is_known(&refusals, "bob", 2, later));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_contradicts_a_refusal_ends_it() {
    let other = POLICY.tier(Duration::from_secs(3_600), 9);
    let minute = 60 * SECOND;
    let with = |cost| Request { cost, ..REQUEST };
    for (request, answer, is_ended) in [
        // A unit was left, and none had been.
        (with(1), admitted(0), true),
        // Only peeked at.
        (Request { op: Op::Peek, ..with(1) }, admitted(0), true),
        (Request { op: Op::Peek, ..with(0) }, admitted(1), true),
        (Request { op: Op::Peek, ..with(0) }, admitted(0), false),
        // Refused, and yet a unit is left, or will be sooner, or as many as it takes.
        (with(4), refused(1, minute, minute), true),
        (with(4), refused(0, minute, 2 * SECOND), true),
        (with(4), refused(0, 2 * SECOND, SECOND), true),
        (with(4), refused(0, minute, 3 * SECOND), false),
        // Taken by other numbers: what that is in these, the store knows.
        (Request { policy: &other, ..with(1) }, admitted(8), true),
        (Request { policy: &other, ..with(1) }, refused(0, SECOND, SECOND), false),
        (Request { policy: &POLICY.count_rejected(), ..with(1) }, refused(0, SECOND, SECOND), true),
    ] {
        let (refusals, now) = (DenyCache::new(16, 10 * SECOND), Instant::now());
        keep(&refusals, "alice", with(1), refused(0, 3 * SECOND, 3 * SECOND), now);
        keep(&refusals, "bob", with(1), refused(0, 3 * SECOND, 3 * SECOND), now);
        keep(&refusals, "alice", request, answer, now);
        let wait = find(&refusals, "alice", with(1), now).map(|it| it.wait);
        assert_eq!(
            wait != Some(Micros::new(3_000_000)),
            is_ended,
            "cost {}: {answer:?}",
            request.cost
        );
        assert!(is_known(&refusals, "bob", 1, now));
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_call_that_is_admitted_leaves_refusals_of_large_ones() {
    let (refusals, now) = (DenyCache::new(16, 10 * SECOND), Instant::now());
    let four = Request { cost: 4, ..REQUEST };
    keep(&refusals, "alice", four, refused(2, 9 * SECOND, 3 * SECOND), now);
    keep(&refusals, "alice", Request { cost: 1, ..REQUEST }, admitted(1), now);
    assert!(is_known(&refusals, "alice", 3, now));
    // Three units were left where there had been two.
    keep(&refusals, "alice", Request { cost: 2, ..REQUEST }, admitted(1), now);
    assert!(!is_known(&refusals, "alice", 3, now) && !is_known(&refusals, "alice", 4, now));
}

#[tokio::test(start_paused = true)]
async fn answers_need_not_come_in_the_order_of_their_calls() {
    let (refusals, sent) = (DenyCache::new(16, 10 * SECOND), Instant::now());
    let at = |sent, answered| Trip { sent, answered };
    // The wait is known no better than by the time that the call was on its way.
    refusals.keep(&key("alice"), REQUEST, REFUSED, at(sent, sent + SECOND));
    refusals.keep(&key("alice"), REQUEST, REFUSED, at(sent + SECOND, sent + SECOND));
    let wait = |now| find(&refusals, "alice", REQUEST, now).map(|it| it.wait);
    assert_eq!(wait(sent + SECOND), Some(Micros::new(3_000_000)));
    // One that was sent earlier says nothing new.
    let late = refused(0, 60 * SECOND, 60 * SECOND);
    refusals.keep(&key("alice"), REQUEST, late, at(sent, sent + SECOND));
    assert_eq!(wait(sent + SECOND), Some(Micros::new(3_000_000)));
    // Nor does one that was sent before the admission was known.
    refusals.keep(&key("alice"), REQUEST, admitted(2), at(sent + SECOND, sent + 2 * SECOND));
    refusals.keep(&key("alice"), REQUEST, late, at(sent + 2 * SECOND, sent + 2 * SECOND));
    assert_eq!(wait(sent + 2 * SECOND), None);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_before_a_reset_is_not_kept_after_it() {
    let refusals = DenyCache::new(16, 10 * SECOND);
    let sent = Instant::now();
    tokio::time::advance(SECOND).await;
    let reset = Instant::now();
    refusals.forget(&key("alice"), reset);
    keep(&refusals, "alice", REQUEST, REFUSED, sent);
    assert!(!is_known(&refusals, "alice", 2, reset));
    let sent = reset + MICRO;
    keep(&refusals, "alice", REQUEST, REFUSED, sent);
    assert!(is_known(&refusals, "alice", 2, sent));
}

#[tokio::test(start_paused = true)]
async fn exhausted_keys_that_share_a_row_are_both_known() {
    let (refusals, now) = (DenyCache::new(2, 10 * SECOND), Instant::now());
    let keep = |caller| keep(&refusals, caller, REQUEST, REFUSED, now);
    let is_known = |caller| is_known(&refusals, caller, 2, now);
    keep("alice");
    keep("bob");
    assert!(is_known("alice") && is_known("bob"));
    // No more than fit: the oldest goes.
    keep("carol");
    assert!(!is_known("alice") && is_known("bob") && is_known("carol"));
}

#[tokio::test(start_paused = true)]
async fn a_key_takes_no_more_memory_than_its_steps() {
    let (refusals, start) = (DenyCache::new(1, 10 * SECOND), Instant::now());
    let policy = Policy::sliding_window("p", Duration::from_secs(60), 100);
    for cost in 1..=100 {
        let request = Request { policy: &policy, cost, ..REQUEST };
        let refusal = refused(0, cost * SECOND, SECOND);
        keep(&refusals, "alice", request, refusal, start + cost * MICRO);
        let row = refusals.row(&key("alice")).unwrap();
        assert_eq!(row.entries.len(), 1);
        assert!(row.entries[0].steps.len() <= 8);
    }
    assert!(is_known(&refusals, "alice", 2, start + SECOND));
    // As the documentation of `deny_cache` has it.
    let most = size_of::<Entry>() + 8 * staircase::STEP;
    assert!(most <= 1_024, "{most} bytes and the key");
}

#[tokio::test(start_paused = true)]
async fn penalties_and_admissions_are_not_kept_and_none_may_be() {
    let penalty = POLICY.count_rejected();
    let penal = Request { policy: &penalty, ..REQUEST };
    let (refusals, now) = (DenyCache::new(16, 10 * SECOND), Instant::now());
    keep(&refusals, "alice", penal, REFUSED, now);
    keep(&refusals, "alice", REQUEST, admitted(1), now);
    assert_eq!(find(&refusals, "alice", penal, now), None);
    assert_eq!(find(&refusals, "alice", REQUEST, now), None);
    let off = DenyCache::new(0, 10 * SECOND);
    keep(&off, "alice", REQUEST, REFUSED, now);
    assert_eq!(find(&off, "alice", REQUEST, now), None);
}
