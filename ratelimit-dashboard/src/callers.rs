//! One caller of one limit, named by an operator: the quota that is left, and a reset.
//!
//! The caller is neither logged nor part of an answer.

use std::time::Duration;

use ratelimit_runtime::{Caller, Check, OnStoreError, Policy, RateLimitError};
use serde::Deserialize;
use serde_json::json;

use crate::{
    ActionError, Answer, Dashboard, access::TARGET, acting::Action, limits::KnownLimit, reply,
};

/// The number of parts that a caller may have.
const MAX_PARTS: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LookupRequest {
    limit: String,
    caller: Vec<CallerPart>,
}

/// One part of a caller, or a mark before the parts that follow.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallerPart {
    Text(String),
    /// `Option::None`.
    None,
    /// The caller of all calls that have none.
    Shared,
    /// The mark of an alternative extractor of an identity.
    Or,
    /// A text of which keys contain the digest, such as a header.
    Digest(String),
    /// The whole caller, as the list of refused callers of this limit names it.
    Refused {
        limit: String,
        name: String,
    },
}

/// Logs an action of an operator on a caller.
fn log(policy: &str, action: &str, message: &str) {
    tracing::info!(target: TARGET, policy, action, "{message}");
}

pub(super) async fn look_up(action: Action<LookupRequest>) -> Answer {
    let (known, caller) = named(&action).await?;
    log(known.name, "look up", "an operator looked up a caller");
    action.dashboard.quota(&known, caller).await
}

pub(super) async fn reset(action: Action<LookupRequest>) -> Answer {
    let (known, caller) = named(&action).await?;
    let Action { dashboard, viewer, .. } = action;
    dashboard.limiter.reset(&known.policy, caller.clone()).await?;
    log(known.name, "reset", "an operator reset a caller");
    dashboard.resets.record(&viewer, known.name);
    if known.values.is_none() {
        return Ok(reply(&json!({})));
    }
    dashboard.quota(&known, caller).await
}

/// Returns the limit and the caller that a request names.
async fn named(
    Action { dashboard, viewer, body }: &Action<LookupRequest>,
) -> Result<(KnownLimit, Caller), ActionError> {
    let known = Dashboard::find(&body.limit)?;
    if dashboard.limiter.is_in_memory() {
        viewer.means_this_process()?;
    }
    let caller = dashboard.caller(&body.caller, false).await?;
    Ok((known, caller))
}

impl Dashboard {
    /// Returns the quota of a caller. Times are in milliseconds.
    async fn quota(&self, known: &KnownLimit, caller: Caller) -> Answer {
        let why =
            "the values of this limit come with its calls, and this process has seen none yet";
        let policy = known.values.ok_or_else(|| ActionError::conflict(why))?;
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        let left = match self.peek(&policy, &caller).cost(0).await {
            // An override shuts the caller out, whatever is left: until this time, if there is an
            // end.
            Err(RateLimitError::Denied(denied)) => {
                let next = denied.retry_after().map(millis);
                return Ok(reply(&json!({ "denied": true, "next": next })));
            }
            left => left?,
        };
        let next = match self.peek(&policy, &caller).await {
            Ok(_) => Some(Duration::ZERO),
            Err(RateLimitError::Exceeded(refused)) => Some(refused.retry_after()),
            Err(RateLimitError::Busy(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let usage = self.limiter.usage(&policy, &caller).await;
        let usage = usage.map_err(|error| ActionError::unavailable(error.to_string()))?;
        Ok(reply(&json!({
            "remaining": left.remaining(),
            "threshold": left.threshold(),
            // 0 for calls in flight: `remaining` are the permits that are free.
            "period": millis(left.period()),
            // Until the next call is admitted; 0 is now, none as soon as a call in flight ends.
            "next": next.map(millis),
            // Until the full quota is back.
            "reset": millis(left.reset_after()),
            // Until the end of a block; none if the caller is not shut out.
            "blocked": usage.blocked_for().map(millis),
            // `true` if values come with each call: they are those of the latest one, perhaps of
            // another caller.
            "is_by_latest_call": known.is_dynamic,
            // After overrides, also of this caller.
            "enforcement": usage.enforcement().as_str(),
        })))
    }

    /// Peeks at the store alone: the counts of this process while Redis fails are others.
    fn peek<'a>(&'a self, policy: &'a Policy, caller: &Caller) -> Check<'a> {
        self.limiter.peek(policy, caller.clone()).on_store_error(OnStoreError::Deny)
    }
}

impl CallerPart {
    /// Returns the caller of these parts.
    pub(super) fn caller(parts: &[Self]) -> Result<Caller, ActionError> {
        let is_short = parts.len() <= MAX_PARTS;
        let caller = is_short.then(|| caller(parts)).flatten();
        let why = || format!("a caller has 1 to {MAX_PARTS} parts");
        caller.ok_or_else(|| ActionError::refused(why()))
    }
}

/// Returns the caller of these parts; `None` if there is none, or none after a mark.
fn caller(parts: &[CallerPart]) -> Option<Caller> {
    let (first, rest) = parts.split_first()?;
    let first = match first {
        CallerPart::Text(text) => Caller::from(text),
        CallerPart::None => Caller::none(),
        CallerPart::Shared => Caller::shared(),
        CallerPart::Digest(text) => Caller::digest(text),
        CallerPart::Or => return caller(rest).map(Caller::fallback),
        CallerPart::Refused { .. } => return None,
    };
    if rest.is_empty() { Some(first) } else { Some(first.join(&caller(rest)?)) }
}
