//! One caller of one limit, whom an operator names: what is left to it, and a new beginning.
//!
//! What is said here of who calls is neither logged nor answered.

use std::{sync::Arc, time::Duration};

use ::axum::{body::Bytes, extract::State, response::Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Dashboard, Failed, actions, json, limits::Known};
use crate::{
    caller::Caller, error::RateLimitError, limiter::Check, policy::Policy, request::OnStoreError,
};

/// The most parts of a caller.
const MOST_PARTS: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    limit: String,
    caller: Vec<Part>,
}

/// A part of a key.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    Text(String),
    /// `Option::None`.
    None,
    /// The part that stands for all calls without a caller.
    Shared,
    /// The mark of callers whom an alternative source of an identity found.
    Or,
    /// A text that stands in keys as its digest, such as a header's value.
    Digest(String),
}

/// What a caller has. Times are in milliseconds.
#[derive(Serialize)]
struct Quota {
    remaining: u32,
    threshold: u32,
    period: f64,
    /// Until the next call is admitted; 0 is now.
    next: f64,
    /// Until all is back.
    reset: f64,
}

pub(super) async fn look_up(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, Failed> {
    let (known, caller) = dashboard.asked(&body)?;
    tracing::info!(policy = known.name, action = "look up", "an operator looked up a caller");
    dashboard.tell(&known, caller).await
}

pub(super) async fn reset(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, Failed> {
    let (known, caller) = dashboard.asked(&body)?;
    let policy = known.policy.ok_or_else(not_called)?;
    dashboard.limiter.reset(&policy, caller.clone()).await.map_err(|why| not_told(&why))?;
    tracing::info!(policy = known.name, action = "reset", "an operator reset a caller");
    if known.numbers.is_none() {
        return Ok(json(&serde_json::json!({})));
    }
    dashboard.tell(&known, caller).await
}

impl Dashboard {
    fn asked(&self, body: &Bytes) -> Result<(Known, Caller), Failed> {
        let Question { limit, caller: parts } = actions::read(body)?;
        let known = self.find(&limit).ok_or_else(actions::unknown)?;
        if parts.is_empty() || parts.len() > MOST_PARTS {
            let why = format!("a caller has 1 to {MOST_PARTS} parts");
            return Err(Failed::new(StatusCode::UNPROCESSABLE_ENTITY, why));
        }
        let mut caller = Caller::without_parts();
        for part in &parts {
            match part {
                Part::Text(text) => caller.push(text),
                Part::None => caller.push_none(),
                Part::Shared => caller.append(&Caller::shared()),
                Part::Or => caller.push_or(),
                Part::Digest(text) => caller.push_digest(text),
            }
        }
        Ok((known, caller))
    }

    async fn tell(&self, known: &Known, caller: Caller) -> Result<Response, Failed> {
        let policy = known.numbers.ok_or_else(not_called)?;
        let left = self.peek(&policy, &caller).cost(0).await.map_err(|why| not_told(&why))?;
        let next = match self.peek(&policy, &caller).await {
            Ok(_) => Duration::ZERO,
            Err(RateLimitError::Exceeded(refused)) => refused.retry_after(),
            Err(error) => return Err(not_told(&error)),
        };
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        Ok(json(&Quota {
            remaining: left.remaining(),
            threshold: left.threshold(),
            period: millis(left.period()),
            next: millis(next),
            reset: millis(left.reset_after()),
        }))
    }

    /// A look at what the store knows, and not at what this process would make up without it.
    fn peek<'a>(&'a self, policy: &'a Policy, caller: &Caller) -> Check<'a> {
        let request = self.limiter.peek(policy, caller.clone());
        request.on_store_error(OnStoreError::Deny)
    }
}

fn not_called() -> Failed {
    let why = "this limit's numbers come with its calls, and this process has seen none yet";
    Failed::new(StatusCode::CONFLICT, why)
}

fn not_told(error: &RateLimitError) -> Failed {
    let status = match error {
        RateLimitError::InvalidPolicy(_) | RateLimitError::TooLarge(_) => StatusCode::CONFLICT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    Failed::new(status, error.to_string())
}
