//! Inside a layer, a call of an annotated handler is in flight until the handler's response has been sent.

use std::{convert::Infallible, io};

use actix_web::{
    HttpResponse,
    web::{self as actix, Bytes, Data},
};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State,
    http::StatusCode,
    response::sse::{Event, Sse},
    routing::get,
};
use futures_util::{Stream, StreamExt, stream};
use harness::{on_each_store, until};
use ratelimit_runtime::{
    Caller, Limiter, Policy, caller, observe, rate_limit,
    web::{
        self,
        tower::{Identity, IdentityLayer, RateLimitLayer},
    },
};
use reqwest::Client;
use tokio::{net::TcpListener, task::yield_now};
use tonic::{Code, Status, transport::server::TcpIncoming};

use crate::{
    in_flight::{
        End, ONE, Replies, assert_held_until_the_end, body,
        feed::{
            feed_client::FeedClient,
            feed_server::{Feed as FeedService, FeedServer},
        },
        message, parts,
    },
    on_actix::Server,
    on_tonic::greeter::{HelloReply, HelloRequest},
    support::{Limited, ask, by_user, client, request, serve},
};

#[derive(Clone)]
struct Feed {
    limiter: Limiter,
    end: End,
}

impl Feed {
    fn new(limiter: Limiter) -> Self {
        Self { limiter, end: End::default() }
    }

    async fn is_free(&self) -> bool {
        self.limiter.peek(&ONE, Caller::digest("alice")).await.is_ok()
    }
}

#[rate_limit(policy = ONE, limiter = feed.limiter)]
async fn chunks(State(feed): State<Feed>) -> Limited<Body> {
    Ok(body(&feed.end))
}

#[rate_limit(policy = ONE, limiter = feed.limiter, decision = quota)]
async fn events(
    State(feed): State<Feed>,
) -> Limited<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    assert!(quota.has_permit());
    yield_now().await;
    Ok(Sse::new(parts(&feed.end).map(|part| Ok(Event::default().data(part)))))
}

#[rate_limit(name = "beside", threshold = 100, limiter = feed.limiter, key = 1)]
#[rate_limit(policy = ONE, limiter = feed.limiter)]
async fn beside_a_window(State(feed): State<Feed>) -> Limited<Body> {
    Ok(body(&feed.end))
}

#[rate_limit(policy = ONE, limiter = feed.limiter)]
async fn open(feed: &Feed) -> Limited<Body> {
    yield_now().await;
    Ok(body(&feed.end))
}

/// The helper's stream is the response.
async fn by_a_helper(State(feed): State<Feed>) -> Limited<Body> {
    open(&feed).await
}

async fn by_an_observed_helper(State(feed): State<Feed>) -> Limited<Body> {
    observe(open(&feed)).await.0
}

fn router(feed: &Feed) -> Router {
    Router::new()
        .route("/chunks", get(chunks))
        .route("/events", get(events))
        .route("/beside-a-window", get(beside_a_window))
        .route("/by-a-helper", get(by_a_helper))
        .route("/by-an-observed-helper", get(by_an_observed_helper))
        .with_state(feed.clone())
}

#[tokio::test]
async fn on_axum_over_http_1_and_2() {
    let http1 = Client::builder().no_proxy().http1_only().build().unwrap();
    let http2 = Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    for client in [http1, http2] {
        let feed = Feed::new(Limiter::in_memory());
        let url = format!("http://{}", serve(router(&feed).layer(by_user())).await);
        for path in
            ["/chunks", "/events", "/beside-a-window", "/by-a-helper", "/by-an-observed-helper"]
        {
            assert_held_until_the_end(&client, &format!("{url}{path}"), &feed.end).await;
        }
    }
}

/// Returns a part, and an error once `end` is notified.
fn failing(end: &End) -> impl Stream<Item = Result<&'static str, io::Error>> + use<> {
    let end = end.notified();
    let error = async move {
        end.await;
        Err(io::Error::other("in the middle"))
    };
    stream::iter([Ok("first")]).chain(stream::once(error))
}

