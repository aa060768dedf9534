//! The hashes on Redis are followed whatever happens to one of them: what ends is gone, and what has not ended stays.

use std::time::{Duration, SystemTime};

use harness::{Clock, RedisServer, Watch, until};
use ratelimit_runtime::{
    Limiter, OnStoreError, Override, Policy, RateLimitError,
    overrides::{OverrideProblem, OverrideSource},
};

const HOUR: Duration = Duration::from_secs(3_600);
const POLICY: Policy = Policy::fixed_window("of hashes", HOUR, 1);
const CALLERS: &str = "ratelimit:overrides:callers";

fn deny() -> Override {
    Override::new().deny()
}

async fn connected(url: &str) -> Limiter {
    let builder = Limiter::builder().deadline(10 * Duration::from_secs(1));
    builder.on_store_error(OnStoreError::Deny).connect(url).await.unwrap()
}

async fn is_denied(limiter: &Limiter, caller: &str) -> bool {
    let answer = limiter.peek(&POLICY, caller).cost(0).await;
    matches!(answer, Err(RateLimitError::Denied(_)))
}

async fn threshold(limiter: &Limiter) -> u32 {
    limiter.peek(&POLICY, "anyone").cost(0).await.unwrap().threshold()
}

async fn until_denied(limiter: &Limiter, caller: &str, expected: bool) {
    until("the override", async || (is_denied(limiter, caller).await == expected).then_some(()))
        .await;
}

fn write(server: &RedisServer, key: &str, field: &str, what: &Override) {
    let mut command = redis::cmd("HSET");
    let command = command.arg(key).arg(field).arg(what.to_string());
    let () = command.query(&mut server.connection()).unwrap();
}

fn fields(server: &RedisServer) -> Vec<String> {
    let mut fields: Vec<String> = server.command(&format!("HKEYS {CALLERS}"));
    fields.sort();
    fields
}

#[tokio::test]
async fn the_last_override_of_a_caller_ends_also_over_a_new_connection() {
    let server = RedisServer::start();
    let limiter = connected(&server.url()).await;
    let overrides = limiter.overrides();
    overrides.fleet().set((POLICY.name(), "alice"), deny()).await.unwrap();
    until_denied(&limiter, "alice", true).await;
    // As another process ends it. The limiter cannot read the hash between over its old connection.
    let mut removal = redis::pipe();
    removal.atomic().cmd("HDEL").arg(CALLERS).arg("of%20hashes/alice");
    removal.cmd("HSET").arg(CALLERS).arg("#").arg("2");
    removal.cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal");
    let (removed, _, _): (u32, u32, u32) = removal.query(&mut server.connection()).unwrap();
    assert_eq!(removed, 1);
    until_denied(&limiter, "alice", false).await;
    assert_eq!(overrides.problems(), []);
    overrides.fleet().set((POLICY.name(), "bob"), deny()).await.unwrap();
    assert_eq!(fields(&server), ["#", "of%20hashes/bob"]);
}

#[tokio::test]
async fn what_the_problem_of_lost_callers_advises_ends_their_overrides() {
    let mut server = RedisServer::start();
    let limiter = connected(&server.url()).await;
    limiter.overrides().fleet().set((POLICY.name(), "alice"), deny()).await.unwrap();
    until_denied(&limiter, "alice", true).await;
    server.kill();
    server.restart();
    let lost = until("the loss", async || {
        let problems = limiter.overrides().problems();
        problems.into_iter().find(|it| matches!(it, OverrideProblem::Lost { .. }))
    })
    .await;
    assert!(lost.to_string().contains("such as `#` with any value"), "{lost}");
    let () = server.command(&format!("HSET {CALLERS} # 1"));
    until_denied(&limiter, "alice", false).await;
    assert_eq!(limiter.overrides().problems(), []);
}

#[tokio::test]
async fn a_field_that_is_no_json_names_its_limit_and_not_its_caller() {
    let watch = Watch::start();
    let server = RedisServer::start();
    let limiter = connected(&server.url()).await;
    let () = server.command(&format!("HSET {CALLERS} of%20hashes/bob {{\"deny\":tru # 1"));
    let problem = until("the problem", async || limiter.overrides().problems().pop()).await;
    let problem = problem.to_string();
    assert!(problem.contains("rate limit `of hashes`: "), "{problem}");
    let log = watch.text();
    assert!(log.contains("override refused"), "{log}");
    assert!(!problem.contains("bob") && !log.contains("bob"), "{problem} {log}");
}

/// The clock of a program that is an hour fast ends nothing, and a clock that is set back undoes an end.
#[tokio::test]
async fn an_override_ends_by_the_clock_of_the_server_alone() {
    let clock = Clock::new();
    let server = clock.server(&[]);
    let hour = 3_600_000;
    clock.step(&server, -hour);
    let end = SystemTime::now() - HOUR / 2;
    write(&server, "ratelimit:overrides", POLICY.name(), &Override::new().threshold(7).until(end));
    write(&server, CALLERS, "of%20hashes/alice", &deny().until(end));
    let limiter = connected(&server.url()).await;
    let overrides = limiter.overrides();
    for (ahead, expected) in [(-hour, true), (0, false), (-hour, true), (hour, false)] {
        clock.step(&server, ahead);
        let numbers = if expected { 7 } else { 1 };
        until("the numbers", async || (threshold(&limiter).await == numbers).then_some(())).await;
        until_denied(&limiter, "alice", expected).await;
        // A change of other callers forgets neither.
        overrides.fleet().set("another", Override::new().threshold(numbers)).await.unwrap();
        until("the change", async || {
            (overrides.get("another")?.threshold == Some(numbers)).then_some(())
        })
        .await;
        assert_eq!(
            (threshold(&limiter).await, is_denied(&limiter, "alice").await),
            (numbers, expected)
        );
    }
    // Each end, and each return.
    let history = overrides.history();
    let of_alice = history.iter().rev().filter(|it| it.caller.is_some());
    let is_set: Vec<_> = of_alice.map(|it| it.after.is_some()).collect();
    assert_eq!(is_set, [true, false, true, false]);
    assert!(history.iter().all(|it| it.source == OverrideSource::Redis));
}

