//! Actions of operators on limits: enforcement and values, of one limit or of all.

use axum::{http::StatusCode, response::Response};
use ratelimit_runtime::{Algorithm, Enforcement, Override, OverrideError, Policy};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    ActionError, Answer, Dashboard,
    access::Viewer,
    acting::Action,
    reply,
    scope::{ALL_LIMITS, Scope},
};

/// The fields of an override that replace values of the policy.
const VALUES: [&str; 5] = ["period", "threshold", "tiers", "burst", "concurrency"];

/// The field of an override with the numbers that are tried.
const CANDIDATE: &str = "candidate";

/// The field of an override that replaces the enforcement.
const ENFORCEMENT: &str = "enforcement";

/// The fields that alone are no override.
const IS_NOTHING: [&str; 2] = ["until", "by"];

/// The end of an override that has none.
const NEVER: &str = "never";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetEnforcement {
    limit: String,
    /// The declared one if none.
    enforcement: Option<Enforcement>,
    scope: Option<Scope>,
    /// A time, or `never`; as before if none.
    until: Option<String>,
    /// `true` if the end is also that of what the action leaves as it is.
    #[serde(default)]
    ends_whole: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetLimits {
    limit: String,
    /// Fields as in documents of overrides; the declared values if there are none.
    numbers: Map<String, Value>,
    scope: Option<Scope>,
    until: Option<String>,
    #[serde(default)]
    ends_whole: bool,
}

/// An action on a limit that takes no value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnLimit {
    limit: String,
    scope: Option<Scope>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetCandidate {
    limit: String,
    /// The numbers to be tried; none to end the trial.
    numbers: Option<Map<String, Value>>,
    scope: Option<Scope>,
    until: Option<String>,
    #[serde(default)]
    ends_whole: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetGlobalEnforcement {
    enforcement: Option<Enforcement>,
    scope: Option<Scope>,
    until: Option<String>,
}

/// A change of an override, as the operator has made it.
struct Edit<'a> {
    /// The limit, or all of them.
    limit: &'a str,
    /// The change in words, for the log.
    words: &'a str,
    change: Change<'a>,
    scope: Option<Scope>,
    until: Option<String>,
    ends_whole: bool,
}

enum Change<'a> {
    /// These fields are replaced by those of the map.
    Fields(&'a [&'a str], Map<String, Value>),
    Whole(fn(Override) -> Override),
}

pub(super) async fn set_enforcement(action: Action<SetEnforcement>) -> Answer {
    let SetEnforcement { limit, enforcement, scope, until, ends_whole } = action.body;
    let limit = Dashboard::find(&limit).ok_or_else(unknown)?.name;
    let words = format!("enforcement {}", word(enforcement));
    let change = Change::Fields(&[ENFORCEMENT], field(ENFORCEMENT, enforcement));
    let edit = Edit { limit, words: &words, change, scope, until, ends_whole };
    action.dashboard.change(&action.viewer, edit).await
}

pub(super) async fn set_limits(action: Action<SetLimits>) -> Answer {
    let SetLimits { limit, numbers, scope, until, ends_whole } = action.body;
    if let Some(other) = numbers.keys().find(|name| !VALUES.contains(&name.as_str())) {
        let why = format!("`{other}` is none of {}", VALUES.join(", "));
        return Err(ActionError::new(StatusCode::BAD_REQUEST, why));
    }
    let known = Dashboard::find(&limit).ok_or_else(unknown)?;
    validate(&numbers, Some(&known.policy))?;
    let words = if numbers.is_empty() {
        "numbers as in the code".to_owned()
    } else {
        format!("numbers {}", Value::Object(numbers.clone()))
    };
    let (limit, change) = (known.name, Change::Fields(&VALUES, numbers));
    let edit = Edit { limit, words: &words, change, scope, until, ends_whole };
    action.dashboard.change(&action.viewer, edit).await
}

pub(super) async fn set_candidate(action: Action<SetCandidate>) -> Answer {
    let SetCandidate { limit, numbers, scope, until, ends_whole } = action.body;
    let known = Dashboard::find(&limit).ok_or_else(unknown)?;
    let words = match &numbers {
        None => "candidate ended".to_owned(),
        Some(numbers) => {
            validate(numbers, Some(&known.policy))?;
            format!("candidate {}", Value::Object(numbers.clone()))
        }
    };
    let change = Change::Fields(&[CANDIDATE], field(CANDIDATE, numbers));
    let edit = Edit { limit: known.name, words: &words, change, scope, until, ends_whole };
    action.dashboard.change(&action.viewer, edit).await
}

pub(super) async fn apply_candidate(action: Action<OnLimit>) -> Answer {
    change_whole(action, "candidate applied", Override::with_candidate_applied).await
}

pub(super) async fn clear_override(action: Action<OnLimit>) -> Answer {
    change_whole(action, "override removed", |_| Override::new()).await
}

pub(super) async fn set_global_enforcement(action: Action<SetGlobalEnforcement>) -> Answer {
    let SetGlobalEnforcement { enforcement, scope, until } = action.body;
    let words = format!("enforcement {}", word(enforcement));
    let change = Change::Fields(&[ENFORCEMENT], field(ENFORCEMENT, enforcement));
    let edit = Edit { limit: ALL_LIMITS, words: &words, change, scope, until, ends_whole: false };
    action.dashboard.change(&action.viewer, edit).await
}

/// Changes the whole override of a limit, by an action that takes no value.
async fn change_whole(
    Action { dashboard, viewer, body: OnLimit { limit, scope } }: Action<OnLimit>,
    words: &str,
    change: fn(Override) -> Override,
) -> Answer {
    let (limit, change) =
        (Dashboard::find(&limit).ok_or_else(unknown)?.name, Change::Whole(change));
    let edit = Edit { limit, words, change, scope, until: None, ends_whole: false };
    dashboard.change(&viewer, edit).await
}

