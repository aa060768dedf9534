//! A caller whose key has expired is as one without calls, in memory as on Redis, also under an override with a
//! longer period.

use std::time::Duration;

use harness::{Clock, uncached};
use ratelimit_runtime::{Limiter, Override, Policy};
use tokio::runtime::Builder;

const SECOND: Duration = Duration::from_secs(1);

type New = fn(&'static str, Duration, u32) -> Policy;

const ALGORITHMS: [New; 3] = [Policy::sliding_window, Policy::fixed_window, Policy::token_bucket];

/// Returns the units that each call leaves, none if it is refused. The clock moves to a second by `move_to`.
async fn history(
    limiter: &Limiter,
    policy: &Policy,
    move_to: &mut impl AsyncFnMut(u64),
) -> Vec<Option<u32>> {
    let take = async || Some(limiter.check(policy, "alice").await.ok()?.remaining());
    let lasts = |seconds| {
        let period = Override::new().period(seconds * SECOND);
        limiter.overrides().here().set(policy.name(), period).unwrap();
    };
    let mut left = vec![take().await];
    // The key has expired after 11 seconds.
    move_to(15).await;
    lasts(3_600);
    left.extend([take().await, take().await, take().await]);
    // A key lasts for the longest period that has written to it.
    limiter.overrides().here().remove(policy.name());
    move_to(1_800).await;
    left.push(take().await);
    move_to(1_815).await;
    lasts(3_600);
    left.push(take().await);
    move_to(5_500).await;
    lasts(7_200);
    left.extend([take().await, take().await, take().await]);
    left
}

#[test]
fn both_stores_forget_the_same_calls() {
    let paused = || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let running = Builder::new_current_thread().enable_all().build().unwrap();
    for make in ALGORITHMS {
        let policy = make("forgotten", 10 * SECOND, 2);
        let in_memory = paused().block_on(async {
            let start = tokio::time::Instant::now();
            let mut move_to = async |second: u64| {
                let until = start + Duration::from_secs(second);
                tokio::time::advance(until.duration_since(tokio::time::Instant::now())).await;
            };
            history(&Limiter::in_memory(), &policy, &mut move_to).await
        });
        let on_redis = running.block_on(async {
            let clock = Clock::new();
            let server = clock.server(&[]);
            let mut move_to = async |second: u64| {
                clock.step(&server, i64::try_from(second * 1_000).unwrap());
            };
            history(&uncached(&server.url()).await, &policy, &mut move_to).await
        });
        assert_eq!(in_memory, on_redis, "{policy:?}");
        let start = [Some(1), Some(1), Some(0), None];
        assert_eq!(in_memory[..4], start, "{policy:?}");
        assert_eq!(in_memory[6..], start[1..], "{policy:?}");
    }
}

/// Redis counts in milliseconds, so its moment is at most two of them earlier. The others have nothing to forget then.
#[tokio::test(start_paused = true)]
async fn a_key_in_memory_is_forgotten_a_second_after_its_window() {
    for make in ALGORITHMS.into_iter().take(1) {
        for (late, left) in [(Duration::from_micros(1), 0), (Duration::ZERO, 1)] {
            let (limiter, policy) = (Limiter::in_memory(), make("forgotten", 10 * SECOND, 2));
            limiter.check(&policy, "alice").await.unwrap();
            tokio::time::advance((11 * SECOND).saturating_sub(late)).await;
            limiter
                .overrides()
                .here()
                .set("forgotten", Override::new().period(60 * SECOND))
                .unwrap();
            let peeked = limiter.peek(&policy, "alice").await.unwrap();
            let taken = limiter.check(&policy, "alice").await.unwrap();
            assert_eq!((peeked.remaining(), taken.remaining()), (left, left), "{policy:?}");
        }
    }
}
