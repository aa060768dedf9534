//! A cluster that announces addresses out of reach, or ones that its certificates lack, is used all the same.

use std::{collections::HashMap, time::Duration};

use harness::{
    Authority, Cluster, FaultLine, RedisServer, Sentinels, free_port, unavailable, wait_for,
};
use ratelimit_runtime::{Limiter, LimiterBuilder, OnStoreError, Policy};
use tokio::{runtime::Handle, task::block_in_place};

const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 3);
/// A name that no resolver knows.
const NOWHERE: &str = "node.invalid";

fn builder() -> LimiterBuilder {
    let builder = Limiter::builder().deadline(Duration::from_secs(2)).deny_cache(0);
    builder.on_store_error(OnStoreError::Deny)
}

fn trusting(authority: &Authority) -> LimiterBuilder {
    builder().root_certificate(authority.certificate())
}

/// Asserts that callers of all nodes are decided, and counted once while a slot moves.
async fn assert_decides(limiter: &Limiter, cluster: &Cluster) {
    for caller in 0..24 {
        assert_eq!(limiter.check(&POLICY, caller).await.unwrap().remaining(), 2, "{caller}");
    }
    let key = "ratelimit:sliding_window:p/0";
    let (slot, home) = (cluster.slot(key), cluster.home(key));
    let mut remaining = Vec::new();
    cluster.migrate(slot, home, (home + 1) % 3, || {
        let call = || Handle::current().block_on(limiter.check(&POLICY, 0).into_future());
        remaining.push(block_in_place(call).unwrap().remaining());
    });
    assert_eq!(remaining, [1, 0]);
}

/// Lets all nodes announce ports without a listener. Returns the ports behind them.
fn announce_other_ports(cluster: &Cluster) -> HashMap<u16, u16> {
    let ports = cluster.nodes.iter().map(|node| (free_port(), node.port()));
    let ports: HashMap<_, _> = ports.collect();
    for (announced, port) in &ports {
        let node = cluster.nodes.iter().find(|node| node.port() == *port).unwrap();
        let () = node.command(&format!("CONFIG SET cluster-announce-port {announced}"));
    }
    wait_for("nodes that announce other ports", || {
        let is_known = |node| announced(node).iter().all(|port| ports.contains_key(port));
        cluster.nodes.iter().all(is_known).then_some(())
    });
    ports
}

/// The ports of all nodes in the view of one.
fn announced(node: &RedisServer) -> Vec<u16> {
    let nodes: String = node.command("CLUSTER NODES");
    let port = |line: &str| line.split([':', '@']).nth(1)?.parse().ok();
    nodes.lines().filter_map(port).collect()
}

/// Lets all nodes announce a name that nobody resolves.
fn announce_names(cluster: &Cluster) {
    for node in &cluster.nodes {
        let () = node.command(&format!("CONFIG SET cluster-announce-hostname {NOWHERE}"));
        let () = node.command("CONFIG SET cluster-preferred-endpoint-type hostname");
    }
    wait_for("nodes that announce names", || {
        let knows_all = |node: &RedisServer| {
            let nodes: String = node.command("CLUSTER NODES");
            nodes.lines().all(|line| line.contains(NOWHERE))
        };
        cluster.nodes.iter().all(knows_all).then_some(())
    });
}

/// Asserts that the nodes are found with a map of addresses only.
async fn assert_replaced(
    what: &str,
    cluster: &Cluster,
    map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
) {
    let lost = builder().deadline(Duration::from_millis(200)).connect(&cluster.url()).await;
    let reason = unavailable(lost.unwrap().check(&POLICY, "alice").await);
    let limiter = builder().address_map(map).connect(&cluster.url()).await.unwrap();
    assert_decides(&limiter, cluster).await;
    FaultLine::of(&format!("cluster: announced {what} lead nowhere"))
        .with("without a map", reason)
        .print();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_ports_are_replaced() {
    let cluster = Cluster::without_replicas();
    let ports = announce_other_ports(&cluster);
    assert_replaced("ports", &cluster, move |host, port| (host.to_owned(), ports[&port])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_names_are_replaced() {
    let cluster = Cluster::without_replicas();
    announce_names(&cluster);
    assert_replaced("names", &cluster, |host, port| {
        let is_announced = host == NOWHERE;
        (if is_announced { "127.0.0.1" } else { host }.to_owned(), port)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_for_a_name_only_are_verified_by_the_name() {
    let authority = Authority::new();
    let identity = authority.identity("node", &["localhost"]);
    let cluster = Cluster::with_tls(&authority.arguments(&identity, false));
    let by_address = trusting(&authority).connect(&cluster.url()).await.unwrap_err().to_string();
    assert!(by_address.contains("not valid for name"), "{by_address}");
    // The seeds are found, and the nodes that they announce are not trusted.
    let by_name = cluster.url().replace("127.0.0.1", "localhost");
    let limiter = trusting(&authority).deadline(Duration::from_millis(200));
    unavailable(limiter.connect(&by_name).await.unwrap().check(&POLICY, "alice").await);

    let limiter = trusting(&authority).address_map(|_, port| ("localhost".to_owned(), port));
    let limiter = limiter.connect(&by_name).await.unwrap();
    assert_decides(&limiter, &cluster).await;
    for node in &cluster.nodes {
        let () = node.command("FLUSHALL");
    }
    let other = trusting(&authority).tls_server_name("other.example").connect(&cluster.url()).await;
    assert!(other.unwrap_err().to_string().contains("not valid for name"));
    let limiter = trusting(&authority).tls_server_name("localhost");
    let limiter = limiter.connect(&cluster.url()).await.unwrap();
    for caller in 1..24 {
        limiter.check(&POLICY, caller).await.unwrap();
    }
}

#[tokio::test]
async fn settings_that_do_not_apply_are_refused() {
    let sentinels = Sentinels::start();
    let map = |host: &str, port| (host.to_owned(), port);
    let named = || builder().tls_server_name("redis.example");
    for (builder, url, why) in [
        (builder().address_map(map), sentinels.url(), "announce-hostnames"),
        (named(), sentinels.url().replace("redis", "rediss"), "announce-hostnames"),
        (named(), "redis://127.0.0.1".to_owned(), "write rediss://"),
        (builder().tls_server_name("a b"), "rediss://127.0.0.1".to_owned(), "no host name"),
    ] {
        let error = builder.connect(&url).await.unwrap_err().to_string();
        assert!(error.contains(why), "{url}: {error}");
    }
}