impl Dashboard {
    /// Changes the override of a limit where the action takes effect.
    async fn change(
        &self,
        viewer: &Viewer,
        Edit { limit, words, change, scope, until, ends_whole }: Edit<'_>,
    ) -> Answer {
        let acting = self.act_as(viewer, scope)?;
        let _acting = self.acting.lock().await;
        let before = acting.read(limit.into()).await.map_err(|why| refused(&why))?;
        let (mut fields, has_end) = (fields_of(before.as_ref()), until.is_some());
        let mut others = String::new();
        match change {
            Change::Fields(own, with) => {
                fields.retain(|name, _| !own.contains(&name.as_str()));
                others = in_words(&fields);
                fields.extend(with);
            }
            Change::Whole(change) => {
                fields = fields_of(Some(&change(before.clone().unwrap_or_default())));
            }
        }
        end(&mut fields, until);
        let is_empty = fields.keys().all(|name| IS_NOTHING.contains(&name.as_str()));
        let after = if is_empty { None } else { Some(override_of(fields)?) };
        let end = |what: &Option<Override>| what.as_ref().and_then(|what| what.until);
        let changes_end = has_end && !others.is_empty() && end(&before) != end(&after);
        if changes_end && !ends_whole {
            let why =
                format!("the end is that of the whole override, also of {others}; confirm it");
            return Err(refused(&why));
        }
        let (removes, was_none) = (after.is_none(), before.is_none());
        acting.write(limit.into(), after).await.map_err(|why| refused(&why))?;
        let target = acting.source();
        tracing::info!(policy = limit, action = words, %target, "an operator acted on a rate limit");
        let sources = acting.overrides.by_source(limit).into_iter();
        let other = sources.map(|(source, _)| source).find(|source| *source != target);
        let place = acting.scope_name();
        Ok(answer(&match (removes, was_none, other) {
            (true, true, None) => format!("there was no override in {place}"),
            (true, true, Some(other)) => {
                format!("there was no override in {place}; {other} has one")
            }
            (true, false, Some(other)) => format!("removed; from now on {other} applies"),
            _ if changes_end => format!("{}; {others} has the same end", acting.place()),
            _ => acting.place(),
        }))
    }
}

/// Returns the fields of an override, without its end, in words.
fn in_words(fields: &Map<String, Value>) -> String {
    let shown = fields.iter().filter(|(name, _)| !IS_NOTHING.contains(&name.as_str()));
    let words = shown.map(|(name, value)| format!("{name} {}", value.to_string().replace('"', "")));
    words.collect::<Vec<_>>().join(", ")
}

/// Returns a field with a value, or none.
fn field(name: &str, value: Option<impl Serialize>) -> Map<String, Value> {
    value.map(|value| (name.to_owned(), json!(value))).into_iter().collect()
}

/// Sets the end of an override that an operator has chosen.
pub(super) fn end(fields: &mut Map<String, Value>, until: Option<String>) {
    if let Some(until) = until {
        fields.remove("until");
        fields.extend((until != NEVER).then(|| ("until".to_owned(), until.into())));
    }
}

/// Returns the fields of an override; none without one.
fn fields_of(what: Option<&Override>) -> Map<String, Value> {
    match serde_json::to_value(what) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// Parses the override of these fields.
pub(super) fn override_of(fields: Map<String, Value>) -> Result<Override, ActionError> {
    let parsed: Result<Override, OverrideError> = Value::Object(fields).to_string().parse();
    parsed.map_err(|why| refused(&why))
}

fn word(enforcement: Option<Enforcement>) -> &'static str {
    enforcement.map_or("as in the code", Enforcement::as_str)
}

/// Returns an error in the words of the form if a number of it is none.
pub(super) fn validate(
    numbers: &Map<String, Value>,
    policy: Option<&Policy>,
) -> Result<(), ActionError> {
    let most = match policy {
        Some(policy) if policy.is_weighted() => Some((1_000_000_000, "1 000 000 000")),
        Some(policy) if policy.algorithm() == Algorithm::SlidingWindow => {
            Some((100_000, "100 000"))
        }
        _ => None,
    };
    let tiers = numbers.get("tiers").and_then(Value::as_array).into_iter().flatten();
    let thresholds = tiers.map(|tier| tier.get("threshold")).chain([numbers.get("threshold")]);
    let thresholds = thresholds.map(|it| ("Threshold", it, most));
    let others =
        [("Burst", numbers.get("burst"), None), ("In flight", numbers.get("concurrency"), None)];
    for (label, value, most) in thresholds.chain(others) {
        let bound = most.map_or(u64::from(u32::MAX), |(most, _)| most);
        let is_whole = |value: &Value| value.as_u64().is_some_and(|it| (1..=bound).contains(&it));
        if !value.is_none_or(is_whole) {
            let range =
                most.map_or("from 1 on".to_owned(), |(_, most)| format!("from 1 to {most}"));
            return Err(refused(&format!("{label} must be a whole number {range}")));
        }
    }
    Ok(())
}

/// Answers an action in words.
pub(super) fn answer(done: &str) -> Response {
    reply(&json!({ "done": done }))
}

pub(super) fn unknown() -> ActionError {
    ActionError::new(StatusCode::NOT_FOUND, "there is no such limit")
}

pub(super) fn refused(why: &impl ToString) -> ActionError {
    ActionError::new(StatusCode::UNPROCESSABLE_ENTITY, why.to_string())
}
