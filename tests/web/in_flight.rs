//! A request is in flight until the body of its response has ended, or its client has gone away.

use std::{convert::Infallible, pin::Pin, sync::Arc, time::Duration};

use actix_web::web::{self as actix, Bytes, Data};
use axum::{
    Router,
    body::Body,
    extract::State,
    http::{Request, Response, request::Parts},
    response::sse::{Event, Sse},
    routing::get,
};
use futures_util::{Stream, StreamExt, stream};
use harness::until;
use ratelimit_runtime::web::OnMissing;
use ratelimit_runtime::{
    Caller, Limiter, Policy, RateLimitError,
    web::{
        self,
        actix::RateLimitMiddleware,
        tower::{Identity, Limit, PermitBody, RateLimitLayer},
    },
};
use reqwest::Client;
use tokio::{
    net::TcpListener,
    sync::{Notify, watch},
};
use tonic::{Code, Status, transport::server::TcpIncoming};
use tower::{ServiceBuilder, service_fn};

use crate::{
    on_actix::Server,
    on_tonic::greeter::{
        HelloReply, HelloRequest,
        greeter_client::GreeterClient,
        greeter_server::{Greeter, GreeterServer},
    },
    support::{ask, by_user, client, request, serve},
};

pub(crate) mod feed {
    #![allow(clippy::pedantic, missing_docs, unreachable_pub, reason = "generated code")]

    use super::{HelloReply, HelloRequest};

    include!(concat!(env!("OUT_DIR"), "/feed.v1.Feed.rs"));
}

use feed::{
    feed_client::FeedClient,
    feed_server::{Feed, FeedServer},
};

pub(crate) const ONE: Policy = Policy::concurrency_limit("feed", 1);
const MINUTE: Duration = Duration::from_secs(60);

/// Ends streams: all that have begun, as one whose client has gone may be open still.
#[derive(Clone, Default)]
pub(crate) struct End(watch::Sender<()>);

impl End {
    pub(crate) fn notify(&self) {
        self.0.send_replace(());
    }

    /// Waits for the next end after now.
    pub(crate) fn notified(&self) -> impl Future<Output = ()> + Send + use<> {
        let (mut next, end) = (self.0.subscribe(), self.clone());
        async move {
            next.changed().await.expect("a sender is here");
            drop(end);
        }
    }
}

/// The first part of a stream at once, and the last one when the test says so.
pub(crate) fn parts(end: &End) -> impl Stream<Item = &'static str> + Send + use<> {
    let end = end.notified();
    let last = async move {
        end.await;
        "last"
    };
    stream::iter(["first"]).chain(stream::once(last))
}

pub(crate) fn body(end: &End) -> Body {
    Body::from_stream(parts(end).map(Ok::<_, Infallible>))
}

async fn follow(client: &Client, url: &str, user: &str) -> reqwest::Response {
    client.get(url).header("x-user", user).send().await.unwrap()
}

/// Returns the next part of a body; the end of a stream over HTTP/2 may be an empty frame.
async fn part(response: &mut reqwest::Response) -> Option<String> {
    loop {
        let bytes = response.chunk().await.unwrap()?;
        if !bytes.is_empty() {
            return Some(String::from_utf8(bytes.to_vec()).unwrap());
        }
    }
}

