//! A gRPC service under limits answers real clients on loopback as documented.

#[path = "../../examples/tonic/greeter/mod.rs"]
pub(crate) mod greeter;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::without_a_wait::Held;

use greeter::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use harness::{Lines, RedisServer, listen};
use ratelimit_runtime::web::OnMissing;
use ratelimit_runtime::{
    Caller, Limiter, OnStoreError, Override, Policy, rate_limit,
    web::{
        self,
        tower::{Identity, IdentityLayer, RateLimitLayer},
    },
};
use tokio::net::TcpListener;
use tonic::{
    Code, Request, Response, Status,
    transport::{Channel, Server, server::TcpIncoming},
};
use tonic_types::StatusExt;
use tower::ServiceBuilder;

struct MyGreeter {
    limiter: Limiter,
}

#[tonic::async_trait]
impl Greeter for MyGreeter {
    #[rate_limit(name = "greet", period = 3600, threshold = 2, limiter = self.limiter)]
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let message = format!("hello, {}", request.into_inner().name);
        Ok(Response::new(HelloReply { message }))
    }
}

/// One greeting at a time, of a name of at most five letters.
struct SlowGreeter(Arc<Held>);

#[tonic::async_trait]
impl Greeter for SlowGreeter {
    #[rate_limit(name = "letters", threshold = 5, cost = request.get_ref().name.len())]
    #[rate_limit(name = "attribute", concurrency = 1)]
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        self.0.stay().await;
        Ok(Response::new(HelloReply { message: request.into_inner().name }))
    }
}

/// Serves on a port of its own until the test ends.
async fn serve(identity: Identity, limiter: Limiter, gate: Policy) -> SocketAddr {
    let gate = RateLimitLayer::new(gate).on_missing(OnMissing::Shared).limiter(limiter.clone());
    serve_greeter(identity, MyGreeter { limiter }, gate).await
}

