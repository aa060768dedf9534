//! Overrides of single callers: one caller exempt, with another threshold, or shut out.
//!
//! They are listed to those who may act, and never logged.

use ratelimit_runtime::overrides::{CallerOverride, Place};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    ActionError, Answer, Dashboard,
    acting::Action,
    actions::{self, answer},
    callers::CallerPart,
    effect::Effect,
    reply,
    scope::{ALL_LIMITS, Scope},
};

/// The number of callers that a list has at most.
const LISTED: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetException {
    /// The limit, or all of them.
    limit: String,
    caller: Vec<CallerPart>,
    /// Fields as in documents of overrides.
    what: Map<String, Value>,
    #[serde(flatten)]
    effect: Effect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndException {
    limit: String,
    /// The caller as it is listed.
    caller: String,
    scope: Option<Scope>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    limit: String,
    /// A part of a caller as it is listed.
    find: String,
}

pub(super) async fn set(action: Action<SetException>) -> Answer {
    let Action { dashboard, viewer, body } = action;
    let SetException { limit, caller, mut what, effect } = body;
    let known = if limit == ALL_LIMITS { None } else { Some(Dashboard::find(&limit)?) };
    let limit = known.as_ref().map_or(ALL_LIMITS, |known| known.name);
    let caller = dashboard.caller(&caller, true).await?;
    actions::validate(&what, known.as_ref().map(|known| &known.policy))?;
    let acting = dashboard.act_as(&viewer, effect.scope)?;
    let _acting = dashboard.acting.lock().await;
    let place = Place::caller(limit, &caller);
    let before = acting.read(place.clone()).await?;
    actions::has_one_part(before.as_ref())?;
    effect.time_in_place_of(before.as_ref(), &mut what);
    acting.write(place, Some(actions::override_of(what)?), "exception of a caller").await?;
    Ok(answer(&acting.place()))
}

pub(super) async fn end(action: Action<EndException>) -> Answer {
    let Action { dashboard, viewer, body: EndException { limit, caller, scope } } = action;
    let acting = dashboard.act_as(&viewer, scope)?;
    let _acting = dashboard.acting.lock().await;
    let listed = acting.overrides.search_for(&limit, &caller);
    let listed = listed.into_iter().find(|it| it.text() == caller);
    let Some(CallerOverride { caller, .. }) = listed else {
        return Err(ActionError::not_found("this caller has no exception"));
    };
    acting.write(Place::caller(limit, &caller), None, "exception of a caller ended").await?;
    Ok(answer(&acting.place()))
}

pub(super) async fn list(action: Action<Search>) -> Answer {
    let Action { dashboard, body: Search { limit, find }, .. } = action;
    let overrides = dashboard.limiter.overrides();
    // Those of a plan, of its limit, and of all limits.
    let known = Dashboard::find(&limit)?;
    let names = [known.name, known.policy.name(), ALL_LIMITS];
    let plans = names.into_iter().skip(usize::from(names[0] == names[1]));
    let listed = plans.map(|limit| {
        let view = move |it: CallerOverride| {
            json!({
                "limit": limit,
                "caller": it.text(),
                "by": it.source.to_string(),
                // None if it is ended where it is written.
                "scope": Scope::of(it.source),
                "what": it.what,
            })
        };
        overrides.search_for(limit, &find).into_iter().map(view)
    });
    let mut callers: Vec<_> = listed.into_iter().flatten().collect();
    let found = callers.len();
    callers.truncate(LISTED);
    Ok(reply(&json!({ "callers": callers, "found": found })))
}
