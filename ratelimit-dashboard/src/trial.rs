//! The algorithms side by side, to try out, in a store of the page's own.
//!
//! The page keeps the calls that it has made. This process keeps one key for each algorithm, until its
//! quota is back.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{body::Bytes, extract::State, http::StatusCode, response::Response};
use ratelimit_runtime::{Algorithm, Limiter, Policy, RateLimitError};
use serde::{Deserialize, Serialize};

use crate::{ActionError, Dashboard, actions, json};

/// The keys of 64 pages, one for each algorithm. All are of one limit, which may fill three quarters
/// of a store.
const MAX_KEYS: usize = 64 * Algorithm::ALL.len() * 4 / 3;
const MAX_CALLS: u32 = 100;
const MAX_THRESHOLD: u32 = 50;
/// In milliseconds.
const MAX_PERIOD: u64 = 60_000;
/// In milliseconds.
const MIN_PERIOD: u64 = 500;
/// In bytes.
const MAX_NAME: usize = 32;

/// The limiter that counts trials.
pub(super) struct Trial(Limiter);

impl Default for Trial {
    fn default() -> Self {
        Self(Limiter::builder().max_keys(MAX_KEYS).instrument(false).in_memory())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrialRequest {
    /// The name that the page has given itself.
    name: String,
    /// In milliseconds.
    period: u64,
    threshold: u32,
    /// The number of calls, at once.
    calls: u32,
}

/// The decisions of one algorithm. Times are in milliseconds.
#[derive(Serialize)]
struct TrialResult {
    /// One for each call, in their order.
    admitted: Vec<bool>,
    remaining: u32,
    /// Until the next call is admitted; 0 is now.
    next: f64,
    /// Until the full quota is back.
    reset: f64,
}

pub(super) async fn call(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, ActionError> {
    let request: TrialRequest = actions::parse(&body)?;
    request.validate()?;
    let period = Duration::from_millis(request.period);
    let mut answers = BTreeMap::new();
    for algorithm in Algorithm::ALL {
        let policy = Policy::new("trial", *algorithm, period, request.threshold);
        let answer = dashboard.trial.call(&policy, &request).await;
        answers.insert(algorithm.as_str(), answer.map_err(full)?);
    }
    Ok(json(&answers))
}

impl TrialRequest {
    fn validate(&self) -> Result<(), ActionError> {
        let fault = if self.name.is_empty() || self.name.len() > MAX_NAME {
            format!("a name has 1 to {MAX_NAME} characters")
        } else if !(MIN_PERIOD..=MAX_PERIOD).contains(&self.period) {
            format!("the period is between {MIN_PERIOD} ms and {MAX_PERIOD} ms here")
        } else if !(1..=MAX_THRESHOLD).contains(&self.threshold) {
            format!("the threshold is between 1 and {MAX_THRESHOLD} here")
        } else if self.calls > MAX_CALLS {
            format!("at most {MAX_CALLS} calls are made at once")
        } else {
            return Ok(());
        };
        Err(ActionError::new(StatusCode::UNPROCESSABLE_ENTITY, fault))
    }
}

impl Trial {
    /// Decides the calls, and peeks at what is left after them. Nothing of it is recorded: these
    /// are no calls of the service.
    async fn call(
        &self,
        policy: &Policy,
        request: &TrialRequest,
    ) -> Result<TrialResult, RateLimitError> {
        let mut admitted = Vec::new();
        for _ in 0..request.calls {
            match self.0.check(policy, &request.name).await {
                Ok(_) => admitted.push(true),
                Err(RateLimitError::Exceeded(_)) => admitted.push(false),
                Err(error) => return Err(error),
            }
        }
        let left = self.0.peek(policy, &request.name).cost(0).await?;
        let next = match self.0.peek(policy, &request.name).await {
            Ok(_) => Duration::ZERO,
            Err(RateLimitError::Exceeded(refused)) => refused.retry_after(),
            Err(error) => return Err(error),
        };
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        Ok(TrialResult {
            admitted,
            remaining: left.remaining(),
            next: millis(next),
            reset: millis(left.reset_after()),
        })
    }
}

fn full(_: RateLimitError) -> ActionError {
    let why = "too many trials at once; try again in a minute";
    ActionError::new(StatusCode::SERVICE_UNAVAILABLE, why)
}
