//! What operators do with limits: enforcement and numbers, of one or of all.

use std::sync::Arc;

use ::axum::{body::Bytes, extract::State, response::Response};
use http::StatusCode;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{Dashboard, Failed, json, limits};
use crate::overrides::{Enforcement, Override, OverrideSource};

/// What of an override speaks of numbers.
const NUMBERS: [&str; 4] = ["period", "threshold", "tiers", "burst"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Enforce {
    limit: String,
    /// None is what is written in the source.
    enforcement: Option<Enforcement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Renumber {
    limit: String,
    /// As in documents of overrides; none are those that are written in the source.
    numbers: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TakeBack {
    limit: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EnforceAll {
    enforcement: Option<Enforcement>,
}

/// What has come of an action.
#[derive(Serialize)]
struct Done {
    done: String,
}

/// Reads what a request says.
pub(super) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failed> {
    serde_json::from_slice(body)
        .map_err(|error| Failed::new(StatusCode::BAD_REQUEST, error.to_string()))
}

pub(super) async fn enforce(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, Failed> {
    let Enforce { limit, enforcement } = read(&body)?;
    let what = enforcement.map_or("as written", Enforcement::as_str);
    let change = |said: &mut Map<String, Value>| {
        said.remove("enforcement");
        said.extend(enforcement.map(|it| ("enforcement".to_owned(), it.as_str().into())));
    };
    let speaks = |it: &Override| it.enforcement.is_some();
    dashboard.change(&limit, &format!("enforcement {what}"), change, speaks).await
}

pub(super) async fn renumber(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, Failed> {
    let Renumber { limit, numbers } = read(&body)?;
    if let Some(other) = numbers.keys().find(|name| !NUMBERS.contains(&name.as_str())) {
        let why = format!("`{other}` is none of {}", NUMBERS.join(", "));
        return Err(Failed::new(StatusCode::BAD_REQUEST, why));
    }
    let what = if numbers.is_empty() {
        "numbers as written".to_owned()
    } else {
        format!("numbers {}", Value::Object(numbers.clone()))
    };
    let change = |said: &mut Map<String, Value>| {
        said.retain(|name, _| !NUMBERS.contains(&name.as_str()));
        said.extend(numbers);
    };
    dashboard.change(&limit, &what, change, Override::changes_limits).await
}

pub(super) async fn take_back(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, Failed> {
    let TakeBack { limit } = read(&body)?;
    dashboard.change(&limit, "override taken back", Map::clear, |_| true).await
}

pub(super) async fn enforce_all(
    State(dashboard): State<Arc<Dashboard>>,
    body: Bytes,
) -> Result<Response, Failed> {
    let EnforceAll { enforcement } = read(&body)?;
    let limiter = &dashboard.limiter;
    let target = limits::target(limiter);
    if target == OverrideSource::Redis {
        limiter.overrides().publish_enforcement(enforcement).await.map_err(|why| refused(&why))?;
    } else {
        limiter.overrides().enforce(enforcement);
    }
    let action = format!("enforcement {}", enforcement.map_or("of each", Enforcement::as_str));
    tracing::info!(policy = "*", %action, %target, "an operator acted on all rate limits");
    let higher = limiter.overrides().enforcement().map(|(_, source)| source);
    Ok(done(target, higher.filter(|source| *source > target)))
}

impl Dashboard {
    /// Changes what is said of a limit where actions have their effect. Another source that
    /// `speaks` of the same may hold before that.
    async fn change(
        &self,
        name: &str,
        action: &str,
        change: impl FnOnce(&mut Map<String, Value>),
        speaks: impl Fn(&Override) -> bool,
    ) -> Result<Response, Failed> {
        let name = self.find(name).ok_or_else(unknown)?.name;
        let _acting = self.acting.lock().await;
        let limiter = &self.limiter;
        let target = limits::target(limiter);
        let before = match target {
            // Another process may have spoken since this one has looked.
            OverrideSource::Redis => {
                limiter.overrides().published(name).await.map_err(|why| refused(&why))?
            }
            _ => of(target, limiter.overrides().by_source(name)),
        };
        let before = before.map(|before| serde_json::to_value(before).unwrap_or_default());
        let mut said = match before {
            Some(Value::Object(said)) => said,
            _ => Map::new(),
        };
        change(&mut said);
        let what = if said.is_empty() {
            None
        } else {
            let read: Result<Override, _> = Value::Object(said).to_string().parse();
            Some(read.map_err(|fault| refused(&without_place(fault.to_string())))?)
        };
        match (target, &what) {
            (OverrideSource::Redis, Some(what)) => {
                limiter.overrides().publish(name, what).await.map_err(|why| refused(&why))?;
            }
            (OverrideSource::Redis, None) => {
                limiter.overrides().unpublish(name).await.map_err(|why| refused(&why))?;
            }
            (_, Some(what)) => {
                limiter.overrides().set(name, what.clone()).map_err(|why| refused(&why))?;
            }
            (_, None) => limiter.overrides().remove(name),
        }
        tracing::info!(policy = name, action, %target, "an operator acted on a rate limit");
        let sources = limiter.overrides().by_source(name).into_iter();
        let higher = sources.take_while(|(source, _)| *source > target).find(|(_, it)| speaks(it));
        Ok(done(target, higher.map(|(source, _)| source)))
    }
}

/// Returns the override of this source.
fn of(source: OverrideSource, overrides: Vec<(OverrideSource, Override)>) -> Option<Override> {
    overrides.into_iter().find_map(|(it, what)| (it == source).then_some(what))
}

fn done(target: OverrideSource, higher: Option<OverrideSource>) -> Response {
    let place = if target == OverrideSource::Redis {
        "written to Redis; it holds in the whole fleet within a second"
    } else {
        "it holds in this process"
    };
    json(&Done {
        done: match higher {
            Some(higher) => format!("said, but {higher} says otherwise, and holds before it"),
            None => place.to_owned(),
        },
    })
}

pub(super) fn unknown() -> Failed {
    Failed::new(StatusCode::NOT_FOUND, "there is no such limit")
}

/// The page has shown a form and not a document: a line and a column would mean nothing.
fn without_place(message: String) -> String {
    match message.rfind(" at line ") {
        Some(end) => message[..end].to_owned(),
        None => message,
    }
}

fn refused(why: &impl ToString) -> Failed {
    Failed::new(StatusCode::UNPROCESSABLE_ENTITY, why.to_string())
}
