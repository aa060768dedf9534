//! The systems that preceded this library, one test for each: each works here, without its old defect.

#![allow(
    clippy::items_after_statements,
    reason = "a limited function stands where its test uses it"
)]

use std::{collections::HashMap, sync::Arc, time::Duration};

use harness::{RedisServer, exceeded, on_each_store};
use ratelimit_runtime::{Caller, Limiter, Policy, RateLimitError, caller, rate_limit};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How many of `calls` calls at once are admitted.
async fn admitted_at_once(limiter: &Limiter, policy: Policy, calls: usize) -> usize {
    let calls: Vec<_> = (0..calls)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check(&policy, "alice").await.is_ok() })
        })
        .collect();
    let mut admitted = 0;
    for call in calls {
        admitted += usize::from(call.await.unwrap());
    }
    admitted
}

fn assert_every_key_has_a_ttl(server: &RedisServer, longest: Duration) {
    let keys = server.keys();
    assert!(!keys.is_empty());
    for key in keys {
        let ttl: i64 = server.command(&format!("PTTL {key}"));
        assert!((1..=i64::try_from(longest.as_millis()).unwrap()).contains(&ttl), "{key}: {ttl}");
    }
}

/// Calls of the same millisecond all count, and calls that race do not pass together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s0_zset() {
    const POLICY: Policy = Policy::sliding_window("s0_zset", MINUTE, 50);
    on_each_store(async |limiter| {
        assert_eq!(admitted_at_once(limiter, POLICY, 200).await, 50);
    })
    .await;
}

/// The script leaves no key without a TTL, uses the server's clock and returns more than yes or no.
#[tokio::test]
async fn s0_lua() {
    const POLICY: Policy = Policy::sliding_window("s0_lua", MINUTE, 2);
    on_each_store(async |limiter| {
        assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), 1);
        assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), 0);
        let refused = exceeded(limiter.check(&POLICY, "alice").await);
        assert!(refused.retry_after() > MINUTE / 2 && refused.retry_after() <= MINUTE);
    })
    .await;
    let server = RedisServer::start();
    // Overrides ask for the time too.
    let builder = Limiter::builder().follow_overrides(false);
    let limiter = builder.connect(&server.url()).await.unwrap();
    limiter.check(&POLICY, "cold").await.unwrap();
    assert_every_key_has_a_ttl(&server, MINUTE + SECOND);
    assert_eq!(server.calls()["time"], 1);
}

/// The third call within 30 seconds is refused before the body runs, for each caller on its own.
#[tokio::test]
async fn s0_annotation() {
    #[rate_limit(period = 30, threshold = 2, limiter = limiter)]
    async fn say_hi(limiter: &Limiter) -> Result<&'static str, RateLimitError> {
        Ok("hi")
    }
    #[rate_limit(limiter = limiter)]
    async fn with_defaults(limiter: &Limiter) -> Result<(), RateLimitError> {
        Ok(())
    }
    on_each_store(async |limiter| {
        for user in ["alice", "bob"] {
            assert_eq!(caller::scope(user, say_hi(limiter)).await, Ok("hi"));
            assert_eq!(caller::scope(user, say_hi(limiter)).await, Ok("hi"));
            let refused = exceeded(caller::scope(user, say_hi(limiter)).await);
            assert!(refused.policy().ends_with("say_hi"), "{refused}");
            assert!(refused.to_string().contains("at most 2 per 30s, retry after"), "{refused}");
            assert!(!refused.to_string().contains(user), "{refused}");
        }
        for _ in 0..3 {
            caller::scope("alice", with_defaults(limiter)).await.unwrap();
        }
        let refused = exceeded(caller::scope("alice", with_defaults(limiter)).await);
        assert_eq!((refused.threshold(), refused.period()), (3, MINUTE));
    })
    .await;
}

/// A fixed window counts to its threshold, also under a race, and always has a TTL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_fixed() {
    const POLICY: Policy = Policy::fixed_window("s1_fixed", MINUTE, 50);
    on_each_store(async |limiter| {
        assert_eq!(admitted_at_once(limiter, POLICY, 200).await, 50);
    })
    .await;
    let server = RedisServer::start();
    server.limiter().await.check(&POLICY, "alice").await.unwrap();
    assert_every_key_has_a_ttl(&server, MINUTE + SECOND);
}

/// A sliding window of less than a second: each call leaves it on its own.
#[tokio::test]
async fn s1_sliding() {
    const POLICY: Policy = Policy::sliding_window("s1_sliding", Duration::from_millis(300), 2);
    on_each_store(async |limiter| {
        let start = std::time::Instant::now();
        limiter.check(&POLICY, "alice").await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        limiter.check(&POLICY, "alice").await.unwrap();
        let mut refused = 0;
        let decision = loop {
            match limiter.check(&POLICY, "alice").await {
                Ok(decision) => break decision,
                Err(_) => refused += 1,
            }
        };
        // Unless the machine slept until the first call had left the window.
        assert!(refused > 0 || start.elapsed() >= Duration::from_millis(300));
        assert!(decision.remaining() <= 1);
    })
    .await;
}

