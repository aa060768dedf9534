//! A client heeds what a remote service answers: its calls wait, in all processes, and are sent again.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Body;
use futures_util::{StreamExt, stream};
use harness::{Lines, RedisServer, heat, listen, patient};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, request::Parts};
use ratelimit_runtime::{Caller, DecidedBy, Limiter, Policy, RateLimitError, client::HeedLayer};
use tokio::time::{Instant, advance};
use tower::{
    Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer, service_fn, util::BoxCloneService,
};

const SECOND: Duration = Duration::from_secs(1);
const PACE: Policy = Policy::sliding_window("pace", SECOND, 10);

pub(crate) fn headers(name: &'static str, value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_str(value).unwrap());
    headers
}

/// A remote service that refuses the first request to `/busy`, and the times at which it was called.
type Remote = BoxCloneService<Request<()>, Response<String>, Infallible>;

pub(crate) type Called = Arc<Mutex<Vec<(String, Instant)>>>;

fn remote() -> (Remote, Called) {
    let called = Called::default();
    let log = Arc::clone(&called);
    let service = service_fn(move |request: Request<()>| {
        let mut log = log.lock().unwrap();
        let path = request.uri().path().to_owned();
        let is_refused = path == "/busy" && !log.iter().any(|(it, _)| *it == path);
        log.push((path, Instant::now()));
        let mut response = Response::new(String::new());
        if is_refused {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            *response.headers_mut() = headers("retry-after", "30");
        }
        std::future::ready(Ok(response))
    });
    (BoxCloneService::new(service), called)
}

pub(crate) fn by_path(limiter: &Limiter) -> HeedLayer {
    HeedLayer::new(limiter.clone(), PACE, |head: &Parts| Caller::from(head.uri.path()))
}

