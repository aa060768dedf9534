//! `cargo run -p examples-axum --example drill`
//!
//! A bad night of an operator, to be tried by hand in five minutes. The service starts a Redis of its own, and needs a
//! `redis-server`. The customer `acme` calls `checkout` three times a second, where two are admitted, and `carol` searches too
//! often. One client floods:
//!
//! ```text
//! $ curl -s -o /dev/null -w '%{http_code}\n' -H 'x-user: mallory' 'http://127.0.0.1:3000/checkout?[1-1500]' | sort | uniq -c | awk '{ print $2 }'
//! 200
//! 429
//! ```
//!
//! | Do at <http://127.0.0.1:3000/ops/limits/> | See |
//! |---|---|
//! | look | `checkout` is first, with the refusals of ten minutes and the callers at the limit |
//! | open it | "Refused most": `mallory`, with some 1 480 calls, and `acme` |
//! | "Choose" beside `mallory` | 0 of 20 left |
//! | threshold 40, "Apply numbers", "Change the fleet" | "40 per 10s", "overridden"; `acme` is refused no more |
//! | caller `acme`, "Exempt", "Change the fleet" | `acme` is listed as off, until the end that was chosen |
//! | "Undo" at "threshold 40" | "20 per 10s"; the exception of `acme` stays |
//! | "All limits..", "Off", "Confirm for all limits" | "all limits: off", and "not counted" in each row |
//! | `kill -9` of the process that the service names when it starts | "fails since .."; the limits are off all the same, and "Whole fleet" cannot be chosen |
//! | order "most refused, last hour", ten minutes after the flood | `checkout` is first |
//!
//! Another address: `cargo run -p examples-axum --example drill 127.0.0.1:8080`
//! On a Redis of yours: `RATELIMIT_URL=redis://127.0.0.1:6379 cargo run -p examples-axum --example drill`

use std::{env, error::Error, net::SocketAddr, process::Stdio, time::Duration};

use axum::{Router, extract::ConnectInfo, http::request::Parts, routing::get};
use ratelimit_dashboard::{Access, NamedAccess};
use ratelimit_runtime::{
    Limiter, RateLimitError, caller, install, rate_limit,
    web::tower::{Identity, IdentityLayer},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
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
    let mut redis = None;
    let limiter = if env::var_os("RATELIMIT_URL").is_some() {
        builder.from_env().await?
    } else {
        let (url, server) = start_redis().await?;
        redis = server.id();
        tokio::spawn(keep(server));
        builder.connect(&url).await?
    };
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
    if let Some(redis) = redis {
        println!("kill -9 {redis} ends its Redis");
    }
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

/// Starts a Redis on a socket. Returns its URL too.
async fn start_redis() -> Result<(String, Child), Box<dyn Error>> {
    let socket = env::temp_dir().join(format!("drill-{}.sock", std::process::id()));
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).kill_on_drop(true);
    let mut server = command.stdout(Stdio::piped()).spawn()?;
    let mut log = BufReader::new(server.stdout.take().ok_or("its output is piped")?).lines();
    while let Some(line) = log.next_line().await? {
        if line.contains("eady to accept connections") {
            // Somebody reads what it logs, or it would end at its next line.
            tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
            return Ok((format!("unix://{}", socket.display()), server));
        }
    }
    Err("redis-server does not start".into())
}

/// Keeps the server until its end.
async fn keep(mut server: Child) {
    let _ = server.wait().await;
}
