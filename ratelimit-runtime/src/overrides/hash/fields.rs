//! The fields of the hashes of overrides.

use crate::{
    key,
    overrides::{
        Fault, Layer, Override, OverrideError, Overrides, document,
        layer::{ALL_LIMITS, WrittenPlace},
        validate,
    },
    registry::RegisteredPolicy,
};

/// The field that changes with each change of callers, so that a poll does not read all of them.
/// The field of a caller contains a `/`.
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
        let is_own = |place: &WrittenPlace| place.caller.is_some() == (self == Self::Callers);
        let own = layer.iter().filter(|(place, _)| is_own(place));
        own.map(|(place, what)| (field_of(place), value_of(place, what))).collect()
    }

    /// Returns the change that a field makes. Errors do not name the caller.
    pub(super) fn parse(
        self,
        registered: &[RegisteredPolicy],
        field: &str,
        value: &str,
        overrides: &Overrides,
    ) -> Result<Change, OverrideError> {
        let place = self.place_of(field, overrides)?;
        let parsed = document::parse_one(value);
        let what = parsed.map_err(|fault| OverrideError::of(&place.limit, fault))?;
        validate::against(registered, &place, &what)?;
        Ok((place, Some(what)))
    }

    /// Returns the place that a field names.
    pub(super) fn place_of(
        self,
        field: &str,
        overrides: &Overrides,
    ) -> Result<WrittenPlace, OverrideError> {
        if self == Self::Limits {
            return Ok(WrittenPlace::of_limit(field));
        }
        let refused = |why: &'static str| OverrideError::from(Fault::new(why));
        let (name, caller) = field.split_at(field.find('/').unwrap_or(field.len()));
        let limit = key::unescaped_name(name).filter(|_| key::is_caller(caller));
        let form = "a field is a limit, or `*`, and the caller as in keys: `search/acme/42`";
        let limit = limit.ok_or_else(|| refused(form))?;
        let digest =
            "a caller is a digest, and this limiter has no `caller_digest`: its override is unused";
        let caller = overrides.shared.identities.text_in_document(caller);
        Ok(WrittenPlace { limit, caller: Some(caller.ok_or_else(|| refused(digest))?) })
    }
}

/// A change of the overrides in effect: the place, and its override from now on.
pub(super) type Change = (WrittenPlace, Option<Override>);

/// Returns the value of a field. That of all limits is the word, if there is no more.
pub(super) fn value_of(place: &WrittenPlace, what: &Override) -> String {
    match what.enforcement {
        Some(it) if place.limit == ALL_LIMITS && *what == Override::new().enforcement(it) => {
            it.to_string()
        }
        _ => what.to_string(),
    }
}

/// Returns the field that names a place.
pub(super) fn field_of(place: &WrittenPlace) -> String {
    match &place.caller {
        Some(caller) => key::escaped_name(&place.limit) + caller,
        None => place.limit.clone(),
    }
}
