//! Actions of operators on limits: enforcement and values, of one limit or of all.

use std::sync::Arc;

use axum::{body::Bytes, extract::State, http::StatusCode, response::Response};
use ratelimit_runtime::{Enforcement, Override, OverrideError, OverrideSource, Overrides};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{ActionError, Dashboard, json, limits};

/// The fields of an override that replace values of the policy.
const VALUES: [&str; 5] = ["period", "threshold", "tiers", "burst", "concurrency"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetEnforcement {
    limit: String,
    /// The declared one if none.
    enforcement: Option<Enforcement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetLimits {
    limit: String,
    /// Fields as in documents of overrides; the declared values if there are none.
    numbers: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClearOverride {
    limit: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetGlobalEnforcement {
    enforcement: Option<Enforcement>,
}

/// The result of an action, as text for the operator.
#[derive(Serialize)]
struct ActionDone {
    done: String,
}

/// Parses the body of a request.
pub(super) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, ActionError> {
    serde_json::from_slice(body)
        .map_err(|error| ActionError::new(StatusCode::BAD_REQUEST, error.to_string()))
}

pub(super) async fn set_enforcement(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, ActionError> {
    let SetEnforcement { limit, enforcement } = parse(&body)?;
    let word = enforcement.map_or("as written", Enforcement::as_str);
    let change = |fields: &mut Map<String, Value>| {
        fields.remove("enforcement");
        fields.extend(enforcement.map(|it| ("enforcement".to_owned(), it.as_str().into())));
    };
    let sets_it = |other: &Override| other.enforcement.is_some();
    dashboard.change(&limit, &format!("enforcement {word}"), change, sets_it).await
}

pub(super) async fn set_limits(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, ActionError> {
    let SetLimits { limit, numbers } = parse(&body)?;
    if let Some(other) = numbers.keys().find(|name| !VALUES.contains(&name.as_str())) {
        let why = format!("`{other}` is none of {}", VALUES.join(", "));
        return Err(ActionError::new(StatusCode::BAD_REQUEST, why));
    }
    let action = if numbers.is_empty() {
        "numbers as written".to_owned()
    } else {
        format!("numbers {}", Value::Object(numbers.clone()))
    };
    let change = |fields: &mut Map<String, Value>| {
        fields.retain(|name, _| !VALUES.contains(&name.as_str()));
        fields.extend(numbers);
    };
    dashboard.change(&limit, &action, change, Override::changes_limits).await
}

pub(super) async fn clear_override(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, ActionError> {
    let ClearOverride { limit } = parse(&body)?;
    dashboard.change(&limit, "override removed", Map::clear, |_| true).await
}

pub(super) async fn set_global_enforcement(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, ActionError> {
    let SetGlobalEnforcement { enforcement } = parse(&body)?;
    let overrides = dashboard.limiter.overrides();
    let target = limits::target(overrides);
    if target == OverrideSource::Redis {
        overrides.publish_enforcement(enforcement).await.map_err(|why| refused(&why))?;
        if enforcement.is_none() {
            // Set while Redis did not answer.
            overrides.enforce(None);
        }
    } else {
        overrides.enforce(enforcement);
    }
    let action = format!("enforcement {}", enforcement.map_or("of each", Enforcement::as_str));
    tracing::info!(policy = "*", %action, %target, "an operator acted on all rate limits");
    let higher = overrides.enforcement().map(|(_, source)| source);
    Ok(done(overrides, target, higher.filter(|source| *source > target)))
}

impl Dashboard {
    /// Changes the override of a limit in the source where actions take effect. The answer names a
    /// higher source that `sets` the same.
    async fn change(
        &self,
        name: &str,
        action: &str,
        change: impl FnOnce(&mut Map<String, Value>),
        sets: impl Fn(&Override) -> bool,
    ) -> Result<Response, ActionError> {
        let name = self.find(name).ok_or_else(unknown)?.name;
        let _acting = self.acting.lock().await;
        let overrides = self.limiter.overrides();
        let target = limits::target(overrides);
        let before = match target {
            // Another process may have published since the latest poll.
            OverrideSource::Redis => {
                overrides.published(name).await.map_err(|why| refused(&why))?
            }
            _ => overrides
                .by_source(name)
                .into_iter()
                .find_map(|(source, before)| (source == target).then_some(before)),
        };
        let mut fields = match serde_json::to_value(before) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        change(&mut fields);
        let after = if fields.is_empty() {
            None
        } else {
            let parsed: Result<Override, OverrideError> = Value::Object(fields).to_string().parse();
            Some(parsed.map_err(|error| refused(&without_place(error.to_string())))?)
        };
        let changed = match (target, &after) {
            (OverrideSource::Redis, Some(after)) => overrides.publish(name, after).await,
            (OverrideSource::Redis, None) => {
                // Set while Redis did not answer.
                overrides.remove(name);
                overrides.unpublish(name).await
            }
            (_, Some(after)) => overrides.set(name, after.clone()),
            (_, None) => {
                overrides.remove(name);
                Ok(())
            }
        };
        changed.map_err(|why| refused(&why))?;
        tracing::info!(policy = name, action, %target, "an operator acted on a rate limit");
        let sources = overrides.by_source(name).into_iter();
        let higher = sources.take_while(|(source, _)| *source > target).find(|(_, it)| sets(it));
        Ok(done(overrides, target, higher.map(|(source, _)| source)))
    }
}

fn done(overrides: &Overrides, target: OverrideSource, higher: Option<OverrideSource>) -> Response {
    let place = match overrides.redis_failure() {
        _ if target == OverrideSource::Redis => {
            "written to Redis; in effect in the whole fleet within a second".to_owned()
        }
        Some(reason) => {
            format!("in effect in this process alone, because Redis cannot be used: {reason}")
        }
        None => "in effect in this process".to_owned(),
    };
    json(&ActionDone {
        done: match higher {
            Some(higher) => format!("done, but {higher} sets it too, and takes precedence"),
            None => place,
        },
    })
}

pub(super) fn unknown() -> ActionError {
    ActionError::new(StatusCode::NOT_FOUND, "there is no such limit")
}

/// Removes the line and the column: the operator has filled in a form and no document.
fn without_place(message: String) -> String {
    match message.rfind(" at line ") {
        Some(end) => message[..end].to_owned(),
        None => message,
    }
}

fn refused(why: &impl ToString) -> ActionError {
    ActionError::new(StatusCode::UNPROCESSABLE_ENTITY, why.to_string())
}
