use super::*;
use crate::{
    caller::Caller,
    key::Key,
    request::{DecidedBy, Mark, Op, OutcomeKind},
};

const MICRO: Duration = Duration::from_micros(1);
const SECOND: Duration = Duration::from_secs(1);
const NOW: Timestamp = Timestamp::new(1_000_000_000_000);
const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 5);
const REQUEST: Request<'_> = Request::new(&POLICY, Op::Take, 2);
const REFUSED: Outcome = Outcome {
    admitted: false,
    tier: 0,
    remaining: 1,
    wait: Micros::new(3_000_000),
    more: Micros::new(3_000_000),
    turn: Micros::ZERO,
    reset: Micros::new(9_000_000),
    lasts: Micros::new(9_000_000),
    mark: Mark::NONE,
    decided_by: DecidedBy::Store,
    kind: OutcomeKind::Plain,
};

fn key(caller: &str) -> Key {
    key_under(&POLICY, caller)
}

fn key_under(policy: &Policy, caller: &str) -> Key {
    Key::compose("", KeyRef::new(policy, Caller::from(caller).parts()))
}

/// Inserts an answer without latency.
fn insert(
    cache: &DenyCache,
    caller: &str,
    request: Request<'_>,
    outcome: Outcome,
    sent: Timestamp,
) {
    let key = key_under(request.policy, caller);
    cache.insert(key.as_key_ref(), request, outcome, RoundTrip { sent, answered: sent });
}

fn get(cache: &DenyCache, caller: &str, request: Request<'_>, now: Timestamp) -> Option<Outcome> {
    let key = key_under(request.policy, caller);
    cache.get(key.as_key_ref(), request, Micros::ZERO, true, || now)
}

fn is_cached(cache: &DenyCache, caller: &str, cost: u32, now: Timestamp) -> bool {
    get(cache, caller, Request { cost, ..REQUEST }, now).is_some()
}

fn refused(remaining: u32, wait: Duration, more: Duration) -> Outcome {
    Outcome { remaining, wait: wait.into(), more: more.into(), ..REFUSED }
}

fn admitted(remaining: u32) -> Outcome {
    Outcome { admitted: true, remaining, ..REFUSED }
}

