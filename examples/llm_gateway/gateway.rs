//! The gateway: accounts, limits, answers and header fields.

use std::convert::Infallible;

use axum::{
    Json, Router,
    extract::{FromRequestParts, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::AUTHORIZATION, request::Parts},
    middleware::{Next, from_fn},
    response::{
        IntoResponse, Response, Result,
        sse::{Event, Sse},
    },
    routing::post,
};
use futures_util::{Stream, StreamExt};
use ratelimit_runtime::{
    Decision, RateLimitError, observe, rate_limit,
    web::tower::{Identity, IdentityLayer},
};

use super::upstream::{self, Answer, Completion};

/// Answers at once. The whole request is reserved, and settled at what the upstream reports.
#[rate_limit(
    name = "tokens",
    period = "1m",
    threshold = account.plan.tokens_a_minute(),
    concurrency = 5,
    concurrency_timeout = "10s",
    key = account.id,
    cost = request.most_tokens(),
    settle = |answer| answer.as_ref().map_or(0, |answer| answer.usage.total())
)]
async fn complete(account: &Account, request: &Completion) -> Result<Answer, RateLimitError> {
    Ok(upstream::answer(request).await)
}

/// Answers a token at a time. The stream owns the meter, and with it the place among the calls in
/// flight: a client that leaves half-way pays for what it received.
#[rate_limit(
    name = "tokens",
    period = "1m",
    threshold = account.plan.tokens_a_minute(),
    concurrency = 5,
    concurrency_timeout = "10s",
    key = account.id,
    cost = request.most_tokens(),
    decision = quota
)]
async fn stream(
    account: &Account,
    request: &Completion,
) -> Result<impl Stream<Item = String> + use<>, RateLimitError> {
    let meter = quota.meter();
    meter.add(request.prompt_tokens());
    Ok(upstream::tokens(request).inspect(move |_| meter.add(1)))
}

/// `POST /v1/completions`.
async fn completions(account: Account, Json(request): Json<Completion>) -> Result<Response> {
    if !request.stream {
        return Ok(Json(complete(&account, &request).await?).into_response());
    }
    let tokens = stream(&account, &request).await?;
    let events = tokens.map(|token| Ok::<_, Infallible>(Event::default().data(token)));
    Ok(Sse::new(events).into_response())
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
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        Self::of(parts).ok_or(StatusCode::UNAUTHORIZED)
    }
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
pub fn router() -> Router {
    let account = Identity::from_fn(|request| Some(Account::of(request)?.id.into()));
    Router::new()
        .route("/v1/completions", post(completions))
        .layer(from_fn(tell_tokens))
        .layer(IdentityLayer::new(account))
}
