//! `cargo run -p examples-axum --example axum_service`
//!
//! The usual limits of a service:
//!
//! - a login whose failures count, by address, and by address and account;
//! - mail with several windows and an API by plan, both by the owner of an API key;
//! - uploads, before their bodies are read.
//!
//! The service is behind a proxy on this machine, whose part `curl` takes here. The fourth guess at an
//! account from one address is refused, and the account's owner can still log in elsewhere:
//!
//! ```text
//! $ curl -i -d 'account=ali&password=guess' -H 'x-forwarded-for: 203.0.113.9' http://127.0.0.1:3000/login
//! HTTP/1.1 403 Forbidden
//! ratelimit-policy: "login-address";q=5;w=60
//! ratelimit: "login-address";r=4;t=60
//!
//! $ for i in 2 3; do curl -d "account=+ALI&password=$i" -H 'x-forwarded-for: 203.0.113.9' http://127.0.0.1:3000/login; done
//!
//! $ curl -i -d 'account=ali&password=4' -H 'x-forwarded-for: 1.2.3.4, 203.0.113.9' http://127.0.0.1:3000/login
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/problem+json
//! cache-control: no-store
//! retry-after: 900
//! ratelimit-policy: "login-account";q=3;w=900
//! ratelimit: "login-account";r=0;t=900
//!
//! {"type":..,"detail":"rate limit `login-account` exceeded: at most 3 per 900s, retry after 900s","violated-policies":["login-account"]}
//!
//! $ curl -d 'account=ali&password=open+sesame' -H 'x-forwarded-for: 203.0.113.10' http://127.0.0.1:3000/login
//! welcome
//!
//! $ curl -i -H 'x-api-key: key-of-a-paid-plan' http://127.0.0.1:3000/api
//! HTTP/1.1 200 OK
//! ratelimit-policy: "api";q=100;w=60
//! ratelimit: "api";r=99;t=60
//!
//! 100 calls a minute
//!
//! $ for i in 1 2; do curl -H 'x-api-key: key-of-a-paid-plan' -d 'to=baba' http://127.0.0.1:3000/mail; echo; done
//! sent
//!
//! {"type":..,"detail":"rate limit `mail` exceeded: at most 1 per 60s, retry after 60s","violated-policies":["mail"]}
//!
//! $ curl -i -d 'data' http://127.0.0.1:3000/upload
//! HTTP/1.1 200 OK
//! ratelimit: "upload";r=1;t=60
//!
//! 4 bytes
//! ```
//!
//! `TRUSTED_PROXIES=networks cargo run ..` also trusts the proxies in this file, such as those of a
//! content delivery network. It has one network on each line, and may change while the service runs.

use std::{collections::HashMap, env, error::Error, net::SocketAddr, time::Duration};

use axum::{
    Form, Router,
    body::Bytes,
    extract::FromRequestParts,
    http::{HeaderValue, StatusCode, request::Parts},
    response::Result,
    routing::{get, post},
};
use ratelimit_runtime::{
    Limiter, Policy, caller, install, rate_limit,
    web::{
        ClientAddress, TrustedProxies,
        tower::{Identity, IdentityLayer, RateLimitLayer},
    },
};
use tokio::net::TcpListener;

type Fields = Form<HashMap<String, String>>;

/// Limits failures at one account from one address, and from one address at any account. The caller is the client, which
/// the layer identifies. Without the address in the key, any stranger could lock the owner out: see the example `login`.
#[rate_limit(
    name = "login-account",
    period = "15m",
    threshold = 3,
    key = (caller::current(), account(&form)),
    settle = |out| u32::from(out.is_err())
)]
#[rate_limit(
    name = "login-address",
    period = "1m",
    threshold = 5,
    settle = |out| u32::from(out.is_err())
)]
async fn login(form: Fields) -> Result<&'static str> {
    match form.get("password") {
        Some(password) if password == "open sesame" => Ok("welcome\n"),
        _ => Err(StatusCode::FORBIDDEN.into()),
    }
}

/// Normalized, so that spellings of one account share a limit.
fn account(form: &Fields) -> String {
    form.get("account").map(|account| account.trim().to_lowercase()).unwrap_or_default()
}

/// At most one mail a minute and five an hour for each account. The sender that a mail names is not
/// the caller.
#[rate_limit(
    name = "mail",
    tier(period = "1m", threshold = 1),
    tier(period = "1h", threshold = 5),
    key = account.id
)]
async fn send_mail(account: Account, Form(mail): Fields) -> Result<&'static str> {
    mail.get("to").ok_or(StatusCode::BAD_REQUEST)?;
    Ok("sent\n")
}

/// Limits calls by the account's plan. The caller is the account, because it has an API key.
#[rate_limit(name = "api", period = "1m", threshold = account.calls_per_minute)]
async fn api(account: Account) -> Result<String> {
    Ok(format!("{} calls a minute\n", account.calls_per_minute))
}

/// The limit of uploads, which a gate in front of the handler checks before it reads a body.
pub(crate) const UPLOAD: Policy = Policy::sliding_window("upload", Duration::from_secs(60), 2);

async fn upload(body: Bytes) -> String {
    format!("{} bytes\n", body.len())
}

/// Authenticates the API key. Unknown keys are refused here, so that none gets a quota.
struct Account {
    id: u32,
    calls_per_minute: u32,
}

impl Account {
    fn of(request: &Parts) -> Option<Self> {
        match request.headers.get("x-api-key").map(HeaderValue::as_bytes) {
            Some(b"key-of-a-free-plan") => Some(Self { id: 1, calls_per_minute: 2 }),
            Some(b"key-of-a-paid-plan") => Some(Self { id: 2, calls_per_minute: 100 }),
            _ => None,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Account {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        Self::of(parts).ok_or(StatusCode::UNAUTHORIZED)
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    install(Limiter::from_env().await?)?;
    // Only the proxies' own addresses: any host of a trusted network could choose its address.
    let mut proxies = TrustedProxies::new(["127.0.0.1", "::1"])?;
    if let Some(file) = env::var_os("TRUSTED_PROXIES") {
        proxies = proxies.and(&TrustedProxies::follow_file(file)?);
    }
    let client = ClientAddress::behind(proxies);
    let account = Identity::from_fn(|request| Some(Account::of(request)?.id.into()));
    let router = Router::new()
        .route("/login", post(login))
        .route("/mail", post(send_mail))
        .route("/api", get(api))
        .route("/upload", post(upload).layer(RateLimitLayer::new(UPLOAD)))
        .layer(IdentityLayer::new(account.or(Identity::address(client))));

    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
