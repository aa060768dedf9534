//! The list of overrides of single callers.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Override, OverrideSource, Overrides};
use crate::key::Caller;

/// The override of a single caller, as [`Overrides::list_for`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallerOverride {
    /// The caller. Where a [`caller_digest`](crate::LimiterBuilder::caller_digest) is set, it is
    /// the digest, which every function of [`Overrides`] takes in place of the caller.
    pub caller: Caller,
    /// The highest source that has an override of this caller.
    pub source: OverrideSource,
    /// The override.
    pub what: Override,
}

impl CallerOverride {
    /// Returns the caller as in keys: its parts, with a `/` before each, or `%keyed-` and a digest.
    /// It ends with the digest of events. It is personal data without a digest, and belongs in no
    /// log.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.caller.parts())
    }
}

impl Overrides {
    /// Returns the overrides of single callers of a limit, or of all limits under the name `*`; of
    /// each caller that of the highest source.
    #[must_use]
    pub fn list_for(&self, limit: &str) -> Vec<CallerOverride> {
        self.search_for(limit, "")
    }

    /// Returns those overrides of [`list_for`](Self::list_for) whose caller contains a part, as its
    /// [text](CallerOverride::text). Under a `caller_digest` that is a part of a digest.
    ///
    /// ```
    /// use ratelimit_runtime::{Limiter, Override};
    ///
    /// # fn main() -> Result<(), ratelimit_runtime::overrides::OverrideError> {
    /// let limiter = Limiter::in_memory();
    /// for caller in ["acme-1", "acme-2", "mallory"] {
    ///     limiter.overrides().here().set(("greet", caller), Override::new().deny())?;
    /// }
    /// let found = limiter.overrides().search_for("greet", "acme");
    /// assert_eq!((found.len(), &*found[0].text()), (2, "/acme-1"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn search_for(&self, limit: &str, part: &str) -> Vec<CallerOverride> {
        let (layers, now) = (self.shared.layers.lock(), self.shared.identities.now());
        let mut found = BTreeMap::new();
        for source in OverrideSource::ALL {
            for (place, what) in layers[source as usize].iter() {
                if let Some(caller) = &place.caller
                    && place.limit == limit
                    && caller.contains(part)
                    && !what.has_ended(now)
                {
                    found.insert(caller, (source, what));
                }
            }
        }
        let list = found.into_iter().map(|(caller, (source, what))| CallerOverride {
            caller: Caller::from_parts(caller.as_bytes()),
            source,
            what: what.clone(),
        });
        list.collect()
    }
}
