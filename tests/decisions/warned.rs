//! A caller who has used most of a limit is warned of once in a period, over all processes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use harness::{RedisServer, exceeded, until};
use ratelimit_runtime::{
    Caller, Enforcement, Limiter, LimiterBuilder, OnStoreError, Override, Plans, Policy,
    RateLimitError, rate_limit,
};
use tokio::{
    task::JoinSet,
    time::{Instant, advance},
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// The warnings so far: the caller, and the units left.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<(String, u32)>>>);

impl Warnings {
    fn builder(&self) -> LimiterBuilder {
        let warnings = Arc::clone(&self.0);
        Limiter::builder().deadline(Duration::from_secs(10)).on_warning(move |warning| {
            let (caller, decision) = (warning.caller_key(), warning.decision());
            assert_eq!(warning.caller(), &Caller::from(&caller));
            assert!(!decision.is_counted() && warning.percent() > 0);
            warnings.lock().unwrap().push((caller, decision.remaining()));
        })
    }

    async fn pair(&self, server: &RedisServer) -> [Limiter; 2] {
        let connect = async || self.builder().connect(&server.url()).await.unwrap();
        [connect().await, connect().await]
    }

    fn callers(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(caller, _)| caller.clone()).collect()
    }

    fn left(&self) -> Vec<u32> {
        self.0.lock().unwrap().iter().map(|(_, left)| *left).collect()
    }

    async fn until(&self, number: usize) {
        until("a warning", async || (self.left().len() >= number).then_some(())).await;
        assert_eq!(self.left().len(), number);
    }
}

