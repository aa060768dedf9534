//! The decision of a call is in those fields of the current span that it was made with.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{middleware::map_response, response::Response, routing::get};
use harness::{RedisServer, listen};
use ratelimit_runtime::{Limiter, OnStoreError, Override, Policy, RateLimitError, rate_limit};
use tower::ServiceExt;
use tracing::Level;

/// The lines of a log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Starts a log at this level for the current thread.
    fn start(level: Level) -> (Self, impl Sized) {
        let log = Self::default();
        let writer = log.clone();
        let format = tracing_subscriber::fmt().with_max_level(level);
        let format = format.with_writer(move || writer.clone()).finish();
        (log, listen(format))
    }

    /// Returns the fields of each line's span, and empties the log.
    fn take(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        let fields = |line: &str| {
            let (_, rest) = line.split_once("request{")?;
            Some(rest.split_once('}')?.0.to_owned())
        };
        text.lines().filter_map(fields).collect()
    }
}

// As the guide prints it.
include!(concat!(env!("OUT_DIR"), "/request_span.rs"));

#[rate_limit(name = "greet", period = 60, threshold = 1, key = "all", limiter = limiter)]
async fn greet(limiter: &Limiter) -> Result<&'static str, RateLimitError> {
    Ok("hello")
}

/// Asks a service of one limit twice. Returns the fields of both spans.
async fn ask_twice(limiter: Limiter, log: &Log) -> Vec<String> {
    let served = async |response: Response| {
        tracing::info!("served");
        response
    };
    let app = Router::new().route("/", get(async move || greet(&limiter).await));
    let app = traced(app.layer(map_response(served)));
    for _ in 0..2 {
        app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    }
    log.take()
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_request_has_the_decision_in_memory() {
    for level in [Level::INFO, Level::DEBUG] {
        let (log, _listening) = Log::start(level);
        let mut fields = ask_twice(Limiter::in_memory(), &log).await;
        // At debug the start of a request and each decision are lines too.
        fields.retain(|line| line.contains("decision"));
        fields.dedup();
        assert_eq!(
            fields,
            [
                r#"path="/" rate_limit.policy="greet" rate_limit.decision="admitted" rate_limit.decided_by="store""#,
                r#"path="/" rate_limit.policy="greet" rate_limit.decision="refused" rate_limit.decided_by="store" rate_limit.wait_ms=60000"#,
            ],
            "{level}"
        );
    }
}

#[tokio::test]
async fn the_span_of_a_request_has_the_decision_on_redis() {
    let redis = RedisServer::start();
    let (log, _listening) = Log::start(Level::INFO);
    let limiter = Limiter::builder().prefix("spans:").deny_cache(0).connect(&redis.url()).await;
    let fields = ask_twice(limiter.unwrap(), &log).await;
    let [admitted, refused] = &fields[..] else { panic!("{fields:?}") };
    assert_eq!(
        admitted,
        r#"path="/" rate_limit.policy="greet" rate_limit.decision="admitted" rate_limit.decided_by="store""#
    );
    let (decided, wait) = refused.split_once(" rate_limit.wait_ms=").unwrap();
    assert_eq!(decided, admitted.replace("admitted", "refused"));
    assert!((55_000..=60_000).contains(&wait.parse().unwrap()), "{wait}");
}

#[tokio::test]
async fn a_span_has_the_fields_that_it_was_made_with_and_no_others() {
    const MAIL: Policy = Policy::sliding_window("mail", Duration::from_secs(60), 5);
    let (log, _listening) = Log::start(Level::INFO);
    let limiter = Limiter::in_memory();
    let shut_out = Override::new().deny();
    limiter.overrides().here().set(("mail", "mallory"), shut_out).unwrap();
    let away = Limiter::builder().prefix("spans:").connect_lazy("redis://127.0.0.1:1").unwrap();
    let spans =
        [info_span!("request", rate_limit.decision = Empty), info_span!("request", other = 1)];
    for span in spans {
        let _entered = span.enter();
        for outcome in ["admitted", "denied", "too_large", "unavailable", "peek"] {
            let answer = match outcome {
                "denied" => limiter.check(&MAIL, "mallory").await,
                "too_large" => limiter.check(&MAIL, "alice").cost(6).await,
                "unavailable" => {
                    away.check(&MAIL, "alice").on_store_error(OnStoreError::Deny).await
                }
                // It is no call of the limit.
                "peek" => limiter.peek(&MAIL, "mallory").await,
                _ => limiter.check(&MAIL, "alice").await,
            };
            drop(answer);
        }
        tracing::info!("served");
    }
    assert_eq!(
        log.take(),
        [
            r#"rate_limit.decision="admitted" rate_limit.decision="denied" rate_limit.decision="too_large" rate_limit.decision="unavailable""#,
            "other=1",
        ]
    );
}

#[tokio::test]
async fn calls_of_a_limiter_that_is_not_instrumented_leave_spans_as_they_are() {
    let (log, _listening) = Log::start(Level::INFO);
    let limiter = Limiter::builder().instrument(false).in_memory();
    let span = request_span(&Request::new(Body::empty()));
    let _entered = span.enter();
    greet(&limiter).await.unwrap();
    tracing::info!("served");
    assert_eq!(log.take(), [r#"path="/""#]);
}