/// A token bucket refills by fractions, asks for several tokens at once, and has a TTL.
#[tokio::test]
async fn s1_bucket() {
    const POLICY: Policy = Policy::token_bucket("s1_bucket", SECOND, 100).burst(10);
    on_each_store(async |limiter| {
        assert_eq!(limiter.check(&POLICY, "alice").cost(8).await.unwrap().remaining(), 2);
        let refused = exceeded(limiter.check(&POLICY, "alice").cost(10).await);
        // 8 tokens at 100 a second, less what came back meanwhile: no whole second is waited for.
        assert!(refused.retry_after() <= Duration::from_millis(80), "{refused:?}");
        tokio::time::sleep(refused.retry_after()).await;
        limiter.check(&POLICY, "alice").cost(10).await.unwrap();
    })
    .await;
    let server = RedisServer::start();
    server.limiter().await.check(&POLICY, "alice").await.unwrap();
    assert_every_key_has_a_ttl(&server, SECOND + SECOND / 10);
}

/// The scripts are files, and are sent whole only when the server does not know them.
#[tokio::test]
async fn s1_file() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    for policy in [
        Policy::sliding_window("s1_file", MINUTE, 9),
        Policy::sliding_counter("s1_file", MINUTE, 9),
        Policy::fixed_window("s1_file", MINUTE, 9),
        Policy::token_bucket("s1_file", MINUTE, 9),
    ] {
        for _ in 0..5 {
            limiter.check(&policy, "alice").await.unwrap();
        }
    }
    let calls = server.calls();
    assert_eq!((calls["evalsha"], calls["eval"]), (20, 4));
}

/// Called from code: Harry replies, 60 seconds, 5 times; of 20 calls 5 are admitted, 15 refused.
#[tokio::test]
async fn s2_interface() {
    const REPLY: Policy = Policy::sliding_window("reply", MINUTE, 5);
    on_each_store(async |limiter| {
        let mut answers = Vec::new();
        for _ in 0..20 {
            answers.push(limiter.check(&REPLY, "Harry").await.is_ok());
        }
        assert_eq!(answers, [[true; 5].as_slice(), &[false; 15]].concat());
    })
    .await;
}

/// Refused calls are recorded only under a penalty, which then keeps the caller out.
#[tokio::test]
async fn s2_zset() {
    const PLAIN: Policy = Policy::sliding_window("plain", Duration::from_millis(200), 1);
    const PENALTY: Policy = PLAIN.named("penalty").count_rejected();
    on_each_store(async |limiter| {
        limiter.check(&PLAIN, "alice").await.unwrap();
        limiter.check(&PENALTY, "alice").await.unwrap();
        let hammering = std::time::Instant::now();
        // Without the penalty the caller is admitted while hammering; with it each call restarts
        // the wait.
        while limiter.check(&PLAIN, "alice").await.is_err() {
            let refused = exceeded(limiter.check(&PENALTY, "alice").await);
            assert_eq!(refused.retry_after(), Duration::from_millis(200));
            assert!(hammering.elapsed() < MINUTE);
        }
        // What it costs stays bounded by the threshold.
        tokio::time::sleep(Duration::from_millis(200)).await;
        limiter.check(&PENALTY, "alice").await.unwrap();
    })
    .await;
}

/// A counter on a string never loses its TTL, however calls and expiries meet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s2_string() {
    const POLICY: Policy = Policy::fixed_window("s2_string", Duration::from_millis(1), 1);
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    // Windows end all the time, and keys expire, while calls come from several tasks.
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                for _ in 0..250 {
                    let _ = limiter.check(&POLICY, "alice").await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_every_key_has_a_ttl(&server, SECOND);
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    assert_eq!(server.keys(), Vec::<String>::new());
    limiter.check(&POLICY, "alice").await.unwrap();
}

/// A million a day, also exactly. All but the exact log take constant space.
#[tokio::test]
async fn s2_limits() {
    const MILLION: u32 = 1_000_000;
    on_each_store(async |limiter| {
        for make in [
            Policy::sliding_window,
            Policy::sliding_counter,
            Policy::fixed_window,
            Policy::token_bucket,
        ] {
            let policy = make("s2_limits", DAY, MILLION);
            limiter.check(&policy, "alice").cost(MILLION - 1).await.unwrap();
            let left = limiter.check(&policy, "alice").await.unwrap();
            assert_eq!(left.remaining(), 0);
        }
    })
    .await;
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let policy = Policy::sliding_counter("s2_limits", DAY, MILLION);
    limiter.check(&policy, "alice").cost(MILLION).await.unwrap();
    let bytes: u64 = server.command(&format!("MEMORY USAGE {}", server.keys()[0]));
    assert!(bytes < 200, "{bytes}");
}

