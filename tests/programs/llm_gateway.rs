//! The gateway of the examples keeps the tokens of an account and its calls in flight.

use std::time::{Duration, Instant};

use axum::{
    body::{Body, BodyDataStream, to_bytes},
    http::{HeaderMap, Request, StatusCode},
};
use futures_util::StreamExt;
use harness::{RedisServer, until};
use ratelimit_runtime::limiter;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{advance, sleep},
};
use tower::ServiceExt;

use crate::{MACHINE, services::Service};

#[path = "../../examples/llm_gateway/gateway.rs"]
mod gateway;
#[path = "../../examples/llm_gateway/upstream.rs"]
mod upstream;

const FREE: &str = "Bearer key-of-a-free-plan";
const PAID: &str = "Bearer key-of-a-paid-plan";

/// A request of `words` tokens, for an answer of as many at most.
fn completion(words: usize, max_tokens: u32, stream: bool) -> Value {
    json!({ "prompt": "word ".repeat(words), "max_tokens": max_tokens, "stream": stream })
}

async fn ask(key: &str, completion: Value) -> (StatusCode, HeaderMap, Body) {
    let request = Request::post("/v1/completions")
        .header("authorization", key)
        .header("content-type", "application/json")
        .body(Body::from(completion.to_string()))
        .unwrap();
    let response = gateway::router().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    (parts.status, parts.headers, body)
}

async fn json_of(body: Body) -> Value {
    serde_json::from_slice(&to_bytes(body, usize::MAX).await.unwrap()).unwrap()
}

/// Returns the message of an error, as the SDKs of `OpenAI` and Anthropic read it.
async fn error_of(body: Body, kind: &str) -> String {
    let body = json_of(body).await;
    assert_eq!(body["error"]["type"], kind, "{body}");
    body["error"]["message"].as_str().unwrap().to_owned()
}