fn policies() -> [Policy; 4] {
    [
        Policy::sliding_window("warned-log", HOUR, 10),
        Policy::sliding_counter("warned-counter", HOUR, 10),
        Policy::fixed_window("warned-fixed", HOUR, 10).concurrency(99),
        Policy::token_bucket("warned-bucket", MINUTE, 1).burst(10),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_caller_is_warned_of_once_in_a_period() {
    for policy in policies() {
        let warnings = Warnings::default();
        let limiter = warnings.builder().in_memory();
        for caller in ["alice", "bob"] {
            for _ in 0..10 {
                limiter.check(&policy, caller).warn_at(75).await.unwrap();
            }
            exceeded(limiter.check(&policy, caller).warn_at(75).await);
        }
        // Eight of ten are the first to reach 75 %.
        assert_eq!(warnings.left(), [2, 2], "{policy:?}");
        assert_eq!(warnings.callers(), ["alice", "bob"]);
        limiter.reset(&policy, "bob").await.unwrap();
        limiter.check(&policy, "bob").cost(10).warn_at(75).await.unwrap();
        assert_eq!(warnings.left(), [2, 2, 0], "{policy:?}");
        advance(2 * HOUR).await;
        limiter.check(&policy, "alice").cost(8).warn_at(75).await.unwrap();
        assert_eq!(warnings.left(), [2, 2, 0, 2], "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn warnings_are_a_period_apart_and_none_is_missed() {
    const POLICY: Policy = Policy::sliding_window("warned-often", MINUTE, 10);
    let (warnings, mut at) = (Warnings::default(), Vec::new());
    let limiter = warnings.builder().in_memory();
    let mut rng = fastrand::Rng::with_seed(7);
    let start = Instant::now();
    for _ in 0..5_000 {
        let (before, now) = (warnings.left().len(), start.elapsed());
        let decision = limiter.check(&POLICY, "alice").warn_at(80).await;
        let is_beyond = decision.as_ref().is_ok_and(|it| it.remaining() <= 2);
        let is_warned = warnings.left().len() > before;
        // Exactly when the last warning is a period old.
        let is_due = at.last().is_none_or(|last| now >= *last + MINUTE);
        assert_eq!(is_warned, is_beyond && is_due, "at {now:?}");
        if is_warned {
            at.push(now);
        }
        if let Ok(decision) = decision
            && rng.u8(..4) == 0
        {
            limiter.refund(&decision).await.unwrap();
        }
        advance(Duration::from_millis(rng.u64(..12_000))).await;
    }
    assert!(at.len() > 100, "{}", at.len());
}

#[tokio::test]
async fn a_fleet_warns_once() {
    let (server, warnings) = (RedisServer::start(), Warnings::default());
    let [one, other] = warnings.pair(&server).await;
    for policy in policies() {
        let before = warnings.left().len();
        for call in 0..10 {
            let limiter = if call % 2 == 0 { &one } else { &other };
            limiter.check(&policy, "alice").warn_at(70).await.unwrap();
        }
        warnings.until(before + 1).await;
        one.reset(&policy, "alice").await.unwrap();
        one.check(&policy, "alice").cost(9).warn_at(70).await.unwrap();
        warnings.until(before + 2).await;
    }
    let period = Duration::from_secs(1);
    let short = Policy::fixed_window("warned-again", period, 2);
    let before = warnings.left().len();
    until("a second period", async || {
        let _ = one.check(&short, "alice").warn_at(100).await;
        (warnings.left().len() >= before + 2).then_some(())
    })
    .await;
    // The warning of one process closes the period for the other.
    let keys = server.keys();
    let of_warning = |key: &&String| key.ends_with("warned/warned-again/alice");
    assert_eq!(keys.iter().filter(of_warning).count(), 1, "{keys:?}");
}

#[tokio::test]
async fn a_caller_who_crosses_the_mark_right_after_a_reset_is_warned_of_again() {
    let (server, warnings) = (RedisServer::start(), Warnings::default());
    let [one, other] = warnings.pair(&server).await;
    for policy in policies() {
        for resets in [&one, &other] {
            for _ in 0..5 {
                let before = warnings.left().len();
                one.check(&policy, "alice").cost(8).warn_at(80).await.unwrap();
                warnings.until(before + 1).await;
                // Refused, and remembered by this process for a second.
                let calls = || server.calls().get("evalsha").copied().unwrap_or_default();
                let asked = calls();
                one.check(&policy, "alice").warn_at(80).await.unwrap();
                until("a second question", async || (calls() > asked + 1).then_some(())).await;
                resets.reset(&policy, "alice").await.unwrap();
            }
        }
    }
}

/// Calls of three limiters at once cross the mark, are given back or raised, and cross it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_limiters_that_cross_the_mark_at_once_warn_once() {
    let (server, warnings) = (RedisServer::start(), Warnings::default());
    let mut limiters = Vec::new();
    for _ in 0..3 {
        limiters.push(warnings.builder().connect(&server.url()).await.unwrap());
    }
    let mut expected = 0;
    for policy in [
        Policy::sliding_window("warned-fleet", HOUR, 100),
        Policy::sliding_counter("warned-fleet", HOUR, 100),
        Policy::fixed_window("warned-fleet", HOUR, 100),
        Policy::token_bucket("warned-fleet", HOUR, 100),
    ] {
        for _ in 0..2 {
            let mut calls = JoinSet::new();
            for limiter in limiters.iter().cycle().take(12) {
                let limiter = limiter.clone();
                calls.spawn(async move {
                    for _ in 0..20 {
                        let check = limiter.check(&policy, "alice").cost(3).warn_at(80);
                        if let Ok(decision) = check.await {
                            limiter.settle(&decision, fastrand::u32(..=4)).await.unwrap();
                        }
                    }
                });
            }
            calls.join_all().await;
            for limiter in &limiters {
                while limiter.check(&policy, "alice").warn_at(80).await.is_ok() {}
                // Answered after all that the limiter has sent before.
                let _ = limiter.peek(&policy, "alice").await;
            }
            expected += 1;
            warnings.until(expected).await;
            // The next round is as in the next period.
            for limiter in &limiters {
                limiter.reset(&policy, "alice").await.unwrap();
            }
        }
    }
    assert_eq!(warnings.callers(), vec!["alice"; expected]);
}

#[tokio::test]
async fn peeks_dry_runs_and_uncounted_calls_do_not_warn_and_an_override_moves_the_mark() {
    const POLICY: Policy = Policy::fixed_window("warned-moved", HOUR, 2);
    let warnings = Warnings::default();
    let limiter = warnings.builder().in_memory();
    let set = |what| limiter.overrides().here().set("warned-moved", what).unwrap();
    let check = || limiter.check(&POLICY, "alice").warn_at(50);
    set(Override::new().enforcement(Enforcement::Off));
    check().cost(2).await.unwrap();
    set(Override::new().threshold(100));
    for _ in 0..49 {
        check().await.unwrap();
    }
    limiter.peek(&POLICY, "alice").cost(50).warn_at(50).await.unwrap();
    check().cost(0).await.unwrap();
    assert_eq!(warnings.left(), [0; 0]);
    // What is left to others counts as left.
    check().leave(20).await.unwrap();
    assert_eq!(warnings.left(), [50]);
    // A call that is refused, and passes in a dry run.
    set(Override::new().threshold(50).enforcement(Enforcement::DryRun));
    assert!(check().cost(9).await.unwrap().is_dry_run());
    // One that would pass anyway.
    limiter.reset(&POLICY, "alice").await.unwrap();
    assert!(!check().cost(50).await.unwrap().is_dry_run());
    assert_eq!(warnings.left(), [50]);
    set(Override::new().threshold(60));
    check().await.unwrap();
    assert_eq!(warnings.left(), [50, 9]);
}

/// A repeated call takes nothing, whoever has used the quota since its charge.
#[tokio::test]
async fn a_repeated_call_does_not_warn() {
    let log = Policy::sliding_window("warned-by-id", HOUR, 10);
    let server = RedisServer::start();
    let warnings = Warnings::default();
    let remote = warnings.builder().connect(&server.url()).await.unwrap();
    for limiter in [warnings.builder().in_memory(), remote] {
        for policy in [log, log.named("warned-by-weight")] {
            let named = |id| limiter.check(&policy, "alice").request_id(id).warn_at(80);
            let before = warnings.left().len();
            named(1).await.unwrap();
            limiter.check(&policy, "alice").cost(7).await.unwrap();
            named(1).await.unwrap();
            // The first call that takes a unit beyond the mark warns, and no other one has.
            named(2).await.unwrap();
            warnings.until(before + 1).await;
            assert_eq!(warnings.left()[before..], [1], "{policy:?}");
        }
    }
}

/// Plans of several tiers warn of nobody, and share their callers with those that do.
#[tokio::test]
async fn after_a_reset_under_any_plan_the_next_warning_comes() {
    let free = Policy::fixed_window("free", HOUR, 1);
    let plans = Plans::new("warned-plans", "free", free).plan("pro", free.tier(24 * HOUR, 9));
    let server = RedisServer::start();
    let warnings = Warnings::default();
    let remote = warnings.builder().connect(&server.url()).await.unwrap();
    for limiter in [warnings.builder().in_memory(), remote] {
        for plan in ["free", "pro", "free"] {
            let before = warnings.left().len();
            limiter.check(plans.of("free"), "alice").warn_at(100).await.unwrap();
            warnings.until(before + 1).await;
            limiter.reset(plans.of(plan), "alice").await.unwrap();
        }
    }
}

/// A call that is given back because another one is refused warns of nothing.
#[tokio::test]
async fn calls_that_are_decided_together_warn_once_all_are_admitted() {
    const NARROW: Policy = Policy::fixed_window("warned-narrow", HOUR, 2);
    const WIDE: Policy = Policy::fixed_window("warned-wide", HOUR, 1);
    let server = RedisServer::start();
    let warnings = Warnings::default();
    let remote = warnings.builder().connect(&server.url()).await.unwrap();
    for limiter in [warnings.builder().in_memory(), remote] {
        let before = warnings.left().len();
        let narrow = || limiter.check(&NARROW, "alice").warn_at(100);
        limiter.check(&WIDE, "acme").await.unwrap();
        narrow().await.unwrap();
        limiter.check_all([narrow(), limiter.check(&WIDE, "acme")]).await.unwrap_err();
        pair(&limiter, "alice", "acme").await.unwrap_err();
        assert_eq!(warnings.left().len(), before);
        limiter.check_all([narrow(), limiter.check(&WIDE, "other")]).await.unwrap();
        warnings.until(before + 1).await;
        pair(&limiter, "bob", "third").await.unwrap();
        pair(&limiter, "bob", "fourth").await.unwrap();
        warnings.until(before + 2).await;
        assert_eq!(warnings.callers()[before..], ["alice", "bob"]);
    }
}

#[rate_limit(name = "warned-narrow", algorithm = fixed_window, period = "1h", threshold = 2, key = user,
    warn_at = "100%", limiter = limiter)]
#[rate_limit(name = "warned-wide", algorithm = fixed_window, period = "1h", threshold = 1, key = tenant,
    limiter = limiter)]
