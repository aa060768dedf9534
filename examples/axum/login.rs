//! `cargo run -p examples-axum --example login`
//!
//! A login that counts failures only: ten a minute from one address, three in 15 minutes at one account by strangers
//! altogether, and three by each browser that has logged in to the account before. Such a browser has a signed cookie,
//! so strangers never lock the owner out:
//!
//! ```text
//! $ curl -i -c device -d 'account=ali&password=open+sesame' http://127.0.0.1:3000/login
//! HTTP/1.1 200 OK
//! set-cookie: device=..; HttpOnly; SameSite=Strict; Secure; Path=/; Max-Age=..
//! ratelimit: "login-address";r=10
//!
//! welcome
//!
//! $ for guess in 1 2 3; do curl -d "account=+ALI&password=$guess" http://127.0.0.1:3000/login; done
//! wrong account or password
//! wrong account or password
//! wrong account or password
//!
//! $ curl -i -d 'account=ali&password=open+sesame' http://127.0.0.1:3000/login
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/problem+json
//! retry-after: 900
//! ratelimit: "login-account";r=0;t=900
//!
//! {"type":..,"detail":"rate limit `login-account` exceeded: at most 3 per 900s, retry after 900s","violated-policies":["login-account"]}
//!
//! $ curl -b device -d 'account=ali&password=open+sesame' http://127.0.0.1:3000/login
//! welcome
//! ```
//!
//! A fleet shares the counts by `RATELIMIT_URL`, and the key of the cookies by `COOKIE_KEY`, 64 bytes at least.

use std::{collections::HashMap, env, error::Error, net::SocketAddr};

use axum::{
    Form, Router,
    extract::{FromRequest, Request},
    http::StatusCode,
    response::Result,
    routing::post,
};
use axum_extra::extract::{
    SignedCookieJar,
    cookie::{Cookie, Key, SameSite},
};
use ratelimit_runtime::{
    Limiter, install, rate_limit,
    web::tower::{Identity, IdentityLayer},
};
use tokio::net::TcpListener;

/// A login, as it was sent.
struct Login {
    account: String,
    password: String,
    /// The id of a browser that has logged in to this account before.
    device: Option<String>,
    cookies: SignedCookieJar,
}

impl FromRequest<Key> for Login {
    type Rejection = StatusCode;

    async fn from_request(request: Request, key: &Key) -> Result<Self, StatusCode> {
        let cookies = SignedCookieJar::from_headers(request.headers(), key.clone());
        let form: Result<Form<HashMap<String, String>>, _> = Form::from_request(request, key).await;
        let Form(mut form) = form.map_err(|error| error.status())?;
        let mut field = |name| form.remove(name).ok_or(StatusCode::BAD_REQUEST);
        // Normalized, so that spellings of one account share a limit.
        let account = field("account")?.trim().to_lowercase();
        let cookie = cookies.get("device");
        let device = cookie.as_ref().and_then(|cookie| cookie.value().split_once('/'));
        let device = device.filter(|(_, owner)| *owner == account).map(|(id, _)| id.to_owned());
        Ok(Self { account, password: field("password")?, device, cookies })
    }
}

/// Each attempt is charged before the password is read, so that nobody can try many at once, and given back if it was
/// right. A known device is not counted with its address: a neighbour's guesses are not the owner's.
#[rate_limit(
    name = "login-account",
    period = "15m",
    threshold = 3,
    key = (&login.account, &login.device),
    settle = |out| u32::from(out.is_err())
)]
#[rate_limit(
    name = "login-address",
    period = "1m",
    threshold = 10,
    skip = login.device.is_some(),
    settle = |out| u32::from(out.is_err())
)]
async fn login(login: Login) -> Result<(SignedCookieJar, &'static str)> {
    if login.password != "open sesame" {
        return Err((StatusCode::FORBIDDEN, "wrong account or password\n").into());
    }
    // The id need not be secret: nobody else can sign it.
    let id = login.device.unwrap_or_else(|| format!("{:016x}", fastrand::u64(..)));
    let device = Cookie::build(("device", format!("{id}/{}", login.account)))
        .path("/")
        .http_only(true)
        .secure(true)
        .same_site(SameSite::Strict)
        .permanent();
    Ok((login.cookies.add(device), "welcome\n"))
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    install(Limiter::from_env().await?)?;
    let key = match env::var("COOKIE_KEY") {
        Ok(key) => Key::try_from(key.as_bytes())?,
        Err(_) => Key::generate(),
    };
    let router = Router::new()
        .route("/login", post(login))
        .layer(IdentityLayer::new(Identity::peer()))
        .with_state(key);
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
