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
    // Rather than ignore overrides on which an operator relies.
    #[cfg(not(feature = "overrides"))]
    for name in [OVERRIDES, OVERRIDES_FILE] {
        if variable(name)?.is_some() {
            let why =
                "this program is built without the feature `overrides` of `ratelimit-runtime`";
            return Err(refused(name, why));
        }
    }
    let mut layer = Layer::default();
    #[cfg(feature = "overrides")]
    if let Some(text) = variable(OVERRIDES)? {
        let parsed = limiter.overrides().parse(&text);
        layer = parsed.map_err(|error| refused(OVERRIDES, error.to_string()))?;
    }
    if let Some(word) = variable(ENFORCEMENT)? {
        let unknown = || refused(ENFORCEMENT, format!("`{word}` is none of on, dry_run and off"));
        layer.enforce(Enforcement::parse(word.trim()).ok_or_else(unknown)?);
    }
    let replaced = limiter.overrides().replace(OverrideSource::Environment, layer);
    replaced.map_err(|error| refused(OVERRIDES, error.to_string()))?;
    #[cfg(feature = "overrides")]
    if let Some(path) = variable(OVERRIDES_FILE)? {
        let followed = limiter.overrides().follow_file(path);
        followed.map_err(|error| refused(OVERRIDES_FILE, error.to_string()))?;
    }
    Ok(())
}

fn refused(origin: &'static str, why: impl Into<Cow<'static, str>>) -> ConnectError {
    ConnectError { origin, fault: Fault::new(why) }
}
