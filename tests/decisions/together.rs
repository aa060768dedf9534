//! Checks that are decided together: all are admitted, or what was taken is given back.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::mpsc,
    task::Poll,
    time::Duration,
};

use harness::{RedisServer, exceeded, on_each_store, until};
use ratelimit_runtime::{Enforcement, Limiter, Override, Policy, RateLimitError};

const MINUTE: Duration = Duration::from_secs(60);
const USER: Policy = Policy::sliding_window("together-user", MINUTE, 10);
const TENANT: Policy = Policy::token_bucket("together-tenant", MINUTE, 3);
const ALL: Policy = Policy::fixed_window("together-all", MINUTE, 5);

async fn left(limiter: &Limiter, policy: &Policy, caller: &str) -> u32 {
    limiter.peek(policy, caller).cost(0).await.unwrap().remaining()
}

#[tokio::test]
async fn none_takes_anything_if_one_is_refused() {
    on_each_store(async |limiter| {
        let checks = |cost| {
            [
                limiter.check(&USER, "alice"),
                limiter.check(&TENANT, "acme").cost(cost),
                limiter.check(&ALL, "all").cost(2),
            ]
        };
        let [user, tenant, all] = limiter.check_all(checks(1)).await.unwrap();
        assert_eq!((user.policy(), user.remaining()), ("together-user", 9));
        assert_eq!((tenant.remaining(), all.remaining()), (2, 3));
        assert!(user.is_counted() && tenant.is_counted() && all.is_counted());
        // The second and the last refuse in turn, remembered or not.
        for _ in 0..3 {
            assert_eq!(exceeded(limiter.check_all(checks(3)).await).policy(), "together-tenant");
        }
        limiter.check_all(checks(1)).await.unwrap();
        for _ in 0..3 {
            assert_eq!(exceeded(limiter.check_all(checks(1)).await).policy(), "together-all");
        }
        assert_eq!(left(limiter, &USER, "alice").await, 8);
        assert_eq!(left(limiter, &TENANT, "acme").await, 1);
        assert_eq!(limiter.check_all([]).await.unwrap().len(), 0);
    })
    .await;
}

#[tokio::test]
async fn what_no_store_counted_is_not_given_back() {
    on_each_store(async |limiter| {
        limiter.check(&ALL, "all").cost(5).await.unwrap();
        let free = || limiter.check(&USER, "alice").cost(0);
        let id = || limiter.check(&USER, "bob").request_id(7);
        for _ in 0..2 {
            let checks = [free(), id(), limiter.check(&ALL, "all")];
            assert_eq!(exceeded(limiter.check_all(checks).await).policy(), "together-all");
        }
        // An id keeps its charge, which may be that of a call that ran.
        let charged = 10 - left(limiter, &USER, "bob").await;
        assert!(charged <= 1, "{charged} charges of one id");
        limiter
            .overrides()
            .here()
            .set("together-all", Override::new().enforcement(Enforcement::Off))
            .unwrap();
        limiter.check_all([free(), id(), limiter.check(&ALL, "all")]).await.unwrap();
        assert_eq!(left(limiter, &USER, "bob").await, 9);
        limiter.overrides().here().remove("together-all");
    })
    .await;
}

#[tokio::test]
async fn one_of_them_may_wait_and_is_asked_first() {
    let limiter = Limiter::in_memory();
    let wait = || limiter.check(&ALL, "all").max_wait(MINUTE);
    let two = [wait(), limiter.check(&USER, "alice"), wait()];
    let Err(RateLimitError::InvalidPolicy(error)) = limiter.check_all(two).await else {
        panic!("two that wait")
    };
    assert!(error.fault().to_string().contains("one of several calls"), "{error}");
    tokio::time::pause();
    limiter.check(&ALL, "all").cost(5).await.unwrap();
    let mut both = pin!(limiter.check_all([limiter.check(&USER, "alice"), wait()]));
    assert!(tokio::time::timeout(MINUTE / 2, &mut both).await.is_err());
    assert_eq!(left(&limiter, &USER, "alice").await, 10);
    let [user, _] = both.await.unwrap();
    assert_eq!(user.remaining(), 9);
}

#[tokio::test]
async fn a_remembered_refusal_costs_no_command_and_the_longest_wait_is_told() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let long = Policy::sliding_window("together-long", 60 * MINUTE, 1);
    let checks = || {
        [limiter.check(&USER, "alice"), limiter.check(&ALL, "all"), limiter.check(&long, "alice")]
    };
    limiter.check_all(checks()).await.unwrap();
    limiter.check(&ALL, "all").cost(4).await.unwrap();
    // Each is remembered by its own refusal.
    exceeded(limiter.check(&ALL, "all").await);
    exceeded(limiter.check(&long, "alice").await);
    let before = server.calls()["evalsha"];
    for _ in 0..10 {
        assert_eq!(exceeded(limiter.check_all(checks()).await).policy(), "together-long");
    }
    let sent = server.calls()["evalsha"] - before;
    assert!(sent <= 2, "{sent} commands for refusals that are remembered");
    assert_eq!(left(&limiter, &USER, "alice").await, 9);
}

#[tokio::test]
async fn a_dropped_future_gives_back_what_it_has_taken() {
    let server = RedisServer::start();
    let (limiter, other) = (server.limiter().await, server.limiter().await);
    let mut dropped = 0;
    for attempt in 0..50 {
        let caller = format!("user-{attempt}");
        let mut both = Box::pin(
            limiter.check_all([limiter.check(&USER, &*caller), limiter.check(&ALL, &*caller)]),
        );
        // Polled until the second one is on the server; its answer is not read.
        let is_done = until("the second charge", async || {
            let polled = poll_fn(|context| Poll::Ready(both.as_mut().poll(context))).await;
            if polled.is_ready() {
                return Some(true);
            }
            (left(&other, &ALL, &caller).await < 5).then_some(false)
        })
        .await;
        if is_done {
            continue;
        }
        drop(both);
        dropped += 1;
        until("the first charge comes back", async || {
            (left(&other, &USER, &caller).await == 10).then_some(())
        })
        .await;
    }
    assert!(dropped > 0, "no future was dropped between two answers");
}

#[tokio::test(start_paused = true)]
async fn the_fullest_tier_of_an_override_warns_as_of_a_call_alone() {
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    let tiered = Policy::sliding_window("warned-tiered", hour, 5);
    let beside = Policy::fixed_window("warned-beside", hour, 100);
    for is_joint in [false, true] {
        let (warned, left) = mpsc::channel();
        let builder = Limiter::builder()
            .on_warning(move |warning| warned.send(warning.decision().remaining()).unwrap());
        let limiter = builder.in_memory();
        let several = Override::new().tier(minute, 6).tier(hour, 20);
        limiter.overrides().here().set("warned-tiered", several).unwrap();
        for call in 0..16 {
            if call > 0 && call % 3 == 0 {
                tokio::time::advance(2 * minute).await;
            }
            let check = limiter.check(&tiered, "alice").warn_at(80);
            if is_joint {
                limiter.check_all([check, limiter.check(&beside, "alice")]).await.unwrap();
            } else {
                check.await.unwrap();
            }
        }
        // 16 of the hour's 20, and one of the minute's six.
        assert_eq!(left.try_iter().collect::<Vec<_>>(), [4], "{is_joint}");
    }
}
