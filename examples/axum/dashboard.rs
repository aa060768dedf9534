//! `cargo run -p examples-axum --example dashboard`
//!
//! The page for operators on <http://127.0.0.1:3000/ops/limits/>, for a service with limits of each
//! algorithm and simulated customers. Requests from this machine may see the page and act, and no
//! others. A real service checks who is logged in.
//!
//! ```text
//! $ for i in 1 2 3 4 5; do curl -H 'x-user: dora' http://127.0.0.1:3000/reply; done
//! hello
//! hello
//! hello
//! hello
//! hello
//!
//! $ curl -i -H 'x-user: dora' http://127.0.0.1:3000/reply
//! HTTP/1.1 429 Too Many Requests
//! retry-after: 10
//! ratelimit-policy: "reply";q=5;w=10
//! ratelimit: "reply";r=0;t=10
//!
//! {"type":..,"detail":"rate limit `reply` exceeded: at most 5 per 10s, retry after 10s","violated-policies":["reply"]}
//!
//! $ curl -s http://127.0.0.1:3000/ops/limits/ | grep '<title>'
//! ..<title>Rate limits</title>..
//! ```
//!
//! Switch `reply` to a dry run on the page, and it is always admitted.
//!
//! Another address: `cargo run -p examples-axum --example dashboard 127.0.0.1:8080`
//! On Redis, where changes apply to all processes:
//! `RATELIMIT_URL=redis://127.0.0.1:6379 cargo run -p examples-axum --example dashboard`

use std::{env, error::Error, net::SocketAddr, time::Duration};

use axum::{
    Router,
    extract::ConnectInfo,
    http::{StatusCode, request::Parts},
    routing::get,
};
use ratelimit_dashboard::Access;
use ratelimit_runtime::{
    Limiter, Policy, RateLimitError, install, rate_limit,
    web::tower::{Identity, IdentityLayer, RateLimitLayer},
};
use tokio::net::TcpListener;

type Limited<T> = Result<T, RateLimitError>;

/// A limit by the ambient caller, which the layer sets.
#[rate_limit(name = "reply", period = "10s", threshold = 5)]
async fn reply() -> Limited<&'static str> {
    Ok("hello\n")
}

/// A large threshold with a state of constant size.
#[rate_limit(name = "search", algorithm = sliding_counter, period = "10s", threshold = 60, key = customer)]
async fn search(customer: u32) -> Limited<()> {
    let _ = customer;
    Ok(())
}

#[rate_limit(name = "login", algorithm = fixed_window, period = "20s", threshold = 8, key = (tenant, account))]
async fn login(tenant: &str, account: u32) -> Limited<()> {
    let _ = (tenant, account);
    Ok(())
}

/// A steady rate with bursts.
#[rate_limit(name = "webhook", algorithm = token_bucket, period = "1s", threshold = 4, burst = 12, key = customer)]
async fn webhook(customer: u32) -> Limited<()> {
    let _ = customer;
    Ok(())
}

/// Several windows, decided together.
#[rate_limit(
    name = "mail",
    tier(period = "5s", threshold = 3),
    tier(period = "1m", threshold = 12),
    key = customer
)]
async fn send_mail(customer: u32) -> Limited<()> {
    let _ = customer;
    Ok(())
}

/// A threshold from the customer's plan.
#[rate_limit(name = "export", period = "1m", threshold = plan, key = customer, cost = rows)]
async fn export(customer: u32, plan: u32, rows: u32) -> Limited<()> {
    let _ = (customer, plan, rows);
    Ok(())
}

/// A new limit, in a dry run before it refuses anyone.
#[rate_limit(name = "suggest", period = "5s", threshold = 12, key = customer, dry_run)]
async fn suggest(customer: u32) -> Limited<()> {
    let _ = customer;
    Ok(())
}

/// A limit that a gate in front of the handler checks.
pub(crate) const UPLOAD: Policy = Policy::sliding_window("upload", Duration::from_secs(10), 2);

/// Permits requests from this machine. The page itself refuses foreign host names that point here.
fn authorize(request: &Parts) -> Access {
    match request.extensions.get::<ConnectInfo<SocketAddr>>() {
        Some(ConnectInfo(peer)) if peer.ip().is_loopback() => Access::Act,
        _ => Access::Denied,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let limiter =
        Limiter::builder().show_callers().version(env!("CARGO_PKG_VERSION")).from_env().await?;
    install(limiter.clone())?;
    let router = Router::new()
        .route("/reply", get(reply))
        .route("/upload", get(async || StatusCode::NO_CONTENT).layer(RateLimitLayer::new(UPLOAD)))
        .layer(IdentityLayer::new(Identity::plain_header("x-user")))
        .nest_service("/ops/limits", ratelimit_dashboard::router(limiter.clone(), authorize));
    tokio::spawn(call_all_the_time(limiter));

    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}/ops/limits/", listener.local_addr()?);
    axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// Simulates customers: a load that rises and falls, with occasional rushes.
async fn call_all_the_time(limiter: Limiter) {
    let mut clock = tokio::time::interval(Duration::from_millis(50));
    for step in 0_u32.. {
        clock.tick().await;
        let tide = 0.5 + 0.4 * (f64::from(step) / 700.0).sin();
        let rush = step % 900 > 760;
        let often = |share: f64| fastrand::f64() < share * tide;
        // The page shows refusals.
        if often(1.0) {
            let _ = search(fastrand::u32(..6)).await;
        }
        if rush {
            for _ in 0..6 {
                let _ = search(1).await;
            }
        }
        if often(0.22) {
            let _ = login(["acme", "globex"][fastrand::usize(..2)], fastrand::u32(..3)).await;
        }
        if often(0.8) || (rush && step % 2 == 0) {
            let _ = webhook(fastrand::u32(..4)).await;
        }
        if often(0.14) {
            let _ = send_mail(fastrand::u32(..5)).await;
        }
        if often(0.12) {
            let customer = fastrand::u32(..4);
            let plan = if customer == 0 { 500 } else { 120 };
            let _ = export(customer, plan, fastrand::u32(1..12)).await;
        }
        if often(0.6) {
            let _ = suggest(fastrand::u32(..3)).await;
        }
        if often(0.13) {
            let caller = ["alice", "bob", "carol"][fastrand::usize(..3)];
            let _ = ratelimit_runtime::caller::scope(caller, reply()).await;
        }
        if often(0.04) {
            let _ = limiter.check(&UPLOAD, fastrand::u32(..3)).await;
        }
    }
}
