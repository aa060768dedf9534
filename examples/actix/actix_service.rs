//! `cargo run -p examples-actix --example actix_service`
//!
//! A public search, limited by address or API key, and mail with several windows:
//!
//! ```text
//! $ curl -i 'http://127.0.0.1:3001/search?q=ratelimit'
//! HTTP/1.1 200 OK
//! ratelimit-policy: "search";q=3;w=60
//! ratelimit: "search";r=2;t=60
//!
//! nothing about ratelimit
//!
//! $ for i in 2 3; do curl 'http://127.0.0.1:3001/search?q=ratelimit'; done
//! nothing about ratelimit
//! nothing about ratelimit
//!
//! $ curl -i -H 'x-api-key: made-up' 'http://127.0.0.1:3001/search?q=ratelimit'
//! HTTP/1.1 429 Too Many Requests
//! cache-control: no-store
//! content-type: application/problem+json
//! retry-after: 60
//! ratelimit-policy: "search";q=3;w=60
//! ratelimit: "search";r=0;t=60
//!
//! {"type":..,"detail":"rate limit `search` exceeded: at most 3 per 60s, retry after 60s","violated-policies":["search"]}
//!
//! $ curl -H 'x-api-key: key-of-alice' 'http://127.0.0.1:3001/search?q=ratelimit'
//! nothing about ratelimit
//!
//! $ curl -i -d 'from=ali&to=baba' http://127.0.0.1:3001/mail
//! HTTP/1.1 200 OK
//! ratelimit-policy: "mail";q=1;w=60
//! ratelimit: "mail";r=0;t=60
//!
//! sent
//! ```
//!
//! `TRUSTED_PROXIES=networks cargo run ..` counts clients by their address behind the proxies in this file,
//! one network on each line.

use std::{collections::HashMap, env, error::Error};

use actix_web::{
    App, HttpResponse, HttpServer, Result,
    dev::ServiceRequest,
    error::ErrorBadRequest,
    get, post,
    web::{Form, Query},
};
use ratelimit_runtime::{
    Caller, Limiter, install, rate_limit,
    web::{
        ClientAddress, TrustedProxies,
        actix::{Identity, IdentityMiddleware, paths},
    },
};

type Fields = HashMap<String, String>;

/// Counted for the ambient caller, which the middleware sets.
#[get("/search")]
#[rate_limit(name = "search", period = "1m", threshold = 3)]
async fn search(query: Query<Fields>) -> Result<String> {
    let words = query.get("q").ok_or_else(|| ErrorBadRequest("`q` is missing\n"))?;
    Ok(format!("nothing about {words}\n"))
}

/// At most one mail a minute and five an hour, whatever sender the mail names. The return type is a
/// response, which can be a refusal.
#[post("/mail")]
#[rate_limit(name = "mail", tier(period = "1m", threshold = 1), tier(period = "1h", threshold = 5))]
async fn send_mail(mail: Form<Fields>) -> HttpResponse {
    match mail.get("to") {
        Some(_) => HttpResponse::Ok().body("sent\n"),
        None => HttpResponse::BadRequest().finish(),
    }
}

#[get("/healthz")]
async fn health() -> &'static str {
    "well\n"
}

/// Returns the owner of an API key. An unknown key has no owner, and therefore no quota of its own.
fn key_owner(request: &ServiceRequest) -> Option<Caller> {
    match request.headers().get("x-api-key")?.as_bytes() {
        b"key-of-alice" => Some("alice".into()),
        _ => None,
    }
}

#[actix_web::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    install(Limiter::from_env().await?)?;
    let client = match env::var_os("TRUSTED_PROXIES") {
        Some(file) => Identity::address(ClientAddress::behind(TrustedProxies::follow_file(file)?)),
        None => Identity::peer(),
    };
    let identity = Identity::from_fn(key_owner).or(client);
    let identity = IdentityMiddleware::new(identity).skip(paths(["/healthz"]));
    let app = move || App::new().wrap(identity.clone()).service((search, send_mail, health));

    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3001".to_owned());
    let server = HttpServer::new(app).bind(address)?;
    println!("listening on http://{}", server.addrs()[0]);
    server.run().await?;
    Ok(())
}
