//! Overrides in environment variables.

use std::{
    borrow::Cow,
    env::{self, VarError},
};

use super::Limiter;
#[cfg(feature = "calendar")]
use crate::calendar::database;
use crate::{
    error::{ConnectError, Fault},
    overrides::{Enforcement, Layer, OverrideSource},
};

/// The global enforcement.
const ENFORCEMENT: &str = "RATELIMIT_ENFORCEMENT";

/// A document of overrides.
const OVERRIDES: &str = "RATELIMIT_OVERRIDES";

/// The path of a file with a document of overrides.
const OVERRIDES_FILE: &str = "RATELIMIT_OVERRIDES_FILE";

/// Returns the value of a variable, if it is set and not empty.
pub(super) fn variable(name: &'static str) -> Result<Option<String>, ConnectError> {
    match env::var(name) {
        Ok(value) if value.trim().is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(refused(name, "not valid UTF-8")),
    }
}

/// Sets the overrides in the environment, and checks what else limits read there.
pub(super) fn apply(limiter: &Limiter) -> Result<(), ConnectError> {
    #[cfg(feature = "calendar")]
    database::choice().map_err(|why| refused(database::VARIABLE, why))?;
    let mut layer = Layer::default();
    if let Some(text) = variable(OVERRIDES)? {
        layer = read(limiter, &text)?;
    }
    if let Some(word) = variable(ENFORCEMENT)? {
        let unknown = || refused(ENFORCEMENT, format!("`{word}` is none of on, dry_run and off"));
        layer.enforce(Enforcement::parse(word.trim()).ok_or_else(unknown)?);
    }
    let replaced = limiter.overrides().replace(OverrideSource::Environment, layer);
    replaced.map_err(|error| refused(OVERRIDES, error.to_string()))?;
    if let Some(path) = variable(OVERRIDES_FILE)? {
        follow(limiter, path)?;
    }
    Ok(())
}

fn refused(origin: &'static str, why: impl Into<Cow<'static, str>>) -> ConnectError {
    ConnectError { origin, fault: Fault::new(why) }
}

#[cfg(feature = "overrides")]
fn read(limiter: &Limiter, text: &str) -> Result<Layer, ConnectError> {
    limiter.overrides().parse(text).map_err(|error| refused(OVERRIDES, error.to_string()))
}

#[cfg(feature = "overrides")]
fn follow(limiter: &Limiter, path: String) -> Result<(), ConnectError> {
    let followed = limiter.overrides().follow_file(path);
    followed.map_err(|error| refused(OVERRIDES_FILE, error.to_string()))
}

/// Returns an error rather than ignore overrides on which an operator relies.
#[cfg(not(feature = "overrides"))]
fn read(_: &Limiter, _: &str) -> Result<Layer, ConnectError> {
    Err(refused(OVERRIDES, NOT_BUILT_IN))
}

#[cfg(not(feature = "overrides"))]
fn follow(_: &Limiter, _: String) -> Result<(), ConnectError> {
    Err(refused(OVERRIDES_FILE, NOT_BUILT_IN))
}

#[cfg(not(feature = "overrides"))]
const NOT_BUILT_IN: &str =
    "this program is built without the feature `overrides` of `ratelimit-runtime`";