#[rate_limit(policy = ONE, limiter = feed.limiter)]
async fn chunks_on_actix(feed: Data<Feed>) -> Limited<HttpResponse> {
    let parts = parts(&feed.end).map(|part| Ok::<_, Infallible>(Bytes::from(part)));
    Ok(HttpResponse::Ok().streaming(parts))
}

#[rate_limit(policy = ONE, limiter = feed.limiter)]
async fn fails_on_actix(feed: Data<Feed>) -> Limited<HttpResponse> {
    Ok(HttpResponse::Ok().streaming(failing(&feed.end).map(|part| part.map(Bytes::from))))
}

#[tokio::test]
async fn on_actix() {
    let feed = Feed::new(Limiter::in_memory());
    let data = feed.clone();
    let identity = web::actix::IdentityMiddleware::new(web::actix::Identity::header("x-user"));
    let server = Server::serve(identity, move |config| {
        let chunks = actix::resource("/chunks").route(actix::get().to(chunks_on_actix));
        let fails = actix::resource("/fails").route(actix::get().to(fails_on_actix));
        config.app_data(Data::new(data.clone())).service(chunks).service(fails);
    });
    assert_held_until_the_end(&client(), &server.url("/chunks"), &feed.end).await;

    let fails = client().get(server.url("/fails")).header("x-user", "alice");
    let mut fails = fails.send().await.unwrap();
    assert_eq!(fails.chunk().await.unwrap().unwrap(), "first");
    assert!(!feed.is_free().await);
    feed.end.notify();
    fails.chunk().await.unwrap_err();
    until("a free permit", async || feed.is_free().await.then_some(())).await;
}

#[tonic::async_trait]
impl FeedService for Feed {
    type FollowStream = Replies;

    #[rate_limit(policy = ONE, limiter = self.limiter)]
    async fn follow(
        &self,
        request: tonic::Request<HelloRequest>,
    ) -> Result<tonic::Response<Replies>, Status> {
        if request.get_ref().name == "nobody" {
            let replies =
                failing(&self.end).map(|part| Ok(HelloReply { message: part?.to_owned() }));
            return Ok(tonic::Response::new(replies.boxed()));
        }
        let replies = parts(&self.end);
        let replies = replies.map(|part| Ok(HelloReply { message: part.to_owned() }));
        Ok(tonic::Response::new(replies.boxed()))
    }
}

