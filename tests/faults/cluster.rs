//! A Redis Cluster whose nodes fail, are replaced or migrate slots affects only callers of the failed shard,
//! and counts no call twice.

use std::{
    iter,
    time::{Duration, Instant},
};

use harness::{
    Cluster, DEADLINE, FaultLine, History, Load, NOTICED, Outcome, RedisServer, Watch, free_port,
    limiter_on, unavailable, uncached, until,
};
use ratelimit_runtime::{Limiter, OnStoreError, Policy, ServerStatus, UnavailableReason};

const MINUTE: Duration = Duration::from_secs(60);
const WIDE: Policy = Policy::sliding_counter("wide", MINUTE, 1_000_000);
pub(crate) const LOG: Policy = Policy::sliding_window("log", MINUTE, 100_000);

/// The number of callers, enough for every shard.
const CALLERS: u32 = 24;

fn key(caller: u32) -> String {
    format!("ratelimit:sliding_counter:wide/{caller}")
}

pub(crate) fn log_key(caller: u32) -> String {
    format!("ratelimit:sliding_window:log/{caller}")
}

/// A caller with its home in this shard.
fn caller_of(cluster: &Cluster, shard: usize) -> u32 {
    let mut callers = 0..CALLERS;
    callers.find(|caller| cluster.home(&key(*caller)) == shard).expect("every shard has some")
}

/// Returns `true` if no circuit breaker is open.
fn is_well(limiter: &Limiter) -> bool {
    limiter.servers().iter().all(|server| server.failure().is_none())
}

/// Splits the history into callers of this shard and all others.
fn split(history: &History, cluster: &Cluster, shard: usize) -> (History, History) {
    let homes: Vec<_> = (0..CALLERS).map(|caller| cluster.home(&key(caller))).collect();
    assert!((0..3).all(|shard| homes.contains(&shard)), "{homes:?}");
    let calls = history.calls().iter().copied();
    let (of_shard, others) = calls.partition(|call| homes[call.caller as usize] == shard);
    (History::new(of_shard), History::new(others))
}