#[tokio::test]
async fn overrides_that_have_ended_give_their_room_to_new_ones() {
    let server = RedisServer::start();
    let limiter = connected(&server.url()).await;
    let overrides = limiter.overrides();
    let past = deny().until(SystemTime::now() - HOUR);
    let mut full = redis::cmd("HSET");
    full.arg(CALLERS).arg("#").arg("1");
    for number in 0..9_999 {
        full.arg(format!("of%20hashes/user-{number}")).arg(past.to_string());
    }
    full.arg("of%20hashes/carol").arg(deny().until(SystemTime::now() + HOUR).to_string());
    let () = full.query(&mut server.connection()).unwrap();
    until_denied(&limiter, "carol", true).await;
    overrides.fleet().set((POLICY.name(), "alice"), deny()).await.unwrap();
    until_denied(&limiter, "alice", true).await;
    assert_eq!(fields(&server), ["#", "of%20hashes/alice", "of%20hashes/carol"]);
    assert_eq!(overrides.problems(), []);
}

#[tokio::test]
async fn a_full_hash_refuses_a_new_override_and_takes_others() {
    let server = RedisServer::start();
    let limiter = connected(&server.url()).await;
    let overrides = limiter.overrides();
    for (key, name) in [("ratelimit:overrides", "limit"), (CALLERS, "of%20hashes/user")] {
        let mut full = redis::cmd("HSET");
        full.arg(key);
        for number in 0..10_000 {
            full.arg(format!("{name}-{number}")).arg("off");
        }
        let () = full.query(&mut server.connection()).unwrap();
    }
    let () = server.command(&format!("HSET {CALLERS} # 1"));
    let refused = [
        overrides.fleet().set("limit", Override::new().threshold(5)).await,
        overrides.fleet().set((POLICY.name(), "alice"), deny()).await,
    ];
    for refused in refused {
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("has its most fields, 10000"), "{message}");
    }
    overrides.fleet().set((POLICY.name(), "user-7"), deny()).await.unwrap();
    until_denied(&limiter, "user-7", true).await;
    overrides.fleet().remove((POLICY.name(), "user-8")).await.unwrap();
    overrides.fleet().set((POLICY.name(), "alice"), deny()).await.unwrap();
    until_denied(&limiter, "alice", true).await;
    assert_eq!(overrides.problems().iter().filter(|it| it.to_string().contains("read")).count(), 0);
}

#[tokio::test]
async fn an_unreadable_hash_of_limits_leaves_callers_and_the_clock_as_they_are() {
    let clock = Clock::new();
    let server = clock.server(&[]);
    clock.step(&server, -3_600_000);
    let () = server.command("SET ratelimit:overrides text");
    let () = server.command("ACL SETUSER limiter on >secret ~ratelimit:overrides:* +@all");
    let forbidden = server.url().replace("redis://", "redis://limiter:secret@");
    let limiters = [connected(&server.url()).await, connected(&forbidden).await];
    let half = SystemTime::now() - HOUR / 2;
    write(&server, CALLERS, "of%20hashes/alice", &deny().until(half));
    write(&server, CALLERS, "of%20hashes/bob", &deny().until(half - HOUR));
    // A new revision: without one, callers are read again only after 30 s.
    let () = server.command(&format!("HSET {CALLERS} # 1"));
    for limiter in &limiters {
        assert!(limiter.overrides().redis_failure().is_some());
        until_denied(limiter, "alice", true).await;
        assert!(!is_denied(limiter, "bob").await);
    }
}

/// Under a secret, an operator may write the caller as in keys: the field is one of the digest's place.
#[tokio::test]
async fn the_field_of_a_caller_beside_that_of_its_digest_is_read_removed_and_replaced() {
    let server = RedisServer::start();
    let builder = || Limiter::builder().deadline(Duration::from_secs(10)).caller_digest("key");
    let fleet = [
        builder().connect(&server.url()).await.unwrap(),
        builder().connect(&server.url()).await.unwrap(),
    ];
    let of = |at: usize| fleet[at].overrides().fleet();
    let all_see = async |expected: bool| {
        for limiter in &fleet {
            until_denied(limiter, "alice", expected).await;
        }
    };
    let write = |value: &str, revision: u32| {
        let () = server.command(&format!("HSET {CALLERS} of%20hashes/alice {value} # {revision}"));
    };
    write("{\"deny\":true}", 1);
    all_see(true).await;
    assert_eq!(of(0).get(("of hashes", "alice")).await.unwrap(), Some(deny()));
    of(0).remove(("of hashes", "alice")).await.unwrap();
    all_see(false).await;

    // The end of one of two fields is not that of the other.
    of(0).set(("of hashes", "alice"), deny()).await.unwrap();
    all_see(true).await;
    write("{\"threshold\":5}", 2);
    all_see(false).await;
    let _: u64 = server.command(&format!("HDEL {CALLERS} of%20hashes/alice"));
    let () = server.command(&format!("HSET {CALLERS} # 3"));
    all_see(true).await;

    // What is set replaces both.
    write("{\"threshold\":5}", 4);
    all_see(false).await;
    of(1).set(("of hashes", "alice"), deny()).await.unwrap();
    all_see(true).await;
    let fields: Vec<String> = server.command(&format!("HKEYS {CALLERS}"));
    assert_eq!(fields.len(), 2, "{fields:?}");
}
