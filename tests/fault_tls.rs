//! Redis over TLS: who is not trusted is not talked to, and is told why; else it is as without.

use std::time::{Duration, Instant};

use harness::{Authority, DEADLINE, FaultLine, Identity, RedisServer, free_port, until_decided};
use ratelimit_runtime::{Limiter, LimiterBuilder, OnStoreError, Policy};

const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 3);

/// A server that shows this certificate, and where its TLS is.
struct TlsServer {
    server: RedisServer,
    port: u16,
}

impl TlsServer {
    fn start(authority: &Authority, identity: &Identity, asks_clients: bool) -> Self {
        let port = free_port();
        let file = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        let server = RedisServer::with(
            [
                ["--tls-port", &port.to_string()],
                ["--tls-cert-file", &file(&identity.certificate_file)],
                ["--tls-key-file", &file(&identity.key_file)],
                ["--tls-ca-cert-file", &file(&authority.certificate_file())],
                ["--tls-auth-clients", if asks_clients { "yes" } else { "no" }],
            ]
            .as_flattened(),
        );
        Self { server, port }
    }

    fn url(&self, host: &str) -> String {
        format!("rediss://{host}:{}", self.port)
    }
}

fn trusting(authority: &Authority) -> LimiterBuilder {
    let builder = Limiter::builder().deadline(Duration::from_secs(10));
    builder.on_store_error(OnStoreError::Deny).root_certificate(authority.certificate())
}

/// Why connecting fails, which it does soon.
async fn refused(fault: &str, builder: LimiterBuilder, url: &str) -> String {
    let asked = Instant::now();
    let error = builder.connect(url).await.expect_err("nobody to trust").to_string();
    let took = asked.elapsed();
    FaultLine::of(&format!("TLS: {fault}")).with("connect says", &error).after("in", took).print();
    assert!(took < Duration::from_millis(1_500), "{took:?}");
    assert!(error.contains("cannot connect to Redis at 127.0.0.1:"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[tokio::test]
async fn a_server_with_a_trusted_certificate_decides() {
    let authority = Authority::new();
    let identity = authority.identity("server", &["localhost", "127.0.0.1"]);
    let server = TlsServer::start(&authority, &identity, false);
    for (host, remaining) in [("localhost", 2), ("127.0.0.1", 1)] {
        let limiter = trusting(&authority).connect(&server.url(host)).await.unwrap();
        assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), remaining);
        let clients: String = server.server.command("CLIENT LIST TYPE normal");
        assert!(clients.contains(&format!(":{} ", server.port)), "{clients}");
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let identity = theirs.identity("server", &["127.0.0.1"]);
    let server = TlsServer::start(&theirs, &identity, false);
    let error = refused("unknown authority", trusting(&ours), &server.url("127.0.0.1")).await;
    assert!(error.contains("UnknownIssuer"), "{error}");
    let error =
        refused("authority of ours only", Limiter::builder(), &server.url("127.0.0.1")).await;
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let identity = authority.expired_identity("server", &["127.0.0.1"]);
    let server = TlsServer::start(&authority, &identity, false);
    let error =
        refused("certificate expired", trusting(&authority), &server.url("127.0.0.1")).await;
    assert!(error.to_lowercase().contains("expired"), "{error}");
}

#[tokio::test]
async fn a_certificate_of_another_host_is_refused() {
    let authority = Authority::new();
    let identity = authority.identity("server", &["redis.example"]);
    let server = TlsServer::start(&authority, &identity, false);
    let error =
        refused("another host's certificate", trusting(&authority), &server.url("127.0.0.1")).await;
    assert!(error.contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_a_client_certificate_gets_it() {
    let authority = Authority::new();
    let identity = authority.identity("server", &["127.0.0.1"]);
    let server = TlsServer::start(&authority, &identity, true);
    let url = server.url("127.0.0.1");
    refused("no client certificate", trusting(&authority), &url).await;
    let client = authority.identity("client", &[]);
    let builder = trusting(&authority).client_certificate(client.certificate, client.key);
    builder.connect(&url).await.unwrap().check(&POLICY, "alice").await.unwrap();
    let stranger = Authority::new().identity("client", &[]);
    let builder = trusting(&authority).client_certificate(stranger.certificate, stranger.key);
    refused("client certificate of a stranger", builder, &url).await;
}

#[tokio::test]
async fn tls_to_a_port_without_it_and_the_reverse_are_told() {
    let authority = Authority::new();
    let identity = authority.identity("server", &["127.0.0.1"]);
    let server = TlsServer::start(&authority, &identity, false);
    let plain = server.server.url().replace("redis://", "rediss://");
    refused("none on this port", trusting(&authority), &plain).await;
    let encrypted = server.url("127.0.0.1").replace("rediss://", "redis://");
    refused("port wants it, URL does not", Limiter::builder(), &encrypted).await;
}

#[tokio::test]
async fn a_server_that_was_killed_is_found_again() {
    let authority = Authority::new();
    let identity = authority.identity("server", &["127.0.0.1"]);
    let mut server = TlsServer::start(&authority, &identity, false);
    let limiter = trusting(&authority).deadline(DEADLINE);
    let limiter = limiter.connect(&server.url("127.0.0.1")).await.unwrap();
    limiter.check(&POLICY, "alice").await.unwrap();
    server.server.kill();
    assert!(limiter.check(&POLICY, "alice").await.is_err());
    server.server.restart();
    let healed = Instant::now();
    until_decided(&limiter).await;
    FaultLine::of("TLS: kill -9").after("decided again after", healed.elapsed()).print();
    assert!(healed.elapsed() < Duration::from_secs(2), "{:?}", healed.elapsed());
}
