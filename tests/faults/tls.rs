//! Redis over TLS decides as without it, and an untrusted server is refused with the reason.

use std::time::{Duration, Instant};

use harness::{
    Authority, Cluster, DEADLINE, FaultLine, Identity, RedisServer, Sentinels, exceeded, until,
    until_decided,
};
use ratelimit_runtime::{Limiter, LimiterBuilder, OnStoreError, Policy};
use tokio::{runtime::Handle, task::block_in_place};

const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 3);

/// A server that shows this certificate.
fn serve(authority: &Authority, identity: &Identity, verifies_clients: bool) -> RedisServer {
    RedisServer::with_tls(&authority.arguments(identity, verifies_clients))
}

fn url(server: &RedisServer, host: &str) -> String {
    format!("rediss://{host}:{}", server.public_port())
}

fn trusting(authority: &Authority) -> LimiterBuilder {
    let builder = Limiter::builder().deadline(Duration::from_secs(10));
    builder.on_store_error(OnStoreError::Deny).root_certificate(authority.certificate())
}

/// Asserts that only TLS leads to the server: the tests use its unix socket.
fn assert_encrypted(server: &RedisServer) {
    let clients: String = server.command("CLIENT LIST TYPE normal");
    let from = |port: u16| clients.matches(&format!("laddr=127.0.0.1:{port} ")).count();
    assert!(from(server.public_port()) > 0, "{clients}");
    assert_eq!(from(server.port()), 0, "{clients}");
}

