//! `cargo run -p examples-axum --example metrics`
//!
//! A limited handler, and its metrics for Prometheus:
//!
//! ```text
//! $ for i in 1 2 3; do curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:3000/; done
//! 200
//! 200
//! 429
//!
//! $ curl -s http://127.0.0.1:3000/metrics | grep '^ratelimit_[dl]' | sort
//! ratelimit_decisions_total{policy="hello",outcome="admitted",decided_by="store"} 2
//! ratelimit_decisions_total{policy="hello",outcome="refused",decided_by="store"} 1
//! ratelimit_limit{policy="hello",tier="0"} 2
//! ```
//!
//! The folder `ops` has a dashboard for Grafana and alerts for these metrics. Another address:
//! `cargo run -p examples-axum --example metrics -- 127.0.0.1:0`.

use axum::{Router, routing::get};
use metrics_exporter_prometheus::PrometheusBuilder;
use ratelimit_runtime::{limiter, rate_limit};

#[rate_limit(name = "hello", period = 60, threshold = 2, key = "all")]
async fn hello() -> axum::response::Result<&'static str> {
    Ok("hello\n")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // Before the first decision: a series that was created without an exporter never gets one.
    // With buckets, `histogram_quantile` works over all processes.
    let seconds = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
    let prometheus = PrometheusBuilder::new().set_buckets(&seconds)?.install_recorder()?;
    let scrape = async move || {
        limiter().record_limits();
        prometheus.render()
    };
    let app = Router::new().route("/", get(hello)).route("/metrics", get(scrape));
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
