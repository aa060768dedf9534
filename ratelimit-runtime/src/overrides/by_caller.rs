//! The list of overrides of single callers.

#[cfg(feature = "overrides")]
use std::time::SystemTime;
use std::{borrow::Cow, collections::BTreeMap};

use super::{Override, OverrideSource, Overrides};
use crate::key::Caller;

/// The override of a single caller, as [`Overrides::list_for`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallerOverride {
    /// The caller. Where a [`caller_digest`](crate::LimiterBuilder::caller_digest) is set, it is the digest,
    /// which every function of [`Overrides`] takes in place of the caller.
    pub caller: Caller,
    /// The highest source that has an override of this caller.
    pub source: OverrideSource,
    /// The override.
    pub what: Override,
}

impl CallerOverride {
    /// Returns the caller as in keys: its parts, with a `/` before each, or `%keyed-` and a digest. It ends with
    /// the digest of events. It is personal data without a digest, and belongs in no log.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.caller.parts())
    }
}

impl Overrides {
    /// Returns the overrides of single callers of a limit, or of all limits under the name `*`; of each caller
    /// that of the highest source.
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
        let layers = self.shared.layers.lock();
        let mut list = BTreeMap::new();
        for source in OverrideSource::ALL {
            let of_limit = layers[source as usize].iter().filter(|(place, _)| place.limit == limit);
            let of_callers =
                of_limit.filter_map(|(place, what)| Some((place.caller.as_deref()?, what)));
            let found = of_callers.filter(|(caller, what)| {
                caller.contains(part) && !self.shared.identities.has_ended(what)
            });
            list.extend(found.map(|(caller, what)| (caller, (source, what))));
        }
        let list = list.into_iter().map(|(caller, (source, what))| CallerOverride {
            caller: Caller::from_parts(caller.as_bytes()),
            source,
            what: what.clone(),
        });
        list.collect()
    }

    /// Sets the time of the limiter's Redis.
    #[cfg(feature = "overrides")]
    pub(super) fn set_server_time(&self, time: SystemTime) {
        self.shared.identities.set_server_time(time);
        let now = self.shared.identities.now();
        if self.shared.layers.lock().iter().any(|layer| layer.has_turned(now)) {
            self.follow_clock();
        }
    }
}
