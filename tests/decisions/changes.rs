//! Counted units stay counted under another policy, under an override and after it, and through refunds.

use std::time::Duration;

use harness::{RedisServer, on_each_store};
use ratelimit_runtime::{Limiter, Override, Policy};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

type New = fn(&'static str, Duration, u32) -> Policy;

const ALGORITHMS: [New; 4] =
    [Policy::sliding_window, Policy::sliding_counter, Policy::fixed_window, Policy::token_bucket];

async fn left(limiter: &Limiter, policy: &Policy) -> u32 {
    limiter.peek(policy, "alice").cost(0).await.unwrap().remaining()
}

/// As in a deploy that changes the limit, while processes of both versions decide.
#[tokio::test]
async fn policies_that_take_turns_admit_no_more_than_the_larger_one() {
    on_each_store(async |limiter| {
        for make in ALGORITHMS {
            for (name, before, after) in [
                ("period", make("period", HOUR, 10), make("period", HOUR * 2, 10)),
                ("added", make("added", HOUR, 10), make("added", HOUR, 10).tier(MINUTE * 20, 6)),
                (
                    "order",
                    make("order", HOUR, 10).tier(HOUR * 24, 12),
                    make("order", HOUR * 24, 12).tier(HOUR, 10),
                ),
                ("both", make("both", HOUR, 4), make("both", HOUR * 3, 10)),
            ] {
                let mut admitted = 0;
                for call in 0..200 {
                    let policy = if call % 3 == 0 { &before } else { &after };
                    admitted += u32::from(limiter.check(policy, "alice").await.is_ok());
                }
                assert!((4..=10).contains(&admitted), "{name}: {admitted} under {before:?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_key_lasts_as_long_as_the_longest_period_that_counts_on_it() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    for make in ALGORITHMS {
        let (long, short) = (make("lasts", HOUR, 10), make("lasts", MINUTE, 10));
        limiter.check(&long, "alice").cost(5).await.unwrap();
        limiter.check(&short, "alice").cost(5).await.unwrap();
        let key = format!("ratelimit:{}:lasts/alice", long.algorithm().as_str());
        let ttl: u64 = server.command(&format!("PTTL {key}"));
        let least = if long.algorithm().as_str() == "fixed_window" { 3_500_000 } else { 1_700_000 };
        assert!(ttl > least, "{ttl} under {long:?}");
        limiter.check(&long, "alice").await.unwrap_err();
    }
}

#[tokio::test]
async fn a_refund_after_a_reset_takes_no_units_of_later_calls() {
    on_each_store(async |limiter| {
        for make in ALGORITHMS {
            let policy = make("reset", HOUR, 10);
            let first = limiter.check(&policy, "alice").cost(4).await.unwrap();
            limiter.reset(&policy, "alice").await.unwrap();
            limiter.check(&policy, "alice").cost(9).await.unwrap();
            limiter.refund(&first).await.unwrap();
            assert_eq!(left(limiter, &policy).await, 1, "{policy:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_refund_under_another_policy_returns_its_own_units() {
    on_each_store(async |limiter| {
        for make in ALGORITHMS {
            let (long, short) = (make("other", HOUR, 10), make("other", HOUR / 2, 10));
            let first = limiter.check(&long, "alice").cost(4).await.unwrap();
            limiter.check(&short, "alice").cost(5).await.unwrap();
            limiter.refund(&first).await.unwrap();
            for policy in [&long, &short] {
                assert_eq!(left(limiter, policy).await, 5, "{policy:?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_id_that_was_charged_again_is_not_refunded_by_the_first_charge() {
    on_each_store(async |limiter| {
        let policy = Policy::sliding_window("again", HOUR, 10);
        let job = || limiter.check(&policy, "alice").cost(2).request_id("job");
        let first = job().await.unwrap();
        limiter.reset(&policy, "alice").await.unwrap();
        let second = job().await.unwrap();
        limiter.refund(&first).await.unwrap();
        assert_eq!(left(limiter, &policy).await, 8);
        limiter.refund(&second).await.unwrap();
        assert_eq!(left(limiter, &policy).await, 10);
    })
    .await;
}

#[tokio::test]
async fn a_removed_override_leaves_the_history_complete() {
    on_each_store(async |limiter| {
        for make in ALGORITHMS {
            let policy = make("eased", HOUR, 20);
            let brief = Override::new().threshold(2).period(Duration::from_millis(40));
            limiter.overrides().here().set("eased", brief).unwrap();
            for _ in 0..16 {
                let request = limiter.check(&policy, "alice").max_wait(MINUTE);
                request.await.unwrap();
            }
            limiter.overrides().here().remove("eased");
            assert_eq!(left(limiter, &policy).await, 4, "{policy:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn penalties_under_a_lowered_threshold_count_alike_in_both_stores() {
    on_each_store(async |limiter| {
        for make in [Policy::sliding_window, Policy::sliding_counter] {
            let wide = make("penalty", HOUR * 24 * 300, 1_000).count_rejected();
            let narrow = make("penalty", HOUR * 24 * 300, 10).count_rejected();
            limiter.check(&wide, "alice").cost(900).await.unwrap();
            for _ in 0..3 {
                limiter.check(&narrow, "alice").await.unwrap_err();
            }
            let left = left(limiter, &wide).await;
            // A log records each refused call; a counter does so up to the threshold.
            let recorded = if wide.algorithm().as_str() == "sliding_window" { 3 } else { 0 };
            assert_eq!(left, 100 - recorded, "{wide:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_peek_with_an_id_answers_as_the_call_would() {
    on_each_store(async |limiter| {
        let policy = Policy::sliding_window("look", HOUR, 3);
        let job = |id: u32| limiter.check(&policy, "alice").cost(2).request_id(id);
        let peek = |id: u32| limiter.peek(&policy, "alice").cost(2).request_id(id);
        job(1).await.unwrap();
        assert_eq!(peek(1).await.unwrap().remaining(), 1);
        // There is no room for another call, which has not been charged.
        peek(2).await.unwrap_err();
        assert_eq!(peek(1).await.unwrap().remaining(), 1);
        assert_eq!(left(limiter, &policy).await, 1);
        // Other algorithms store no ids, which holds for a peek as well.
        let counter = Policy::sliding_counter("look", HOUR, 3);
        limiter.peek(&counter, "alice").request_id(1).await.unwrap_err();
    })
    .await;
}
