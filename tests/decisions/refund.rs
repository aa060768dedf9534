//! A refunded call leaves no trace, and is refunded once.

use std::time::Duration;

use harness::{DEADLINE, RedisServer, on_each_store, until, until_decided};
use ratelimit_runtime::{
    Decision, Enforcement, Limiter, OnStoreError, Policy, RateLimitError, observe, rate_limit,
};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

const LOG: Policy = Policy::sliding_window("log", MINUTE, 3).tier(HOUR, 5);
const COUNTER: Policy = Policy::sliding_counter("counter", HOUR, 3).tier(DAY, 5);
const WINDOW: Policy = Policy::fixed_window("window", MINUTE, 3).tier(HOUR, 5);
const BUCKET: Policy = Policy::token_bucket("bucket", HOUR, 3).tier(DAY, 5);
const ALL: [Policy; 4] = [LOG, COUNTER, WINDOW, BUCKET];

async fn left(limiter: &Limiter, policy: &Policy) -> u32 {
    limiter.peek(policy, "alice").cost(0).await.unwrap().remaining()
}

#[tokio::test]
async fn units_come_back_once_to_every_tier() {
    on_each_store(async |limiter| {
        for policy in &ALL {
            let first = limiter.check(policy, "alice").cost(2).await.unwrap();
            let second = limiter.check(policy, "alice").await.unwrap();
            assert_eq!(left(limiter, policy).await, 0, "{policy:?}");
            // The clones of a decision are refunded with it.
            for decision in [first.clone(), first.clone(), first] {
                limiter.refund(&decision).await.unwrap();
                assert_eq!(left(limiter, policy).await, 2, "{policy:?}");
            }
            limiter.refund(&second).await.unwrap();
            assert_eq!(left(limiter, policy).await, 3, "{policy:?}");
            // The tier of 5 is refunded as well: after 3 more there are 2 left in it.
            limiter.check(policy, "alice").cost(3).await.unwrap();
            limiter.check(policy, "alice").cost(3).await.unwrap_err();
        }
    })
    .await;
}