const MAIL: Policy = Policy::sliding_window("mail", MINUTE, 1).tier(HOUR, 5).tier(DAY, 10);

/// One mail a minute, five an hour, ten a day, decided together: also on the very first call.
#[tokio::test]
async fn s3_tiers() {
    on_each_store(async |limiter| {
        assert_eq!(limiter.check(&MAIL, "box").await.unwrap().remaining(), 0);
        let refused = exceeded(limiter.check(&MAIL, "box").await);
        assert_eq!((refused.threshold(), refused.period()), (1, MINUTE));
        // The refused call is charged to no tier: one unit is in the log, and one only.
        let log = Policy::sliding_window("mail", DAY, 10);
        assert_eq!(limiter.peek(&log, "box").cost(0).await.unwrap().remaining(), 9);
    })
    .await;
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    limiter.check(&MAIL, "box").await.unwrap();
    assert_eq!(server.keys().len(), 1);
    assert_every_key_has_a_ttl(&server, DAY + SECOND);
}

/// The same in one process: threads cannot pass together, and each tier refuses in its turn.
#[tokio::test(start_paused = true)]
async fn s3_local() {
    let limiter = Limiter::in_memory();
    let mut refusals = Vec::new();
    let start = tokio::time::Instant::now();
    for _ in 0..11 {
        while let Err(error) = limiter.check(&MAIL, "box").await {
            let refused = exceeded::<()>(Err(error));
            refusals.push((refused.threshold(), refused.retry_after()));
            tokio::time::advance(refused.retry_after()).await;
        }
    }
    let minute = (1, MINUTE);
    // Five mails are sent by minute 4, the next five by 1:04, and the eleventh a day later.
    let hour = [minute; 4];
    let mut expected = hour.to_vec();
    expected.push((5, 56 * MINUTE));
    expected.extend(hour);
    expected.push((10, 22 * HOUR + 56 * MINUTE));
    assert_eq!(refusals, expected);
    assert_eq!(start.elapsed(), DAY);
}

/// The local check does not race: of simultaneous threads one is admitted.
#[test]
fn s3_local_threads() {
    let limiter = Arc::new(Limiter::in_memory());
    let admitted: usize = std::thread::scope(|scope| {
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async { usize::from(limiter.check(&MAIL, "box").await.is_ok()) })
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 1);
}

/// A refusal names the refusing tier and the wait, on Redis as in memory.
#[tokio::test]
async fn s3_wait() {
    const TIERS: Policy = Policy::sliding_window("s3_wait", MINUTE, 3).tier(HOUR, 4);
    on_each_store(async |limiter| {
        limiter.check(&TIERS, "box").cost(3).await.unwrap();
        // Two more are too many for both tiers: the refusal names the one with the longer wait.
        let refused = exceeded(limiter.check(&TIERS, "box").cost(2).await);
        assert_eq!((refused.threshold(), refused.period()), (4, HOUR));
        assert!(refused.retry_after() <= HOUR && refused.retry_after() > HOUR / 2);
        let refused = exceeded(limiter.check(&TIERS, "box").await);
        assert_eq!((refused.threshold(), refused.period()), (3, MINUTE));
        assert!(refused.retry_after() <= MINUTE && refused.retry_after() > MINUTE / 2);
    })
    .await;
}

/// Numbers are arguments: one script whatever the policies and calls, on the server's clock.
#[tokio::test]
async fn s4_annotation() {
    #[rate_limit(period = 1, threshold = 10, key = user, name = "s4", limiter = limiter)]
    async fn list(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
        Ok(())
    }
    on_each_store(async |limiter| {
        for _ in 0..10 {
            list(limiter, "alice").await.unwrap();
        }
        let _ = list(limiter, "alice").await;
    })
    .await;
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    for threshold in 1..50 {
        let policy = Policy::sliding_window("many", SECOND * threshold, threshold);
        limiter.check(&policy, Caller::from(threshold)).await.unwrap();
        list(&limiter, "alice").await.ok();
    }
    let info: String = server.command("INFO memory");
    let info: HashMap<_, _> = info.lines().filter_map(|line| line.split_once(':')).collect();
    assert_eq!(info["number_of_cached_scripts"], "1");
    // Periods are up to 49 seconds here.
    assert_every_key_has_a_ttl(&server, SECOND * 50);
}
