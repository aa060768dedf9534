//! Permits on Redis: counted by the server's clock over all processes, renewed while they are held, and
//! free again after the process that held them.

use std::{
    collections::HashSet,
    thread,
    time::{Duration, Instant},
};

use harness::{Cluster, RedisServer, patient, uncached, until, wait_for};
use ratelimit_runtime::{
    Decision, Limiter, OnStoreError, Policy, RateLimitError, usage::TierUsage,
};
use tokio::runtime::{Builder, Runtime};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const UPLOAD: Policy = Policy::concurrency_limit("upload", 2);
/// Renewed each 200 ms.
const BRIEF: Policy = UPLOAD.named("brief").concurrency_timeout(Duration::from_millis(600));

fn permits(policy: &Policy, caller: &str) -> String {
    let start = "ratelimit:sliding_window:";
    format!("{start}{{{start}{}/{caller}}}:c", policy.name())
}

fn is_busy(answer: &Result<Decision, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::Busy(_)))
}

async fn until_held(server: &RedisServer, policy: &Policy, held: u32) {
    let key = permits(policy, "alice");
    until("the permits", async || {
        (server.command::<u32>(&format!("ZCARD {key}")) == held).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_call_is_two_commands_and_a_call_without_concurrency_one() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let both = Policy::fixed_window("both", MINUTE, 1_000).concurrency(2);
    for policy in [&UPLOAD, &both] {
        drop(limiter.check(policy, "alice").await.unwrap());
    }
    limiter.flush().await.unwrap();
    let before = server.calls();
    for _ in 0..20 {
        drop(limiter.check(&UPLOAD, "alice").await.unwrap());
        drop(limiter.check(&both, "alice").await.unwrap());
    }
    limiter.flush().await.unwrap();
    let after = server.calls();
    let calls = |name| after[name] - before[name];
    // What a script calls is counted as well: it releases nothing.
    assert_eq!((calls("evalsha"), calls("zrem")), (40, 40));
    assert!(!after.contains_key("zremrangebyscore"), "swept although never full");
    let plain = Policy::fixed_window("plain", MINUTE, 10);
    limiter.check(&plain, "alice").await.unwrap();
    limiter.flush().await.unwrap();
    assert_eq!(server.calls()["zrem"], after["zrem"]);
}

#[tokio::test]
async fn a_usage_of_all_tiers_and_of_the_calls_in_flight_is_one_command() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let window = Policy::sliding_window("usage", MINUTE, 5).tier(60 * MINUTE, 9);
    for policy in [window, Policy::token_bucket("usage", MINUTE, 5)] {
        let policy = policy.concurrency(3);
        let call = limiter.check(&policy, "alice").await.unwrap();
        limiter.usage(&policy, "bob").await.unwrap();
        let before = server.calls()["evalsha"];
        let usage = limiter.usage(&policy, "alice").await.unwrap();
        assert_eq!(server.calls()["evalsha"] - before, 1);
        let used = usage.tiers().iter().chain(usage.concurrency()).map(TierUsage::used);
        assert!(used.eq(vec![1; policy.tiers().len() + 1]), "{usage:?}");
        drop(call);
    }
}

#[tokio::test]
async fn the_permits_are_one_sorted_set_with_a_ttl_and_gone_with_the_last_call() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let key = permits(&UPLOAD, "alice");
    let call = limiter.check(&UPLOAD, "alice").await.unwrap();
    assert_eq!(server.keys(), [&*key]);
    let (now, _): (u64, u64) = server.command("TIME");
    let (_, deadline): (String, u64) = server.command(&format!("ZRANGE {key} 0 0 WITHSCORES"));
    assert!((29..=31).contains(&(deadline / 1_000_000 - now)), "{deadline}");
    let ttl: i64 = server.command(&format!("PTTL {key}"));
    assert!((29_000..=31_000).contains(&ttl), "{ttl}");
    drop(call);
    limiter.flush().await.unwrap();
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn a_body_longer_than_the_timeout_keeps_its_permit_by_few_renewals() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let calls = [
        limiter.check(&BRIEF, "alice").await.unwrap(),
        limiter.check(&BRIEF, "alice").await.unwrap(),
    ];
    let before = server.calls().get("evalsha").copied().unwrap_or_default();
    let start = Instant::now();
    while start.elapsed() < 3 * SECOND {
        assert!(calls.iter().all(Decision::has_permit));
        let held: u32 = server.command(&format!("ZCARD {}", permits(&BRIEF, "alice")));
        assert_eq!(held, 2);
        tokio::time::sleep(SECOND / 20).await;
    }
    // Both permits by one command, each 200 ms at the most.
    let renewals = server.calls()["evalsha"] - before;
    assert!((4..=16).contains(&renewals), "{renewals}");
    drop(calls);
    until_held(&server, &BRIEF, 0).await;
    // The task has ended.
    let after = server.calls()["evalsha"];
    tokio::time::sleep(SECOND).await;
    assert_eq!(server.calls()["evalsha"], after);
}

