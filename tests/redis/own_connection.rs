//! A limiter on a connection of the program decides as on its own, and reports a fault of that connection as
//! an outage.

use std::time::{Duration, Instant};

use harness::{
    Cluster, DEADLINE, FaultLine, NOTICED, RedisServer, exceeded, unavailable, until_decided,
};
use ratelimit_runtime::{Limiter, LimiterBuilder, OnStoreError, Policy, UnavailableReason};
use redis::{Client, aio::ConnectionManagerConfig};

const MINUTE: Duration = Duration::from_secs(60);
const ALGORITHMS: [Policy; 4] = [
    Policy::sliding_window("p", MINUTE, 3),
    Policy::sliding_counter("p", MINUTE, 3),
    Policy::fixed_window("p", MINUTE, 3),
    Policy::token_bucket("p", MINUTE, 3),
];

fn builder() -> LimiterBuilder {
    let builder = Limiter::builder().deadline(Duration::from_secs(10));
    builder.on_store_error(OnStoreError::Deny).deny_cache(0)
}

async fn assert_decides(limiter: &Limiter, caller: &str) {
    for policy in ALGORITHMS {
        for remaining in [2, 1, 0] {
            let decision = limiter.check(&policy, caller).await.unwrap();
            assert_eq!(decision.remaining(), remaining);
        }
        exceeded(limiter.check(&policy, caller).await);
        limiter.reset(&policy, caller).await.unwrap();
        let decision = limiter.check(&policy, caller).await.unwrap();
        limiter.refund(&decision).await.unwrap();
        assert_eq!(limiter.peek(&policy, caller).cost(0).await.unwrap().remaining(), 3);
    }
}

#[tokio::test]
async fn a_multiplexed_connection_decides_and_its_end_is_reported() {
    let mut server = RedisServer::start();
    let client = Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let limiter = builder().redis_connection(connection);
    assert_decides(&limiter, "alice").await;
    server.kill();
    let reason = unavailable(limiter.check(&ALGORITHMS[0], "bob").await);
    assert_eq!(reason, UnavailableReason::Disconnected);
}

#[tokio::test]
async fn a_connection_manager_decides_and_is_back_when_its_server_is() {
    let mut server = RedisServer::start();
    let client = Client::open(server.url()).unwrap();
    let config = ConnectionManagerConfig::new().set_number_of_retries(0);
    let manager = client.get_connection_manager_with_config(config).await.unwrap();
    let limiter = builder().deadline(DEADLINE).redis_connection(manager);
    assert_decides(&limiter, "alice").await;
    server.kill();
    for _ in 0..10 {
        let asked = Instant::now();
        unavailable(limiter.check(&ALGORITHMS[0], "bob").await);
        assert!(asked.elapsed() < DEADLINE + NOTICED, "{:?}", asked.elapsed());
    }
    server.restart();
    let healed = Instant::now();
    until_decided(&limiter).await;
    FaultLine::of("own connection (ConnectionManager): kill -9")
        .after("decided again after", healed.elapsed())
        .print();
    assert!(healed.elapsed() < Duration::from_secs(2), "{:?}", healed.elapsed());
}

#[tokio::test]
async fn a_stalled_connection_of_ones_own_ends_no_call_late() {
    let server = RedisServer::start();
    let client = Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let limiter = builder().deadline(DEADLINE).redis_connection(connection);
    limiter.check(&ALGORITHMS[0], "alice").await.unwrap();
    server.signal("STOP");
    for _ in 0..10 {
        let asked = Instant::now();
        let reason = unavailable(limiter.check(&ALGORITHMS[0], "alice").await);
        assert_eq!(reason, UnavailableReason::DeadlineExceeded);
        assert!(asked.elapsed() < DEADLINE + NOTICED, "{:?}", asked.elapsed());
    }
    server.signal("CONT");
    until_decided(&limiter).await;
}

#[tokio::test]
async fn a_cluster_connection_decides_on_every_shard() {
    let cluster = Cluster::without_replicas();
    let nodes: Vec<_> = cluster.nodes.iter().map(RedisServer::url).collect();
    let client = redis::cluster::ClusterClient::new(nodes).unwrap();
    let limiter = builder().redis_connection(client.get_async_connection().await.unwrap());
    for caller in 0..20 {
        assert_decides(&limiter, &caller.to_string()).await;
    }
    let has_keys = |node: &RedisServer| node.calls().contains_key("evalsha");
    assert!(cluster.nodes.iter().all(has_keys));
}
