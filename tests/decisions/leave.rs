//! Calls that leave a share of their limit to others, in every algorithm and on each store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use harness::{exceeded, on_each_store};
use ratelimit_runtime::{
    Decision, Enforcement, Limiter, Override, Policy, RateLimitError, TooLarge, rate_limit,
};
use tokio::time::{Instant, sleep};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// One policy of each algorithm, of a hundred units an hour.
fn policies() -> [Policy; 4] {
    let hour = 60 * MINUTE;
    [
        Policy::sliding_window("leave-log", hour, 100),
        Policy::sliding_counter("leave-counter", hour, 100),
        Policy::fixed_window("leave-fixed", hour, 100),
        Policy::token_bucket("leave-bucket", hour, 100),
    ]
}

fn too_large<T: std::fmt::Debug>(answer: Result<T, RateLimitError>) -> TooLarge {
    match answer {
        Err(RateLimitError::TooLarge(error)) => error,
        other => panic!("expected a call that never passes, got {other:?}"),
    }
}

fn invalid<T: std::fmt::Debug>(answer: Result<T, RateLimitError>) -> String {
    match answer {
        Err(RateLimitError::InvalidPolicy(error)) => error.fault().to_string(),
        other => panic!("expected an invalid policy, got {other:?}"),
    }
}