/// Reads `count` events of a stream, each with a token.
async fn read(stream: &mut BodyDataStream, count: usize) {
    for _ in 0..count {
        let event = stream.next().await.expect("an event").unwrap();
        let chunk = event.strip_prefix(b"data: ").unwrap();
        let chunk: Value = serde_json::from_slice(chunk).unwrap();
        assert_eq!(chunk["choices"][0]["text"], "word", "{chunk}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_pays_for_the_tokens_that_its_requests_took() {
    // 1 000 tokens a minute.
    let (status, headers, body) = ask(FREE, completion(100, 400, false)).await;
    assert_eq!(status, 200);
    assert_eq!(headers["x-ratelimit-limit-tokens"], "1000");
    // 500 were reserved.
    assert_eq!(headers["x-ratelimit-remaining-tokens"], "800");
    assert_eq!(headers["ratelimit-policy"], r#""tokens";q=1000;qu="tokens";w=60"#);
    assert_eq!(headers["ratelimit"], r#""tokens";r=800;t=60"#);
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 200 });
    let answer = json_of(body).await;
    assert_eq!(answer["usage"], usage);
    assert_eq!(answer["choices"][0]["text"].as_str().unwrap().split(' ').count(), 100);

    let (_, headers, _) = ask(FREE, completion(100, 400, false)).await;
    assert_eq!(headers["x-ratelimit-remaining-tokens"], "600");

    // A stream has its fields before its end: 500 are reserved.
    // A client that leaves half-way pays for the prompt, and for what it received.
    let (_, headers, body) = ask(FREE, completion(100, 400, true)).await;
    assert_eq!(headers["x-ratelimit-remaining-tokens"], "100");
    let mut stream = body.into_data_stream();
    read(&mut stream, 50).await;
    drop(stream);

    let (_, headers, _) = ask(FREE, completion(0, 400, false)).await;
    assert_eq!(headers["x-ratelimit-remaining-tokens"], "450", "1000 - 200 - 200 - 150");

    let refused = completion(100, 400, false);
    let (_, headers, _) = ask(FREE, completion(1, 449, false)).await;
    assert_eq!(headers["x-ratelimit-remaining-tokens"], "448");
    let (status, headers, body) = ask(FREE, refused.clone()).await;
    assert_eq!(status, 429);
    assert_eq!(headers["x-ratelimit-remaining-tokens"], "448");
    let message = error_of(body, "rate_limit_error").await;
    assert!(message.starts_with("rate limit `tokens` exceeded: at most 1000 per 60s"), "{message}");
    let retry_after: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    advance(Duration::from_secs(retry_after)).await;
    assert_eq!(ask(FREE, refused).await.0, 200);

    let (status, _, body) = ask("Bearer nobody", completion(1, 1, false)).await;
    assert_eq!(status, 401);
    error_of(body, "authentication_error").await;
    let (status, _, body) = ask(FREE, json!({ "prompt": 1 })).await;
    assert_eq!(status, 422);
    assert!(error_of(body, "invalid_request_error").await.contains("prompt"));
    // More than the plan ever allows.
    let (status, headers, body) = ask(FREE, completion(1, 1_000, false)).await;
    assert_eq!((status.as_u16(), headers.contains_key("retry-after")), (422, false));
    let detail = "rate limit `tokens` never admits 1001 units at once: at most 1000 per 60s";
    assert_eq!(error_of(body, "invalid_request_error").await, detail);
}

#[tokio::test(start_paused = true)]
async fn an_account_has_five_requests_in_flight() {
    let mut streams = Vec::new();
    for _ in 0..5 {
        let (status, _, body) = ask(PAID, completion(10, 10, true)).await;
        assert_eq!(status, 200);
        streams.push(body.into_data_stream());
    }
    let (status, headers, body) = ask(PAID, completion(10, 10, true)).await;
    assert_eq!(status, 429);
    assert!(["1", "2"].contains(&headers["retry-after"].to_str().unwrap()), "{headers:?}");
    assert_eq!(headers["ratelimit-policy"], r#""tokens-in-flight";q=5;qu="concurrent-requests""#);
    let message = error_of(body, "rate_limit_error").await;
    assert_eq!(message, "rate limit `tokens` is busy: at most 5 in flight");
    // One ends, and another one comes in.
    let mut ends = streams.pop().unwrap();
    read(&mut ends, 10).await;
    assert_eq!(&ends.next().await.unwrap().unwrap()[..], b"data: [DONE]\n\n");
    drop(ends);
    assert_eq!(ask(PAID, completion(10, 10, false)).await.0, 200);
    limiter().flush().await.unwrap();
}

/// The window of the fleet's tokens, by an override.
const WINDOW: Duration = Duration::from_secs(3);

/// The tokens of a free plan in a window.
const TOKENS: u64 = 1_000;

/// An answered request: when it was sent and answered, and the tokens that it took.
#[derive(Clone, Copy)]
struct Answered {
    sent: Instant,
    received: Instant,
    tokens: u64,
}

fn post(service: &Service, key: &str, completion: &Value) -> reqwest::RequestBuilder {
    let request = service.client.post(service.url("/v1/completions"));
    request.header("authorization", key).json(completion)
}

/// Sends requests until the end, and returns those that were answered.
async fn keep_asking(service: reqwest::RequestBuilder, end: Instant) -> Vec<Answered> {
    let mut answered = Vec::new();
    while Instant::now() < end {
        let sent = Instant::now();
        // The process may have been killed.
        let Ok(response) = service.try_clone().unwrap().send().await else { break };
        if response.status() == 429 {
            sleep(Duration::from_millis(100)).await;
            continue;
        }
        assert_eq!(response.status(), 200);
        let Ok(answer) = response.json::<Value>().await else { break };
        let usage = &answer["usage"];
        let of = |field: &str| usage[field].as_u64().unwrap();
        let tokens = of("prompt_tokens") + of("completion_tokens");
        answered.push(Answered { sent, received: Instant::now(), tokens });
    }
    answered
}

/// Four processes share an account's tokens and its calls in flight, and one of them is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_serve_what_a_plan_allows_though_one_is_killed() {
    let _machine = MACHINE.lock().await;
    let server = RedisServer::start();
    let overrides = format!("[limits]\ntokens = {{ period = \"{}s\" }}", WINDOW.as_secs());
    let environment = [("RATELIMIT_OVERRIDES", &*overrides)];
    let mut services =
        [(); 4].map(|()| Service::start_with("llm_gateway", Some(&server), &environment));
    // Five streams of one process, all that the account may have.
    let long = completion(10_000, 5_000, true);
    let [killed, others @ ..] = &mut services;
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(post(killed, PAID, &long).send().await.unwrap().error_for_status().unwrap());
    }
    let one_more = post(&others[0], PAID, &completion(1, 1, false));
    assert_eq!(one_more.try_clone().unwrap().send().await.unwrap().status(), 429);

    let start = Instant::now();
    let end = start + 4 * WINDOW;
    let request = completion(10, 11, false);
    let mut clients = JoinSet::new();
    for service in [&*killed].into_iter().chain(&*others) {
        for _ in 0..4 {
            clients.spawn(keep_asking(post(service, FREE, &request), end));
        }
    }
    sleep(WINDOW / 2).await;
    killed.process.kill();
    let free = until("a permit of the killed process", async || {
        let status = one_more.try_clone().unwrap().send().await.unwrap().status();
        (status == 200).then(Instant::now)
    });
    let killed_at = Instant::now();
    let freed_after = free.await - killed_at;
    assert!(freed_after < Duration::from_secs(12), "{freed_after:?}");

    let mut answered: Vec<_> = clients.join_all().await.into_iter().flatten().collect();
    answered.sort_by_key(|it| it.sent);
    let in_time = |from: Instant, to: Instant| -> u64 {
        let inside = answered.iter().filter(|it| it.sent >= from && it.received < to);
        inside.map(|it| it.tokens).sum()
    };
    for first in &answered {
        let tokens = in_time(first.sent, first.sent + WINDOW);
        assert!(tokens <= TOKENS, "{tokens} tokens in one window");
    }
    let tokens = in_time(start, end);
    println!("{tokens} tokens in {:?}; permits free after {freed_after:?}", 4 * WINDOW);
    assert!(tokens * 10 >= 4 * TOKENS * 9, "{tokens} tokens in four windows");
}
