//! `cargo run -p examples-axum --example api_plans`
//!
//! An API that is sold by plan, in memory or on `RATELIMIT_URL`: calls a minute and a month by plan, a crawler that
//! leaves a fifth to people, a mail at four fifths of the month, one customer who has more until the evening, one who is
//! shut out, and a page that customers see.
//!
//! ```text
//! $ curl -i -H 'x-api-key: key-of-alice' http://127.0.0.1:3000/search
//! HTTP/1.1 200 OK
//! ratelimit-policy: "api@free";q=5;w=60, "month@free";q=10;w=2678400
//! ratelimit: "api@free";r=4;t=60, "month@free";r=9;t=..
//!
//! results for alice
//!
//! $ for i in 2 3 4; do curl -H 'x-api-key: key-of-alice' http://127.0.0.1:3000/search; done
//! results for alice
//! results for alice
//! results for alice
//!
//! $ curl -i -H 'x-api-key: key-of-alice' http://127.0.0.1:3000/crawl
//! HTTP/1.1 429 Too Many Requests
//! retry-after: 60
//! ratelimit-policy: "api@free";q=4;w=60
//! ratelimit: "api@free";r=0;t=60
//!
//! {"type":..,"detail":"rate limit `api@free` exceeded: at most 4 per 60s, retry after 60s","violated-policies":["api@free"]}
//!
//! $ curl -H 'x-api-key: key-of-alice' http://127.0.0.1:3000/usage
//! alice (free)
//! calls this minute: 4 of 5, all back in 60 s
//! calls this month: 4 of 10, all back in .. s
//!
//! $ curl -i -H 'x-api-key: key-of-mallory' http://127.0.0.1:3000/search
//! HTTP/1.1 403 Forbidden
//!
//! {"type":"..","title":"The client is shut out","status":403,"detail":"rate limit `month` denies the caller"}
//!
//! $ curl -i -H 'x-api-key: made-up' http://127.0.0.1:3000/search
//! HTTP/1.1 401 Unauthorized
//! ```
//!
//! After eight calls of Carol the service prints `mail to carol: 2 calls are left this month`, once.

use std::{
    env,
    error::Error,
    fmt::{self, Display, Write},
    time::{Duration, SystemTime},
};

use axum::{
    Extension, Router,
    extract::Request,
    http::{HeaderValue, StatusCode},
    middleware::{Next, from_fn},
    response::{Response, Result},
    routing::get,
};
use ratelimit_runtime::{
    CalendarUnit, LimitRef, Limiter, Override, Plans, Policy, RateLimitError, Warning, install,
    limiter,
    overrides::Place,
    rate_limit,
    usage::UsageError,
    web::tower::{Identity, IdentityLayer},
};
use tokio::net::TcpListener;

const MINUTE: Duration = Duration::from_secs(60);

/// Calls a minute, by plan: who upgrades keeps the count.
const API: Plans = Plans::new("api", "free", Policy::sliding_window("free", MINUTE, 5))
    .plan("pro", Policy::sliding_window("pro", MINUTE, 50));

/// Calls a month, by plan, until the first of the next one in Berlin.
const MONTH: Plans = Plans::new("month", "free", month(10)).plan("pro", month(100));

const fn month(calls: u32) -> Policy {
    Policy::calendar_window("month", CalendarUnit::Month, calls).zone("Europe/Berlin")
}

/// The customer, by the API key. The name is the caller of the limits.
#[derive(Clone)]
struct Customer {
    name: &'static str,
    plan: &'static str,
}

impl Display for Customer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Answers 401 for a missing or unknown key, before a limit is asked.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let (name, plan) = match request.headers().get("x-api-key").map(HeaderValue::as_bytes) {
        Some(b"key-of-alice") => ("alice", "free"),
        Some(b"key-of-bob") => ("bob", "pro"),
        Some(b"key-of-carol") => ("carol", "free"),
        Some(b"key-of-mallory") => ("mallory", "pro"),
        _ => return Err(StatusCode::UNAUTHORIZED),
    };
    request.extensions_mut().insert(Customer { name, plan });
    Ok(next.run(request).await)
}

/// At four fifths of the month the customer gets a mail, once.
#[rate_limit(policy = API, plan = customer.plan)]
#[rate_limit(policy = MONTH, plan = customer.plan, warn_at = "80%")]
async fn search(Extension(customer): Extension<Customer>) -> Result<String> {
    Ok(format!("results for {customer}\n"))
}

/// The customer's crawler uses the same calls, and leaves a fifth of them to people.
#[rate_limit(policy = API, plan = customer.plan, leave = "20%")]
async fn crawl(Extension(customer): Extension<Customer>) -> Result<String> {
    Ok(format!("pages for {customer}\n"))
}

/// The page that a customer sees.
async fn usage(Extension(customer): Extension<Customer>) -> Result<String> {
    let mut page = format!("{customer} ({})\n", customer.plan);
    for (what, plans) in [("calls this minute", &API), ("calls this month", &MONTH)] {
        let limit = LimitRef::from(plans.of(customer.plan));
        let usage = limiter().usage(limit, customer.name).await;
        let usage = usage.map_err(|why| match why {
            UsageError::Failed(RateLimitError::Denied(_)) => StatusCode::FORBIDDEN,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        })?;
        for tier in usage.tiers() {
            let (used, quota) = (tier.used(), tier.quota());
            let seconds = tier.reset_after().as_secs_f64().ceil();
            let _ = writeln!(page, "{what}: {used} of {quota}, all back in {seconds} s");
        }
    }
    Ok(page)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mails = |warning: Warning| {
        let left = warning.decision().remaining();
        eprintln!("mail to {}: {left} calls are left this month", warning.caller_key());
    };
    let limiter = Limiter::builder().on_warning(mails).from_env().await?;
    // Carol has a demonstration until the evening, and Mallory has not paid.
    let evening = SystemTime::now() + Duration::from_secs(8 * 3_600);
    let overrides = limiter.overrides();
    overrides.here().set(("api", "carol"), Override::new().threshold(500).until(evening))?;
    overrides.here().set((Place::all(), "mallory"), Override::new().deny())?;
    install(limiter)?;

    let service = Router::new()
        .route("/search", get(search))
        .route("/crawl", get(crawl))
        .route("/usage", get(usage))
        .layer(IdentityLayer::new(Identity::extension::<Customer>()))
        .layer(from_fn(authenticate));
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, service).await?;
    Ok(())
}
