//! Each algorithm keeps one bounded key for each caller on Redis, and never without a TTL.

use std::{collections::HashMap, time::Duration};

use harness::{RedisServer, exceeded, uncached};
use ratelimit_runtime::{Limiter, Policy, RateLimitError, UnavailableReason};

const MINUTE: Duration = Duration::from_secs(60);

const POLICIES: [Policy; 7] = [
    Policy::sliding_window("p", MINUTE, 3),
    Policy::sliding_window("p", MINUTE, 3).count_rejected(),
    Policy::sliding_counter("p", MINUTE, 3),
    Policy::sliding_counter("p", MINUTE, 3).count_rejected(),
    Policy::fixed_window("p", MINUTE, 3),
    Policy::token_bucket("p", MINUTE, 3),
    Policy::token_bucket("p", MINUTE, 3).count_rejected(),
];

fn key(policy: &Policy) -> String {
    format!("ratelimit:{}:p/alice", policy.algorithm().as_str())
}

fn type_of(policy: &Policy) -> &'static str {
    if policy.algorithm().as_str() == "sliding_window" { "zset" } else { "string" }
}

/// The key's TTL is the time until the quota is back in full, and less than a second more.
fn assert_ttl(server: &RedisServer, policy: &Policy, reset_after: Duration) {
    let ttl: i64 = server.command(&format!("PTTL {}", key(policy)));
    // The server's clock of whole milliseconds may be one behind.
    let reset = i64::try_from(reset_after.as_micros().div_ceil(1_000)).unwrap();
    // Since the decision up to a second may have passed on a busy machine.
    assert!((reset - 1_000..=reset + 1_000).contains(&ttl), "{policy:?}: {ttl} for {reset}");
    assert!(ttl > 0);
}

#[tokio::test]
async fn a_caller_is_one_key_with_a_ttl_whatever_was_decided() {
    for policy in &POLICIES {
        let server = RedisServer::start();
        // Each answer is the server's own, as of then.
        let limiter = uncached(&server.url()).await;
        for _ in 0..3 {
            let decision = limiter.check(policy, "alice").await.unwrap();
            assert_ttl(&server, policy, decision.reset_after());
        }
        for _ in 0..5 {
            let refused = exceeded(limiter.check(policy, "alice").await);
            assert_ttl(&server, policy, refused.reset_after());
        }
        assert_eq!(server.keys(), [key(policy)]);
        assert_eq!(server.command::<String>(&format!("TYPE {}", key(policy))), type_of(policy));
        if type_of(policy) == "zset" {
            assert_eq!(server.command::<u32>(&format!("ZCOUNT {} 0 +inf", key(policy))), 3);
        } else {
            let held: String = server.command(&format!("GET {}", key(policy)));
            let numbers = held.trim_start_matches(['b', 'c', 'w']);
            assert!(numbers.bytes().all(|byte| byte.is_ascii_digit() || byte == b' '), "{held}");
            assert!(held.len() <= 85, "{held}");
        }
    }
}

#[tokio::test]
async fn a_key_is_gone_within_a_second_of_its_window() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    for make in [
        Policy::sliding_window,
        Policy::sliding_counter,
        Policy::fixed_window,
        Policy::token_bucket,
    ] {
        limiter.check(&make("p", Duration::from_millis(50), 3), "alice").await.unwrap();
    }
    assert_eq!(server.keys().len(), 4);
    // Two windows of the counter, and a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn peeks_and_plain_refusals_write_nothing() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    for policy in &POLICIES {
        limiter.peek(policy, "alice").await.unwrap();
        assert_eq!(server.keys(), Vec::<String>::new());
        limiter.check(policy, "alice").cost(3).await.unwrap();
        let dump: Vec<u8> = server.command(&format!("DUMP {}", key(policy)));
        let () = server.command(&format!("PEXPIRE {} 5000", key(policy)));
        exceeded(limiter.peek(policy, "alice").await);
        if !policy.counts_rejected() {
            exceeded(limiter.check(policy, "alice").await);
        }
        assert_eq!(server.command::<Vec<u8>>(&format!("DUMP {}", key(policy))), dump);
        let ttl: i64 = server.command(&format!("PTTL {}", key(policy)));
        assert!(ttl <= 5_000, "{ttl}");
        let () = server.command("FLUSHALL");
    }
}

async fn reason(limiter: &Limiter, policy: &Policy) -> UnavailableReason {
    match limiter.check(policy, "alice").await {
        Err(RateLimitError::Unavailable(error)) => error.reason(),
        other => panic!("{policy:?}: {other:?}"),
    }
}

