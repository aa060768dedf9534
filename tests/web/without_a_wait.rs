//! Refusals without a wait that is known reach real clients as documented: all permits are held (`Busy`), and requests
//! that their limit can never admit (`TooLarge`).

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension, Router, ServiceExt,
    body::Body,
    extract::Path,
    http::{Request, Response, StatusCode},
    response::IntoResponse,
    routing::get,
};
use futures_util::future::join;
use ratelimit_runtime::web::OnMissing;
use ratelimit_runtime::{
    Limiter, Policy, RateLimitError, rate_limit,
    web::{
        EXPOSED_HEADERS, HeaderSyntax, PROBLEM_JSON, Refusal,
        actix::{Identity, IdentityMiddleware},
        tower::RateLimitLayer,
    },
};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Notify};
use tower::{ServiceBuilder, service_fn};

use crate::{
    on_actix::Server,
    support::{Limited, by_user, client, serve},
};

const ONE_AT_A_TIME: Policy = Policy::concurrency_limit("gate", 1);
const NOTHING: Policy = Policy::sliding_window("nothing", Duration::from_secs(60), 0);

/// Calls that stay in flight until they are told to end.
#[derive(Default)]
pub(crate) struct Held {
    entered: Notify,
    end: Notify,
}

impl Held {
    pub(crate) async fn stay(&self) {
        self.entered.notify_one();
        self.end.notified().await;
    }

    /// Runs a call, and another one while the first is in flight.
    pub(crate) async fn beside<T>(&self, call: impl AsyncFn() -> T) -> [T; 2] {
        let second = async {
            self.entered.notified().await;
            let answer = call().await;
            self.end.notify_one();
            answer
        };
        join(call(), second).await.into()
    }
}

pub(crate) async fn ask(url: &str) -> reqwest::Response {
    client().get(url).header("x-user", "alice").send().await.unwrap()
}

pub(crate) fn field<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    assert!(headers.get_all(name).iter().count() <= 1, "{name}: {headers:?}");
    headers.get(name).map(|value| value.to_str().unwrap())
}