/// Follows a stream that one request of a user may at a time.
pub(crate) async fn assert_held_until_the_end(client: &Client, url: &str, end: &End) {
    let mut first = follow(client, url, "alice").await;
    assert_eq!(first.status(), 200);
    assert!(part(&mut first).await.unwrap().contains("first"));

    let refused = follow(client, url, "alice").await;
    assert_eq!(refused.status(), 429);
    let field = |name| refused.headers().get(name).map(|value| value.to_str().unwrap());
    assert_eq!(field("ratelimit-policy"), Some(r#""feed";q=1;qu="concurrent-requests""#));
    assert_eq!(field("ratelimit"), Some(r#""feed";r=0"#));
    assert!(matches!(field("retry-after"), Some("1" | "2")));
    assert_eq!(field("cache-control"), Some("no-store"));
    assert_eq!(field("content-type"), Some("application/problem+json"));

    end.notify();
    assert!(part(&mut first).await.unwrap().contains("last"));
    assert_eq!(part(&mut first).await, None);
    // It is free before the client knows of the end.
    let mut second = follow(client, url, "alice").await;
    assert_eq!(second.status(), 200);
    assert!(part(&mut second).await.unwrap().contains("first"));
    // Another user's permits are others.
    let bob = follow(client, url, "bob").await;
    assert_eq!(bob.status(), 200);
    // A client that goes away ends its request.
    drop((second, bob));
    for user in ["alice", "bob"] {
        until("a free permit", async || {
            (follow(client, url, user).await.status() == 200).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn on_axum_over_http_1_and_2() {
    let http1 = Client::builder().no_proxy().http1_only().build().unwrap();
    let http2 = Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    for client in [http1, http2] {
        let end = End::default();
        let events = async |State(end): State<End>| {
            Sse::new(parts(&end).map(|part| Ok::<_, Infallible>(Event::default().data(part))))
        };
        let layer =
            || RateLimitLayer::new(ONE).on_missing(OnMissing::Shared).limiter(Limiter::in_memory());
        let router = Router::new()
            .route("/chunks", get(async |State(end): State<End>| body(&end)).layer(layer()))
            .route("/events", get(events).layer(layer()))
            .with_state(end.clone())
            .layer(by_user());
        let url = format!("http://{}", serve(router).await);
        for path in ["/chunks", "/events"] {
            assert_held_until_the_end(&client, &format!("{url}{path}"), &end).await;
        }
    }
}

#[tokio::test]
async fn on_tower_with_a_body_of_its_own() {
    let end = End::default();
    let of_service = end.clone();
    let service = service_fn(move |_: Request<Body>| {
        let response = Response::new(PermitBody::new(body(&of_service)));
        async { Ok::<_, Infallible>(response) }
    });
    let layer =
        RateLimitLayer::new(ONE).identity(Identity::header("x-user")).limiter(Limiter::in_memory());
    let service = ServiceBuilder::new().layer(layer).service(service);
    let url = format!("http://{}", serve(Router::new().fallback_service(service)).await);
    assert_held_until_the_end(&client(), &url, &end).await;
}

#[tokio::test]
async fn on_actix() {
    let end = End::default();
    let data = end.clone();
    let layer =
        RateLimitMiddleware::new(ONE).on_missing(OnMissing::Shared).limiter(Limiter::in_memory());
    let identity = web::actix::IdentityMiddleware::new(web::actix::Identity::header("x-user"));
    let server = Server::serve(identity, move |config| {
        let chunks = async |end: Data<End>| {
            let parts = parts(&end).map(|part| Ok::<_, Infallible>(Bytes::from(part)));
            actix_web::HttpResponse::Ok().streaming(parts)
        };
        let resource =
            actix::resource("/chunks").wrap(layer.clone()).route(actix::get().to(chunks));
        config.app_data(Data::new(data.clone())).service(resource);
    });
    assert_held_until_the_end(&client(), &server.url("/chunks"), &end).await;
}

#[tokio::test]
async fn responses_without_an_end_to_come_hold_nothing_and_several_permits_are_held_together() {
    const ALL: Policy = Policy::concurrency_limit("all", 1);
    let limiter = Limiter::in_memory();
    let all = || Identity::from_fn(|_| Some("all".into()));
    let layer = RateLimitLayer::new(ONE).and(Limit::new(ALL).identity(all()));
    let end = End::default();
    let router = Router::new()
        .route("/empty", get(async || ()))
        .route("/feed", get(async move || body(&end)))
        .layer(layer.limiter(limiter.clone()))
        .layer(by_user());
    let free = async || {
        let mut free = Vec::new();
        for (policy, caller) in [(&ONE, Caller::digest("alice")), (&ALL, "all".into())] {
            match limiter.peek(policy, caller).await {
                Ok(_) => free.push(policy.name()),
                Err(RateLimitError::Busy(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        free
    };
    let empty = ask(&router, request("/empty", "alice")).await;
    assert_eq!((empty.status().as_u16(), free().await), (200, vec!["feed", "all"]));
    let feed = ask(&router, request("/feed", "alice")).await;
    assert_eq!((feed.status().as_u16(), free().await), (200, vec![]));
    // Another user's request takes its own permit, finds no common one, and gives the first one back.
    assert_eq!(ask(&router, request("/feed", "bob")).await.status(), 429);
    limiter.check(&ONE, Caller::digest("bob")).await.unwrap();
    drop(feed);
    assert_eq!(free().await, ["feed", "all"]);
}

#[tokio::test]
async fn a_request_whose_client_leaves_before_the_response_is_not_in_flight() {
    let limiter = Limiter::in_memory();
    let entered = Arc::new(Notify::new());
    let handler = async |State(entered): State<Arc<Notify>>| {
        entered.notify_one();
        std::future::pending::<()>().await;
    };
    let router = Router::new()
        .route("/", get(handler))
        .with_state(Arc::clone(&entered))
        .layer(RateLimitLayer::new(ONE).on_missing(OnMissing::Shared).limiter(limiter.clone()))
        .layer(by_user());
    let url = format!("http://{}", serve(router).await);
    let request = tokio::spawn(async move { follow(&client(), &url, "alice").await });
    entered.notified().await;
    assert!(limiter.peek(&ONE, Caller::digest("alice")).await.is_err());
    request.abort();
    until("a free permit", async || limiter.peek(&ONE, Caller::digest("alice")).await.ok()).await;
}

struct Streams(End);

pub(crate) type Replies = Pin<Box<dyn Stream<Item = Result<HelloReply, Status>> + Send>>;

#[tonic::async_trait]
impl Feed for Streams {
    type FollowStream = Replies;

    async fn follow(
        &self,
        _: tonic::Request<HelloRequest>,
    ) -> Result<tonic::Response<Replies>, Status> {
        let replies = parts(&self.0);
        let replies = replies.map(|part| Ok(HelloReply { message: part.to_owned() }));
        Ok(tonic::Response::new(replies.boxed()))
    }
}

#[tonic::async_trait]
impl Greeter for Streams {
    async fn say_hello(
        &self,
        request: tonic::Request<HelloRequest>,
    ) -> Result<tonic::Response<HelloReply>, Status> {
        Ok(tonic::Response::new(HelloReply { message: request.into_inner().name }))
    }
}

/// Serves both services behind a limit on a port of its own. Returns its URL.
async fn serve_grpc(end: &End, limit: Limit) -> String {
    let layer =
        RateLimitLayer::new(limit).on_missing(OnMissing::Shared).limiter(Limiter::in_memory());
    // The first one is the outermost.
    let server = tonic::transport::Server::builder()
        .layer(by_user().respond(web::tonic::respond))
        .layer(layer.respond(web::tonic::respond))
        .add_service(FeedServer::new(Streams(end.clone())))
        .add_service(GreeterServer::new(Streams(end.clone())));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    url
}

pub(crate) fn message(user: &str) -> tonic::Request<HelloRequest> {
    let mut request = tonic::Request::new(HelloRequest { name: "you".to_owned() });
    request.metadata_mut().insert("x-user", user.parse().unwrap());
    request
}

#[tokio::test]
async fn on_tonic_by_service_and_method() {
    const GREET: Policy = Policy::sliding_window("greet", MINUTE, 2);
    let limit = Limit::from_fn(|request: &Parts| match web::tonic::service_and_method(request)? {
        ("feed.v1.Feed", "Follow") => Some(ONE),
        ("greeter.v1.Greeter", "SayHello") => Some(GREET),
        other => panic!("{other:?}"),
    });
    let end = End::default();
    let url = serve_grpc(&end, limit).await;
    let mut feed = FeedClient::connect(url.clone()).await.unwrap();
    let mut greeter = GreeterClient::connect(url).await.unwrap();

    let mut first = feed.follow(message("alice")).await.unwrap().into_inner();
    assert_eq!(first.message().await.unwrap().unwrap().message, "first");
    let busy = feed.follow(message("alice")).await.unwrap_err();
    assert_eq!(busy.code(), Code::ResourceExhausted);
    assert_eq!(busy.message(), "rate limit `feed` is busy: at most 1 in flight");
    assert_eq!(busy.metadata().get("ratelimit").unwrap(), r#""feed";r=0"#);
    drop(feed.follow(message("bob")).await.unwrap());

    for _ in 0..2 {
        greeter.say_hello(message("alice")).await.unwrap();
    }
    let refused = greeter.say_hello(message("alice")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().starts_with("rate limit `greet` exceeded"), "{}", refused.message());
    assert!(refused.metadata().get("retry-after").is_some());
    assert_eq!(refused.metadata().get("ratelimit-policy").unwrap(), r#""greet";q=2;w=60"#);

    end.notify();
    assert_eq!(first.message().await.unwrap().unwrap().message, "last");
    assert_eq!(first.message().await.unwrap(), None);
    let mut second = feed.follow(message("alice")).await.unwrap().into_inner();
    assert_eq!(second.message().await.unwrap().unwrap().message, "first");
    drop(second);
    until("a free permit", async || feed.follow(message("alice")).await.ok().map(drop)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_received_a_response_is_never_told_to_be_in_flight() {
    let limiter = Limiter::in_memory();
    let layer = RateLimitLayer::new(ONE).on_missing(OnMissing::Shared).limiter(limiter);
    let router = Router::new().route("/", get(async || "hello")).layer(layer).layer(by_user());
    let url = format!("http://{}", serve(router).await);
    for client in [
        Client::builder().no_proxy().http1_only().build().unwrap(),
        Client::builder().no_proxy().http2_prior_knowledge().build().unwrap(),
    ] {
        for _ in 0..200 {
            let response = follow(&client, &url, "alice").await;
            assert_eq!(response.status(), 200);
            assert_eq!(response.text().await.unwrap(), "hello");
        }
    }
    let url = serve_grpc(&End::default(), Limit::new(ONE)).await;
    let mut greeter = GreeterClient::connect(url).await.unwrap();
    for _ in 0..200 {
        greeter.say_hello(message("alice")).await.unwrap();
    }
}
