//! A request that is sent again holds no answer while it waits.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use ratelimit_runtime::Limiter;
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
