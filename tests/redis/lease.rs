//! Units on lease: a hot key is decided in memory, a cold one by Redis, and nothing is kept too long.

use std::{
    future::{IntoFuture, poll_fn},
    pin::pin,
    task::Poll,
    thread,
    time::Duration,
};

use harness::{RedisServer, call_at_once, exceeded, heat, patient, unavailable, until};
use ratelimit_runtime::{
    Algorithm, DecidedBy, Limiter, OnStoreError, Override, Policy, UnavailableReason,
    stats::{self, Verdict},
};
use tokio::{
    runtime::Builder,
    time::{Instant, sleep, timeout},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const THRESHOLD: u32 = 8_000;
/// Long, so that no pause of a busy machine ends it.
const LEASE: Duration = Duration::from_secs(5);
const SLIDING: Policy = Policy::sliding_window("hot", MINUTE, THRESHOLD).lease(LEASE);
const KEY: &str = "ratelimit:sliding_window:hot/alice";

async fn on(server: &RedisServer, deadline: Duration) -> Limiter {
    let builder = Limiter::builder().deadline(deadline).on_store_error(OnStoreError::Deny);
    builder.connect(&server.url()).await.unwrap()
}

fn policies() -> [Policy; 4] {
    [
        SLIDING,
        Policy::fixed_window("hot", MINUTE, THRESHOLD).lease(LEASE),
        Policy::sliding_counter("hot", MINUTE, THRESHOLD).lease(LEASE),
        Policy::token_bucket("hot", MINUTE, THRESHOLD).lease(LEASE),
    ]
}

/// Returns the units left, of which none are on lease.
async fn left(limiter: &Limiter, policy: &Policy) -> u32 {
    limiter.peek(policy, "alice").cost(0).await.unwrap().remaining()
}

fn scripts(server: &RedisServer) -> u64 {
    let calls = server.calls();
    ["eval", "evalsha"].iter().filter_map(|name| calls.get(*name)).sum()
}

#[tokio::test]
async fn a_hot_key_is_decided_in_memory_and_what_is_unused_comes_back() {
    let server = RedisServer::start();
    for policy in policies() {
        let limiter = patient(&server.url()).await;
        let mut used = heat(&limiter, &policy).await;
        assert!((4..10).contains(&used), "{used}");
        let before = scripts(&server);
        // The units of the first lease are few, those of the next ones more.
        let mut leased = 0;
        for _ in 0..500 {
            let (answer, is_leased) = call_at_once(&limiter, &policy).await;
            answer.unwrap();
            (used, leased) = (used + 1, leased + u32::from(is_leased));
        }
        assert!(scripts(&server) - before < 12, "{policy:?}");
        assert!(leased > 480, "{policy:?}: {leased}");
        // A direct call sees the units on lease as taken.
        // A bucket holds as much less as is refilled during a lease.
        let is_bucket = policy.algorithm() == Algorithm::TokenBucket;
        let most = if is_bucket { THRESHOLD - THRESHOLD.div_ceil(12) } else { THRESHOLD };
        assert!(left(&limiter, &policy).await < most - used);
        limiter.flush().await.unwrap();
        let now = left(&limiter, &policy).await;
        assert!(now == most - used || is_bucket && now > most - used, "{policy:?}: {now}");
        assert_eq!(limiter.flush().await, Ok(()));
    }
}

#[tokio::test]
async fn a_key_is_cold_again_once_calls_stop() {
    let server = RedisServer::start();
    let policy = SLIDING.lease(SECOND / 20);
    let limiter = patient(&server.url()).await;
    let used = heat(&limiter, &policy).await;
    until("the units that are not used", async || {
        (left(&limiter, &policy).await == THRESHOLD - used).then_some(())
    })
    .await;
    let before = scripts(&server);
    sleep(SECOND / 5).await;
    assert_eq!(scripts(&server), before, "nobody calls");
    assert!(!call_at_once(&limiter, &policy).await.1, "Redis decides");
}

#[tokio::test]
async fn a_lease_is_not_used_after_its_end() {
    let server = RedisServer::start();
    let policy = SLIDING.lease(SECOND / 20);
    let limiter = patient(&server.url()).await;
    let mut hot = heat(&limiter, &policy).await;
    while hot < 50 {
        call_at_once(&limiter, &policy).await.0.unwrap();
        hot += 1;
    }
    // The process stops, with all its tasks, for longer than the lease.
    thread::sleep(SECOND / 10);
    let (answer, is_leased) = call_at_once(&limiter, &policy).await;
    answer.unwrap();
    assert!(!is_leased);
}

#[tokio::test]
async fn a_reset_ends_the_lease_at_once() {
    let server = RedisServer::start();
    for policy in policies() {
        let limiter = patient(&server.url()).await;
        heat(&limiter, &policy).await;
        limiter.reset(&policy, "alice").await.unwrap();
        let (answer, is_leased) = call_at_once(&limiter, &policy).await;
        answer.unwrap();
        assert!(!is_leased, "{policy:?}");
        limiter.flush().await.unwrap();
        // The one unit may have come back meanwhile: a bucket gets one in 7.5 ms, and a window of the clock ends.
        let (now, most) =
            (left(&limiter, &policy).await, left(&limiter, &policy.named("another")).await);
        let is_sliding = policy.algorithm() == Algorithm::SlidingWindow;
        assert!(now + 1 == most || now == most && !is_sliding, "{policy:?}: {now} of {most}");
        limiter.reset(&policy, "alice").await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_state_is_counted_anew_by_the_next_lease() {
    let server = RedisServer::start();
    let policy = SLIDING.lease(SECOND / 20);
    let limiter = patient(&server.url()).await;
    heat(&limiter, &policy).await;
    let () = server.command("FLUSHALL");
    until("units of the new state", async || {
        call_at_once(&limiter, &policy).await.0.unwrap();
        let found: i32 = server.command(&format!("EXISTS {KEY}"));
        (found == 1).then_some(())
    })
    .await;
    limiter.flush().await.unwrap();
    assert!(left(&limiter, &policy).await > THRESHOLD - 200);
}

#[tokio::test]
async fn an_override_leaves_the_lease_alone() {
    let server = RedisServer::start();
    let policy = SLIDING.named("lease: overridden").lease(SECOND / 20);
    let limiter = patient(&server.url()).await;
    let used = heat(&limiter, &policy).await;
    limiter
        .overrides()
        .here()
        .set(policy.name(), Override::new().threshold(THRESHOLD - 1))
        .unwrap();
    let (answer, is_leased) = call_at_once(&limiter, &policy).await;
    assert_eq!((answer.unwrap().threshold(), is_leased), (THRESHOLD - 1, false));
    until("the units that are not used", async || {
        (left(&limiter, &policy).await == THRESHOLD - 2 - used).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lease_outlives_its_server_and_nothing_is_used_after_it() {
    let mut server = RedisServer::start();
    let policy = SLIDING.lease(SECOND);
    let limiter = on(&server, SECOND).await;
    heat(&limiter, &policy).await;
    server.kill();
    let start = Instant::now();
    let reason = loop {
        match call_at_once(&limiter, &policy).await.0 {
            Ok(_) => assert!(start.elapsed() < 3 * SECOND, "the lease never ends"),
            answer => break unavailable(answer),
        }
    };
    assert_ne!(reason, UnavailableReason::StoreError);
    // The fallback decides while Redis cannot.
    let check = limiter.check(&policy, "alice").on_store_error(OnStoreError::Local);
    check.await.unwrap();
    server.restart();
    until("a lease of the new server", async || {
        let (answer, is_leased) = call_at_once(&limiter, &policy).await;
        (answer.is_ok() && is_leased).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_refund_goes_back_to_the_lease_while_it_lasts() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let mut used = heat(&limiter, &SLIDING).await;
    let (first, is_leased) = call_at_once(&limiter, &SLIDING).await;
    let first = first.unwrap();
    let (before, remaining) = (scripts(&server), first.remaining());
    limiter.refund(&first).await.unwrap();
    limiter.refund(&first).await.unwrap();
    assert_eq!((scripts(&server), is_leased), (before, true));
    let (again, _) = call_at_once(&limiter, &SLIDING).await;
    assert_eq!(again.unwrap().remaining(), remaining);
    used += 1;
    // More units than the call has taken are counted by Redis.
    let (more, is_leased) = call_at_once(&limiter, &SLIDING).await;
    let more = more.unwrap();
    assert!(is_leased);
    limiter.settle(&more, 11).await.unwrap();
    limiter.settle(&more, 11).await.unwrap();
    used += 11;
    limiter.flush().await.unwrap();
    assert_eq!(left(&limiter, &SLIDING).await, THRESHOLD - used);
    // After the end of the lease nothing is given back.
    limiter.refund(&first).await.unwrap();
    assert_eq!(left(&limiter, &SLIDING).await, THRESHOLD - used);
}

#[tokio::test]
async fn a_refusal_is_remembered_for_a_lease_and_its_wait_suffices() {
    let server = RedisServer::start();
    let policy = Policy::sliding_window("hot", SECOND, 40).lease(SECOND / 20);
    let limiter = patient(&server.url()).await;
    let call = async || {
        let (answer, _) = call_at_once(&limiter, &policy).await;
        answer.is_err().then(|| exceeded(answer))
    };
    while call().await.is_none() {}
    let start = Instant::now();
    let before = scripts(&server);
    let mut calls = 0;
    let last = loop {
        // On a busy machine a unit is free by now, and this call has taken it.
        let Some(refused) = call().await else { return };
        calls += 1;
        if start.elapsed() > SECOND / 5 {
            break refused;
        }
        sleep(SECOND / 1_000).await;
    };
    assert!(scripts(&server) - before < calls / 2 + 8, "{calls}");
    // The wait of the last one: a call just before the end of an earlier wait is refused for a lease.
    sleep(last.retry_after()).await;
    assert_eq!(call().await.map(|refused| refused.retry_after()), None);
}

#[tokio::test]
async fn calls_that_are_dropped_while_they_wait_leave_nothing_behind() {
    let server = RedisServer::start();
    let policy = SLIDING.lease(SECOND / 20);
    let limiter = patient(&server.url()).await;
    for _ in 0..200 {
        let mut check = pin!(limiter.check(&policy, "alice").into_future());
        let polls = fastrand::usize(..4);
        for _ in 0..polls {
            let polled = poll_fn(|context| Poll::Ready(check.as_mut().poll(context))).await;
            if polled.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    limiter.flush().await.unwrap();
    let before = scripts(&server);
    sleep(SECOND / 5).await;
    assert_eq!(scripts(&server), before, "nobody waits");
    let demands: i32 =
        server.command("EXISTS ratelimit:sliding_window:{ratelimit:sliding_window:hot/alice}:l");
    assert_eq!(demands, 0);
}

#[test]
fn a_lease_outlives_the_runtime_that_took_it() {
    let server = RedisServer::start();
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let limiter = first.block_on(async {
        let limiter = patient(&server.url()).await;
        heat(&limiter, &SLIDING).await;
        limiter
    });
    drop(first);
    runtime().block_on(async {
        assert!(call_at_once(&limiter, &SLIDING).await.1);
        limiter.flush().await.unwrap();
    });
}

#[test]
fn a_runtime_at_a_standstill_keeps_no_other_from_its_keys() {
    let server = RedisServer::start();
    let policy = SLIDING.lease(SECOND / 20);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let limiter = runtime.block_on(on(&server, SECOND));
    let stalled = Builder::new_current_thread().enable_all().build().unwrap();
    stalled.block_on(heat(&limiter, &policy));
    thread::sleep(SECOND / 10);
    runtime.block_on(async {
        for _ in 0..3 {
            call_at_once(&limiter, &policy).await.0.unwrap();
        }
        heat(&limiter, &policy).await;
    });
    drop(stalled);
}

#[tokio::test]
async fn a_refund_moves_no_waiting_call_past_units_on_lease() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let direct = Policy::sliding_window("hot", MINUTE, 800);
    let leased = direct.lease(LEASE);
    let take = async |cost| limiter.check(&direct, "alice").cost(cost).await.unwrap();
    take(400).await;
    // As if it had been taken long ago. It leaves the window before the lease ends.
    let leaves = Instant::now() + LEASE - SECOND;
    let (now, _): (u64, u64) = server.command("TIME");
    let [old]: [String; 1] = server.command(&format!("ZRANGE {KEY} -1 -1"));
    let () = server.command(&format!("ZADD {KEY} {} {old}", (now - 56) * 1_000_000));
    let mut used = heat(&limiter, &leased).await;
    for _ in 0..40 {
        call_at_once(&limiter, &leased).await.0.unwrap();
        used += 1;
    }
    let refunded = [take(5).await, take(5).await];
    let rest = left(&limiter, &direct).await;
    take(rest).await;
    let waiting = {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check(&direct, "alice").cost(6).max_wait(MINUTE).await })
    };
    until("a call that waits", async || {
        let line_end: Option<String> = server.command(&format!("ZSCORE {KEY} >"));
        line_end.map(drop)
    })
    .await;
    let before = server.calls()["evalsha"];
    limiter.refund(&refunded[0]).await.unwrap();
    until("the settle and the advance", async || {
        (server.calls()["evalsha"] >= before + 2).then_some(())
    })
    .await;
    let _ = limiter.peek(&direct, "alice").await;
    let passed = waiting.is_finished() && Instant::now() < leaves;
    while let (Ok(_), true) = call_at_once(&limiter, &leased).await {
        used += 1;
    }
    let total = 400 + used + 5 + rest + if passed { 6 } else { 0 };
    assert!(!passed && total <= 800, "{total} of 800 units");
    limiter.refund(&refunded[1]).await.unwrap();
    timeout(20 * SECOND, waiting).await.expect("room for the call").unwrap().unwrap();
}

#[tokio::test]
async fn decisions_by_units_on_lease_are_told_as_such() {
    let server = RedisServer::start();
    let policy = SLIDING.named("lease: told");
    let limiter = patient(&server.url()).await;
    heat(&limiter, &policy).await;
    let (answer, _) = call_at_once(&limiter, &policy).await;
    let decision = answer.unwrap();
    assert_eq!((decision.threshold(), decision.period()), (THRESHOLD, MINUTE));
    assert!(decision.remaining() < THRESHOLD && decision.remaining() > THRESHOLD / 2);
    assert!(decision.reset_after() >= MINUTE, "{decision:?}");
    let found = stats::snapshot().into_iter().find(|it| it.name() == policy.name()).unwrap();
    assert!(found.calls(Verdict::Admitted, DecidedBy::Lease) >= 1);
    assert!(found.calls(Verdict::Admitted, DecidedBy::Store) >= 3);
}