#[tokio::test]
async fn after_a_loss_of_all_state_holders_take_their_places_again_as_far_as_there_are_any() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let calls = [
        limiter.check(&BRIEF, "alice").await.unwrap(),
        limiter.check(&BRIEF, "alice").await.unwrap(),
    ];
    // All is lost, and another call takes a place before the next renewal.
    let (deadline, _): (u64, u64) = server.command("TIME");
    let key = permits(&BRIEF, "alice");
    let taken = (deadline + 600) * 1_000_000;
    let mut lost = redis::pipe();
    lost.atomic().cmd("FLUSHALL").cmd("ZADD").arg(&key).arg(taken).arg("other");
    lost.exec(&mut server.connection()).unwrap();
    until("a lost permit", async || {
        (calls.iter().filter(|call| call.has_permit()).count() == 1).then_some(())
    })
    .await;
    until_held(&server, &BRIEF, 2).await;
    assert!(is_busy(&limiter.check(&BRIEF, "alice").await));
    drop(calls);
    until_held(&server, &BRIEF, 1).await;
}

#[tokio::test]
async fn after_a_restart_the_calls_in_flight_are_counted_again() {
    let mut server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let calls = [
        limiter.check(&BRIEF, "alice").await.unwrap(),
        limiter.check(&BRIEF, "alice").await.unwrap(),
    ];
    server.kill();
    server.restart();
    until_held(&server, &BRIEF, 2).await;
    until("the permits", async || calls.iter().all(Decision::has_permit).then_some(())).await;
    assert!(is_busy(&limiter.check(&BRIEF, "alice").await));
    drop(calls);
    until_held(&server, &BRIEF, 0).await;
}

#[tokio::test]
async fn a_permit_that_expired_is_free_and_its_holder_is_told() {
    let server = RedisServer::start();
    let (limiter, other) = (patient(&server.url()).await, patient(&server.url()).await);
    let calls = [
        limiter.check(&BRIEF, "alice").await.unwrap(),
        limiter.check(&BRIEF, "alice").await.unwrap(),
    ];
    let key = permits(&BRIEF, "alice");
    // As if no renewal had come for a long time.
    let ids: Vec<String> = server.command(&format!("ZRANGE {key} 0 -1"));
    for id in ids {
        let () = server.command(&format!("ZADD {key} 1 {id}"));
    }
    let taken = [
        until("a permit", async || other.check(&BRIEF, "alice").await.ok()).await,
        until("a permit", async || other.check(&BRIEF, "alice").await.ok()).await,
    ];
    until("the loss", async || (!calls.iter().any(Decision::has_permit)).then_some(())).await;
    assert!(taken.iter().all(Decision::has_permit));
    // A holder without a place takes one as soon as it is free.
    drop(taken);
    until("places again", async || calls.iter().all(Decision::has_permit).then_some(())).await;
}

/// Returns a runtime that runs while nothing blocks on it.
fn running() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn permits_are_renewed_after_the_runtime_of_the_first_one_has_ended() {
    let server = RedisServer::start();
    let main = running();
    let limiter = main.block_on(patient(&server.url()));
    // It ends before the task that renews has run.
    let brief = Builder::new_current_thread().enable_all().build().unwrap();
    let first = brief.block_on(limiter.check(&BRIEF, "alice").into_future()).unwrap();
    drop(brief);
    let second = main.block_on(limiter.check(&BRIEF, "alice").into_future()).unwrap();
    let before = server.calls()["evalsha"];
    wait_for("renewals", || (server.calls()["evalsha"] >= before + 6).then_some(()));
    assert!(first.has_permit() && second.has_permit());
    let held: u32 = server.command(&format!("ZCARD {}", permits(&BRIEF, "alice")));
    assert_eq!(held, 2);
}

#[test]
fn a_drop_waits_for_nothing_also_outside_of_a_runtime() {
    let server = RedisServer::start();
    let main = running();
    let limiter = main.block_on(patient(&server.url()));
    let wide = UPLOAD.concurrency(100);
    let calls: Vec<_> = (0..100)
        .map(|_| main.block_on(limiter.check(&wide, "alice").into_future()).unwrap())
        .collect();
    let key = permits(&wide, "alice");
    assert_eq!(server.command::<u32>(&format!("ZCARD {key}")), 100);
    // A server that does not answer: a drop that waited for it would not return.
    server.signal("STOP");
    thread::scope(|threads| threads.spawn(|| drop(calls)).join().unwrap());
    server.signal("CONT");
    main.block_on(limiter.flush()).unwrap();
    assert_eq!(server.command::<u32>(&format!("ZCARD {key}")), 0);
}

