//! Actions of operators on limits: enforcement and values, of one limit or of all.

use axum::response::Response;
use ratelimit_runtime::{Algorithm, Enforcement, Override, Policy};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    ActionError, Answer, Dashboard,
    access::Viewer,
    acting::Action,
    effect::{Effect, fields_of},
    reply,
    scope::{ALL_LIMITS, Scope},
};

/// The fields of an override that replace values of the policy.
const VALUES: [&str; 5] = ["period", "threshold", "tiers", "burst", "concurrency"];

/// The fields of an override with a value of their own: the factor of the values, and the answer of
/// calls while Redis is away.
const FIELDS: [&str; 2] = ["scale", "on_store_error"];

/// The field of an override with the numbers that are tried.
const CANDIDATE: &str = "candidate";

/// The fields of an override that replace the enforcement.
const ENFORCEMENTS: [&str; 2] = ["enforcement", "enforce"];

/// The fields that alone are no override.
const IS_NOTHING: [&str; 3] = ["from", "until", "by"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetEnforcement {
    limit: String,
    /// The declared one if there is no share either.
    enforcement: Option<Enforcement>,
    /// The share of the callers for whom the limit is on.
    enforce: Option<String>,
    #[serde(flatten)]
    effect: Effect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetLimits {
    limit: String,
    /// Fields as in documents of overrides; the declared values if there are none.
    numbers: Map<String, Value>,
    #[serde(flatten)]
    effect: Effect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClearOverride {
    limit: String,
    scope: Option<Scope>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplyCandidate {
    limit: String,
    scope: Option<Scope>,
    /// The candidate that the operator has seen; any if none.
    seen: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetCandidate {
    limit: String,
    /// The numbers to be tried; none to end the trial.
    numbers: Option<Map<String, Value>>,
    #[serde(flatten)]
    effect: Effect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetField {
    /// The limit, or all of them.
    limit: String,
    /// One of [`FIELDS`].
    field: String,
    /// The value as it was written; none to end it.
    value: Option<Value>,
    #[serde(flatten)]
    effect: Effect,
}

/// A change of an override, as the operator has made it.
struct Edit<'a> {
    /// The limit, or all of them.
    limit: &'a str,
    /// The change in words, for the log.
    words: &'a str,
    change: Change<'a>,
    effect: Effect,
}

impl<'a> Edit<'a> {
    /// Returns the edit of one limit that comes without times.
    fn untimed(
        limit: &str,
        scope: Option<Scope>,
        words: &'a str,
        change: Change<'a>,
    ) -> Result<Self, ActionError> {
        let limit = Dashboard::find(limit)?.name;
        Ok(Self { limit, words, change, effect: Effect { scope, ..Effect::default() } })
    }
}

enum Change<'a> {
    /// These fields are replaced by those of the map.
    Fields(&'a [&'a str], Map<String, Value>),
    /// The numbers of the candidate replace those of the override, if it is the one that was seen.
    ApplyCandidate(Option<Value>),
    /// Nothing is left.
    Clear,
}

pub(super) async fn set_enforcement(action: Action<SetEnforcement>) -> Answer {
    let SetEnforcement { limit, enforcement, enforce, effect } = action.body;
    let limit = one_or_all(&limit)?;
    let word = enforcement.map_or("as in the code", Enforcement::as_str);
    let words = match &enforce {
        Some(share) => format!("enforcement on for {share} of the callers"),
        None => format!("enforcement {word}"),
    };
    let mut fields = field(ENFORCEMENTS[0], enforcement);
    fields.extend(field(ENFORCEMENTS[1], enforce));
    let change = Change::Fields(&ENFORCEMENTS, fields);
    let edit = Edit { limit, words: &words, change, effect };
    action.dashboard.change(&action.viewer, edit).await
}

pub(super) async fn set_limits(action: Action<SetLimits>) -> Answer {
    let SetLimits { limit, numbers, effect } = action.body;
    numbers.keys().try_for_each(|name| one_of(name, &VALUES))?;
    let known = Dashboard::find(&limit)?;
    validate(&numbers, Some(&known.policy))?;
    let words = if numbers.is_empty() {
        "numbers as in the code".to_owned()
    } else {
        format!("numbers {}", Value::Object(numbers.clone()))
    };
    let (limit, change) = (known.name, Change::Fields(&VALUES, numbers));
    let edit = Edit { limit, words: &words, change, effect };
    action.dashboard.change(&action.viewer, edit).await
}

pub(super) async fn set_candidate(action: Action<SetCandidate>) -> Answer {
    let SetCandidate { limit, numbers, effect } = action.body;
    let known = Dashboard::find(&limit)?;
    let words = match &numbers {
        None => "candidate ended".to_owned(),
        Some(numbers) => {
            validate(numbers, Some(&known.policy))?;
            format!("candidate {}", Value::Object(numbers.clone()))
        }
    };
    let change = Change::Fields(&[CANDIDATE], field(CANDIDATE, numbers));
    let edit = Edit { limit: known.name, words: &words, change, effect };
    action.dashboard.change(&action.viewer, edit).await
}

pub(super) async fn apply_candidate(action: Action<ApplyCandidate>) -> Answer {
    let ApplyCandidate { limit, scope, seen } = action.body;
    let change = Change::ApplyCandidate(seen);
    let edit = Edit::untimed(&limit, scope, "candidate applied", change)?;
    action.dashboard.change(&action.viewer, edit).await
}

pub(super) async fn clear_override(action: Action<ClearOverride>) -> Answer {
    let ClearOverride { limit, scope } = action.body;
    let edit = Edit::untimed(&limit, scope, "override removed", Change::Clear)?;
    action.dashboard.change(&action.viewer, edit).await
}

pub(super) async fn set_field(action: Action<SetField>) -> Answer {
    let SetField { limit, field: name, value, effect } = action.body;
    one_of(&name, &FIELDS)?;
    let limit = one_or_all(&limit)?;
    let words = value.as_ref().map_or(format!("no {name}"), |value| format!("{name} {value}"));
    let names = [&*name];
    let change = Change::Fields(&names, field(&name, value));
    let edit = Edit { limit, words: &words, change, effect };
    action.dashboard.change(&action.viewer, edit).await
}

/// Returns the name of a limit of this program, or that of all limits.
fn one_or_all(limit: &str) -> Result<&'static str, ActionError> {
    if limit == ALL_LIMITS { Ok(ALL_LIMITS) } else { Ok(Dashboard::find(limit)?.name) }
}

impl Dashboard {
    /// Changes the override of a limit where the action takes effect.
    async fn change(
        &self,
        viewer: &Viewer,
        Edit { limit, words, change, effect }: Edit<'_>,
    ) -> Answer {
        let acting = self.act_as(viewer, effect.scope)?;
        let _acting = self.acting.lock().await;
        let before = acting.read(limit.into()).await?;
        // What removes an override as a whole leaves no window.
        if !matches!(change, Change::Clear) {
            has_one_part(before.as_ref())?;
        }
        let mut fields = fields_of(before.as_ref());
        let mut others = String::new();
        match change {
            Change::Fields(own, with) => {
                fields.retain(|name, _| !own.contains(&name.as_str()));
                others = in_words(&fields);
                fields.extend(with);
            }
            Change::ApplyCandidate(seen) => {
                let held = fields.get(CANDIDATE);
                if held.is_none() || seen.is_some() && seen.as_ref() != held {
                    let why = "the candidate has changed or ended since; look at it again";
                    return Err(ActionError::conflict(why));
                }
                fields = fields_of(before.clone().map(Override::with_candidate_applied).as_ref());
            }
            Change::Clear => fields.clear(),
        }
        effect.time(&mut fields);
        let is_empty = fields.keys().all(|name| IS_NOTHING.contains(&name.as_str()));
        let after = if is_empty { None } else { Some(override_of(fields)?) };
        let times = |what: &Option<Override>| what.as_ref().map(|what| (what.from, what.until));
        let changes_times = effect.has_times() && !others.is_empty();
        let changes_times = changes_times && times(&before) != times(&after);
        if changes_times && !effect.ends_whole {
            let times = effect.changed_times();
            let why = format!("{times} of the whole override, also of {others}; confirm it");
            return Err(ActionError::refused(why));
        }
        let (removes, was_none) = (after.is_none(), before.is_none());
        acting.write(limit.into(), after, words).await?;
        let sources = acting.overrides.by_source(limit).into_iter();
        let other = sources.map(|(source, _)| source).find(|source| *source != acting.source());
        let place = acting.scope_name();
        Ok(answer(&match (removes, was_none, other) {
            (true, true, None) => format!("there was no override in {place}"),
            (true, true, Some(other)) => {
                format!("there was no override in {place}; {other} has one")
            }
            (true, false, Some(other)) => format!("removed; from now on {other} applies"),
            _ if changes_times => {
                let times = if effect.from.is_some() { "times" } else { "end" };
                format!("{}; {others} has the same {times}", acting.place())
            }
            _ => acting.place(),
        }))
    }
}

/// Returns an error if an override has several parts, each for its own time: an action has one
/// begin and one end.
pub(super) fn has_one_part(what: Option<&Override>) -> Result<(), ActionError> {
    let why = "this override has several times; remove it first, or change it where it was written";
    let has_one = what.is_none_or(|what| what.windows.is_empty());
    has_one.then_some(()).ok_or_else(|| ActionError::refused(why))
}

/// Returns the fields of an override, without its end, in words.
fn in_words(fields: &Map<String, Value>) -> String {
    let shown = fields.iter().filter(|(name, _)| !IS_NOTHING.contains(&name.as_str()));
    let words = shown.map(|(name, value)| format!("{name} {}", value.to_string().replace('"', "")));
    words.collect::<Vec<_>>().join(", ")
}

/// Returns an error if a request names another field than one of these.
fn one_of(name: &str, fields: &[&str]) -> Result<(), ActionError> {
    if fields.contains(&name) {
        return Ok(());
    }
    let why = format!("`{name}` is none of {}", fields.join(", "));
    Err(ActionError::bad_request(why))
}

/// Returns a field with a value, or none.
fn field(name: &str, value: Option<impl Serialize>) -> Map<String, Value> {
    value.map(|value| (name.to_owned(), json!(value))).into_iter().collect()
}

/// Parses the override of these fields.
pub(super) fn override_of(fields: Map<String, Value>) -> Result<Override, ActionError> {
    Ok(Value::Object(fields).to_string().parse()?)
}

/// Returns an error in the words of the form if a number of it is none.
pub(super) fn validate(
    numbers: &Map<String, Value>,
    policy: Option<&Policy>,
) -> Result<(), ActionError> {
    let most = match policy {
        Some(policy) if policy.algorithm() == Algorithm::SlidingWindow => {
            Some((1_000_000_000, "1 000 000 000"))
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
            return Err(ActionError::refused(format!("{label} must be a whole number {range}")));
        }
    }
    Ok(())
}

/// Answers an action in words.
pub(super) fn answer(done: &str) -> Response {
    reply(&json!({ "done": done }))
}
