//! The callers of one limit that are refused most, for those who may act: names may be personal
//! data.

use std::cmp::Reverse;

use ratelimit_runtime::{Caller, IntoCaller, fleet::FleetCaller, stats::TimeWindow};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{ActionError, Answer, Dashboard, acting::Action, callers::CallerPart, reply};

/// The number of callers that a list has at most.
const LISTED: usize = 12;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefusedRequest {
    limit: String,
    #[serde(with = "WindowName")]
    window: TimeWindow,
    /// `true` for the callers that the whole fleet has refused.
    #[serde(default)]
    is_fleet: bool,
}

#[derive(Deserialize)]
#[serde(remote = "TimeWindow", rename_all = "snake_case")]
enum WindowName {
    Minute,
    TenMinutes,
    Hour,
}

pub(super) async fn list(action: Action<RefusedRequest>) -> Answer {
    let Action { dashboard, body: RefusedRequest { limit, window, is_fleet }, .. } = action;
    let known = Dashboard::find(&limit)?;
    // The name, the calls, and the number by which they may be too many.
    let mut callers: Vec<(Option<String>, u64, u64)> = if is_fleet {
        let refused = dashboard.refused_by_fleet(known.name).await?.into_iter();
        let calls = |it: &FleetCaller| it.refused_within[window as usize];
        refused.map(|it| (Some(it.name().to_owned()), calls(&it), 0)).collect()
    } else {
        let refused = dashboard.limiter.refused_callers(known.name, window).into_iter();
        refused.map(|it| (it.name().map(str::to_owned), it.calls(), it.at_most_wrong())).collect()
    };
    callers.retain(|(_, calls, _)| *calls > 0);
    callers.sort_by_key(|(_, calls, _)| Reverse(*calls));
    let listed = callers.iter().take(LISTED).map(|(name, calls, at_most_wrong)| {
        json!({ "name": name, "calls": calls, "at_most_wrong": at_most_wrong })
    });
    Ok(reply(&json!({ "callers": listed.collect::<Value>(), "found": callers.len() })))
}

impl Dashboard {
    /// Returns the caller that a request names: by its parts, or as the list of refused callers
    /// names it. A digest of another process is taken for overrides alone.
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
        let why = "this process has not refused this caller within the last hour";
        caller.ok_or_else(|| ActionError::not_found(why))
    }

    async fn refused_by_fleet(&self, limit: &str) -> Result<Vec<FleetCaller>, ActionError> {
        let limits = self.fleet().await?.limits();
        let limit = limits.into_iter().find(|it| it.name == limit);
        Ok(limit.map_or_else(Vec::new, |limit| limit.callers))
    }
}