pub(crate) fn request(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_sent_again_after_the_pause_and_other_endpoints_go_on() {
    let ((remote, called), limiter) = (remote(), Limiter::in_memory());
    let start = Instant::now();
    let client = by_path(&limiter).max_wait(60 * SECOND).layer(remote);
    let busy = tokio::spawn(client.clone().oneshot(request("/busy")));
    tokio::task::yield_now().await;
    let behind = tokio::spawn(client.clone().oneshot(request("/busy")));
    assert_eq!(client.oneshot(request("/free")).await.unwrap().status(), 200);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(busy.await.unwrap().unwrap().status(), 200);
    assert_eq!(behind.await.unwrap().unwrap().status(), 200);
    let called = called.lock().unwrap();
    let times = called.iter().filter(|(path, _)| path == "/busy");
    let seconds: Vec<_> = times.map(|(_, at)| (*at - start).as_secs()).collect();
    assert_eq!(seconds, [0, 30, 30]);
}

/// A request in line takes no place of the service that the layer wraps.
#[tokio::test(start_paused = true)]
async fn other_endpoints_go_on_although_the_service_takes_one_request_at_a_time() {
    let ((remote, _), limiter) = (remote(), Limiter::in_memory());
    let start = Instant::now();
    let remote = ConcurrencyLimitLayer::new(1).layer(remote);
    // However long it takes.
    let client = by_path(&limiter).max_wait(Duration::MAX).layer(remote);
    let busy = tokio::spawn(client.clone().oneshot(request("/busy")));
    tokio::task::yield_now().await;
    let behind = tokio::spawn(client.clone().oneshot(request("/busy")));
    tokio::task::yield_now().await;
    assert_eq!(client.oneshot(request("/free")).await.unwrap().status(), 200);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(busy.await.unwrap().unwrap().status(), 200);
    assert_eq!(behind.await.unwrap().unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_asks_for_more_than_the_budget_is_in_flight_until_it_is_read() {
    const ONE: Policy = PACE.concurrency(1);
    let limiter = Limiter::in_memory();
    let remote = service_fn(|_: Request<()>| {
        let mut response = Response::new("later".to_owned());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        *response.headers_mut() = headers("retry-after", "30");
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let layer = HeedLayer::new(limiter.clone(), ONE, |_| "all".into()).max_wait(10 * SECOND);
    let answer = layer.layer(remote).oneshot(request("/busy")).await.unwrap();
    assert_eq!(answer.status(), 429);
    advance(31 * SECOND).await;
    let busy = limiter.check(&ONE, "all").await.unwrap_err();
    assert!(matches!(busy, RateLimitError::Busy(_)), "{busy}");
    drop(answer);
    limiter.check(&ONE, "all").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_sent_again_is_behind_those_in_line() {
    const ONE: Policy = Policy::sliding_window("one", SECOND, 1);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&sent);
    let remote = service_fn(move |request: Request<()>| {
        let log = Arc::clone(&log);
        async move {
            // The others are in line by then.
            tokio::time::sleep(SECOND / 2).await;
            let mut log = log.lock().unwrap();
            let mut response = Response::new(String::new());
            if log.is_empty() {
                *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                *response.headers_mut() = headers("retry-after", "30");
            }
            log.push(request.uri().path().to_owned());
            Ok::<_, Infallible>(response)
        }
    });
    let layer = HeedLayer::new(Limiter::in_memory(), ONE, |_| "all".into()).max_wait(60 * SECOND);
    let client = layer.layer(remote);
    let calls = ["/first", "/second", "/third"]
        .map(|path| tokio::spawn(client.clone().oneshot(request(path))));
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(*sent.lock().unwrap(), ["/first", "/second", "/third", "/first"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_asks_for_more_than_the_budget_is_returned() {
    let ((remote, called), limiter) = (remote(), Limiter::in_memory());
    let mut client = by_path(&limiter).max_wait(10 * SECOND).layer(remote);
    let answer = client.ready().await.unwrap().call(request("/busy")).await.unwrap();
    assert_eq!(answer.status(), 429);
    // The next one is not sent.
    let refused = client.ready().await.unwrap().call(request("/busy")).await.unwrap_err();
    let refused = refused.downcast::<RateLimitError>().unwrap();
    assert!(matches!(*refused, RateLimitError::Exceeded(it) if it.retry_after() == 30 * SECOND));
    assert_eq!(called.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn late_and_unknown_answers_are_not_heeded() {
    let limiter = Limiter::in_memory();
    let decision = limiter.check(&PACE, "all").await.unwrap();
    let told = headers("retry-after", "30");
    let busy = StatusCode::TOO_MANY_REQUESTS;
    for (status, headers) in [
        (StatusCode::OK, &told),
        (busy, &HeaderMap::new()),
        (busy, &headers("retry-after", "soon")),
    ] {
        assert!(!limiter.heed(&decision, status, headers).await.unwrap());
    }
    advance(30 * SECOND).await;
    assert!(!limiter.heed(&decision, busy, &told).await.unwrap());
    assert!(limiter.check(&PACE, "all").await.is_ok());
    let decision = limiter.check(&PACE, "all").await.unwrap();
    advance(29 * SECOND).await;
    assert!(limiter.heed(&decision, busy, &told).await.unwrap());
    assert!(limiter.check(&PACE, "all").await.is_err());
}

/// `heed` refuses each policy that `pause` refuses, with the same words.
#[tokio::test]
async fn a_limit_that_cannot_be_paused_cannot_heed() {
    let limiter = Limiter::in_memory();
    for policy in [
        PACE.count_rejected(),
        PACE.block(&[SECOND]),
        PACE.lease(SECOND / 50),
        PACE.tier(30 * SECOND, 100).block(&[SECOND]),
        Policy::token_bucket("pace", SECOND, 10),
    ] {
        limiter.reset(&policy, "all").await.unwrap();
        let decision = limiter.check(&policy, "all").await.unwrap();
        let told = headers("ratelimit", "\"all\";r=0;t=30");
        let error = limiter.heed(&decision, StatusCode::OK, &told).await.unwrap_err();
        let of_pause = limiter.pause(&policy, "all", SECOND).await.unwrap_err();
        assert_eq!(error, of_pause, "{policy:?}");
        assert!(matches!(error, RateLimitError::InvalidPolicy(_)), "{error}");
        limiter.check(&policy, "all").await.unwrap();
    }
}

/// The first calls under a lease are decided by Redis, and those of a hot key by the process.
#[tokio::test]
async fn neither_a_cold_nor_a_hot_call_under_a_lease_can_heed() {
    const LEASED: Policy =
        Policy::sliding_window("leased", Duration::from_secs(10), 100_000).lease(SECOND);
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let told = headers("retry-after", "30");
    let cold = limiter.check(&LEASED, "alice").await.unwrap();
    assert_eq!(cold.decided_by(), DecidedBy::Store);
    heat(&limiter, &LEASED).await;
    let hot = limiter.check(&LEASED, "alice").await.unwrap();
    assert_eq!(hot.decided_by(), DecidedBy::Lease);
    for decision in [cold, hot] {
        let heeded = limiter.heed(&decision, StatusCode::TOO_MANY_REQUESTS, &told).await;
        let error = heeded.unwrap_err().to_string();
        assert!(error.contains("under `lease`"), "{error}");
    }
    limiter.check(&LEASED, "alice").await.unwrap();
}

/// The longest pause cuts the wait, and not the time for which the answer counts.
#[tokio::test(start_paused = true)]
async fn an_answer_is_late_by_the_wait_that_it_asks_for() {
    let limiter = Limiter::builder().max_pause(10 * SECOND).in_memory();
    let decision = limiter.check(&PACE, "all").await.unwrap();
    let (busy, told) = (StatusCode::TOO_MANY_REQUESTS, headers("retry-after", "30"));
    advance(29 * SECOND).await;
    assert!(limiter.heed(&decision, busy, &told).await.unwrap());
    let refused = limiter.check(&PACE, "all").await.unwrap_err();
    assert!(matches!(refused, RateLimitError::Exceeded(it) if it.retry_after() == 10 * SECOND));
    advance(10 * SECOND).await;
    assert!(!limiter.heed(&decision, busy, &told).await.unwrap());
}

/// An account that is drained for hours is not asked every ten minutes.
#[tokio::test(start_paused = true)]
async fn a_wait_of_hours_is_heeded_and_each_cut_is_logged() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let limiter = Limiter::in_memory();
    let busy = StatusCode::TOO_MANY_REQUESTS;
    let cuts = || lines.all().iter().filter(|line| line.contains("`max_pause`")).count();
    for (account, told, kept, expected_cuts) in [
        ("a", 7_999, 7_999, 0),
        ("b", 86_400, 86_400, 0),
        ("c", 86_401, 86_400, 1),
        ("d", 1_000_000, 86_400, 2),
    ] {
        let decision = limiter.check(&PACE, account).await.unwrap();
        let told = headers("retry-after", &told.to_string());
        assert!(limiter.heed(&decision, busy, &told).await.unwrap());
        let refused = limiter.check(&PACE, account).await.unwrap_err();
        assert!(
            matches!(&refused, RateLimitError::Exceeded(it) if it.retry_after() == kept * SECOND),
            "{account}: {refused}"
        );
        assert_eq!(cuts(), expected_cuts, "{:?}", lines.all());
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_of_anthropic_is_heeded() {
    let limiter = Limiter::in_memory();
    let decision = limiter.check(&PACE, "all").await.unwrap();
    let mut told = headers("anthropic-ratelimit-input-tokens-remaining", "0");
    let reset = HeaderValue::from_static("2026-11-28T10:00:30Z");
    told.insert("anthropic-ratelimit-input-tokens-reset", reset);
    told.insert("date", HeaderValue::from_static("Sat, 28 Nov 2026 10:00:00 GMT"));
    assert!(limiter.heed(&decision, StatusCode::OK, &told).await.unwrap());
    let refused = limiter.check(&PACE, "all").await.unwrap_err();
    assert!(matches!(refused, RateLimitError::Exceeded(it) if it.retry_after() == 30 * SECOND));
}

/// The clocks of two stores have nothing in common.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_call_of_another_limiter_is_not_compared() {
    let other = Limiter::in_memory();
    advance(60 * SECOND).await;
    let first = Limiter::in_memory();
    let decision = first.check(&PACE, "all").await.unwrap();
    let told = headers("retry-after", "30");
    assert!(other.heed(&decision, StatusCode::TOO_MANY_REQUESTS, &told).await.unwrap());
    assert!(other.check(&PACE, "all").await.is_err());
    assert!(first.check(&PACE, "all").await.is_ok());
}

/// Several lines of one field are one list.
#[tokio::test(start_paused = true)]
async fn each_line_of_a_field_is_heeded() {
    let limiter = Limiter::in_memory();
    let decision = limiter.check(&PACE, "all").await.unwrap();
    let mut told = headers("ratelimit", "\"minute\";r=5;t=40");
    told.append("ratelimit", HeaderValue::from_static("\"day\";r=0;t=30"));
    assert!(limiter.heed(&decision, StatusCode::OK, &told).await.unwrap());
    let refused = limiter.check(&PACE, "all").await.unwrap_err();
    assert!(matches!(refused, RateLimitError::Exceeded(it) if it.retry_after() == 30 * SECOND));
}

/// A client that would read a second answer beside the first has two calls in flight.
#[tokio::test]
async fn a_call_is_in_flight_until_its_answer_is_read_to_the_end_or_dropped() {
    const ONE: Policy = PACE.concurrency(1);
    let limiter = Limiter::in_memory();
    let remote = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Body::from_stream(stream::iter([Ok::<_, Infallible>(
            "data",
        )]))))
    });
    let client = HeedLayer::new(limiter.clone(), ONE, |_| "all".into()).layer(remote);
    for is_read in [true, false] {
        let answer = client.clone().oneshot(request("/")).await.unwrap();
        let refused = limiter.check(&ONE, "all").await.unwrap_err();
        assert!(matches!(refused, RateLimitError::Busy(_)), "{refused}");
        let mut data = Some(Body::new(answer.into_body()).into_data_stream());
        if is_read {
            while data.as_mut().unwrap().next().await.is_some() {}
        } else {
            data = None;
        }
        drop(limiter.check(&ONE, "all").await.unwrap());
        drop(data);
    }
}

/// The permit of a refused request is free while that waits, or it would wait for itself.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_sent_again_is_one_call_in_flight() {
    let ((remote, called), limiter) = (remote(), Limiter::in_memory());
    let key = |head: &Parts| Caller::from(head.uri.path());
    let layer = HeedLayer::new(limiter, PACE.concurrency(1), key).max_wait(60 * SECOND);
    assert_eq!(layer.layer(remote).oneshot(request("/busy")).await.unwrap().status(), 200);
    assert_eq!(called.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_refusal_comes_after_its_wait_is_sent_again() {
    for (max_wait, expected) in [(60, (200, 2)), (1, (429, 1))] {
        let sent = Arc::new(Mutex::new(0));
        let log = Arc::clone(&sent);
        let remote = service_fn(move |_: Request<()>| {
            let log = Arc::clone(&log);
            async move {
                tokio::time::sleep(2 * SECOND).await;
                let mut sent = log.lock().unwrap();
                *sent += 1;
                let mut response = Response::new(String::new());
                if *sent == 1 {
                    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                    *response.headers_mut() = headers("retry-after", "1");
                }
                Ok::<_, Infallible>(response)
            }
        });
        let layer = by_path(&Limiter::in_memory()).max_wait(max_wait * SECOND);
        let answer = layer.layer(remote).oneshot(request("/")).await.unwrap();
        assert_eq!((answer.status().as_u16(), *sent.lock().unwrap()), expected);
    }
}
