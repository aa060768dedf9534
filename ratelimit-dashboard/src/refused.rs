//! The callers of one limit that are refused most, for those who may act: names may be personal data.

use std::sync::Arc;

use axum::{body::Bytes, extract::State, http::StatusCode, response::Response};
use ratelimit_runtime::{Caller, IntoCaller, stats::TimeWindow};
use serde::{Deserialize, Serialize};

use crate::{ActionError, Dashboard, actions, callers::CallerPart, json};

/// The number of callers that a list has at most.
const LISTED: usize = 12;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusedRequest {
    limit: String,
    window: WindowName,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WindowName {
    Minute,
    TenMinutes,
    Hour,
}

#[derive(Serialize)]
struct RefusedView {
    callers: Vec<RefusedCallerView>,
    /// The number of callers that are known.
    found: usize,
}

#[derive(Serialize)]
struct RefusedCallerView {
    name: Option<String>,
    calls: u64,
    at_most_wrong: u64,
}

pub(super) async fn list(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, ActionError> {
    let RefusedRequest { limit, window } = actions::parse(&body)?;
    let known = Dashboard::find(&limit).ok_or_else(actions::unknown)?;
    let window = match window {
        WindowName::Minute => TimeWindow::Minute,
        WindowName::TenMinutes => TimeWindow::TenMinutes,
        WindowName::Hour => TimeWindow::Hour,
    };
    let refused = dashboard.limiter.refused_callers(known.name, window);
    let found = refused.len();
    let callers = refused.into_iter().take(LISTED).map(|it| RefusedCallerView {
        name: it.name().map(str::to_owned),
        calls: it.calls(),
        at_most_wrong: it.at_most_wrong(),
    });
    Ok(json(&RefusedView { callers: callers.collect(), found }))
}

impl Dashboard {
    /// Returns the caller that a request names: by its parts, or as the list of refused callers names it.
    pub(super) fn caller(&self, parts: &[CallerPart]) -> Result<Caller, ActionError> {
        let [CallerPart::Refused { limit, name }] = parts else {
            return CallerPart::caller(parts);
        };
        let refused = self.limiter.refused_callers(limit, TimeWindow::Hour);
        let named = refused.iter().find(|it| it.name() == Some(name));
        named.map(|it| it.into_caller().into_owned()).ok_or_else(|| {
            let why = "this caller was not refused within the last hour";
            ActionError::new(StatusCode::NOT_FOUND, why)
        })
    }
}
