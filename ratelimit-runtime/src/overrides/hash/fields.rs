//! The fields of the hashes of overrides.

use crate::{
    key,
    overrides::{
        Fault, Layer, Override, OverrideError, Overrides, document, layer::ALL_LIMITS, validate,
    },
    registry::RegisteredPolicy,
};

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
        let is_own = |caller: Option<&str>| caller.is_some() == (self == Self::Callers);
        let own = layer.iter().filter(|(_, caller, _)| is_own(*caller));
        own.map(|(limit, caller, what)| (field_of(limit, caller), value_of(limit, what))).collect()
    }

    /// Returns the change that a field makes. Errors do not name the caller.
    pub(super) fn parse(
        self,
        registered: &[RegisteredPolicy],
        field: &str,
        value: &str,
        overrides: &Overrides,
    ) -> Result<Change, OverrideError> {
        let (limit, caller) = self.place_of(field, overrides)?;
        let what = document::parse_one(value).map_err(|fault| OverrideError::of(&limit, fault))?;
        validate::against(registered, &limit, caller.as_deref(), &what)?;
        Ok((limit, caller, Some(what)))
    }

    /// Returns the change that the end of a field makes.
    pub(super) fn removal(self, field: &str, overrides: &Overrides) -> Option<Change> {
        let (limit, caller) = self.place_of(field, overrides).ok()?;
        Some((limit, caller, None))
    }

    /// Returns the limit of a field, and its caller if it is that of a single one.
    pub(super) fn place_of(
        self,
        field: &str,
        overrides: &Overrides,
    ) -> Result<(String, Option<String>), OverrideError> {
        if self == Self::Limits {
            return Ok((field.to_owned(), None));
        }
        let refused = |why: &'static str| OverrideError::from(Fault::new(why));
        let (name, caller) = field.split_at(field.find('/').unwrap_or(field.len()));
        let limit = key::unescaped_name(name).filter(|_| key::is_caller(caller));
        let form = "a field is a limit, or `*`, and the caller as in keys: `search/acme/42`";
        let limit = limit.ok_or_else(|| refused(form))?;
        let digest =
            "a caller is a digest, and this limiter has no `caller_digest`: its override is unused";
        let caller = overrides.shared.identities.text_in_document(caller);
        Ok((limit, Some(caller.ok_or_else(|| refused(digest))?)))
    }
}

/// A change of the overrides in effect: of a limit, or of one caller of it.
pub(super) type Change = (String, Option<String>, Option<Override>);

/// Returns the value of a field. That of all limits is the word, if there is no more.
pub(super) fn value_of(limit: &str, what: &Override) -> String {
    match what.enforcement {
        Some(it) if limit == ALL_LIMITS && *what == Override::new().enforcement(it) => {
            it.to_string()
        }
        _ => what.to_string(),
    }
}

/// Returns the field of a limit, or of a caller as it is written down.
pub(super) fn field_of(limit: &str, caller: Option<&str>) -> String {
    match caller {
        Some(caller) => key::escaped_name(limit) + caller,
        None => limit.to_owned(),
    }
}
