#!/usr/bin/env bash
# A channel of tonic has `timeout` and `rate_limit`. The timeout begins when the limit has let the call through, and not
# when the caller asks: a call with half a second waits three for its turn, and succeeds. The deadline of the request
# does not end the wait either, and is sent to the server whole. So a queue of callers behind the limit grows without
# an error, though each has a timeout. Only a timeout around the whole call ends it.
. "$(dirname "$0")/setup"
with_crates <<'TOML'
tonic = "=0.14.9"
tonic-health = "=0.14.9"
tokio = { version = "1", features = ["macros", "net", "rt", "time"] }
tokio-stream = { version = "0.1", features = ["net"] }

[profile.dev]
debug = false
TOML
cat >src/main.rs <<'RS'
use std::time::{Duration, Instant};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::{health_client::HealthClient, HealthCheckRequest};

const HALF: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let health = tonic_health::server::health_reporter().1;
    tokio::spawn(Server::builder().add_service(health).serve_with_incoming(TcpListenerStream::new(listener)));

    let endpoint = Endpoint::from_shared(url).unwrap().timeout(HALF).rate_limit(1, Duration::from_secs(3));
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    for expected in [0, 3, 3] {
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        request.set_timeout(HALF);
        let start = Instant::now();
        let answer = client.check(request).await;
        let waited = start.elapsed().as_secs_f64();
        println!("timeout of 0.5 s, one call in 3 s: {:?} after {waited:.1} s", answer.map(|_| "served"));
        assert_eq!(waited.round() as u64, expected);
    }
    let late = tokio::time::timeout(HALF, client.check(HealthCheckRequest::default())).await;
    println!("with a timeout around the call: {:?}", late.as_ref().map(|_| "served"));
    assert!(late.is_err());
}
RS
cargo run --quiet
