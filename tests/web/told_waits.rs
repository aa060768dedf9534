//! Refusals tell waits that real clients can use: none that a timer overflows on, one of a guess where nobody knows
//! it, exact ones, and different ones to the clients of a shared limit.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use axum::{Extension, Router, http::StatusCode, routing::get};
use futures_util::future::join_all;
use ratelimit_runtime::{
    Decision, Limiter, Override, Policy, RateLimitError, rate_limit,
    web::{
        HeaderSyntax, OnMissing, PROBLEM_JSON, Refusal, actix,
        tower::{IdentityLayer, RateLimitLayer, problem_with_error},
    },
};
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};

use crate::{
    on_actix::Server,
    support::{self, Limited, ask, by_user, header, request},
    without_a_wait::Held,
};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The longest wait in seconds that a timer of 31 bits of milliseconds has room for.
const LONGEST: u64 = 2_147_483;

fn field(refusal: &Refusal, name: &str) -> Option<String> {
    let headers = refusal.headers(HeaderSyntax::Draft11).into_iter();
    headers.filter(|(own, _)| *own == name).map(|(_, value)| value).next()
}

async fn refused(limiter: &Limiter, policy: &Policy) -> Refusal {
    limiter.check(policy, "someone").await.unwrap_err().into()
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_timers_have_no_room_for_is_told_as_the_longest_one() {
    let limiter = Limiter::in_memory();
    for (days, told) in [(24, 24 * 86_400), (25, LONGEST), (40, LONGEST)] {
        let policy = Policy::fixed_window("long", DAY * days, 1);
        limiter.reset(&policy, "someone").await.unwrap();
        limiter.check(&policy, "someone").await.unwrap();
        let refusal = refused(&limiter, &policy).await;
        assert_eq!(refusal.retry_after(), Some(told), "{days} days");
        assert_eq!(field(&refusal, "retry-after"), Some(told.to_string()));
        assert_eq!(field(&refusal, "retry-after-ms"), None);
        // The exact wait is in the error, the quota and the body.
        let exact = days * 86_400;
        assert_eq!(field(&refusal, "ratelimit"), Some(format!(r#""long";r=0;t={exact}"#)));
        assert!(refusal.problem().contains(&format!("retry after {exact}s")), "{refusal:?}");
    }
    // One millisecond more than a caller who is shut out may be told.
    let ends = SystemTime::now() + Duration::from_secs(LONGEST + 60);
    limiter
        .overrides()
        .here()
        .set(("long", "mallory"), Override::new().deny().until(ends))
        .unwrap();
    let policy = Policy::fixed_window("long", DAY, 1);
    let denied = Refusal::from(limiter.check(&policy, "mallory").await.unwrap_err());
    assert_eq!((denied.status(), denied.retry_after()), (429, Some(LONGEST)));
    assert_eq!(field(&denied, "retry-after-ms"), None);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_no_whole_second_is_told_in_milliseconds_too() {
    let policy = Policy::sliding_window("fast", Duration::from_millis(2_400), 1);
    let limiter = Limiter::in_memory();
    limiter.check(&policy, "someone").await.unwrap();
    for (passes, seconds, millis) in
        [(0, "3", Some("2400")), (1_400, "1", None), (999, "1", Some("1"))]
    {
        advance(Duration::from_millis(passes)).await;
        let refusal = refused(&limiter, &policy).await;
        assert_eq!(field(&refusal, "retry-after").as_deref(), Some(seconds));
        assert_eq!(field(&refusal, "retry-after-ms").as_deref(), millis);
    }
}

/// Returns the different values of `Retry-After`, and expects that the exact waits lie between 1 and 2 s.
fn told(refusals: impl IntoIterator<Item = Refusal>) -> BTreeSet<u64> {
    let whole = |refusal: Refusal| {
        let millis = field(&refusal, "retry-after-ms").map_or(1_000, |it| it.parse().unwrap());
        assert!((1_000..=2_000).contains(&millis), "{millis}");
        refusal.retry_after().expect("a wait")
    };
    refusals.into_iter().map(whole).collect()
}

#[tokio::test]
async fn waits_that_nobody_knows_are_told_as_one_or_two_seconds() {
    let one = Policy::concurrency_limit("one", 1);
    let limiter = Limiter::in_memory();
    let _held = limiter.check(&one, "someone").await.unwrap();
    let mut busy = Vec::new();
    for _ in 0..20 {
        busy.push(refused(&limiter, &one).await);
    }
    assert_eq!(told(busy), BTreeSet::from([1, 2]));

    let full = Limiter::builder().max_keys(1).in_memory();
    let policy = Policy::sliding_window("full", DAY, 1);
    full.check(&policy, "another").await.unwrap();
    let mut undecided = Vec::new();
    for _ in 0..20 {
        let refusal = refused(&full, &policy).await;
        assert_eq!(refusal.status(), 503);
        undecided.push(refusal);
    }
    assert_eq!(told(undecided), BTreeSet::from([1, 2]));
}

#[tokio::test(start_paused = true)]
async fn the_exhausted_limit_stands_first() {
    let limiter = Limiter::in_memory();
    let answers = async |policies: &[(&'static str, u64, u32)]| {
        let mut answers: Vec<Result<Decision, RateLimitError>> = Vec::new();
        for (name, seconds, threshold) in policies {
            let policy = Policy::fixed_window(name, Duration::from_secs(*seconds), *threshold);
            answers.push(limiter.check(&policy, "someone").await);
        }
        HeaderSyntax::Draft11.headers(&answers)
    };
    // Nothing is exhausted: the order is that of the calls.
    let fields = answers(&[("wide", 60, 100), ("long", 3_600, 50)]).await;
    assert_eq!(fields[0].1, r#""wide";q=100;w=60, "long";q=50;w=3600"#);
    // A limit with its last unit taken, and one that refuses: the longest wait is that of the first item.
    let calls = [("wide", 60, 100), ("one", 30, 1), ("last", 90, 1), ("one", 30, 1)];
    let fields = answers(&calls).await;
    assert_eq!(fields[0].1, r#""last";q=1;w=90, "one";q=1;w=30, "wide";q=100;w=60"#);
    assert_eq!(fields[1].1, r#""last";r=0;t=90, "one";r=0;t=30, "wide";r=98;t=60"#);
}

/// Requests that a client sends as urllib3's `Retry(3)` does, by `Retry-After`, and the time at which it is served.
async fn retrying(router: &Router, user: &str) -> (u32, Option<Duration>) {
    let started = Instant::now();
    for requests in 1..=4 {
        let response = ask(router, request("/", user)).await;
        if response.status() == StatusCode::OK {
            return (requests, Some(started.elapsed()));
        }
        let wait = header(&response, "retry-after").unwrap().parse().unwrap();
        sleep(Duration::from_secs(wait)).await;
    }
    (4, None)
}

#[tokio::test(start_paused = true)]
async fn a_reset_of_a_shared_limit_ends_the_waits_that_were_told() {
    #[rate_limit(name = "shared until reset", period = "1h", threshold = 1, key = "all")]
    async fn hello() -> Limited<&'static str> {
        Ok("hello")
    }

    const HOUR: u64 = 3_600;
    let router = Router::new().route("/", get(hello)).layer(by_user());
    let told = async |user: &str| {
        let wait = ask(&router, request("/", user)).await.headers().get("retry-after").cloned();
        wait.map_or(0, |it| it.to_str().unwrap().parse::<u64>().unwrap())
    };
    assert_eq!(told("first").await, 0);
    for (user, hours) in [("second", 1), ("third", 2), ("fourth", 3)] {
        assert_eq!(told(user).await / HOUR, hours, "{user}");
    }
    let shared = Policy::sliding_window("shared until reset", Duration::from_secs(HOUR), 1);
    advance(Duration::from_secs(300)).await;
    ratelimit_runtime::limiter().reset(&shared, "all").await.unwrap();
    assert_eq!(told("somebody").await, 0);
    // The line that it stood in is over.
    assert_eq!(told("fourth").await, HOUR);
}

#[tokio::test(start_paused = true)]
async fn clients_of_a_shared_limit_are_told_different_waits() {
    #[rate_limit(name = "shared", period = 3, threshold = 2, key = "all")]
    async fn hello() -> Limited<&'static str> {
        Ok("hello")
    }

    let router = Router::new().route("/", get(hello)).layer(by_user());
    let users: Vec<_> = (0..10).map(|number| format!("user {number}")).collect();
    let clients = users.iter().zip(0..).map(async |(user, number)| {
        // They do not come in the same millisecond.
        sleep(Duration::from_millis(7 * number)).await;
        retrying(&router, user).await
    });
    let clients = join_all(clients).await;
    let requests: u32 = clients.iter().map(|(requests, _)| requests).sum();
    let mut served: Vec<_> = clients.iter().filter_map(|(_, served)| *served).collect();
    served.sort_unstable();
    // Eight are refused at first, and each is served as it comes again.
    assert_eq!((requests, served.len()), (18, 10), "{clients:?}");
    // All told the same, two were served every three seconds: half of them by the sixth.
    let median = (served[4] + served[5]) / 2;
    assert!(median <= Duration::from_millis(7_200), "{served:?}");
}

#[tokio::test]
async fn the_clients_of_one_caller_and_one_that_hurries_are_told_the_exact_wait() {
    #[rate_limit(name = "own", period = 60, threshold = 1)]
    async fn own() -> Limited<&'static str> {
        Ok("hello")
    }

    #[rate_limit(name = "everybody", period = 60, threshold = 1, key = "all")]
    async fn everybody() -> Limited<&'static str> {
        Ok("hello")
    }

    let router = Router::new().route("/own", get(own)).route("/all", get(everybody));
    let router = router.layer(by_user());
    for path in ["/own", "/all"] {
        assert_eq!(ask(&router, request(path, "alice")).await.status(), 200);
        for _ in 0..5 {
            let refused = ask(&router, request(path, "alice")).await;
            assert_eq!(header(&refused, "retry-after"), Some("60"), "{path}");
        }
    }
    // The second client of the shared limit comes a period and a second later, and the first one keeps its time.
    for (user, told) in [("bob", "121"), ("alice", "60"), ("bob", "121")] {
        let refused = ask(&router, request("/all", user)).await;
        assert_eq!(header(&refused, "retry-after"), Some(told), "{user}");
        // What is left is exact.
        assert_eq!(header(&refused, "ratelimit"), Some(r#""everybody";r=0;t=60"#));
    }
}

#[tokio::test(start_paused = true)]
async fn clients_without_a_name_are_spread_over_four_periods() {
    let policy = Policy::sliding_window("anonymous", Duration::from_secs(10), 2);
    let gate =
        RateLimitLayer::new(policy).on_missing(OnMissing::Shared).limiter(Limiter::in_memory());
    let router = Router::new().route("/", get(|| async {})).layer(gate);
    let mut told = Vec::new();
    for _ in 0..12 {
        let response = ask(&router, request("/", "")).await;
        told.extend(header(&response, "retry-after").map(str::to_owned));
    }
    assert_eq!(told, ["10", "10", "21", "21", "32", "32", "43", "43", "10", "10"]);
    // As the first ones come again, the next are told what is exact.
    advance(Duration::from_secs(45)).await;
    for expected in [None, None, Some("10")] {
        let response = ask(&router, request("/", "")).await;
        assert_eq!(header(&response, "retry-after"), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_spread_follows_the_units_as_they_come_free() {
    // A token each second: nobody has to wait for a whole period.
    let policy = Policy::token_bucket("bucket", Duration::from_secs(5), 5);
    let limiter = Limiter::in_memory();
    let gate = RateLimitLayer::new(policy).on_missing(OnMissing::Shared).limiter(limiter);
    let router = Router::new().route("/", get(|| async {})).layer(gate);
    let mut told = Vec::new();
    for _ in 0..12 {
        let response = ask(&router, request("/", "")).await;
        told.extend(header(&response, "retry-after").map(str::to_owned));
    }
    assert_eq!(told, ["1", "2", "3", "4", "5", "7", "8"]);
}

async fn stay(Extension(held): Extension<Arc<Held>>) {
    held.stay().await;
}

#[tokio::test]
async fn the_guess_of_a_busy_limit_is_set_by_the_limiter_and_by_each_layer() {
    const ONE: Policy = Policy::concurrency_limit("one", 1);
    let twenty = Duration::from_secs(20);
    let told = async |limiter: Limiter,
                      gate: Option<Option<Duration>>,
                      layer: Option<Option<Duration>>| {
        let held = Arc::new(Held::default());
        let inner = RateLimitLayer::new(ONE).on_missing(OnMissing::Shared).limiter(limiter);
        let inner = gate.into_iter().fold(inner, RateLimitLayer::retry_busy_after);
        let outer = layer.into_iter().fold(by_user(), IdentityLayer::retry_busy_after);
        let router = Router::new().route("/", get(stay)).layer(inner);
        let router = router.layer(Extension(Arc::clone(&held))).layer(outer);
        let [_, refused] = held.beside(async || ask(&router, request("/", "alice")).await).await;
        assert_eq!(refused.status(), 429);
        let wait: Option<u64> = header(&refused, "retry-after").map(|it| it.parse().unwrap());
        let has_millis = header(&refused, "retry-after-ms").is_some();
        assert!(wait.is_some() || !has_millis);
        wait
    };
    let short = 1..=2;
    let long = 20..=40;
    let default = Limiter::in_memory;
    let slow = || Limiter::builder().retry_busy_after(twenty).in_memory();
    let silent = || Limiter::builder().retry_busy_after(None).in_memory();
    for (limiter, gate, layer, expected) in [
        (default(), None, None, Some(&short)),
        (slow(), None, None, Some(&long)),
        (silent(), None, None, None),
        (default(), Some(Some(twenty)), None, Some(&long)),
        (slow(), Some(None), None, None),
        (default(), None, Some(Some(twenty)), Some(&long)),
        (default(), Some(Some(twenty)), Some(None), None),
    ] {
        let told = told(limiter, gate, layer).await;
        assert_eq!(told.is_some(), expected.is_some(), "{told:?} {gate:?} {layer:?}");
        assert!(told.is_none_or(|wait| expected.unwrap().contains(&wait)), "{told:?}");
    }
}

#[tokio::test]
async fn a_guess_is_no_shorter_than_the_wait_of_an_exhausted_limit() {
    #[rate_limit(name = "narrow", key = "all", concurrency = 1)]
    async fn narrow(held: &Held) -> Limited<&'static str> {
        held.stay().await;
        Ok("hello")
    }

    #[rate_limit(name = "short", period = "1100ms", threshold = 1)]
    async fn hello(Extension(held): Extension<Arc<Held>>) -> Limited<&'static str> {
        narrow(&held).await
    }

    let held = Arc::new(Held::default());
    let router = Router::new().route("/", get(hello)).layer(Extension(Arc::clone(&held)));
    let router = router.layer(by_user());
    let users = AtomicU32::new(0);
    let ask_as_another = async || {
        let user = users.fetch_add(1, Ordering::Relaxed);
        ask(&router, request("/", &user.to_string())).await
    };
    // The guesses lie between 1 and 2 s: some would be rounded to 1, before the user's own unit is free.
    for _ in 0..10 {
        let [_, refused] = held.beside(ask_as_another).await;
        assert_eq!(header(&refused, "ratelimit"), Some(r#""short";r=0;t=2, "narrow";r=0"#));
        assert_eq!(header(&refused, "retry-after"), Some("2"));
    }
}

/// Expects the problem of a refusal with the member that clients of language models read.
fn assert_has_error(body: &Value, kind: &str, code: &str) {
    let error = json!({ "message": body["detail"], "type": kind, "code": code });
    assert_eq!(body["error"], error, "{body}");
    assert!(body["title"].is_string() && body["status"].is_u64(), "{body}");
}

#[tokio::test]
async fn one_word_adds_what_clients_of_language_models_read() {
    #[rate_limit(name = "tokens", threshold = 1)]
    async fn answer() -> Limited<&'static str> {
        Ok("hello")
    }

    let policy = Policy::sliding_window("gate", DAY, 1);
    let gate = RateLimitLayer::new(policy).limiter(Limiter::in_memory());
    let router = Router::new()
        .route("/attribute", get(answer))
        .route("/gate", get("hello").layer(gate.clone()))
        .route("/own", get("hello").layer(gate.respond(problem_with_error)));
    let silent = router.clone().layer(by_user());
    let router = router.layer(by_user().respond(problem_with_error));
    for (router, path) in [(&router, "/attribute"), (&router, "/gate"), (&silent, "/own")] {
        while ask(router, request(path, "alice")).await.status() == 200 {}
        let refused = ask(router, request(path, "alice")).await;
        assert_eq!(refused.status(), 429, "{path}");
        assert_eq!(header(&refused, "content-type"), Some(PROBLEM_JSON));
        assert!(header(&refused, "retry-after").is_some());
        let body = axum::body::to_bytes(refused.into_body(), 10_000).await.unwrap();
        let body = serde_json::from_slice(&body).unwrap();
        assert_has_error(&body, "rate_limit_error", "rate_limit_exceeded");
    }
    let nobody = axum::http::Request::get("/gate").body(axum::body::Body::empty()).unwrap();
    let nobody = ask(&router, nobody).await;
    let body = axum::body::to_bytes(nobody.into_body(), 10_000).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap();
    assert_has_error(&body, "invalid_request_error", "invalid_request_error");

    let identity = actix::IdentityMiddleware::new(actix::Identity::header("x-user"))
        .respond(actix::problem_with_error);
    let server = Server::serve(identity, |config| {
        config.route("/", actix_web::web::get().to(answer));
    });
    let ask = async || support::client().get(server.url("/")).header("x-user", "bob").send().await;
    assert_eq!(ask().await.unwrap().status(), 200);
    let refused: Value = ask().await.unwrap().json().await.unwrap();
    assert_has_error(&refused, "rate_limit_error", "rate_limit_exceeded");
}

#[tokio::test]
async fn the_reset_is_a_time_since_1970_if_it_should_be() {
    let policy = Policy::fixed_window("epoch", DAY, 1);
    let limiter = Limiter::in_memory();
    let answer = limiter.check(&policy, "someone").await;
    let since_1970 = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let before = since_1970();
    let fields = HeaderSyntax::LegacyEpoch.headers(&[answer]);
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]);
    assert_eq!((&*fields[0].1, &*fields[1].1), ("1", "0"));
    let reset: u64 = fields[2].1.parse().unwrap();
    assert!((before + 86_399..=since_1970() + 86_401).contains(&reset), "{reset}");
}