#[tokio::test]
async fn foreign_data_under_a_key_is_an_error_and_stays_as_it_is() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    for policy in &POLICIES {
        let key = key(policy);
        let () = server.command(&format!("RPUSH {key} theirs"));
        assert_eq!(reason(&limiter, policy).await, UnavailableReason::WrongType);
        assert_eq!(server.command::<u32>(&format!("LLEN {key}")), 1);
        if type_of(policy) == "string" {
            for theirs in ["theirs", "", "1.5 2 3", "-1", "1 2 3 4 5 6x", "{\"a\":1}", "1 2 3 4"] {
                let mut set = redis::cmd("SET");
                set.arg(&key).arg(theirs).exec(&mut server.connection()).unwrap();
                assert_eq!(reason(&limiter, policy).await, UnavailableReason::WrongType);
                assert_eq!(server.command::<String>(&format!("GET {key}")), theirs);
                assert_eq!(server.command::<i64>(&format!("PTTL {key}")), -1);
            }
        }
        let () = server.command("FLUSHALL");
    }
}

#[tokio::test]
async fn a_clock_that_stepped_back_costs_at_most_one_window_and_no_ttl() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let (seconds, _): (u64, u64) = server.command("TIME");
    // State of an exhausted caller, written while the server's clock was an hour ahead.
    let ahead = (seconds + 3_600) / 60 * 60_000_000;
    for (policy, held) in [
        (Policy::fixed_window("p", MINUTE, 3), format!("w{ahead} {ahead} 60000000 0 {ahead} 3")),
        (Policy::sliding_counter("p", MINUTE, 3), format!("c{ahead} {ahead} 60000000 0 0 3")),
        (Policy::token_bucket("p", MINUTE, 3), format!("b{ahead} {ahead} 20000000 1 60000000 0 0")),
    ] {
        let key = key(&policy);
        let set = |held: &str| {
            let mut set = redis::cmd("SET");
            set.arg(&key).arg(held).exec(&mut server.connection()).unwrap();
        };
        set(&held);
        let refused = exceeded(limiter.check(&policy, "alice").await);
        assert!(refused.retry_after() <= 2 * MINUTE, "{policy:?}: {refused:?}");
        assert_ttl(&server, &policy, refused.reset_after());
        // From here on time counts: the state is one of now.
        let held: String = server.command(&format!("GET {key}"));
        let stamp: u64 = held.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(stamp < ahead, "{held}");
    }
}

#[tokio::test]
async fn a_decision_takes_few_calls() {
    for (policy, admitted, refused) in [
        (
            POLICIES[0],
            vec![("time", 1), ("zcard", 1), ("zrange", 1), ("zadd", 1), ("pexpire", 1)],
            vec![("time", 1), ("zcard", 1), ("zrange", 2)],
        ),
        (POLICIES[2], vec![("time", 1), ("get", 1), ("set", 1)], vec![("time", 1), ("get", 1)]),
        (POLICIES[4], vec![("time", 1), ("get", 1), ("set", 1)], vec![("time", 1), ("get", 1)]),
        (POLICIES[5], vec![("time", 1), ("get", 1), ("set", 1)], vec![("time", 1), ("get", 1)]),
    ] {
        let server = RedisServer::start();
        let limiter = server.limiter().await;
        limiter.check(&policy, "alice").await.unwrap();
        let inner = |before: &HashMap<String, u64>, after: &HashMap<String, u64>| {
            let outer = ["evalsha", "info", "client", "client|setinfo"];
            let grown = after.iter().filter_map(|(name, calls)| {
                let grown = calls - before.get(name).unwrap_or(&0);
                (grown > 0 && !outer.contains(&name.as_str())).then(|| (name.clone(), grown))
            });
            grown.collect::<HashMap<_, _>>()
        };
        let named = |calls: Vec<(&str, u64)>| -> HashMap<String, u64> {
            calls.into_iter().map(|(name, calls)| (name.to_owned(), calls)).collect()
        };
        let before = server.calls();
        limiter.check(&policy, "alice").await.unwrap();
        assert_eq!(inner(&before, &server.calls()), named(admitted), "{policy:?}");
        limiter.check(&policy, "alice").await.unwrap();
        let before = server.calls();
        exceeded(limiter.check(&policy, "alice").await);
        assert_eq!(inner(&before, &server.calls()), named(refused), "{policy:?}");
    }
}
