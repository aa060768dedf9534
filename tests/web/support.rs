//! An axum service on loopback, and requests to it.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, http::Request, response::Response};
use ratelimit_runtime::{
    RateLimitError,
    web::tower::{Identity, IdentityLayer},
};
use tokio::net::TcpListener;
use tower::ServiceExt;

pub(crate) type Limited<T> = Result<T, RateLimitError>;

/// Serves on a port of its own until the test ends.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    address
}

/// Returns a client whose requests fail if they do not end.
pub(crate) fn client() -> reqwest::Client {
    let minute = Duration::from_secs(60);
    reqwest::Client::builder().no_proxy().timeout(minute).build().unwrap()
}

pub(crate) fn by_user() -> IdentityLayer {
    IdentityLayer::new(Identity::header("x-user"))
}

/// A request straight to a service.
pub(crate) fn request(path: &str, user: &str) -> Request<Body> {
    Request::get(path).header("x-user", user).body(Body::empty()).unwrap()
}

pub(crate) async fn ask(router: &Router, request: Request<Body>) -> Response {
    router.clone().oneshot(request).await.unwrap()
}

pub(crate) fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}
