//! The algorithms side by side, to try out: each with a store of the page's own.
//!
//! The page keeps the calls it has made, and this process only what its store needs to decide them:
//! a key for each algorithm, which is forgotten when its quota is back.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ::axum::{body::Bytes, extract::State, response::Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Dashboard, Failed, actions, json};
use crate::{error::RateLimitError, limiter::Limiter, policy::Policy};
use ratelimit_core::Algorithm;

/// Room for a key for each algorithm and each page that tries them. They are all of one limit, which
/// takes three quarters of a store.
const MOST_KEYS: usize = 64 * Algorithm::ALL.len() * 4 / 3;
const MOST_CALLS: u32 = 100;
const MOST_THRESHOLD: u32 = 50;
const MOST_PERIOD: u64 = 60_000;
const LEAST_PERIOD: u64 = 500;
const LONGEST_NAME: usize = 32;

/// Where trials are counted.
pub(super) struct Trial(Limiter);

impl Default for Trial {
    fn default() -> Self {
        Self(Limiter::builder().max_keys(MOST_KEYS).instrument(false).in_memory())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    /// Which page this is, as it calls itself.
    name: String,
    /// In milliseconds.
    period: u64,
    threshold: u32,
    /// So many, at once.
    calls: u32,
}

/// What an algorithm makes of the calls. Times are in milliseconds.
#[derive(Serialize)]
struct Answer {
    /// Of each call, in their order.
    admitted: Vec<bool>,
    remaining: u32,
    /// Until the next call is admitted; 0 is now.
    next: f64,
    /// Until all is back.
    reset: f64,
}

pub(super) async fn call(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, Failed> {
    let asked: Question = actions::read(&body)?;
    asked.judge()?;
    let period = Duration::from_millis(asked.period);
    let mut answers = BTreeMap::new();
    for algorithm in Algorithm::ALL {
        let policy = Policy::new("trial", *algorithm, period, asked.threshold);
        let answer = dashboard.trial.call(&policy, &asked).await;
        answers.insert(algorithm.as_str(), answer.map_err(full)?);
    }
    Ok(json(&answers))
}

impl Question {
    fn judge(&self) -> Result<(), Failed> {
        let fault = if self.name.is_empty() || self.name.len() > LONGEST_NAME {
            format!("a name has 1 to {LONGEST_NAME} characters")
        } else if !(LEAST_PERIOD..=MOST_PERIOD).contains(&self.period) {
            format!("the period is between {LEAST_PERIOD} ms and {MOST_PERIOD} ms here")
        } else if !(1..=MOST_THRESHOLD).contains(&self.threshold) {
            format!("the threshold is between 1 and {MOST_THRESHOLD} here")
        } else if self.calls > MOST_CALLS {
            format!("at most {MOST_CALLS} calls are made at once")
        } else {
            return Ok(());
        };
        Err(Failed::new(StatusCode::UNPROCESSABLE_ENTITY, fault))
    }
}

impl Trial {
    /// Decides the calls, and peeks at what is left after them. Nothing of it is recorded: these
    /// are no calls of the service.
    async fn call(&self, policy: &Policy, asked: &Question) -> Result<Answer, RateLimitError> {
        let mut admitted = Vec::new();
        for _ in 0..asked.calls {
            match self.0.check(policy, &asked.name).await {
                Ok(_) => admitted.push(true),
                Err(RateLimitError::Exceeded(_)) => admitted.push(false),
                Err(error) => return Err(error),
            }
        }
        let left = self.0.peek(policy, &asked.name).cost(0).await?;
        let next = match self.0.peek(policy, &asked.name).await {
            Ok(_) => Duration::ZERO,
            Err(RateLimitError::Exceeded(refused)) => refused.retry_after(),
            Err(error) => return Err(error),
        };
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        Ok(Answer {
            admitted,
            remaining: left.remaining(),
            next: millis(next),
            reset: millis(left.reset_after()),
        })
    }
}

fn full(_: RateLimitError) -> Failed {
    let why = "as many trials are going on as there may be; try again in a minute";
    Failed::new(StatusCode::SERVICE_UNAVAILABLE, why)
}