/// Asks while another request is in flight. It is refused, and one after it is not.
async fn assert_busy(held: &Held, url: &str, policy: &str) {
    let [admitted, refused] = held.beside(async || ask(url).await).await;
    let policies = format!(r#""{policy}";q=1;qu="concurrent-requests""#);
    assert_eq!(admitted.status(), 200);
    for response in [&admitted, &refused] {
        let headers = response.headers();
        assert_eq!(field(headers, "ratelimit-policy"), Some(&*policies));
        assert_eq!(field(headers, "ratelimit"), Some(&*format!(r#""{policy}";r=0"#)));
        let wait = field(headers, "retry-after");
        // A guess.
        assert_eq!(matches!(wait, Some("1" | "2")), response.status() == 429, "{wait:?}");
    }
    assert_eq!(refused.status(), 429);
    assert_eq!(field(refused.headers(), "cache-control"), Some("no-store"));
    assert_eq!(field(refused.headers(), "content-type"), Some(PROBLEM_JSON));
    let scope = field(refused.headers(), "x-ratelimit-scope").unwrap().to_owned();
    assert_eq!(
        refused.json::<Value>().await.unwrap(),
        json!({
            "type": "https://docs.rs/ratelimit-runtime/latest/ratelimit_runtime/struct.Busy.html",
            "title": "As many requests are in flight as the rate limit allows",
            "status": 429,
            "scope": scope,
            "detail": format!("rate limit `{policy}` is busy: at most 1 in flight"),
            "violated-policies": [policy],
        })
    );
    held.end.notify_one();
    assert_eq!(ask(url).await.status(), 200, "the permit is free");
}

async fn assert_too_large(url: &str, detail: &str) {
    for _ in 0..2 {
        let refused = ask(url).await;
        assert_eq!(refused.status(), 422);
        for name in EXPOSED_HEADERS {
            assert_eq!(field(refused.headers(), name), None);
        }
        assert_eq!(field(refused.headers(), "cache-control"), Some("no-store"));
        assert_eq!(field(refused.headers(), "content-type"), Some(PROBLEM_JSON));
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(problem["title"], "Request takes more than its rate limit ever admits");
        assert_eq!(problem["detail"], detail);
    }
}

const NEVER_SIX: &str = "rate limit `pages` never admits 6 units at once: at most 5 per 60s";
const NEVER: &str = "rate limit `nothing` admits nothing: its threshold is 0";

#[tokio::test]
async fn on_axum() {
    #[rate_limit(name = "attribute", concurrency = 1)]
    async fn stay(Extension(held): Extension<Arc<Held>>) -> Limited<()> {
        held.stay().await;
        Ok(())
    }

    #[rate_limit(name = "pages", threshold = 5, cost = pages)]
    async fn print(Path(pages): Path<u32>) -> axum::response::Result<String> {
        Ok(pages.to_string())
    }

    let held = Arc::new(Held::default());
    let gate = |policy| {
        RateLimitLayer::new(policy).on_missing(OnMissing::Shared).limiter(Limiter::in_memory())
    };
    let stay_behind = |Extension(held): Extension<Arc<Held>>| async move { held.stay().await };
    let router = Router::new()
        .route("/attribute", get(stay))
        .route("/gate", get(stay_behind).layer(gate(ONE_AT_A_TIME)))
        .route("/print/{pages}", get(print))
        .route("/nothing", get(|| async {}).layer(gate(NOTHING)))
        .layer(Extension(Arc::clone(&held)))
        .layer(by_user());
    let url = format!("http://{}", serve(router).await);
    assert_busy(&held, &format!("{url}/attribute"), "attribute").await;
    assert_busy(&held, &format!("{url}/gate"), "gate").await;
    assert_too_large(&format!("{url}/print/6"), NEVER_SIX).await;
    assert_eq!(ask(&format!("{url}/print/5")).await.status(), 200);
    assert_too_large(&format!("{url}/nothing"), NEVER).await;
}

mod handlers {
    use std::sync::Arc;

    use actix_web::{
        get,
        web::{Data, Path},
    };
    use ratelimit_runtime::rate_limit;

    use super::Held;

    #[get("/stay")]
    #[rate_limit(name = "attribute", concurrency = 1, key = "actix")]
    pub(super) async fn stay(held: Data<Arc<Held>>) -> actix_web::HttpResponse {
        held.stay().await;
        actix_web::HttpResponse::Ok().finish()
    }

    #[get("/print/{pages}")]
    #[rate_limit(name = "pages", threshold = 5, cost = *pages, key = "actix")]
    pub(super) async fn print(pages: Path<u32>) -> actix_web::Result<String> {
        Ok(pages.to_string())
    }
}

#[tokio::test]
async fn on_actix() {
    let held = Arc::new(Held::default());
    let data = Arc::clone(&held);
    let identity = IdentityMiddleware::new(Identity::header("x-user")).explicit_keys(true);
    let server = Server::serve(identity, move |config| {
        let data = actix_web::web::Data::new(Arc::clone(&data));
        config.app_data(data).service((handlers::stay, handlers::print));
    });
    assert_busy(&held, &server.url("/stay"), "attribute").await;
    assert_too_large(&server.url("/print/6"), NEVER_SIX).await;
    assert_eq!(ask(&server.url("/print/5")).await.status(), 200);
}

/// Makes the response of a service without a framework.
fn refused(error: RateLimitError) -> Response<Body> {
    let refusal = Refusal::from(error);
    let mut response = Response::builder()
        .status(StatusCode::from_u16(refusal.status()).unwrap())
        .header("content-type", PROBLEM_JSON);
    for (name, value) in refusal.headers(HeaderSyntax::default()) {
        response = response.header(name, value);
    }
    response.body(Body::from(refusal.problem())).unwrap()
}

#[tokio::test]
async fn on_tower() {
    #[rate_limit(
        name = "attribute",
        concurrency = 1,
        key = "tower",
        otherwise = |error| refused(error)
    )]
    async fn stay(held: &Held) -> Response<Body> {
        held.stay().await;
        Response::default()
    }

    #[rate_limit(name = "pages", threshold = 5, cost = pages, otherwise = |error| refused(error))]
    async fn print(pages: u32) -> Response<Body> {
        pages.to_string().into_response()
    }

    let held = Arc::new(Held::default());
    let shared = Arc::clone(&held);
    let service = service_fn(move |request: Request<Body>| {
        let held = Arc::clone(&shared);
        async move {
            Ok::<_, Infallible>(match request.uri().path() {
                "/attribute" => stay(&held).await,
                "/print" => print(6).await,
                _ => {
                    held.stay().await;
                    Response::default()
                }
            })
        }
    });
    let gate = |policy, path: &'static str| {
        let gate =
            RateLimitLayer::new(policy).on_missing(OnMissing::Shared).limiter(Limiter::in_memory());
        gate.skip(move |request| request.uri.path() != path)
    };
    let service = ServiceBuilder::new()
        .layer(by_user().explicit_keys(true))
        .layer(gate(ONE_AT_A_TIME, "/gate"))
        .layer(gate(NOTHING, "/nothing"))
        .service(service);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, service.into_make_service()).await });
    assert_busy(&held, &format!("{url}/attribute"), "attribute").await;
    assert_busy(&held, &format!("{url}/gate"), "gate").await;
    assert_too_large(&format!("{url}/print"), NEVER_SIX).await;
    assert_too_large(&format!("{url}/nothing"), NEVER).await;
}