#[tokio::test]
async fn without_redis_the_bound_is_that_of_the_process_and_starts_from_its_permits() {
    let mut server = RedisServer::start();
    let limiter = harness::limiter_on(&server.url(), OnStoreError::Local).await;
    let held = limiter.check(&UPLOAD, "alice").await.unwrap();
    server.kill();
    let second = limiter.check(&UPLOAD, "alice").await.unwrap();
    assert!(second.has_permit());
    assert!(is_busy(&limiter.check(&UPLOAD, "alice").await));
    drop(held);
    let third = limiter.check(&UPLOAD, "alice").await.unwrap();
    assert!(is_busy(&limiter.check(&UPLOAD, "alice").await));
    drop((second, third));
    assert!(limiter.check(&UPLOAD, "alice").await.is_ok());
}

#[tokio::test]
async fn a_lost_reply_costs_no_permit() {
    let server = RedisServer::start();
    let limiter = harness::limiter_on(&server.url(), OnStoreError::Deny).await;
    limiter.check(&UPLOAD, "warm").await.map(drop).unwrap();
    let () = server.command("CLIENT PAUSE 300 ALL");
    assert!(limiter.check(&UPLOAD, "alice").await.is_err());
    let mut check = std::pin::pin!(limiter.check(&UPLOAD, "alice").into_future());
    let cancelled = tokio::time::timeout(SECOND / 50, &mut check).await;
    assert!(cancelled.is_err() || cancelled.is_ok_and(|it| it.is_err()));
    until("the server", async || {
        let call = limiter.check(&UPLOAD, "probe").await;
        call.ok().map(drop)
    })
    .await;
    until_held(&server, &UPLOAD, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_both_keys_have_one_slot() {
    let cluster = Cluster::without_replicas();
    let limiter = Limiter::builder()
        .deadline(10 * SECOND)
        .on_store_error(OnStoreError::Deny)
        .connect(&cluster.url())
        .await
        .unwrap();
    let both = Policy::sliding_window("both", MINUTE, 100).concurrency(2);
    let mut nodes = HashSet::new();
    for caller in 0..24 {
        let caller = caller.to_string();
        let key = format!("ratelimit:sliding_window:both/{caller}");
        nodes.insert(cluster.home(&key));
        let calls = [
            limiter.check(&both, &*caller).await.unwrap(),
            limiter.check(&both, &*caller).await.unwrap(),
        ];
        assert!(is_busy(&limiter.check(&both, &*caller).await));
        drop(calls);
        until("a free permit", async || limiter.check(&both, &*caller).await.ok()).await;
    }
    assert_eq!(nodes.len(), 3);
}

/// A renewal at a node that is stopped waits for its deadline, which is longer than the timeout.
#[tokio::test]
async fn a_stopped_node_holds_up_no_renewal_at_another_one() {
    let cluster = Cluster::without_replicas();
    let limiter = patient(&cluster.url()).await;
    let both = Policy::sliding_window("both", MINUTE, 100).concurrency(2);
    let both = both.concurrency_timeout(3 * SECOND);
    let home = |caller: &u32| cluster.home(&format!("ratelimit:sliding_window:both/{caller}"));
    let of_node =
        |node| (0..99).find(|caller| home(caller) == node).expect("each node has callers");
    let _stopped = limiter.check(&both, of_node(0)).await.unwrap();
    let healthy = limiter.check(&both, of_node(1)).await.unwrap();
    cluster.nodes[0].signal("STOP");
    let scripts = || cluster.nodes[1].calls()["evalsha"];
    let before = scripts();
    until("three renewals", async || {
        assert!(healthy.has_permit());
        (scripts() >= before + 3).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_refusal_of_several_calls_has_given_their_permits_back() {
    const FULL: Policy = Policy::fixed_window("full", MINUTE, 1);
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    let both = Policy::token_bucket("both", MINUTE, 9).concurrency(1);
    limiter.check(&FULL, "acme").await.unwrap();
    for policy in [UPLOAD.concurrency(1), both] {
        for _ in 0..20 {
            // The limit that a caller has exceeded, and not the permit of its call before.
            let calls = [limiter.check(&policy, "alice"), limiter.check(&FULL, "acme")];
            let refused = limiter.check_all(calls).await;
            assert!(matches!(refused, Err(RateLimitError::Exceeded(it)) if it.policy() == "full"));
        }
        limiter.flush().await.unwrap();
        assert!(limiter.check(&policy, "alice").await.unwrap().has_permit());
    }
}
