//! Calls that `deny` has refused for want of a reply, and that Redis counts later: their units come back once the reply
//! is there, and only once.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use harness::{
    Cluster, DEADLINE, Network, Proxy, RedisServer, limiter_on, unavailable, until, until_decided,
};
use ratelimit_runtime::{Algorithm, Decision, Limiter, OnStoreError, Policy, UnavailableReason};
use redis::{AsyncConnectionConfig, Client};
use tokio::runtime::Builder;

const MINUTE: Duration = Duration::from_secs(60);
const LONG: Policy = Policy::sliding_window("long", Duration::from_secs(600), 3);

/// The time in which callers recover from an outage.
const BACK: Duration = Duration::from_secs(2);

#[tokio::test]
async fn calls_that_a_stalled_server_gets_to_after_their_refusal_are_given_back() {
    let server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    let algorithms = [
        Policy::sliding_window,
        Policy::sliding_counter,
        Policy::fixed_window,
        Policy::token_bucket,
    ];
    for policy in algorithms.map(|new| new("late", 10 * MINUTE, 100)) {
        limiter.check(&policy, "alice").await.unwrap();
        server.signal("STOP");
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.check(&policy, "alice").await })
            })
            .collect();
        for call in calls {
            let reason = unavailable(call.await.unwrap());
            assert_eq!(reason, UnavailableReason::DeadlineExceeded);
        }
        server.signal("CONT");
        until_decided(&limiter).await;
        until("the calls to be given back", async || {
            let left = limiter.peek(&policy, "alice").cost(0).await.ok()?;
            (left.remaining() >= 99).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn refused_calls_are_given_back_also_after_their_connection_has_been_replaced() {
    let server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    limiter.check(&LONG, "alice").await.unwrap();
    server.signal("STOP");
    for call in 0..4 {
        // One of them waits in vain before it is refused.
        let max_wait = if call == 3 { 2 * DEADLINE } else { Duration::ZERO };
        let answer = limiter.check(&LONG, "alice").max_wait(max_wait).await;
        assert_eq!(unavailable(answer), UnavailableReason::DeadlineExceeded, "{call}");
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    server.signal("CONT");
    until("the calls to be given back", async || {
        let left = limiter.peek(&LONG, "alice").cost(0).await.ok()?;
        (left.remaining() == 2).then_some(())
    })
    .await;
    // None of them comes later.
    tokio::time::sleep(BACK).await;
    assert_eq!(limiter.peek(&LONG, "alice").cost(0).await.unwrap().remaining(), 2);
}

#[test]
fn a_refused_call_is_given_back_although_its_runtime_has_ended() {
    let server = RedisServer::start();
    let home = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let other = Builder::new_current_thread().enable_all().build().unwrap();
    let limiter = home.block_on(limiter_on(&server.url(), OnStoreError::Deny));
    home.block_on(async { limiter.check(&LONG, "alice").await }).unwrap();
    server.signal("STOP");
    let reason = unavailable(other.block_on(async { limiter.check(&LONG, "alice").await }));
    assert_eq!(reason, UnavailableReason::DeadlineExceeded);
    drop(other);
    server.signal("CONT");
    home.block_on(until("the call to be given back", async || {
        let left = limiter.peek(&LONG, "alice").cost(0).await.ok()?;
        (left.remaining() == 2).then_some(())
    }));
}

const DAY: Duration = Duration::from_secs(86_400);

/// A limit of each algorithm, of which no units come back by themselves within a test.
fn limits() -> [Policy; 4] {
    let algorithms = [
        Policy::sliding_window,
        Policy::sliding_counter,
        Policy::fixed_window,
        Policy::token_bucket,
    ];
    algorithms.map(|new| new("limit", DAY, 100))
}

/// Makes a call that is admitted. A busy machine may refuse others before, which are given back.
async fn admitted(limiter: &Limiter, policy: &Policy, caller: u32) -> Decision {
    until("an admitted call", async || limiter.check(policy, caller).await.ok()).await
}

/// Calls once, and expects that no reply comes in time.
async fn refused(limiter: &Limiter, policy: &Policy, caller: u32) {
    let reason = unavailable(limiter.check(policy, caller).await);
    assert_eq!(reason, UnavailableReason::DeadlineExceeded, "{policy:?}");
}

/// Waits until a caller has so many units left.
async fn until_left(limiter: &Limiter, policy: &Policy, caller: u32, left: u32) {
    until(&format!("{left} units under {policy:?}"), async || {
        let peek = limiter.peek(policy, caller).cost(0).await.ok()?;
        (peek.remaining() == left).then_some(())
    })
    .await;
}

fn key(policy: &Policy, caller: u32) -> String {
    format!("ratelimit:{}:{}/{caller}", policy.algorithm().as_str(), policy.name())
}

/// A caller whose counts are at home on the first node.
fn caller_of(cluster: &Cluster, policy: &Policy) -> u32 {
    let mut callers = 0..100;
    callers.find(|caller| cluster.home(&key(policy, *caller)) == 0).expect("one of them is")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_redirected_to_a_stalled_node_is_given_back() {
    for moves in ["ASK", "MOVED"] {
        let cluster = Cluster::without_replicas();
        for policy in limits() {
            let limiter = limiter_on(&cluster.url(), OnStoreError::Deny).await;
            let caller = caller_of(&cluster, &policy);
            let slot = cluster.slot(&key(&policy, caller));
            if moves == "ASK" {
                cluster.begin_to_migrate(slot, 0, 1);
            } else {
                cluster.set_owner(1, slot, 1);
                cluster.set_owner(0, slot, 1);
            }
            until_left(&limiter, &policy, caller, 100).await;
            admitted(&limiter, &policy, caller).await;
            cluster.nodes[1].signal("STOP");
            for _ in 0..2 {
                refused(&limiter, &policy, caller).await;
            }
            cluster.nodes[1].signal("CONT");
            // A settle of two keys needs a slot that has moved.
            cluster.set_owner(1, slot, 1);
            cluster.set_owner(0, slot, 1);
            until_left(&limiter, &policy, caller, 99).await;
        }
    }
}

/// The reply comes from the node that had the slot, and the units are on another one by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_given_back_where_its_slot_has_moved_to_meanwhile() {
    let cluster = Cluster::without_replicas();
    let proxies: Vec<_> = cluster.nodes.iter().map(|node| Proxy::start(node.port())).collect();
    let ports = cluster.nodes.iter().map(RedisServer::port).zip(proxies.iter().map(Proxy::port));
    let ports: HashMap<_, _> = ports.collect();
    let builder = Limiter::builder().deadline(DEADLINE).on_store_error(OnStoreError::Deny);
    let builder = builder.address_map(move |host, port| (host.to_owned(), ports[&port]));
    for policy in limits() {
        let limiter = builder.clone().connect(&cluster.url()).await.unwrap();
        let caller = caller_of(&cluster, &policy);
        admitted(&limiter, &policy, caller).await;
        let executed = || cluster.nodes[0].calls().get("evalsha").copied();
        let before = executed();
        // The command arrives after its deadline, and its reply later still.
        let second = Duration::from_secs(1);
        proxies[0].set(Network::Slow { latency: second, jitter: Duration::ZERO });
        refused(&limiter, &policy, caller).await;
        until("the call", async || (executed() > before).then_some(())).await;
        let slot = cluster.slot(&key(&policy, caller));
        assert!(cluster.migrate(slot, 0, 1, || ()));
        proxies[0].heal();
        until_left(&limiter, &policy, caller, 99).await;
    }
}

/// The replica does not know the calls that the stopped primary counts once it goes on. The charges of a log have names,
/// so that none of the others is given back for them. Of other counts it is a unit for each call at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_while_a_reply_is_late_gives_no_call_back_twice() {
    let cluster = Cluster::start();
    let limiter = limiter_on(&cluster.url(), OnStoreError::Deny).await;
    let limits = limits().map(|policy| (policy, caller_of(&cluster, &policy)));
    for (policy, caller) in &limits {
        for _ in 0..5 {
            admitted(&limiter, policy, *caller).await;
        }
    }
    let offset = |node: usize, name| cluster.nodes[node].figure(name);
    until("the replica", async || {
        let is_equal = offset(3, "slave_repl_offset") == offset(0, "master_repl_offset");
        is_equal.then_some(())
    })
    .await;
    let executed = || cluster.nodes[0].calls().get("evalsha").copied();
    let before = executed();
    cluster.nodes[0].signal("STOP");
    for (policy, caller) in &limits {
        refused(&limiter, policy, *caller).await;
    }
    let has_role = |node: usize, role: &str| {
        let replication: String = cluster.nodes[node].command("INFO replication");
        replication.contains(role).then_some(())
    };
    until("the failover", async || has_role(3, "role:master")).await;
    for (policy, caller) in &limits {
        until_left(&limiter, policy, *caller, 95).await;
    }
    cluster.nodes[0].signal("CONT");
    until("the new replica", async || has_role(0, "role:slave")).await;
    assert!(executed() > before, "it has counted calls once more");
    // Nothing comes later.
    tokio::time::sleep(BACK).await;
    for (policy, caller) in &limits {
        let left = limiter.peek(policy, *caller).cost(0).await.unwrap().remaining();
        let most = if policy.algorithm() == Algorithm::SlidingWindow { 95 } else { 96 };
        assert!((95..=most).contains(&left), "{policy:?} {left}");
    }
}

#[tokio::test]
async fn a_call_over_a_connection_of_the_program_is_given_back() {
    let server = RedisServer::start();
    let client = Client::open(server.url()).unwrap();
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let builder = Limiter::builder().deadline(DEADLINE).on_store_error(OnStoreError::Deny);
    let limiter = builder.redis_connection(connection);
    for policy in limits() {
        admitted(&limiter, &policy, 0).await;
        server.signal("STOP");
        for _ in 0..4 {
            refused(&limiter, &policy, 0).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.signal("CONT");
        until_left(&limiter, &policy, 0, 99).await;
    }
}

/// The network delivers the call after the release of its permit, which went over another connection.
#[tokio::test]
async fn a_permit_that_is_taken_after_its_release_is_given_back() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let limits = limits().map(|policy| policy.concurrency(100));
    for policy in limits.into_iter().chain([Policy::concurrency_limit("alone", 100)]) {
        // No permit expires within the test.
        let policy = policy.concurrency_timeout(DAY);
        let limiter = limiter_on(&proxy.url(), OnStoreError::Deny).await;
        drop(admitted(&limiter, &policy, 0).await);
        limiter.flush().await.unwrap();
        proxy.set(Network::Slow { latency: 2 * BACK, jitter: Duration::ZERO });
        for _ in 0..2 {
            refused(&limiter, &policy, 0).await;
        }
        proxy.heal();
        until_decided(&limiter).await;
        assert_eq!(limiter.usage(&policy, 0).await.unwrap().concurrency().unwrap().used(), 0);
        until("the late replies", async || limiter.flush().await.ok()).await;
        until(&format!("the permits of {policy:?}"), async || {
            let usage = limiter.usage(&policy, 0).await.ok()?;
            (usage.concurrency()?.used() == 0).then_some(())
        })
        .await;
        if !policy.tiers().is_empty() {
            until_left(&limiter, &policy, 0, 99).await;
        }
    }
}

#[tokio::test]
async fn a_call_that_has_waited_is_given_back_also_after_its_connection_has_been_replaced() {
    let server = RedisServer::start();
    for policy in limits() {
        let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
        admitted(&limiter, &policy, 0).await;
        server.signal("STOP");
        let waiting = limiter.clone();
        let waits = tokio::spawn(async move {
            waiting.check(&policy, 0).max_wait(Duration::from_secs(6)).await
        });
        for _ in 0..3 {
            refused(&limiter, &policy, 1).await;
        }
        unavailable(waits.await.unwrap());
        server.signal("CONT");
        until_left(&limiter, &policy, 0, 99).await;
    }
}

#[tokio::test]
async fn a_turn_that_is_promised_too_late_is_left() {
    const WAIT: Duration = Duration::from_secs(1);
    let server = RedisServer::start();
    for new in [Policy::sliding_window, Policy::fixed_window, Policy::token_bucket] {
        let policy = new("turn", 2 * WAIT, 1);
        let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
        admitted(&limiter, &policy, 0).await;
        let taken = Instant::now();
        server.signal("STOP");
        let answer = limiter.check(&policy, 0).max_wait(WAIT).await;
        assert_eq!(unavailable(answer), UnavailableReason::DeadlineExceeded);
        server.signal("CONT");
        let end = taken + 2 * WAIT + Duration::from_millis(300);
        tokio::time::sleep_until(end.into()).await;
        limiter.check(&policy, 0).await.unwrap();
    }
}

#[tokio::test]
async fn a_flush_gives_refused_calls_back_before_the_process_ends() {
    let server = RedisServer::start();
    let other = limiter_on(&server.url(), OnStoreError::Deny).await;
    for policy in limits() {
        let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
        admitted(&limiter, &policy, 0).await;
        server.signal("STOP");
        for _ in 0..2 {
            refused(&limiter, &policy, 0).await;
        }
        let error = limiter.flush().await.unwrap_err();
        assert_eq!((error.unsent(), error.unanswered()), (0, 2), "{error}");
        server.signal("CONT");
        limiter.flush().await.unwrap();
        drop(limiter);
        let left = other.peek(&policy, 0).cost(0).await.unwrap().remaining();
        assert_eq!(left, 99);
    }
}