/// Returns the time from this instant to the last unavailable answer.
fn outage(history: &History, hurt: u64) -> Duration {
    let unavailable = |outcome| matches!(outcome, Outcome::Unavailable(_));
    let calls = history.calls().iter().filter(|call| unavailable(call.outcome));
    Duration::from_micros(calls.map(|call| call.answered - hurt).max().unwrap_or(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_followed_and_touches_no_other_shard() {
    let mut cluster = Cluster::start();
    let limiter = limiter_on(&cluster.url(), OnStoreError::Deny).await;
    let watch = Watch::start();
    let load = Load::start(&limiter, WIDE, CALLERS, CALLERS, Duration::from_millis(10));
    until("load", async || (load.admitted() > 500).then_some(())).await;
    let hurt = harness::wall_clock();
    let hurt_at = Instant::now();
    cluster.nodes[0].kill();
    let alone = until("the breaker", async || watch.breaker_opened(hurt_at)).await - hurt_at;
    let caller = caller_of(&cluster, 0);
    until("the failover", async || limiter.check(&WIDE, caller).await.ok()).await;
    let back = hurt_at.elapsed();
    // A removed node is not reported as unhealthy.
    until("servers that are well", async || is_well(&limiter).then_some(())).await;
    assert_eq!(limiter.servers().len(), 3);
    let admitted = load.admitted();
    until("load", async || (load.admitted() > admitted + 500).then_some(())).await;
    let history = load.stop().await;
    let (lost, others) = split(&history, &cluster, 0);
    FaultLine::of("cluster: kill -9 of a primary with a replica, 24 tasks")
        .with("callers of its shard get", lost.answers())
        .with("others get", others.answers())
        .after("slowest call", history.slowest())
        .after("breaker open after", alone)
        .after("last unavailable call after", outage(&lost, hurt))
        .after("decided again after", back)
        .print();
    assert_eq!(others.unavailable(), 0, "{}", watch.text());
    assert!(history.slowest() < DEADLINE + NOTICED, "{:?}", history.slowest());
    assert!(alone < Duration::from_millis(500), "{alone:?}");
    // A second until the others agree on the failure, and a vote.
    assert!(back < Duration::from_secs(8), "{back:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_without_a_replica_touches_no_other_shard_and_is_found_again() {
    let cluster = Cluster::without_replicas();
    let limiter = limiter_on(&cluster.url(), OnStoreError::Deny).await;
    let watch = Watch::start();
    let load = Load::start(&limiter, WIDE, CALLERS, CALLERS, Duration::from_millis(10));
    until("load", async || (load.admitted() > 500).then_some(())).await;
    let hurt = Instant::now();
    cluster.nodes[1].signal("STOP");
    let alone = until("the breaker", async || watch.breaker_opened(hurt)).await - hurt;
    // Scripts lost on one node do not affect the others.
    let end = hurt + Duration::from_secs(2);
    while Instant::now() < end {
        let () = cluster.nodes[0].command("SCRIPT FLUSH");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cluster.nodes[1].signal("CONT");
    let healed = Instant::now();
    let back = until("the node", async || watch.breaker_closed(healed)).await - healed;
    let admitted = load.admitted();
    until("load", async || (load.admitted() > admitted + 500).then_some(())).await;
    let history = load.stop().await;
    let (lost, others) = split(&history, &cluster, 1);
    FaultLine::of("cluster: kill -STOP of a node without a replica, 24 tasks")
        .with("callers of its shard get", lost.answers())
        .with("others get", others.answers())
        .after("slowest call", history.slowest())
        .after("slowest call of others", others.slowest())
        .after("breaker open after", alone)
        .after("decided again after", back)
        .print();
    assert_eq!(others.unavailable(), 0, "{}", watch.text());
    assert!(others.slowest() < DEADLINE, "{:?}", others.slowest());
    assert!(history.slowest() < DEADLINE + NOTICED, "{:?}", history.slowest());
    assert!(alone < Duration::from_millis(500), "{alone:?}");
    assert!(back < Duration::from_secs(5), "{back:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_without_a_replica_touches_no_other_shard_and_is_found_again() {
    let mut cluster = Cluster::without_replicas();
    let limiter = limiter_on(&cluster.url(), OnStoreError::Deny).await;
    let watch = Watch::start();
    let load = Load::start(&limiter, WIDE, CALLERS, CALLERS, Duration::from_millis(10));
    until("load", async || (load.admitted() > 500).then_some(())).await;
    let hurt = Instant::now();
    cluster.nodes[2].kill();
    let alone = until("the breaker", async || watch.breaker_opened(hurt)).await - hurt;
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.nodes[2].restart();
    let healed = Instant::now();
    let back = until("the node", async || watch.breaker_closed(healed)).await - healed;
    let history = load.stop().await;
    let (lost, others) = split(&history, &cluster, 2);
    FaultLine::of("cluster: kill -9 of a node without a replica, restarted after 2 s, 24 tasks")
        .with("callers of its shard get", lost.answers())
        .with("others get", others.answers())
        .after("slowest call", history.slowest())
        .after("breaker open after", alone)
        .after("decided again after", back)
        .print();
    assert_eq!(others.unavailable(), 0, "{}", watch.text());
    assert!(history.slowest() < DEADLINE + NOTICED, "{:?}", history.slowest());
    assert!(alone < Duration::from_millis(500), "{alone:?}");
    // A primary that comes back waits before it takes writes.
    assert!(back < Duration::from_secs(8), "{back:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_no_node_has_touches_no_others() {
    let cluster = Cluster::without_replicas();
    let (slot, home) = (cluster.slot(&key(0)), cluster.home(&key(0)));
    let nodes = &cluster.nodes;
    // Its own node is the first: a slot that this one claims is given back to it by the others.
    for node in iter::once(&nodes[home]).chain(nodes) {
        let mut delete = redis::cmd("CLUSTER");
        let deleted = delete.arg("DELSLOTS").arg(slot).exec(&mut node.connection());
        if let Err(error) = deleted {
            // The nodes tell each other.
            assert!(error.to_string().contains("already unassigned"), "{error}");
        }
    }
    let limiter = limiter_on(&cluster.url(), OnStoreError::Deny).await;
    let watch = Watch::start();
    let load = Load::start(&limiter, WIDE, CALLERS, CALLERS, Duration::from_millis(10));
    until("an open circuit breaker of unassigned slots", async || {
        (!is_well(&limiter)).then_some(())
    })
    .await;
    let servers = limiter.servers();
    let open_breakers: Vec<_> =
        servers.iter().filter(|it| it.failure().is_some()).map(ServerStatus::name).collect();
    let admitted = load.admitted();
    until("load", async || (load.admitted() > admitted + 500).then_some(())).await;
    let () = cluster.nodes[home].command(&format!("CLUSTER ADDSLOTS {slot}"));
    let given = Instant::now();
    until("a decision", async || limiter.check(&WIDE, 0).await.ok()).await;
    let back = given.elapsed();
    until("servers that are well", async || is_well(&limiter).then_some(())).await;
    let history = load.stop().await;
    let calls = history.calls().iter().copied();
    let (lost, others): (Vec<_>, Vec<_>) = calls.partition(|call| call.caller == 0);
    let (lost, others) = (History::new(lost), History::new(others));
    FaultLine::of("cluster: a slot that no node has, 24 tasks")
        .with("its callers get", lost.answers())
        .with("others get", others.answers())
        .with("open breakers", open_breakers.join(", "))
        .after("slowest call", history.slowest())
        .after("decided again after", back)
        .print();
    assert_eq!(others.unavailable(), 0, "{}", watch.text());
    assert!(lost.unavailable() > 0);
    assert_eq!(open_breakers, ["unassigned slots"]);
    assert!(history.slowest() < DEADLINE + NOTICED, "{:?}", history.slowest());
    assert!(back < Duration::from_secs(3), "{back:?}");
}

/// Calls as callers whose slot this node redirects to a stopped one, until a circuit breaker opens. Returns
/// the servers of all open ones.
async fn open_breakers(limiter: &Limiter, callers: &[u32]) -> Vec<String> {
    until("the breaker", async || {
        for caller in callers {
            let reason = unavailable(limiter.check(&WIDE, *caller).await);
            assert_eq!(reason, UnavailableReason::DeadlineExceeded);
        }
        (!is_well(limiter)).then_some(())
    })
    .await;
    let servers = limiter.servers();
    servers.iter().filter(|it| it.failure().is_some()).map(|it| it.name().to_owned()).collect()
}

#[tokio::test]
async fn a_node_that_redirects_is_not_blamed_for_the_one_that_fails() {
    for moves in ["ASK", "MOVED"] {
        let cluster = Cluster::without_replicas();
        let limiter = limiter_on(&cluster.url(), OnStoreError::Deny).await;
        let mut at_home = (0..).filter(|caller| cluster.home(&key(*caller)) == 0);
        let moving: Vec<u32> = at_home.by_ref().take(6).collect();
        let staying = at_home.next().expect("there are callers enough");
        limiter.check(&WIDE, staying).await.unwrap();
        for caller in &moving {
            let slot = cluster.slot(&key(*caller));
            match moves {
                "ASK" => cluster.begin_to_migrate(slot, 0, 1),
                _ => cluster.set_owner(0, slot, 1),
            }
        }
        cluster.nodes[1].signal("STOP");
        let open_breakers = open_breakers(&limiter, &moving).await;
        FaultLine::of(&format!("cluster: {moves} to a node that is stopped"))
            .with("open breakers", open_breakers.join(", "))
            .print();
        assert_eq!(open_breakers, [format!("127.0.0.1:{}", cluster.nodes[1].public_port())]);
        limiter.check(&WIDE, staying).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_costs_no_call_and_no_count() {
    let cluster = Cluster::start();
    let limiter = uncached(&cluster.url()).await;
    let load = Load::start(&limiter, LOG, 16, CALLERS.min(16), Duration::from_millis(3));
    until("load", async || (load.admitted() > 200).then_some(())).await;
    for replica in 3..6 {
        let () = cluster.nodes[replica].command("CLUSTER FAILOVER");
        harness::wait_for("the failover", || {
            let role: String = cluster.nodes[replica].command("INFO replication");
            role.contains("role:master").then_some(())
        });
        let admitted = load.admitted();
        until("load", async || (load.admitted() > admitted + 200).then_some(())).await;
    }
    let history = load.stop().await;
    let units = |caller| -> usize {
        let node = &cluster.nodes[3 + cluster.home(&log_key(caller))];
        node.command(&format!("ZCOUNT {} 0 +inf", log_key(caller)))
    };
    let counted: usize = (0..16).map(units).sum();
    FaultLine::of("cluster: planned failover of every primary under 16 tasks")
        .assert_all_counted(&history, counted);
}

#[tokio::test]
async fn any_address_that_answers_is_enough() {
    let mut cluster = Cluster::without_replicas();
    // Beside the cluster: with two of three nodes, it would lose its majority.
    let stopped = RedisServer::start();
    let url =
        cluster.url().replace(&cluster.nodes[0].port().to_string(), &stopped.port().to_string());
    stopped.signal("STOP");
    cluster.nodes[1].kill();
    let asked = Instant::now();
    let limiter = limiter_on(&url, OnStoreError::Deny).await;
    let took = asked.elapsed();
    FaultLine::of("cluster: two of three addresses do not answer")
        .after("connected after", took)
        .print();
    assert!(took < Duration::from_secs(3), "{took:?}");
    let caller = caller_of(&cluster, 2);
    until("a decision", async || limiter.check(&WIDE, caller).await.ok()).await;
}

#[tokio::test]
async fn an_absent_cluster_is_reported_at_once_and_found_later() {
    let nobody = format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", free_port(), free_port());
    let asked = Instant::now();
    let error = Limiter::connect(&nobody).await.unwrap_err().to_string();
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    FaultLine::of("cluster: nobody there").with("connect error", &error).print();
    assert!(error.contains("cannot connect to a Redis cluster at 127.0.0.1:"), "{error}");

    let builder = Limiter::builder().deadline(DEADLINE).on_store_error(OnStoreError::Deny);
    let limiter = builder.connect_lazy(&nobody).unwrap();
    let asked = Instant::now();
    let reason = unavailable(limiter.check(&WIDE, 1).await);
    assert!(asked.elapsed() < DEADLINE + NOTICED, "{:?}", asked.elapsed());
    let expected = [UnavailableReason::Disconnected, UnavailableReason::NotReady];
    assert!(expected.contains(&reason), "{reason:?}");
}

#[tokio::test]
async fn a_server_that_is_no_cluster_is_reported() {
    let server = harness::RedisServer::start();
    let url = server.url().replace("redis://", "redis+cluster://");
    let error = Limiter::connect(&url).await.unwrap_err().to_string();
    FaultLine::of("cluster: the server is none").with("connect error", &error).print();
    assert!(error.contains("cluster"), "{error}");
    // The other way round: a node of a cluster alone does not have every key.
    let cluster = Cluster::without_replicas();
    let limiter = limiter_on(&cluster.nodes[0].url(), OnStoreError::Deny).await;
    let reason = unavailable(limiter.check(&WIDE, caller_of(&cluster, 1)).await);
    assert_eq!(reason, UnavailableReason::Redirected);
}