async fn serve_greeter(
    identity: Identity,
    greeter: impl Greeter,
    gate: RateLimitLayer,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let layers = ServiceBuilder::new()
        .layer(IdentityLayer::new(identity).respond(web::tonic::respond))
        .layer(gate.respond(web::tonic::respond));
    let server = Server::builder().layer(layers).add_service(GreeterServer::new(greeter));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

async fn connect(address: SocketAddr) -> GreeterClient<Channel> {
    GreeterClient::connect(format!("http://{address}")).await.unwrap()
}

async fn greet(
    client: &mut GreeterClient<Channel>,
    key: Option<&str>,
) -> Result<Response<HelloReply>, Status> {
    greet_by_name(client, key, "you").await
}

async fn greet_by_name(
    client: &mut GreeterClient<Channel>,
    key: Option<&str>,
    name: &str,
) -> Result<Response<HelloReply>, Status> {
    let mut request = Request::new(HelloRequest { name: name.to_owned() });
    if let Some(key) = key {
        request.metadata_mut().insert("x-api-key", key.parse().unwrap());
    }
    client.say_hello(request).await
}

const WIDE: Policy = Policy::sliding_window("wide", Duration::from_secs(60), 1_000);
const NARROW: Policy = Policy::sliding_window("narrow", Duration::from_secs(60), 1);

#[tokio::test]
async fn a_refusal_is_a_status_with_details() {
    let identity = Identity::header("x-api-key");
    let mut client = connect(serve(identity, Limiter::in_memory(), WIDE).await).await;
    let admitted = greet(&mut client, Some("a")).await.unwrap();
    assert_eq!(admitted.get_ref().message, "hello, you");
    let field = |metadata: &tonic::metadata::MetadataMap, name: &str| {
        metadata.get(name).unwrap().to_str().unwrap().to_owned()
    };
    let [wide, greet_twice] = [r#""wide";q=1000;w=60"#, r#""greet";q=2;w=3600"#];
    let policies = format!("{wide}, {greet_twice}");
    assert_eq!(field(admitted.metadata(), "ratelimit-policy"), policies);
    assert_eq!(field(admitted.metadata(), "ratelimit"), r#""wide";r=999;t=60, "greet";r=1;t=3600"#);
    greet(&mut client, Some("a")).await.unwrap();

    let refused = greet(&mut client, Some("a")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().starts_with("rate limit `greet` exceeded: at most 2 per 3600s"));
    let wait = refused.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(wait > Duration::from_secs(1) && wait <= Duration::from_secs(3_600), "{wait:?}");
    assert_eq!(pushback(&refused), Some(millis(wait)));
    let violations = refused.get_details_quota_failure().unwrap().violations;
    assert_eq!((violations.len(), violations[0].subject.as_str()), (1, "greet"));
    assert_eq!(field(refused.metadata(), "ratelimit-policy"), format!("{greet_twice}, {wide}"));
    // Another key is another caller.
    greet(&mut client, Some("b")).await.unwrap();
}

#[tokio::test]
async fn the_peer_is_the_caller_where_no_key_is_given() {
    let identity = Identity::header("x-api-key").or(Identity::peer());
    let limiter = Limiter::in_memory();
    let address = serve(identity, limiter.clone(), WIDE).await;
    // Two connections of one address.
    let (mut one, mut other) = (connect(address).await, connect(address).await);
    greet(&mut one, None).await.unwrap();
    greet(&mut other, None).await.unwrap();
    assert_eq!(greet(&mut one, None).await.unwrap_err().code(), Code::ResourceExhausted);
    let peer = ratelimit_runtime::Caller::fallback("127.0.0.1");
    assert_eq!(limiter.peek(&WIDE, peer).cost(0).await.unwrap().remaining(), 997);
    greet(&mut one, Some("127.0.0.1")).await.unwrap();
}

#[tokio::test]
async fn a_malformed_identity_header_is_refused_and_makes_no_second_quota() {
    let identity = Identity::header("x-api-key").or(Identity::peer());
    let mut client = connect(serve(identity, Limiter::in_memory(), WIDE).await).await;
    for expected in [Code::Ok, Code::Ok, Code::ResourceExhausted] {
        let answer = greet(&mut client, Some("mine")).await;
        assert_eq!(answer.err().map_or(Code::Ok, |status| status.code()), expected);
    }
    for malformed in [&["mine", "mine"][..], &["mine", ""], &[""]] {
        let mut request = Request::new(HelloRequest { name: "you".to_owned() });
        for key in malformed {
            request.metadata_mut().append("x-api-key", key.parse().unwrap());
        }
        let refused = client.say_hello(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{malformed:?}");
    }
    greet(&mut client, None).await.unwrap();
}

#[tokio::test]
async fn a_gate_refuses_with_a_status_too() {
    let identity = Identity::header("x-api-key");
    let mut client = connect(serve(identity, Limiter::in_memory(), NARROW).await).await;
    greet(&mut client, Some("a")).await.unwrap();
    let refused = greet(&mut client, Some("a")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.get_details_quota_failure().unwrap().violations[0].subject, "narrow");
    assert!(refused.metadata().get("retry-after").is_some());
    let nobody = greet(&mut client, None).await.unwrap_err();
    assert_eq!(nobody.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_store_that_cannot_decide_is_unavailable() {
    let mut redis = RedisServer::start();
    let builder = Limiter::builder().on_store_error(OnStoreError::Deny);
    let limiter = builder.connect(&redis.url()).await.unwrap();
    redis.kill();
    let mut client = connect(serve(Identity::peer(), limiter, WIDE).await).await;
    let refused = greet(&mut client, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("`wide` could not be decided"), "{}", refused.message());
    let wait = refused.get_details_retry_info().unwrap().retry_delay;
    let wait = wait.expect("a guess");
    assert!((1.0..=2.0).contains(&wait.as_secs_f64()), "{wait:?}");
    assert_eq!(pushback(&refused), Some(millis(wait)));
}

#[tokio::test]
async fn a_policy_that_breaks_a_rule_is_internal_and_asks_for_no_retry() {
    const INVALID: Policy = Policy::sliding_window("invalid", Duration::ZERO, 1);
    let mut client = connect(serve(Identity::peer(), Limiter::in_memory(), INVALID).await).await;
    let refused = greet(&mut client, None).await.unwrap_err();
    assert_eq!((refused.code(), pushback(&refused)), (Code::Internal, Some(-1)));
}

#[tokio::test]
async fn a_call_after_the_pushback_is_admitted() {
    const FIFTH: Duration = Duration::from_millis(200);
    const SHORT: Policy = Policy::sliding_window("short", FIFTH, 1);
    let identity = Identity::header("x-api-key");
    let mut client = connect(serve(identity, Limiter::in_memory(), SHORT).await).await;
    // A machine that is too slow for the second call of a key tries another key.
    for key in ["a", "b", "c", "d", "e"] {
        greet(&mut client, Some(key)).await.unwrap();
        let Err(refused) = greet(&mut client, Some(key)).await else { continue };
        let wait = u64::try_from(pushback(&refused).unwrap()).unwrap();
        tokio::time::sleep(Duration::from_millis(wait)).await;
        greet(&mut client, Some(key)).await.unwrap();
        return;
    }
    panic!("no second call came within {FIFTH:?}");
}

/// Returns the wait that a service config's retry policy reads.
fn pushback(refused: &Status) -> Option<i128> {
    let value = refused.metadata().get("grpc-retry-pushback-ms")?;
    Some(value.to_str().unwrap().parse().unwrap())
}

fn millis(wait: Duration) -> i128 {
    wait.as_micros().div_ceil(1_000).cast_signed()
}

#[tokio::test]
async fn a_pushback_is_never_longer_than_timers_have_room_for() {
    const MONTHS: Policy = Policy::fixed_window("months", Duration::from_secs(40 * 86_400), 1);
    let mut client = connect(serve(Identity::peer(), Limiter::in_memory(), MONTHS).await).await;
    greet(&mut client, None).await.unwrap();
    let refused = greet(&mut client, None).await.unwrap_err();
    assert_eq!(pushback(&refused), Some(2_147_483_000));
    let wait = refused.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert_eq!(wait.as_secs().div_ceil(60), 40 * 24 * 60);
}

#[tokio::test]
async fn a_client_that_would_give_up_before_the_wait_is_told_not_to_retry() {
    // The method's limit is of an hour, and the gate's of a minute.
    for gate in [WIDE, NARROW] {
        let identity = Identity::header("x-api-key");
        let mut client = connect(serve(identity, Limiter::in_memory(), gate).await).await;
        let mut greet = async |timeout: Option<Duration>| {
            let mut request = Request::new(HelloRequest { name: "you".to_owned() });
            request.metadata_mut().insert("x-api-key", "a".parse().unwrap());
            if let Some(timeout) = timeout {
                request.set_timeout(timeout);
            }
            client.say_hello(request).await
        };
        while greet(None).await.is_ok() {}
        for (seconds, is_longer) in [(1, true), (25, true), (3_600, false)] {
            let refused = greet(Some(Duration::from_secs(seconds))).await.unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted);
            assert_eq!(pushback(&refused) == Some(-1), is_longer, "{seconds}: {refused:?}");
            // A program that has time can still wait.
            assert!(refused.get_details_retry_info().unwrap().retry_delay.is_some());
        }
        assert!(pushback(&greet(None).await.unwrap_err()) > Some(1_000));
    }
}

/// Expects a status that tells no wait.
fn assert_without_a_wait(refused: &Status, code: Code, message: &str) {
    assert_eq!((refused.code(), refused.message()), (code, message));
    assert!(refused.get_details_retry_info().is_none());
    assert!(refused.metadata().get("retry-after").is_none());
    assert_eq!(pushback(refused), None);
}

#[tokio::test]
async fn a_call_that_can_never_pass_is_a_failed_precondition() {
    const NOTHING: Policy = Policy::sliding_window("nothing", Duration::from_secs(60), 0);
    let mut client = connect(serve(Identity::peer(), Limiter::in_memory(), NOTHING).await).await;
    let refused = greet(&mut client, None).await.unwrap_err();
    let message = "rate limit `nothing` admits nothing: its threshold is 0";
    assert_without_a_wait(&refused, Code::FailedPrecondition, message);

    let greeter = SlowGreeter(Arc::default());
    let gate =
        RateLimitLayer::new(WIDE).on_missing(OnMissing::Shared).limiter(Limiter::in_memory());
    let mut client = connect(serve_greeter(Identity::peer(), greeter, gate).await).await;
    let refused = greet_by_name(&mut client, None, "all of you").await.unwrap_err();
    let message = "rate limit `letters` never admits 10 units at once: at most 5 per 60s";
    assert_without_a_wait(&refused, Code::FailedPrecondition, message);
}

#[tokio::test]
async fn a_caller_who_is_shut_out_is_denied_or_told_the_wait() {
    let limiter = Limiter::in_memory();
    let identity = Identity::header("x-api-key");
    let mut client = connect(serve(identity, limiter.clone(), WIDE).await).await;
    let mallory = Caller::digest("mallory");
    limiter.overrides().here().set(("wide", &mallory), Override::new().deny()).unwrap();
    let refused = greet(&mut client, Some("mallory")).await.unwrap_err();
    assert_without_a_wait(&refused, Code::PermissionDenied, "rate limit `wide` denies the caller");
    greet(&mut client, Some("alice")).await.unwrap();

    let until = Override::new().deny().until(SystemTime::now() + Duration::from_secs(60));
    limiter.overrides().here().set(("wide", &mallory), until).unwrap();
    let refused = greet(&mut client, Some("mallory")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let wait = refused.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert_eq!((wait.as_secs_f64().ceil(), pushback(&refused)), (60., Some(millis(wait))));
}

#[tokio::test]
async fn a_call_that_finds_no_permit_is_told_a_guess() {
    const ONE: Policy = Policy::concurrency_limit("gate", 1);
    const TWO: Policy = Policy::concurrency_limit("gate", 2);
    for (gate, name) in [(ONE, "gate"), (TWO, "attribute")] {
        let held = Arc::new(Held::default());
        let greeter = SlowGreeter(Arc::clone(&held));
        let gate =
            RateLimitLayer::new(gate).on_missing(OnMissing::Shared).limiter(Limiter::in_memory());
        let identity = Identity::header("x-api-key");
        let client = connect(serve_greeter(identity, greeter, gate).await).await;
        let greet = async || greet_by_name(&mut client.clone(), Some(name), "a").await;
        let [admitted, refused] = held.beside(greet).await;
        assert_eq!(admitted.unwrap().get_ref().message, "a");
        let refused = refused.unwrap_err();
        let message = format!("rate limit `{name}` is busy: at most 1 in flight");
        assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, &*message));
        let wait = refused.get_details_retry_info().unwrap().retry_delay.expect("a guess");
        assert!((1.0..=2.0).contains(&wait.as_secs_f64()), "{wait:?}");
        assert_eq!(pushback(&refused), Some(millis(wait)));
        let violations = refused.get_details_quota_failure().unwrap().violations;
        assert_eq!((violations.len(), violations[0].subject.as_str()), (1, name));
        let field = refused.metadata().get("ratelimit-policy").unwrap().to_str().unwrap();
        let of_the_limit = format!(r#""{name}";q=1;qu="concurrent-requests""#);
        assert!(field.contains(&of_the_limit), "{field}");
    }
}

#[tokio::test]
async fn concurrent_calls_get_exactly_the_threshold() {
    let limiter = Limiter::in_memory();
    let gate = Policy::sliding_window("hundred", Duration::from_secs(600), 100);
    let address = serve(Identity::header("x-api-key"), limiter, gate).await;
    let mut tasks = tokio::task::JoinSet::new();
    for connection in 0..8 {
        let mut client = connect(address).await;
        tasks.spawn(async move {
            let mut passed = 0;
            for _ in 0..50 {
                // The gate counts calls that the method refuses.
                let answer = greet(&mut client, Some("load")).await;
                passed += match answer {
                    Ok(_) => 1,
                    Err(status) => {
                        assert_eq!(status.code(), Code::ResourceExhausted, "{connection}");
                        usize::from(status.message().contains("`greet`"))
                    }
                };
            }
            passed
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<usize>(), 100);
}

#[tokio::test]
async fn a_method_that_denies_has_lost_no_refusal() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let limiter = Limiter::in_memory();
    let address = serve(Identity::header("x-api-key"), limiter.clone(), WIDE).await;
    let mallory = Caller::digest("mallory");
    limiter.overrides().here().set(("greet", &mallory), Override::new().deny()).unwrap();
    let refused = greet(&mut connect(address).await, Some("mallory")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let lines = lines.all();
    assert!(!lines.iter().any(|line| line.contains("ended with status")), "{lines:?}");
}

#[tokio::test]
async fn the_guess_of_a_layer_is_that_of_an_annotated_method_too() {
    for wait in [None, Some(Duration::from_secs(20))] {
        let held = Arc::new(Held::default());
        let layer = IdentityLayer::new(Identity::header("x-api-key")).retry_busy_after(wait);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = Server::builder().layer(layer.respond(web::tonic::respond));
        let server = server.add_service(GreeterServer::new(SlowGreeter(Arc::clone(&held))));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        let client = connect(address).await;
        let greet = async || greet_by_name(&mut client.clone(), Some("of-layer"), "a").await;
        let [_, refused] = held.beside(greet).await;
        let told = pushback(&refused.unwrap_err());
        assert_eq!(told.is_some(), wait.is_some(), "{told:?}");
        assert!(told.is_none_or(|it| (20_000..=40_000).contains(&it)), "{told:?}");
    }
}
