//! The gateway: accounts, limits, answers and header fields.
//!
//! Errors have the member that the SDKs of `OpenAI` and Anthropic read: `{"error": {"type": .., "message": ..}}`.

use axum::{
    Json, Router,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::AUTHORIZATION, request::Parts},
    middleware::{Next, from_fn},
    response::{
        IntoResponse, Response, Result,
        sse::{Event, Sse},
    },
    routing::post,
};
use futures_util::{FutureExt, Stream, StreamExt, future};
use ratelimit_runtime::{
    Decision, RateLimitError, observe, rate_limit,
    web::{
        OnMissing,
        tower::{Identity, IdentityLayer, problem_with_error},
    },
};

use serde_json::json;

use super::upstream::{self, Answer, Completion};

/// `POST /v1/completions`. The most tokens that the request can take are reserved, and settled at what
/// it took. An account that changes its plan keeps its counts.
#[rate_limit(
    name = "tokens",
    period = "1m",
    threshold = account.plan.tokens_a_minute(),
    key = account.id,
    cost = request.most_tokens(),
    quota_unit = tokens,
    concurrency = 5,
    concurrency_timeout = "10s",
    decision = quota
)]
async fn completions(account: Account, request: Completion) -> Result<Response> {
    if request.stream {
        return Ok(stream(&quota, &request).into_response());
    }
    let (answer, tokens) = upstream::answer(&request).await;
    quota.settle(tokens);
    Ok(Json(answer).into_response())
}

/// Answers a token at a time, in events of which the last is `[DONE]`. The stream owns the meter, and by it
/// the place among the requests in flight: a client that leaves half-way pays for what it received.
fn stream(
    quota: &Decision,
    request: &Completion,
) -> Sse<impl Stream<Item = Result<Event, axum::Error>> + use<>> {
    let meter = quota.meter();
    meter.add(request.prompt_tokens());
    let tokens = upstream::tokens(request).map(move |token| {
        meter.add(1);
        Event::default().json_data(Answer::of_token(token))
    });
    let done = future::ready(Ok(Event::default().data("[DONE]")));
    Sse::new(tokens.chain(done.into_stream()))
}

/// The owner of an API key.
struct Account {
    id: u32,
    plan: Plan,
}

#[derive(Clone, Copy)]
enum Plan {
    Free,
    Paid,
}

impl Plan {
    fn tokens_a_minute(self) -> u32 {
        match self {
            Self::Free => 1_000,
            Self::Paid => 100_000,
        }
    }
}

impl Account {
    /// Authenticates the API key. Unknown keys are refused, so that none gets a quota.
    fn of(request: &Parts) -> Option<Self> {
        match request.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes) {
            Some(b"Bearer key-of-a-free-plan") => Some(Self { id: 1, plan: Plan::Free }),
            Some(b"Bearer key-of-a-paid-plan") => Some(Self { id: 2, plan: Plan::Paid }),
            _ => None,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Account {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        Self::of(parts).ok_or_else(|| error(StatusCode::UNAUTHORIZED, "this API key is unknown"))
    }
}

impl<S: Send + Sync> FromRequest<S> for Completion {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let parsed = Json::from_request(request, state).await;
        parsed.map(|Json(it)| it).map_err(|it| error(it.status(), &it.body_text()))
    }
}

/// Returns an error as the clients' SDKs read it.
fn error(status: StatusCode, message: &str) -> Response {
    let kind = match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::NOT_FOUND => "not_found_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    // Anthropic's SDK reads the outer type, OpenAI's the code and the parameter.
    let error = json!({ "type": kind, "message": message, "code": kind, "param": null });
    (status, Json(json!({ "type": "error", "error": error }))).into_response()
}

/// Adds the fields that clients of such gateways read, beside the `RateLimit` fields.
async fn tell_tokens(request: Request, next: Next) -> Response {
    let (mut response, answers) = observe(next.run(request)).await;
    for answer in &answers {
        add_tokens(response.headers_mut(), answer);
    }
    response
}

fn add_tokens(headers: &mut HeaderMap, answer: &Result<Decision, RateLimitError>) {
    let (limit, remaining, reset) = match answer {
        Ok(decision) => (decision.threshold(), decision.remaining(), decision.reset_after()),
        Err(RateLimitError::Exceeded(refusal)) => {
            (refusal.threshold(), refusal.remaining(), refusal.reset_after())
        }
        Err(_) => return,
    };
    let mut add = |name, value: String| {
        headers.extend(HeaderValue::try_from(value).map(|value| (name, value)));
    };
    add(HeaderName::from_static("x-ratelimit-limit-tokens"), limit.to_string());
    add(HeaderName::from_static("x-ratelimit-remaining-tokens"), remaining.to_string());
    add(HeaderName::from_static("x-ratelimit-reset-tokens"), format!("{}ms", reset.as_millis()));
}

/// Returns the gateway's routes and layers.
pub(super) fn router() -> Router {
    // The extractor refuses what has no account.
    let account = Identity::from_fn(|request| Some(Account::of(request)?.id.into()))
        .on_missing(OnMissing::Shared);
    Router::new()
        .route("/v1/completions", post(completions))
        .fallback(async || error(StatusCode::NOT_FOUND, "there is only `POST /v1/completions`"))
        .layer(IdentityLayer::new(account).respond(problem_with_error))
        .layer(from_fn(tell_tokens))
}
