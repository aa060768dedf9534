//! A request that is sent again holds no answer while it waits, and waits for a pause that no store knows.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use futures_util::stream;
use harness::{Network, Proxy, RedisServer, limiter_on};
use http::{Request, Response, StatusCode};
use ratelimit_runtime::{Limiter, OnStoreError};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};

use crate::client::{Called, by_path, headers, request};

const SECOND: Duration = Duration::from_secs(1);

/// A remote service that refuses the first request, and holds this while its answer is open.
fn refuses_once(
    told: &'static str,
    open: &Arc<()>,
    sent: &Called,
) -> impl Fn(Request<()>) -> Answer + Clone + use<> {
    let (open, sent) = (Arc::clone(open), Arc::clone(sent));
    move |request: Request<()>| {
        let mut sent = sent.lock().unwrap();
        sent.push((request.uri().path().to_owned(), Instant::now()));
        let held = Arc::clone(&open);
        let body = stream::once(async move { Ok::<_, Infallible>(format!("{held:?}")) });
        let mut response = Response::new(Body::from_stream(body));
        if sent.len() == 1 {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            *response.headers_mut() = headers("retry-after", told);
        }
        std::future::ready(Ok(response))
    }
}

type Answer = std::future::Ready<Result<Response<Body>, Infallible>>;

/// A refused answer would keep its connection.
#[tokio::test(start_paused = true)]
async fn a_refused_answer_is_dropped_before_the_wait() {
    let (open, sent) = (Arc::new(()), Called::default());
    let remote = service_fn(refuses_once("30", &open, &sent));
    let remote = by_path(&Limiter::in_memory()).max_wait(60 * SECOND).layer(remote);
    let answer = tokio::spawn(remote.oneshot(request("/")));
    sleep(SECOND).await;
    assert_eq!(sent.lock().unwrap().len(), 1);
    // This one, and that of the service.
    assert_eq!(Arc::strong_count(&open), 2);
    assert_eq!(answer.await.unwrap().unwrap().status(), 200);
}

/// Redis does not know the pause then, and would let the request pass at once.
#[tokio::test]
async fn a_request_waits_for_a_pause_that_could_not_be_written_and_is_sent_again() {
    let server = RedisServer::start();
    let proxy = Arc::new(Proxy::start(server.port()));
    let limiter = limiter_on(&proxy.url(), OnStoreError::Deny).await;
    let (open, sent) = (Arc::new(()), Called::default());
    let (refuses, log) = (refuses_once("1", &open, &sent), Arc::clone(&sent));
    let remote = service_fn(move |request: Request<()>| {
        if log.lock().unwrap().is_empty() {
            proxy.set(Network::Swallows);
            let proxy = Arc::clone(&proxy);
            tokio::spawn(async move {
                sleep(SECOND / 2).await;
                proxy.heal();
            });
        }
        refuses(request)
    });
    let answer = by_path(&limiter).layer(remote).oneshot(request("/")).await.unwrap();
    assert_eq!(answer.status(), 200);
    let sent = sent.lock().unwrap();
    assert_eq!(sent.len(), 2);
    assert!(sent[1].1 - sent[0].1 >= SECOND, "{sent:?}");
}
