//! `cargo run -p examples-axum --example drill`
//!
//! An operator's bad night, to be tried by hand in five minutes. It needs a Redis that may be killed:
//!
//! - `redis-server --port 7400 --save ''`
//! - `RATELIMIT_URL=redis://127.0.0.1:7400 cargo run -p examples-axum --example drill`
//!
//! The customer `acme` calls `checkout` three times a second, of which two are admitted, and `carol` searches too often.
//! Then one client floods:
//!
//! ```text
//! $ curl -s -o /dev/null -w '%{http_code}\n' -H 'x-user: mallory' 'http://127.0.0.1:3000/checkout?[1-1500]' | sort -u
//! 200
//! 429
//! ```
//!
//! | Do at <http://127.0.0.1:3000/ops/limits/> | See |
//! |---|---|
//! | look | `checkout` is first, with the refusals of ten minutes and the callers at the limit |
//! | open it | "Refused most": `mallory`, with some 1 480 calls, and `acme` |
//! | "Choose" beside `mallory` | 0 of 20 left |
//! | threshold 40, "Try numbers", "Change the fleet" | the card "Candidate": how many calls 40 would have refused, and admitted |
//! | "Apply candidate", "Change the fleet" | "40 per 10s"; `acme` is refused no more |
//! | caller `acme`, "Exempt", "Change the fleet" | `acme` is listed as off, until the end that was chosen |
//! | "Undo" at "→ threshold 40" | "20 per 10s", and the candidate is tried again; the exception of `acme` stays |
//! | "All limits..", ends in 1 hour, scale 0.5, "Apply scale" | "10 per 10s": every limit has half; "Undo" ends it |
//! | begins and ends at a time, "10 %", "Change the fleet" | "dry run" within these times: a tenth of the callers are refused, and what each step would have refused |
//! | "All limits..", "Off", "Confirm for all limits" | "all limits: off", and "not counted" in each row |
//! | `redis-cli -p 7400 shutdown nosave` | "fails since .."; the limits are off all the same, and "Whole fleet" cannot be chosen |
//! | order "most refused, last hour", ten minutes after the flood | `checkout` is first |
//!
//! Another address: `cargo run -p examples-axum --example drill 127.0.0.1:8080`

use std::{env, error::Error, net::SocketAddr, time::Duration};

use axum::{Router, extract::ConnectInfo, http::request::Parts, routing::get};
use ratelimit_dashboard::{Access, NamedAccess};
use ratelimit_runtime::{
    Limiter, RateLimitError, caller, install, rate_limit,
    web::tower::{Identity, IdentityLayer},
};
use tokio::{
    net::TcpListener,
    time::{MissedTickBehavior, interval},
};

#[rate_limit(name = "checkout", period = "10s", threshold = 20)]
async fn checkout() -> Result<&'static str, RateLimitError> {
    Ok("paid\n")
}

#[rate_limit(name = "search", period = "10s", threshold = 10)]
async fn search() -> Result<&'static str, RateLimitError> {
    Ok("found\n")
}

/// Permits requests from this machine. A real service checks who is logged in.
fn authorize(request: &Parts) -> NamedAccess {
    match request.extensions.get::<ConnectInfo<SocketAddr>>() {
        Some(ConnectInfo(peer)) if peer.ip().is_loopback() => Access::Act.named("on-call"),
        _ => Access::Denied.into(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let builder =
        Limiter::builder().prefix("drill:").show_callers().version(env!("CARGO_PKG_VERSION"));
    // A busy machine is no outage of Redis.
    let limiter = builder.deadline(Duration::from_secs(1)).from_env().await?;
    install(limiter.clone())?;
    let router = Router::new()
        .route("/checkout", get(checkout))
        .route("/search", get(search))
        .layer(IdentityLayer::new(Identity::plain_header("x-user")))
        .nest_service("/ops/limits", ratelimit_dashboard::router(limiter, authorize));
    tokio::spawn(customers());

    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// Calls as the customers do: both are refused a part of their calls.
async fn customers() {
    let mut clock = interval(Duration::from_millis(333));
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        // The page shows refusals.
        let _ = caller::scope("acme", checkout()).await;
        for _ in 0..2 {
            let _ = caller::scope("carol", search()).await;
        }
    }
}
