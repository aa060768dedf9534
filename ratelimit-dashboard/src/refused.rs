//! The callers of one limit that are refused most, for those who may act: names may be personal data.

use std::{cmp::Reverse, sync::Arc};

use axum::{body::Bytes, extract::State, http::StatusCode, response::Response};
use ratelimit_runtime::{Caller, FleetCaller, IntoCaller, RefusedCaller, stats::TimeWindow};
use serde::{Deserialize, Serialize};

use crate::{ActionError, Dashboard, actions, callers::CallerPart, json};

/// The number of callers that a list has at most.
const LISTED: usize = 12;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusedRequest {
    limit: String,
    window: WindowName,
    /// `true` for the callers that the whole fleet has refused.
    #[serde(default)]
    is_fleet: bool,
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

impl RefusedCallerView {
    fn of_process(it: &RefusedCaller) -> Self {
        let (name, at_most_wrong) = (it.name().map(str::to_owned), it.at_most_wrong());
        Self { name, calls: it.calls(), at_most_wrong }
    }

    fn of_fleet(it: &FleetCaller, window: TimeWindow) -> Self {
        let calls = it.refused_within[window as usize];
        Self { name: Some(it.name().to_owned()), calls, at_most_wrong: 0 }
    }
}

pub(super) async fn list(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, ActionError> {
    let RefusedRequest { limit, window, is_fleet } = actions::parse(&body)?;
    let known = Dashboard::find(&limit).ok_or_else(actions::unknown)?;
    let window = match window {
        WindowName::Minute => TimeWindow::Minute,
        WindowName::TenMinutes => TimeWindow::TenMinutes,
        WindowName::Hour => TimeWindow::Hour,
    };
    let mut callers: Vec<_> = if is_fleet {
        let refused = dashboard.refused_by_fleet(known.name).await?;
        refused.iter().map(|it| RefusedCallerView::of_fleet(it, window)).collect()
    } else {
        let refused = dashboard.limiter.refused_callers(known.name, window);
        refused.iter().map(RefusedCallerView::of_process).collect()
    };
    callers.retain(|it| it.calls > 0);
    callers.sort_by_key(|it| Reverse(it.calls));
    let found = callers.len();
    callers.truncate(LISTED);
    Ok(json(&RefusedView { callers, found }))
}

impl Dashboard {
    /// Returns the caller that a request names: by its parts, or as the list of refused callers names it. A digest of
    /// another process is taken for overrides alone.
    pub(super) async fn caller(
        &self,
        parts: &[CallerPart],
        is_of_override: bool,
    ) -> Result<Caller, ActionError> {
        let [CallerPart::Refused { limit, name }] = parts else {
            return CallerPart::caller(parts);
        };
        let here = self.limiter.refused_callers(limit, TimeWindow::Hour);
        if let Some(named) = here.iter().find(|it| it.name() == Some(name)) {
            return Ok(named.into_caller().into_owned());
        }
        let fleet = self.refused_by_fleet(limit).await.unwrap_or_default();
        let named = fleet.iter().find(|it| it.name() == name);
        let caller = named.and_then(|it| {
            if is_of_override { Some(it.into_caller().into_owned()) } else { it.caller() }
        });
        caller.ok_or_else(|| {
            let why = "this process has not refused this caller within the last hour";
            ActionError::new(StatusCode::NOT_FOUND, why)
        })
    }

    async fn refused_by_fleet(&self, limit: &str) -> Result<Vec<FleetCaller>, ActionError> {
        let limits = self.fleet().await?.limits();
        let limit = limits.into_iter().find(|it| it.name == limit);
        Ok(limit.map_or_else(Vec::new, |limit| limit.callers))
    }
}