#[tokio::test]
async fn on_tonic() {
    let feed = Feed::new(Limiter::in_memory());
    let server = tonic::transport::Server::builder()
        .layer(by_user().respond(web::tonic::respond))
        .add_service(FeedServer::new(feed.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let mut client = FeedClient::connect(url).await.unwrap();

    let mut first = client.follow(message("alice")).await.unwrap().into_inner();
    assert_eq!(first.message().await.unwrap().unwrap().message, "first");
    let busy = client.follow(message("alice")).await.unwrap_err();
    assert_eq!(busy.code(), Code::ResourceExhausted);
    feed.end.notify();
    assert_eq!(first.message().await.unwrap().unwrap().message, "last");
    assert_eq!(first.message().await.unwrap(), None);

    let mut fails = message("alice");
    fails.get_mut().name = "nobody".to_owned();
    let mut fails = client.follow(fails).await.unwrap().into_inner();
    assert_eq!(fails.message().await.unwrap().unwrap().message, "first");
    assert!(!feed.is_free().await);
    feed.end.notify();
    assert!(fails.message().await.unwrap_err().message().contains("in the middle"));
    until("a free permit", async || feed.is_free().await.then_some(())).await;

    // A client that resets its stream ends its call.
    drop(client.follow(message("alice")).await.unwrap());
    until("a free permit", async || client.follow(message("alice")).await.ok().map(drop)).await;
}

#[tokio::test]
async fn under_each_store_a_body_that_is_dropped_or_fails_ends_its_request() {
    on_each_store(async |limiter| {
        #[rate_limit(policy = ONE, limiter = feed.limiter)]
        async fn fails(State(feed): State<Feed>) -> Limited<Body> {
            Ok(Body::from_stream(failing(&feed.end)))
        }
        let feed = Feed::new(limiter.clone());
        let router = router(&feed)
            .merge(Router::new().route("/fails", get(fails)).with_state(feed.clone()))
            .layer(by_user());
        let chunks = ask(&router, request("/chunks", "alice")).await;
        assert!(!feed.is_free().await);
        drop(chunks);
        until("a free permit", async || feed.is_free().await.then_some(())).await;

        let fails = ask(&router, request("/fails", "alice")).await;
        let mut parts = fails.into_body().into_data_stream();
        assert_eq!(parts.next().await.unwrap().unwrap(), "first");
        assert!(!feed.is_free().await);
        feed.end.notify();
        parts.next().await.unwrap().unwrap_err();
        until("a free permit", async || feed.is_free().await.then_some(())).await;
    })
    .await;
}

#[tokio::test]
async fn a_response_of_known_length_is_sent_once_it_is_read_and_an_empty_one_at_once() {
    #[rate_limit(policy = ONE, limiter = feed.limiter)]
    async fn text(State(feed): State<Feed>) -> Limited<&'static str> {
        Ok("hello")
    }
    #[rate_limit(policy = ONE, limiter = feed.limiter)]
    async fn empty(State(feed): State<Feed>) -> Limited<()> {
        Ok(())
    }
    #[rate_limit(policy = ONE, limiter = feed.limiter)]
    async fn fails(State(feed): State<Feed>) -> Result<(), (StatusCode, String)> {
        Err((StatusCode::CONFLICT, "as asked".to_owned()))
    }
    #[rate_limit(policy = ONE, limiter = feed.limiter)]
    async fn panics(State(feed): State<Feed>) -> Limited<()> {
        panic!("as asked")
    }
    let feed = Feed::new(Limiter::in_memory());
    let router = Router::new()
        .route("/text", get(text))
        .route("/empty", get(empty))
        .route("/fails", get(fails))
        .route("/panics", get(panics))
        .with_state(feed.clone())
        .layer(by_user());
    for (path, status) in [("/text", 200), ("/fails", 409)] {
        let response = ask(&router, request(path, "alice")).await;
        assert_eq!((response.status().as_u16(), feed.is_free().await), (status, false));
        to_bytes(response.into_body(), 100).await.unwrap();
        assert!(feed.is_free().await);
    }
    let _empty = ask(&router, request("/empty", "alice")).await;
    assert!(feed.is_free().await);
    let panics = async move { ask(&router, request("/panics", "alice")).await };
    tokio::spawn(panics).await.unwrap_err();
    assert!(feed.is_free().await);
}

#[tokio::test]
async fn a_function_is_over_before_its_request_goes_on() {
    #[rate_limit(policy = ONE, limiter = feed.limiter)]
    async fn step(feed: &Feed) -> Limited<()> {
        Ok(())
    }
    async fn steps(State(feed): State<Feed>) -> Limited<Body> {
        // In one poll: the second call does not meet the permit of the first.
        step(&feed).await?;
        step(&feed).await?;
        assert!(feed.is_free().await);
        step(&feed).await?;
        yield_now().await;
        assert!(feed.is_free().await);
        Ok(body(&feed.end))
    }
    let feed = Feed::new(Limiter::in_memory());
    let steps = Router::new().route("/", get(steps)).with_state(feed.clone()).layer(by_user());
    let response = ask(&steps, request("/", "alice")).await;
    assert_eq!((response.status().as_u16(), feed.is_free().await), (200, true));
}

#[tokio::test]
async fn checks_by_hand_spawned_tasks_and_moved_decisions_are_in_flight_as_without_a_layer() {
    #[rate_limit(policy = ONE, limiter = feed.limiter, key = Caller::digest("alice"))]
    async fn spawned(feed: Feed) -> Limited<Body> {
        Ok(body(&feed.end))
    }
    async fn spawns(State(feed): State<Feed>) -> Limited<Body> {
        tokio::spawn(spawned(feed)).await.unwrap()
    }
    async fn checks(State(feed): State<Feed>) -> Limited<Body> {
        let _in_flight = feed.limiter.check(&ONE, caller::current().unwrap()).await?;
        Ok(body(&feed.end))
    }
    #[rate_limit(policy = ONE, limiter = feed.limiter, decision = moved)]
    async fn moves(State(feed): State<Feed>) -> Limited<()> {
        let end = feed.end.notified();
        tokio::spawn(async move {
            end.await;
            drop(moved);
        });
        Ok(())
    }
    let feed = Feed::new(Limiter::in_memory());
    let router = Router::new()
        .route("/spawns", get(spawns))
        .route("/checks", get(checks))
        .route("/moves", get(moves))
        .with_state(feed.clone())
        .layer(by_user());
    for path in ["/spawns", "/checks"] {
        let response = ask(&router, request(path, "alice")).await;
        assert_eq!((response.status().as_u16(), feed.is_free().await), (200, true), "{path}");
    }
    let response = ask(&router, request("/moves", "alice")).await;
    assert_eq!((response.status().as_u16(), feed.is_free().await), (200, false));
    feed.end.notify();
    until("a free permit", async || feed.is_free().await.then_some(())).await;
}

#[tokio::test]
async fn each_layer_holds_the_permits_and_without_one_they_end_with_the_function() {
    const OUTER: Policy = Policy::concurrency_limit("outer", 1);
    let feed = Feed::new(Limiter::in_memory());
    let gate = || {
        RateLimitLayer::new(OUTER)
            .identity(Identity::header("x-user"))
            .limiter(feed.limiter.clone())
    };
    let set = |router: Router| {
        router.layer(axum::middleware::from_fn(async |request, next: axum::middleware::Next| {
            caller::scope(Caller::digest("alice"), next.run(request)).await
        }))
    };
    for (router, is_held) in [
        (set(router(&feed)), false),
        (set(router(&feed).layer(by_user().skip(|_| true))), false),
        (set(router(&feed).layer(gate())), true),
        (router(&feed).layer(gate()).layer(by_user()), true),
        (router(&feed).layer(by_user()).layer(gate()), true),
        (
            router(&feed).layer(by_user()).layer(IdentityLayer::new(Identity::header("x-user"))),
            true,
        ),
    ] {
        let response = ask(&router, request("/chunks", "alice")).await;
        assert_eq!((response.status().as_u16(), !feed.is_free().await), (200, is_held));
        drop(response);
        assert!(feed.is_free().await);
        feed.limiter.check(&OUTER, Caller::digest("alice")).await.unwrap();
    }
}

/// A call that another limit refuses has given its permit back, whatever is sent in its place.
#[tokio::test]
async fn a_call_that_another_limit_refuses_is_in_flight_no_more() {
    #[rate_limit(policy = ONE, limiter = feed.limiter)]
    #[rate_limit(name = "spent", period = "1h", threshold = 1, limiter = feed.limiter, otherwise = Ok(body(&feed.end)))]
    async fn stale(State(feed): State<Feed>) -> Limited<Body> {
        Ok(Body::empty())
    }

    #[rate_limit(policy = ONE, limiter = feed.limiter)]
    #[rate_limit(name = "spent too", period = "1h", threshold = 1, limiter = feed.limiter)]
    async fn refused(State(feed): State<Feed>) -> Limited<Body> {
        Ok(Body::empty())
    }

    #[rate_limit(policy = ONE, limiter = feed.limiter, max_wait = "1s")]
    #[rate_limit(name = "spent at last", period = "1h", threshold = 1, limiter = feed.limiter)]
    async fn patient(State(feed): State<Feed>) -> Limited<Body> {
        Ok(Body::empty())
    }

    on_each_store(async |limiter| {
        let feed = Feed::new(limiter.clone());
        let router = Router::new().route("/stale", get(stale)).route("/refused", get(refused));
        let router = router.route("/patient", get(patient)).with_state(feed.clone());
        let router = router.layer(by_user());
        for (path, status) in [("/stale", 200), ("/refused", 429), ("/patient", 429)] {
            drop(ask(&router, request(path, "alice")).await);
            until("a free permit", async || feed.is_free().await.then_some(())).await;
            // The window refuses it, and its body is not read yet.
            let second = ask(&router, request(path, "alice")).await;
            assert_eq!((second.status().as_u16(), feed.is_free().await), (status, true), "{path}");
        }
    })
    .await;
}