#[tokio::test]
async fn a_flood_of_calls_that_leave_a_fifth_refuses_none_of_the_others() {
    for policy in policies() {
        on_each_store(async |limiter| {
            let (mut low, mut used) = (0, 0);
            for call in 0..400 {
                if let Ok(decision) = limiter.check(&policy, "alice").leave(20).await {
                    (low, used) = (low + 1, used + 1);
                    // A bucket may have got a token back.
                    assert!(used <= 81, "{policy:?} admits {used}");
                    assert!(decision.remaining() < 80 && decision.quota() == 80);
                }
                if call % 20 == 0 && call < 380 {
                    used += 1;
                    let decision = limiter.check(&policy, "alice").await;
                    assert!(decision.is_ok(), "{policy:?} refuses an important call: {decision:?}");
                }
            }
            assert!((61..=82).contains(&low), "{low} under {policy:?}");
            let peeked = limiter.peek(&policy, "alice").leave(20).await;
            assert_eq!(exceeded(peeked).quota(), 80);
            // Others may use all of it.
            let left = limiter.peek(&policy, "alice").cost(0).await.unwrap().remaining();
            limiter.check(&policy, "alice").cost(left).await.unwrap();
            exceeded(limiter.check(&policy, "alice").await);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_emptied_bucket_admits_no_such_call_before_its_share_is_back() {
    const POLICY: Policy = Policy::token_bucket("leave-refill", Duration::from_secs(10), 10);
    let limiter = Limiter::in_memory();
    limiter.check(&POLICY, "alice").cost(10).await.unwrap();
    let check = async |cost| limiter.check(&POLICY, "alice").cost(cost).leave(15).await;
    // Two tokens stay, rounded up.
    let refused = exceeded(check(3).await);
    assert_eq!(refused.retry_after(), 5 * SECOND);
    assert_eq!((refused.threshold(), refused.quota(), refused.remaining()), (10, 8, 0));
    let micro = Duration::from_micros(1);
    tokio::time::advance(Duration::from_micros(4_999_999)).await;
    assert_eq!(exceeded(check(3).await).retry_after(), micro);
    tokio::time::advance(micro).await;
    let decision = check(3).await.unwrap();
    assert_eq!((decision.remaining(), decision.replenish_after()), (0, SECOND));
    limiter.check(&POLICY, "alice").cost(2).await.unwrap();
}

#[tokio::test]
async fn each_tier_keeps_its_own_share() {
    on_each_store(async |limiter| {
        for new in [Policy::sliding_window, Policy::sliding_counter, Policy::token_bucket] {
            let policy = new("leave-tiers", MINUTE, 5).tier(60 * MINUTE, 20);
            let check = limiter.check(&policy, "alice").leave(50);
            let decision = check.await.unwrap();
            assert_eq!((decision.remaining(), decision.quota()), (1, 2));
            limiter.check(&policy, "alice").leave(50).await.unwrap();
            exceeded(limiter.check(&policy, "alice").leave(50).await);
            limiter.check(&policy, "alice").cost(3).await.unwrap();
            limiter.reset(&policy, "alice").await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_share_of_the_calls_in_flight_is_left() {
    for policy in [
        Policy::concurrency_limit("leave-flight", 5),
        Policy::fixed_window("leave-both", 60 * MINUTE, 100).concurrency(5),
    ] {
        on_each_store(async |limiter| {
            let mut held: Vec<Decision> = Vec::new();
            for _ in 0..4 {
                held.push(limiter.check(&policy, "alice").leave(20).await.unwrap());
            }
            let busy = limiter.check(&policy, "alice").leave(20).await.unwrap_err();
            let text = format!("rate limit `{}` is busy: at most 4 in flight", policy.name());
            assert_eq!(busy.to_string(), text);
            held.push(limiter.check(&policy, "alice").await.unwrap());
            assert!(matches!(limiter.check(&policy, "alice").await, Err(RateLimitError::Busy(_))));
        })
        .await;
    }
}

#[tokio::test]
async fn a_call_that_leaves_all_never_passes() {
    const FEW: Policy = Policy::fixed_window("leave-few", MINUTE, 3);
    on_each_store(async |limiter| {
        let check = |cost, leave| limiter.check(&FEW, "alice").cost(cost).leave(leave);
        for (leave, fault) in [
            (67, "`leave` is 67 %, rounded up all of 3: no call could ever pass"),
            (100, "`leave` must be at most 99 %, but is 100 %"),
        ] {
            let error = too_large(check(1, leave).await);
            assert_eq!(error.fault().to_string(), fault);
            let text = format!("rate limit `leave-few` admits nothing: a call leaves {leave} %");
            assert_eq!((error.to_string(), error.threshold()), (text, 0));
        }
        let error = too_large(check(2, 66).await);
        assert_eq!(
            error.to_string(),
            "rate limit `leave-few` never admits 2 units at once: at most 1 per 60s"
        );
        assert!(check(0, 100).await.is_ok() && too_large(check(1, u32::MAX).await).cost() == 1);
        let permits = Policy::concurrency_limit("leave-permit", 1);
        too_large(limiter.check(&permits, "alice").leave(1).await);
        let bucket = Policy::token_bucket("leave-burst", MINUTE, 100).burst(1);
        too_large(limiter.check(&bucket, "alice").leave(1).await);
        assert_eq!(check(1, 66).await.unwrap().remaining(), 0);
    })
    .await;
}

#[tokio::test]
async fn what_would_use_up_the_share_is_invalid() {
    let limiter = Limiter::in_memory();
    let second = Policy::fixed_window("leave-second", SECOND, 1_000);
    let leased = second.lease(Duration::from_millis(20));
    assert_eq!(
        invalid(limiter.check(&leased, "alice").leave(20).await),
        "`leave` needs the store at each call, and under `lease` a process decides without it; remove \
         one of them"
    );
    let waits = limiter.check(&second, "alice").max_wait(SECOND).leave(20).await;
    assert!(invalid(waits).starts_with("`leave` does not go with `max_wait`: a turn in a line"));
    let penal = Policy::sliding_window("leave-penal", SECOND, 10).count_rejected();
    let counted = limiter.check(&penal, "alice").leave(20).await;
    assert!(
        invalid(counted).starts_with("`leave` does not go with `count_rejected`: refused calls")
    );
}

#[tokio::test]
async fn an_override_has_the_share_of_its_own_threshold() {
    const POLICY: Policy = Policy::sliding_window("leave-overridden", MINUTE, 100);
    let limiter = Limiter::in_memory();
    let set = |what| limiter.overrides().here().set("leave-overridden", what).unwrap();
    set(Override::new().threshold(10));
    for _ in 0..8 {
        limiter.check(&POLICY, "alice").leave(20).await.unwrap();
    }
    assert_eq!(exceeded(limiter.check(&POLICY, "alice").leave(20).await).threshold(), 8);
    limiter.check(&POLICY, "alice").cost(2).await.unwrap();
    for (enforcement, is_dry_run) in [(Enforcement::DryRun, true), (Enforcement::Off, false)] {
        set(Override::new().threshold(10).enforcement(enforcement));
        let passed = limiter.check(&POLICY, "alice").leave(20).await.unwrap();
        assert_eq!((passed.is_dry_run(), passed.quota()), (is_dry_run, 8));
    }
}

#[tokio::test]
async fn settles_and_joint_checks_count_as_without_a_share() {
    for policy in policies() {
        on_each_store(async |limiter| {
            let low = |cost| limiter.check(&policy, "alice").cost(cost).leave(20);
            let [first, other] =
                limiter.check_all([low(50), limiter.check(&policy, "bob")]).await.unwrap();
            assert_eq!((first.remaining(), other.remaining()), (30, 99));
            exceeded(limiter.check_all([limiter.check(&policy, "bob"), low(31)]).await);
            limiter.refund(&first).await.unwrap();
            assert_eq!(low(80).await.unwrap().remaining(), 0);
            let left = |caller| limiter.peek(&policy, caller).cost(0);
            assert_eq!(left("alice").await.unwrap().remaining(), 20);
            assert_eq!(left("bob").await.unwrap().remaining(), 99);
        })
        .await;
    }
}

#[rate_limit(name = "leave-inline", threshold = 10, key = user, leave = "20%", limiter = limiter)]
async fn crawl(limiter: &Limiter, user: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "leave-inline", threshold = 10, key = user, limiter = limiter,
    leave = if is_batch { 50_u64 } else { 0 })]
async fn search(limiter: &Limiter, user: u32, is_batch: bool) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn an_annotated_function_leaves_a_share_by_a_literal_or_an_expression() {
    on_each_store(async |limiter| {
        for used in 0..10 {
            if used < 5 {
                search(limiter, 1, true).await.unwrap();
                continue;
            }
            assert_eq!(exceeded(search(limiter, 1, true).await).threshold(), 5);
            if used < 8 {
                crawl(limiter, 1).await.unwrap();
                continue;
            }
            assert_eq!(exceeded(crawl(limiter, 1).await).threshold(), 8);
            search(limiter, 1, false).await.unwrap();
        }
        assert_eq!(exceeded(search(limiter, 1, false).await).threshold(), 10);
    })
    .await;
}

/// Returns the shares of polite calls that a budget admits, and of the budget that is used. One tenant calls far
/// too often, and `polite` tenants call four times a second.
async fn shared_budget(leave: u32, polite: u32) -> (f64, f64) {
    const BUDGET: Policy = Policy::sliding_window("budget", Duration::from_secs(10), 1_000);
    const SHARE: Policy = Policy::sliding_window("share", Duration::from_secs(10), 100);
    let limiter = Limiter::in_memory();
    let (mut asked, mut admitted, mut all) = (0_u32, 0_u32, 0_u32);
    for millis in 0..60_000_u32 {
        let is_counted = millis >= 20_000;
        for tenant in 0..=polite {
            let rate = if tenant == 0 { 500 } else { 4 };
            if !(millis + 97 * tenant).is_multiple_of(1_000 / rate) {
                continue;
            }
            let own = limiter.check(&SHARE, tenant).await;
            let share = if own.is_ok() { 0 } else { leave };
            let passed = limiter.check(&BUDGET, "all").leave(share).await;
            if let (Ok(own), Err(_)) = (&own, &passed) {
                own.settle(0);
            }
            all += u32::from(is_counted && passed.is_ok());
            if is_counted && tenant > 0 {
                asked += 1;
                admitted += u32::from(passed.is_ok());
            }
        }
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    (f64::from(admitted) / f64::from(asked.max(1)), f64::from(all) / 4_000.)
}

#[tokio::test(start_paused = true)]
async fn who_is_beyond_its_share_leaves_a_tenth_of_the_budget_to_the_others() {
    let (without, _) = shared_budget(0, 9).await;
    let (with, used) = shared_budget(10, 9).await;
    assert!(without < 0.5 && with > 0.95, "{without} and {with}");
    // The price: a tenth of the budget is unused where the others do not need it.
    assert!((0.9..=0.95).contains(&used), "{used}");
    let (_, alone) = shared_budget(10, 0).await;
    assert!((0.89..=0.91).contains(&alone), "{alone}");
}

/// The recipe for interactive calls beside a batch, which asks a hundred times a second.
#[tokio::test(start_paused = true)]
async fn interactive_calls_wait_for_no_batch_that_leaves_them_a_share() {
    const MODEL: Policy = Policy::sliding_window("model", SECOND, 10);
    for leave in [20, 0] {
        let (limiter, done) = (Limiter::in_memory(), Arc::new(AtomicU32::new(0)));
        let (asked, counted) = (limiter.clone(), Arc::clone(&done));
        let batch = tokio::spawn(async move {
            loop {
                let admitted = asked.check(&MODEL, "all").leave(leave).await.is_ok();
                counted.fetch_add(admitted.into(), Ordering::Relaxed);
                sleep(SECOND / 100).await;
            }
        });
        let ask =
            async || limiter.check(&MODEL, "all").max_wait(10 * SECOND).await.unwrap().waited();
        let mut waits = Vec::new();
        for _ in 0..20 {
            sleep(SECOND / 2).await;
            waits.push(ask().await);
        }
        let longest = waits.into_iter().max().unwrap();
        assert_eq!(longest.is_zero(), leave == 20, "{longest:?}");
        // Six a second beside two, and two that are left.
        let before = done.load(Ordering::Relaxed);
        assert!(leave == 0 || (60..=68).contains(&before), "{before}");

        // A crowd is served as if there were no batch, once what that has taken is over.
        let start = Instant::now();
        join_all((0..30).map(|_| ask())).await;
        assert!(start.elapsed() <= 3 * SECOND, "{:?}", start.elapsed());
        assert_eq!(done.load(Ordering::Relaxed), before);
        sleep(2 * SECOND).await;
        assert!(done.load(Ordering::Relaxed) > before + 8);
        batch.abort();
    }
}