#[test]
fn a_refusal_stands_until_its_wait_is_over_and_not_longer() {
    let cache = DenyCache::new(16, 10 * SECOND);
    let sent = NOW;
    insert(&cache, "alice", REQUEST, REFUSED, sent);
    let at = |micros| get(&cache, "alice", REQUEST, sent + micros * MICRO);
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

#[test]
fn one_call_a_ttl_revalidates() {
    let cache = DenyCache::new(16, SECOND);
    let sent = NOW;
    insert(&cache, "alice", REQUEST, REFUSED, sent);
    let later = sent + SECOND;
    assert!(!is_cached(&cache, "alice", 2, later));
    assert!(is_cached(&cache, "alice", 2, later));
    // No answer came.
    assert!(!is_cached(&cache, "alice", 2, later + SECOND));
}

#[test]
fn a_refusal_implies_those_of_larger_costs() {
    let (cache, now) = (DenyCache::new(16, 10 * SECOND), NOW);
    let four = Request { cost: 4, ..REQUEST };
    insert(&cache, "alice", four, refused(1, 9 * SECOND, 3 * SECOND), now);
    let wait = |cost, now| {
        get(&cache, "alice", Request { cost, ..REQUEST }, now).map(|it| it.wait.get() / 1_000_000)
    };
    assert_eq!(
        [1, 2, 3, 4, 5].map(|cost| wait(cost, now)),
        [None, Some(3), Some(3), Some(9), Some(9)]
    );
    // Once Redis may admit a smaller cost, its call is sent; the larger one is still refused.
    let later = now + 3 * SECOND;
    assert_eq!([2, 3, 4].map(|cost| wait(cost, later)), [None, None, Some(6)]);
    // A call that may wait as long is sent.
    let is_sent = |max_wait| {
        cache.get(key("alice").as_key_ref(), four, Micros::from(max_wait), true, || now).is_none()
    };
    assert!(is_sent(9 * SECOND) && !is_sent(8_999_999 * MICRO));
}

#[test]
fn a_refusal_implies_those_of_smaller_thresholds_if_both_see_the_same_count() {
    let period = Duration::from_secs(60);
    for (of, is_window) in [
        (Policy::sliding_window as fn(_, _, _) -> _, true),
        (Policy::fixed_window, true),
        (Policy::sliding_counter, false),
        (Policy::token_bucket, false),
    ] {
        let (cache, now) = (DenyCache::new(16, 10 * SECOND), NOW);
        let [five, four, six]: [Policy; 3] = [5, 4, 6].map(|threshold| of("p", period, threshold));
        insert(&cache, "alice", Request { policy: &five, ..REQUEST }, REFUSED, now);
        let wait = |policy, cost| {
            let found = get(&cache, "alice", Request { policy, cost, ..REQUEST }, now)?;
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

#[test]
fn a_refusal_is_of_no_other_call() {
    let cache = DenyCache::new(1, 10 * SECOND);
    let now = NOW;
    insert(&cache, "alice", REQUEST, REFUSED, now);
    for other in [
        Request { cost: 1, ..REQUEST },
        Request { op: Op::Peek, ..REQUEST },
        Request { id: Some(1), ..REQUEST },
        Request { policy: &POLICY.count_rejected(), ..REQUEST },
    ] {
        assert_eq!(get(&cache, "alice", other, now), None);
    }
    assert!(!is_cached(&cache, "bob", 2, now));
    cache.invalidate(key("bob").as_key_ref(), now);
    assert!(is_cached(&cache, "alice", 2, now));
    cache.invalidate(key("alice").as_key_ref(), now);
    assert!(!is_cached(&cache, "alice", 2, now));
    // With one entry, the newer refusal evicts the older.
    let later = now + MICRO;
    insert(&cache, "alice", REQUEST, REFUSED, later);
    insert(&cache, "bob", REQUEST, REFUSED, later);
    assert!(!is_cached(&cache, "alice", 2, later) && is_cached(&cache, "bob", 2, later));
}

#[test]
fn an_outcome_that_contradicts_a_refusal_removes_it() {
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
        // Taken under other numbers: the effect on these is unknown.
        (Request { policy: &other, ..with(1) }, admitted(8), true),
        (Request { policy: &other, ..with(1) }, refused(0, SECOND, SECOND), false),
        (Request { policy: &POLICY.count_rejected(), ..with(1) }, refused(0, SECOND, SECOND), true),
    ] {
        let (cache, now) = (DenyCache::new(16, 10 * SECOND), NOW);
        insert(&cache, "alice", with(1), refused(0, 3 * SECOND, 3 * SECOND), now);
        insert(&cache, "bob", with(1), refused(0, 3 * SECOND, 3 * SECOND), now);
        insert(&cache, "alice", request, answer, now);
        let wait = get(&cache, "alice", with(1), now).map(|it| it.wait);
        assert_eq!(
            wait != Some(Micros::new(3_000_000)),
            is_ended,
            "cost {}: {answer:?}",
            request.cost
        );
        assert!(is_cached(&cache, "bob", 1, now));
    }
}

#[test]
fn a_small_call_that_is_admitted_leaves_refusals_of_large_ones() {
    let (cache, now) = (DenyCache::new(16, 10 * SECOND), NOW);
    let four = Request { cost: 4, ..REQUEST };
    insert(&cache, "alice", four, refused(2, 9 * SECOND, 3 * SECOND), now);
    insert(&cache, "alice", Request { cost: 1, ..REQUEST }, admitted(1), now);
    assert!(is_cached(&cache, "alice", 3, now));
    // Three units were left where there had been two.
    insert(&cache, "alice", Request { cost: 2, ..REQUEST }, admitted(1), now);
    assert!(!is_cached(&cache, "alice", 3, now) && !is_cached(&cache, "alice", 4, now));
}

#[test]
fn replies_may_arrive_out_of_order() {
    let (cache, sent) = (DenyCache::new(16, 10 * SECOND), NOW);
    let at = |sent, answered| RoundTrip { sent, answered };
    // The wait is counted from before the call was sent.
    cache.insert(key("alice").as_key_ref(), REQUEST, REFUSED, at(sent, sent + SECOND));
    cache.insert(key("alice").as_key_ref(), REQUEST, REFUSED, at(sent + SECOND, sent + SECOND));
    let wait = |now| get(&cache, "alice", REQUEST, now).map(|it| it.wait);
    assert_eq!(wait(sent + SECOND), Some(Micros::new(3_000_000)));
    // A reply to an earlier call is out of date.
    let late = refused(0, 60 * SECOND, 60 * SECOND);
    cache.insert(key("alice").as_key_ref(), REQUEST, late, at(sent, sent + SECOND));
    assert_eq!(wait(sent + SECOND), Some(Micros::new(3_000_000)));
    // And so is one to a call that was sent before the reply with the admission.
    cache.insert(
        key("alice").as_key_ref(),
        REQUEST,
        admitted(2),
        at(sent + SECOND, sent + 2 * SECOND),
    );
    cache.insert(
        key("alice").as_key_ref(),
        REQUEST,
        late,
        at(sent + 2 * SECOND, sent + 2 * SECOND),
    );
    assert_eq!(wait(sent + 2 * SECOND), None);
}

#[test]
fn a_refusal_from_before_a_reset_is_not_inserted_after_it() {
    let cache = DenyCache::new(16, 10 * SECOND);
    let (sent, reset) = (NOW, NOW + SECOND);
    cache.invalidate(key("alice").as_key_ref(), reset);
    insert(&cache, "alice", REQUEST, REFUSED, sent);
    assert!(!is_cached(&cache, "alice", 2, reset));
    let sent = reset + MICRO;
    insert(&cache, "alice", REQUEST, REFUSED, sent);
    assert!(is_cached(&cache, "alice", 2, sent));
}

#[test]
fn exhausted_keys_of_one_set_are_both_cached() {
    let (cache, now) = (DenyCache::new(2, 10 * SECOND), NOW);
    let insert = |caller| insert(&cache, caller, REQUEST, REFUSED, now);
    let is_cached = |caller| is_cached(&cache, caller, 2, now);
    insert("alice");
    insert("bob");
    assert!(is_cached("alice") && is_cached("bob"));
    // The oldest is evicted.
    insert("carol");
    assert!(!is_cached("alice") && is_cached("bob") && is_cached("carol"));
}

#[test]
fn a_key_takes_no_more_memory_than_its_steps() {
    let (cache, start) = (DenyCache::new(1, 10 * SECOND), NOW);
    let policy = Policy::sliding_window("p", Duration::from_secs(60), 100);
    for cost in 1..=100 {
        let request = Request { policy: &policy, cost, ..REQUEST };
        let refusal = refused(0, cost * SECOND, SECOND);
        insert(&cache, "alice", request, refusal, start + cost * MICRO);
        let key = key("alice");
        let set = cache.set(cache.hasher.lookup(key.as_key_ref()).hash).unwrap();
        assert_eq!(set.entries.len(), 1);
        assert!(set.entries[0].steps.len() <= 8);
    }
    assert!(is_cached(&cache, "alice", 2, start + SECOND));
    // The bound in the documentation of `deny_cache`.
    let most = size_of::<CacheEntry>() + 8 * steps::STEP_BYTES;
    assert!(most <= 1_024, "{most} bytes and the key");
}

#[test]
fn penalties_and_admissions_are_not_cached_and_nothing_without_entries() {
    let penalty = POLICY.count_rejected();
    let penal = Request { policy: &penalty, ..REQUEST };
    let (cache, now) = (DenyCache::new(16, 10 * SECOND), NOW);
    insert(&cache, "alice", penal, REFUSED, now);
    insert(&cache, "alice", REQUEST, admitted(1), now);
    assert_eq!(get(&cache, "alice", penal, now), None);
    assert_eq!(get(&cache, "alice", REQUEST, now), None);
    let off = DenyCache::new(0, 10 * SECOND);
    insert(&off, "alice", REQUEST, REFUSED, now);
    assert_eq!(get(&off, "alice", REQUEST, now), None);
}

#[test]
fn no_refusal_tells_more_units_than_the_last_answer() {
    let cache = DenyCache::new(16, 10 * SECOND);
    let left = || get(&cache, "alice", REQUEST, NOW + MICRO).map(|outcome| outcome.remaining);
    insert(&cache, "alice", REQUEST, refused(1, 3 * SECOND, 2 * SECOND), NOW);
    assert_eq!(left(), Some(1));
    // A peek takes nothing.
    let one = Request { cost: 1, ..REQUEST };
    insert(&cache, "alice", Request { op: Op::Peek, ..one }, admitted(0), NOW + MICRO);
    assert_eq!(left(), Some(1));
    insert(&cache, "alice", one, admitted(0), NOW + MICRO);
    assert_eq!(left(), Some(0));
}

#[test]
fn a_call_that_leaves_a_share_neither_ends_nor_gets_the_refusals_of_others() {
    let (half, bucket) = (POLICY.leaving(50), Policy::token_bucket("p", 60 * SECOND, 5));
    let (cache, one) = (DenyCache::new(16, 10 * SECOND), Request { cost: 1, ..REQUEST });
    let low = Request { policy: &half, ..one };
    insert(&cache, "alice", low, refused(0, 9 * SECOND, 9 * SECOND), NOW);
    assert!(get(&cache, "alice", low, NOW).is_some() && !is_cached(&cache, "alice", 1, NOW));
    // Five are used: the one that leaves nothing is refused first.
    insert(&cache, "alice", one, refused(0, 3 * SECOND, 3 * SECOND), NOW + MICRO);
    insert(&cache, "alice", low, refused(0, 9 * SECOND, 9 * SECOND), NOW + 2 * MICRO);
    assert!(is_cached(&cache, "alice", 1, NOW + SECOND));
    assert_eq!(get(&cache, "alice", low, NOW + 4 * SECOND).map(|it| it.remaining), Some(0));
    // Other shares of a bucket have refusals of their own.
    let [low, none] = [20, 0].map(|share| bucket.leaving(share));
    insert(&cache, "bob", Request { policy: &low, ..one }, REFUSED, NOW);
    assert_eq!(get(&cache, "bob", Request { policy: &none, ..REQUEST }, NOW), None);
    assert!(get(&cache, "bob", Request { policy: &low, ..REQUEST }, NOW).is_some());
}