#[tokio::test]
async fn a_decision_has_the_units_that_its_call_took() {
    on_each_store(async |limiter| {
        for policy in &ALL {
            assert_eq!(limiter.check(policy, "alice").cost(2).await.unwrap().cost(), 2);
            assert_eq!(limiter.check(policy, "alice").cost(0).await.unwrap().cost(), 0);
            assert_eq!(limiter.peek(policy, "alice").await.unwrap().cost(), 0);
            limiter.overrides().here().set("*", Enforcement::DryRun).unwrap();
            let passed = limiter.check(policy, "alice").cost(2).await.unwrap();
            assert_eq!((passed.cost(), passed.is_dry_run()), (0, true), "{policy:?}");
            let admitted = limiter.check(policy, "alice").await.unwrap();
            assert_eq!((admitted.cost(), admitted.is_dry_run()), (1, false), "{policy:?}");
            limiter.overrides().here().set("*", Enforcement::Off).unwrap();
            assert_eq!(limiter.check(policy, "alice").await.unwrap().cost(), 0);
            limiter.overrides().here().remove("*");
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_comes_back_for_a_call_that_took_nothing() {
    on_each_store(async |limiter| {
        for policy in &ALL {
            let peeked = limiter.peek(policy, "alice").await.unwrap();
            limiter.check(policy, "alice").await.unwrap();
            limiter.refund(&peeked).await.unwrap();
            assert_eq!(left(limiter, policy).await, 2, "{policy:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_quota_never_grows_over_its_threshold() {
    on_each_store(async |limiter| {
        for policy in &ALL {
            let decision = limiter.check(policy, "alice").cost(2).await.unwrap();
            limiter.reset(policy, "alice").await.unwrap();
            limiter.refund(&decision).await.unwrap();
            assert_eq!(left(limiter, policy).await, 3, "{policy:?}");
            limiter.check(policy, "alice").cost(3).await.unwrap();
            limiter.check(policy, "alice").await.unwrap_err();
        }
    })
    .await;
}

#[tokio::test]
async fn only_the_callers_own_units_come_back() {
    on_each_store(async |limiter| {
        for policy in &ALL {
            let decision = limiter.check(policy, "bob").await.unwrap();
            limiter.check(policy, "alice").cost(3).await.unwrap();
            limiter.refund(&decision).await.unwrap();
            assert_eq!(left(limiter, policy).await, 0, "{policy:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn units_of_a_window_that_has_passed_stay_gone() {
    let limiter = Limiter::in_memory();
    for (policy, passed) in [
        (Policy::sliding_window("log", MINUTE, 3), MINUTE),
        (Policy::sliding_counter("counter", MINUTE, 3), MINUTE * 2),
        (Policy::fixed_window("window", MINUTE, 3), MINUTE),
    ] {
        let decision = limiter.check(&policy, "alice").cost(2).await.unwrap();
        tokio::time::advance(passed).await;
        limiter.check(&policy, "alice").await.unwrap();
        limiter.refund(&decision).await.unwrap();
        assert_eq!(left(&limiter, &policy).await, 2, "{policy:?}");
    }
}

/// Only failed logins count.
#[tokio::test]
async fn an_annotated_call_is_refunded_by_its_observer() {
    const LOGIN: Policy = Policy::sliding_window("login", MINUTE, 2);

    #[rate_limit(period = 60, threshold = 2, name = "login", key = user, limiter = limiter)]
    async fn login(limiter: &Limiter, user: &str, password: &str) -> Result<bool, RateLimitError> {
        Ok(password == "right")
    }

    let limiter = Limiter::in_memory();
    for (password, expected) in [("right", 2), ("wrong", 1), ("right", 1), ("wrong", 0)] {
        let (outcome, answers) = observe(login(&limiter, "alice", password)).await;
        if outcome.unwrap() {
            for decision in answers.iter().flatten() {
                limiter.refund(decision).await.unwrap();
            }
        }
        assert_eq!(limiter.peek(&LOGIN, "alice").cost(0).await.unwrap().remaining(), expected);
    }
    login(&limiter, "alice", "right").await.unwrap_err();
}

#[tokio::test]
async fn a_cancelled_refund_can_be_repeated() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let decision = limiter.check(&LOG, "alice").cost(2).await.unwrap();
    server.signal("STOP");
    tokio::time::timeout(DEADLINE, limiter.refund(&decision)).await.unwrap_err();
    server.signal("CONT");
    limiter.refund(&decision).await.unwrap();
    assert_eq!(left(&limiter, &LOG).await, 3);
    // The refund has taken effect.
    limiter.check(&LOG, "alice").cost(2).await.unwrap();
    limiter.refund(&decision).await.unwrap();
    assert_eq!(left(&limiter, &LOG).await, 1);
}

#[tokio::test]
async fn a_refund_that_a_lost_store_never_received_can_be_repeated() {
    let server = RedisServer::start();
    let builder = Limiter::builder().deadline(DEADLINE).on_store_error(OnStoreError::Deny);
    let limiter = builder.connect(&server.url()).await.unwrap();
    let mut decisions = Vec::new();
    for policy in &ALL {
        decisions.push(limiter.check(policy, "alice").cost(2).await.unwrap());
    }
    server.signal("STOP");
    until("the breaker", async || {
        let _ = limiter.check(&LOG, "bob").await;
        limiter.servers()[0].failure().map(drop)
    })
    .await;
    for decision in &decisions {
        limiter.refund(decision).await.unwrap_err();
    }
    server.signal("CONT");
    until_decided(&limiter).await;
    for (decision, policy) in decisions.iter().zip(&ALL) {
        limiter.refund(decision).await.unwrap();
        assert_eq!(left(&limiter, policy).await, 3, "{policy:?}");
    }
}

#[tokio::test]
async fn a_call_without_a_decision_has_no_units_to_refund() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    drop(server);
    for policy in &ALL {
        let request = limiter.check(policy, "alice").on_store_error(OnStoreError::Allow);
        let passed = request.await.unwrap();
        limiter.check(policy, "alice").cost(3).await.unwrap();
        limiter.refund(&passed).await.unwrap();
        assert_eq!(left(&limiter, policy).await, 0, "{policy:?}");
    }
}

/// Compares with a list of admitted calls without refunds, over random times, costs and refunds.
#[tokio::test(start_paused = true)]
async fn a_log_is_as_if_refunded_calls_had_never_been() {
    let limiter = Limiter::in_memory();
    let policy = Policy::sliding_window("log", Duration::from_millis(100), 20)
        .tier(Duration::from_secs(1), 100);
    let mut random = fastrand::Rng::with_seed(7);
    let start = Instant::now();
    let mut held: Vec<(Duration, u32, Decision)> = Vec::new();
    for _ in 0..50_000 {
        tokio::time::advance(Duration::from_micros(random.u64(0..4) * random.u64(0..5_000))).await;
        let now = start.elapsed();
        if !held.is_empty() && random.u8(0..3) == 0 {
            let (_, _, decision) = held.swap_remove(random.usize(0..held.len()));
            limiter.refund(&decision).await.unwrap();
            continue;
        }
        let cost = random.u32(1..6);
        let fits = policy.tiers().iter().all(|tier| {
            let live = held.iter().filter(|(at, ..)| *at + tier.period() > now);
            live.map(|(_, cost, _)| cost).sum::<u32>() + cost <= tier.threshold()
        });
        let answer = limiter.check(&policy, "alice").cost(cost).await;
        assert_eq!(answer.is_ok(), fits, "at {now:?}, cost {cost}: {answer:?}");
        held.extend(answer.ok().map(|decision| (now, cost, decision)));
        held.retain(|(at, ..)| *at + Duration::from_secs(1) > now);
    }
}
