//! The last changes of overrides as the page shows them, and the undoing of one.

use std::{sync::Arc, time::UNIX_EPOCH};

use axum::{Extension, body::Bytes, extract::State, http::StatusCode, response::Response};
use ratelimit_runtime::{Override, OverrideChange, OverrideSource, Overrides};
use serde::{Deserialize, Serialize};

use crate::{
    ActionError, Dashboard,
    access::Viewer,
    acting::Scope,
    actions::{self, answer, parse, refused},
};

/// The number of changes that are shown.
const SHOWN: usize = 20;

/// A change of an override. The caller is not part of it.
#[derive(Serialize)]
pub(super) struct ChangeView {
    number: u64,
    /// In milliseconds since 1970.
    at: u64,
    source: String,
    operator: Option<String>,
    limit: String,
    is_of_caller: bool,
    before: Option<Override>,
    after: Option<Override>,
    /// `true` if an operator can undo it: it is the last one of its kind, by the program or on Redis.
    is_last: bool,
    /// `true` if undoing it changes the whole fleet.
    is_fleet: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Undo {
    /// The number of the change.
    number: u64,
}

/// Returns the last changes, the latest first.
pub(super) fn changes(overrides: &Overrides) -> Vec<ChangeView> {
    let history = overrides.history();
    let view = |(at, change): (usize, &OverrideChange)| {
        let is_later = |later: &&OverrideChange| is_same(later, change);
        let since = change.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        ChangeView {
            number: change.number,
            at: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            source: change.source.to_string(),
            operator: change.operator.as_deref().map(str::to_owned),
            limit: change.limit.clone(),
            is_of_caller: change.caller.is_some(),
            before: change.before.clone(),
            after: change.after.clone(),
            is_last: Scope::of(change.source).is_some()
                && !history[..at].iter().any(|it| is_later(&it)),
            is_fleet: change.source == OverrideSource::Redis,
        }
    };
    history.iter().enumerate().take(SHOWN).map(view).collect()
}

/// Returns `true` if both are changes of the same override.
fn is_same(one: &OverrideChange, other: &OverrideChange) -> bool {
    one.source == other.source && one.limit == other.limit && one.caller == other.caller
}

pub(super) async fn undo(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(viewer): Extension<Viewer>,
    body: Bytes,
) -> Result<Response, ActionError> {
    let Undo { number } = parse(&body)?;
    let _acting = dashboard.acting.lock().await;
    let history = dashboard.limiter.overrides().history();
    let conflict = |why: &str| ActionError::new(StatusCode::CONFLICT, why);
    let place = history.iter().position(|change| change.number == number);
    let place = place.ok_or_else(|| conflict("this change is not known any more"))?;
    let change = &history[place];
    let Some(scope) = Scope::of(change.source) else {
        return Err(conflict("this change is undone where it was written"));
    };
    let acting = dashboard.act_as(&viewer, Some(scope))?;
    let changed = "it has changed since; undo the latest change first";
    if history[..place].iter().any(|later| is_same(later, change)) {
        return Err(conflict(changed));
    }
    // Another process may have written since the latest poll.
    if change.caller.is_none() {
        let now = acting.read(&change.limit).await.map_err(|why| refused(&why))?;
        if now != change.after {
            return Err(conflict(changed));
        }
    }
    let written = acting.write(&change.limit, change.caller.as_ref(), change.before.clone());
    written.await.map_err(|why| refused(&why))?;
    let (policy, target) = (&*change.limit, acting.source());
    tracing::info!(policy, action = "undo", %target, "an operator acted on a rate limit");
    let is_all = change.limit == actions::ALL_LIMITS;
    let subject = if is_all { "all limits" } else { &*change.limit };
    Ok(answer(format!("Undone for {subject}: {}.", acting.place())))
}
