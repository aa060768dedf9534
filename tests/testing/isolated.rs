//! Each test has a limiter of its own.

use harness::RedisServer;
use ratelimit_runtime::{Limiter, OnStoreError, RateLimitError, limiter, testing};

use super::{failure_of, report};

async fn exhausts() {
    for _ in 0..2 {
        report("alice").await.unwrap();
    }
    report("alice").await.unwrap_err();
}

#[tokio::test]
async fn tests_share_no_counts_with_others_and_with_the_installed_limiter() {
    testing::isolated(exhausts()).await;
    testing::isolated(async {
        exhausts().await;
        // One inside another has counts of its own, too.
        testing::isolated(exhausts()).await;
        report("alice").await.unwrap_err();
        let usage = limiter().usage("report", "alice").await.unwrap();
        assert_eq!(usage.tiers()[0].remaining(), 0);
    })
    .await;
    let usage = limiter().usage("report", "alice").await.unwrap();
    assert_eq!(usage.tiers()[0].remaining(), 2);
}

#[tokio::test]
async fn a_spawned_task_is_inside_if_its_future_is_wrapped_too() {
    testing::isolated(async {
        exhausts().await;
        let outside = tokio::spawn(async { limiter().usage("report", "alice").await });
        assert_eq!(outside.await.unwrap().unwrap().tiers()[0].remaining(), 2);
        tokio::spawn(testing::isolated(exhausts())).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_test_brings_a_limiter_whose_store_does_not_answer() {
    let builder = Limiter::builder().on_store_error(OnStoreError::Deny);
    let lost = builder.connect_lazy("redis://127.0.0.1:1/").unwrap();
    let answer = testing::isolated_with(lost, report("alice")).await;
    assert!(matches!(answer, Err(RateLimitError::Unavailable(_))), "{answer:?}");
}

#[tokio::test]
async fn limiters_on_one_redis_share_no_key() {
    let server = RedisServer::start();
    for _ in 0..2 {
        let limiter = testing::on_redis(&server.url()).await;
        testing::isolated_with(limiter, exhausts()).await;
    }
    let keys = server.keys();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(keys.iter().all(|key| key.starts_with("test-")), "{keys:?}");
    let failure = failure_of(async {
        testing::on_redis("redis://127.0.0.1:1/").await;
    });
    let failure = failure.await;
    assert!(failure.contains("start the server before the tests"), "{failure}");
}