/// Returns the reason why connecting fails, which it does soon.
async fn refused(fault: &str, builder: LimiterBuilder, url: &str) -> String {
    let asked = Instant::now();
    let error = builder.connect(url).await.expect_err("nobody to trust").to_string();
    let took = asked.elapsed();
    FaultLine::of(&format!("TLS: {fault}")).with("connect error", &error).after("in", took).print();
    assert!(took < Duration::from_millis(1_500), "{took:?}");
    assert!(error.contains("cannot connect to ") && error.contains("127.0.0.1:"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[tokio::test]
async fn a_server_with_a_trusted_certificate_decides() {
    let authority = Authority::new();
    let identity = authority.identity("server", &["localhost", "127.0.0.1"]);
    let server = serve(&authority, &identity, false);
    for (host, remaining) in [("localhost", 2), ("127.0.0.1", 1)] {
        let limiter = trusting(&authority).connect(&url(&server, host)).await.unwrap();
        assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), remaining);
        assert_encrypted(&server);
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let identity = theirs.identity("server", &["127.0.0.1"]);
    let server = serve(&theirs, &identity, false);
    let error = refused("unknown authority", trusting(&ours), &url(&server, "127.0.0.1")).await;
    assert!(error.contains("UnknownIssuer"), "{error}");
    let error =
        refused("authority of ours only", Limiter::builder(), &url(&server, "127.0.0.1")).await;
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let identity = authority.expired_identity("server", &["127.0.0.1"]);
    let server = serve(&authority, &identity, false);
    let error =
        refused("certificate expired", trusting(&authority), &url(&server, "127.0.0.1")).await;
    assert!(error.to_lowercase().contains("expired"), "{error}");
}

#[tokio::test]
async fn a_certificate_of_another_host_is_refused() {
    let authority = Authority::new();
    let identity = authority.identity("server", &["redis.example"]);
    let server = serve(&authority, &identity, false);
    let error =
        refused("another host's certificate", trusting(&authority), &url(&server, "127.0.0.1"))
            .await;
    assert!(error.contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_a_client_certificate_gets_it() {
    let authority = Authority::new();
    let identity = authority.identity("server", &["127.0.0.1"]);
    let server = serve(&authority, &identity, true);
    let url = url(&server, "127.0.0.1");
    refused("no client certificate", trusting(&authority), &url).await;
    let client = authority.identity("client", &[]);
    let builder = trusting(&authority).client_certificate(client.certificate, client.key);
    builder.connect(&url).await.unwrap().check(&POLICY, "alice").await.unwrap();
    let stranger = Authority::new().identity("client", &[]);
    let builder = trusting(&authority).client_certificate(stranger.certificate, stranger.key);
    refused("client certificate of a stranger", builder, &url).await;
}

#[tokio::test]
async fn tls_to_a_port_without_it_and_the_reverse_are_reported() {
    let authority = Authority::new();
    let identity = authority.identity("server", &["127.0.0.1"]);
    let server = serve(&authority, &identity, false);
    let plain = server.url().replace("redis://", "rediss://");
    refused("none on this port", trusting(&authority), &plain).await;
    let encrypted = url(&server, "127.0.0.1").replace("rediss://", "redis://");
    refused("port wants it, URL does not", Limiter::builder(), &encrypted).await;
}

#[tokio::test]
async fn a_server_that_was_killed_is_found_again() {
    let authority = Authority::new();
    let identity = authority.identity("server", &["127.0.0.1"]);
    let mut server = serve(&authority, &identity, false);
    let limiter = trusting(&authority).deadline(DEADLINE);
    let limiter = limiter.connect(&url(&server, "127.0.0.1")).await.unwrap();
    limiter.check(&POLICY, "alice").await.unwrap();
    server.kill();
    assert!(limiter.check(&POLICY, "alice").await.is_err());
    server.restart();
    let healed = Instant::now();
    until_decided(&limiter).await;
    FaultLine::of("TLS: kill -9").after("decided again after", healed.elapsed()).print();
    assert!(healed.elapsed() < Duration::from_secs(2), "{:?}", healed.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_followed_over_tls() {
    let authority = Authority::new();
    let identity = authority.identity("node", &["127.0.0.1"]);
    let cluster = Cluster::with_tls(&authority.arguments(&identity, true));
    refused("a cluster, no client certificate", trusting(&authority), &cluster.url()).await;

    let client = authority.identity("client", &[]);
    let builder = trusting(&authority).client_certificate(client.certificate, client.key);
    let limiter = builder.connect(&cluster.url()).await.unwrap();
    for caller in 0..24 {
        limiter.check(&POLICY, caller).await.unwrap();
    }
    cluster.nodes.iter().for_each(assert_encrypted);
    // While a slot moves ASK leads to its next node, and then MOVED.
    let key = "ratelimit:sliding_window:p/0";
    let (slot, home) = (cluster.slot(key), cluster.home(key));
    let mut remaining = Vec::new();
    cluster.migrate(slot, home, (home + 1) % 3, || {
        let call = || Handle::current().block_on(limiter.check(&POLICY, 0).into_future());
        remaining.push(block_in_place(call).unwrap().remaining());
    });
    assert_eq!(remaining, [1, 0]);
    exceeded(limiter.check(&POLICY, 0).await);
    cluster.nodes.iter().for_each(assert_encrypted);
}

#[tokio::test]
async fn a_primary_is_discovered_and_followed_over_tls() {
    let authority = Authority::new();
    let identity = authority.identity("server", &["127.0.0.1"]);
    let mut sentinels = Sentinels::with_tls(&authority.arguments(&identity, true));
    refused("Sentinels, no client certificate", trusting(&authority), &sentinels.url()).await;

    let client = authority.identity("client", &[]);
    let builder = trusting(&authority).client_certificate(client.certificate, client.key);
    let limiter = builder.deadline(DEADLINE).connect(&sentinels.url()).await.unwrap();
    limiter.check(&POLICY, "alice").await.unwrap();
    assert_encrypted(&sentinels.servers[0]);
    sentinels.servers[0].kill();
    let hurt = Instant::now();
    until("the failover", async || (sentinels.primary() == 1).then_some(())).await;
    until_decided(&limiter).await;
    FaultLine::of("TLS: kill -9 of a primary behind Sentinels")
        .after("decided again after", hurt.elapsed())
        .print();
    assert_encrypted(&sentinels.servers[1]);
}