async fn pair(limiter: &Limiter, user: &str, tenant: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn several_tiers_and_marks_out_of_range_are_invalid() {
    let limiter = Limiter::in_memory();
    let one = Policy::fixed_window("warned-wrong", HOUR, 2);
    for (policy, percent, fault) in [
        (one.tier(24 * HOUR, 3), 50, "`warn_at` needs a limit of one tier"),
        (Policy::concurrency_limit("warned-flight", 2), 50, "`warn_at` needs a window"),
        (one, 101, "`warn_at` must be at least 1 % and at most 100 %, but is 101 %"),
    ] {
        match limiter.check(&policy, "alice").warn_at(percent).await {
            Err(RateLimitError::InvalidPolicy(error)) => {
                assert!(error.fault().to_string().starts_with(fault), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(limiter.check(&one, "alice").warn_at(0).await.is_ok());
}

#[rate_limit(name = "warned-inline", period = "1h", threshold = 5, key = user, warn_at = "80%",
    limiter = limiter)]
async fn call(limiter: &Limiter, user: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn an_annotated_function_warns() {
    let warnings = Warnings::default();
    let limiter = warnings.builder().in_memory();
    for _ in 0..5 {
        call(&limiter, 7).await.unwrap();
    }
    assert_eq!(warnings.left(), [1]);
}

#[rate_limit(name = "warned-dynamic", period = "1h", threshold = calls, key = user, warn_at = "80%",
    limiter = limiter)]
async fn dynamic(limiter: &Limiter, user: u32, calls: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn an_override_of_several_tiers_fails_no_call_and_warns_of_the_fullest() {
    const BY_HAND: Policy = Policy::sliding_window("warned-by-hand", HOUR, 5);
    let warnings = Warnings::default();
    let limiter = warnings.builder().in_memory();
    let several = Override::new().tier(MINUTE, 5).tier(HOUR, 20);
    for name in ["warned-inline", "warned-dynamic", "warned-by-hand"] {
        limiter.overrides().here().set(name, several.clone()).unwrap();
    }
    for _ in 0..5 {
        call(&limiter, 8).await.unwrap();
        dynamic(&limiter, 8, 5).await.unwrap();
        limiter.check(&BY_HAND, "alice").warn_at(80).await.unwrap();
    }
    exceeded(call(&limiter, 8).await);
    assert_eq!(warnings.left(), [1; 3]);
}

/// Under `local(20)` the mark is that of the share, for calls that are decided together too.
#[tokio::test]
async fn a_process_alone_warns_at_the_mark_of_its_share() {
    const ALONE: Policy = Policy::fixed_window("warned-alone", HOUR, 100);
    for is_joint in [false, true] {
        let warnings = Warnings::default();
        let builder = warnings.builder().on_store_error(OnStoreError::local::<20>());
        let limiter = builder.connect_lazy("redis://127.0.0.1:1").unwrap();
        for _ in 0..20 {
            let check = limiter.check(&ALONE, "alice").warn_at(80);
            if is_joint {
                limiter.check_all([check, limiter.check(&ALONE, "bob")]).await.unwrap();
            } else {
                check.await.unwrap();
            }
        }
        warnings.until(1).await;
        assert_eq!(warnings.left(), [4], "{is_joint}");
    }
}
