//! The fields of the hashes of overrides.

use crate::{
    key,
    overrides::{Fault, Layer, Override, OverrideError, Overrides, document, validate},
    registry::RegisteredPolicy,
};

/// The field of all limits. No function has this name.
pub(super) const ALL_FIELD: &str = "*";

/// The field that changes with each change of callers, so that a poll does not read all of them. The field of a
/// caller contains a `/`.
pub(super) const REVISION: &str = "#";

/// The kind of a hash, by what its fields name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HashKind {
    Limits,
    Callers,
}

impl HashKind {
    /// Returns the most fields that are read.
    pub(super) fn max_fields(self) -> usize {
        const OVERRIDES: usize = 10_000;
        OVERRIDES + usize::from(self == Self::Callers)
    }

    /// Returns the fields of a hash with these overrides.
    pub(super) fn fields_of(self, layer: &Layer) -> Vec<(String, String)> {
        match self {
            Self::Limits => {
                let limits = layer.of_limits();
                limits.map(|(name, what)| (name.to_owned(), value_of(name, what))).collect()
            }
            Self::Callers => {
                let fields = layer.callers.iter();
                fields.map(|(limit, it, what)| (of_caller(limit, it), what.to_string())).collect()
            }
        }
    }

    /// Returns the change that a field makes. Errors do not name the caller.
    pub(super) fn parse(
        self,
        registered: &[RegisteredPolicy],
        field: &str,
        value: &str,
        overrides: &Overrides,
    ) -> Result<Change, OverrideError> {
        let (limit, caller) = self.target(field, overrides)?;
        let what = document::parse_one(value).map_err(|fault| OverrideError::of(&limit, fault))?;
        match self {
            Self::Limits => validate::against(registered, &limit, &what)?,
            Self::Callers => validate::of_caller(registered, &limit, &what)?,
        }
        Ok(Change { limit, caller, what: Some(what) })
    }

    /// Returns the change that the end of a field makes.
    pub(super) fn removal(self, field: &str, overrides: &Overrides) -> Option<Change> {
        let (limit, caller) = self.target(field, overrides).ok()?;
        Some(Change { limit, caller, what: None })
    }

    /// Returns the limit of a field, and its caller if it is that of a single one.
    fn target(
        self,
        field: &str,
        overrides: &Overrides,
    ) -> Result<(String, Option<String>), OverrideError> {
        match self {
            Self::Limits => Ok((field.to_owned(), None)),
            Self::Callers => {
                let (limit, caller) = limit_and_caller(field, overrides)?;
                Ok((limit, Some(caller)))
            }
        }
    }
}

/// A change of the overrides in effect.
pub(super) struct Change {
    limit: String,
    caller: Option<String>,
    what: Option<Override>,
}

impl Change {
    pub(super) fn apply(self, layer: &mut Layer) {
        layer.set(&self.limit, self.caller.as_deref(), self.what);
    }
}

/// Returns the value of a field. That of all limits is the word, if there is no more.
pub(super) fn value_of(field: &str, what: &Override) -> String {
    match what.enforcement {
        Some(it) if field == ALL_FIELD && what.until.is_none() && what.by.is_none() => {
            it.to_string()
        }
        _ => what.to_string(),
    }
}

/// Returns the field of a caller as it is written down.
pub(super) fn of_caller(limit: &str, caller: &str) -> String {
    key::escaped_name(limit) + caller
}

/// Returns the limit and the caller of a field.
fn limit_and_caller(field: &str, overrides: &Overrides) -> Result<(String, String), OverrideError> {
    let refused = |why: &str| OverrideError::from(Fault::Unreadable(why.to_owned()));
    let (name, caller) = field.split_at(field.find('/').unwrap_or(field.len()));
    let limit = key::unescaped_name(name).filter(|_| key::is_caller(caller));
    let Some(limit) = limit else {
        return Err(refused(
            "a field is a limit, or `*`, and the caller as in keys: `search/acme/42`",
        ));
    };
    let caller = overrides.caller_in_document(caller);
    let caller = caller.ok_or_else(|| {
        refused(
            "a caller is a digest, and this limiter has no `caller_digest`: its override is unused",
        )
    })?;
    Ok((limit, caller))
}
