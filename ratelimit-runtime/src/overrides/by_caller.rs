//! Overrides of single callers: setting, removing and listing them.

#[cfg(feature = "overrides")]
use std::time::SystemTime;
use std::{borrow::Cow, collections::BTreeMap};

use super::{Override, OverrideError, OverrideSource, Overrides, layer::ALL_LIMITS};
use crate::key::{Caller, IntoCaller};

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
    /// Overrides a limit for one caller in this process, in place of an earlier `set_for`.
    ///
    /// A `limit` of `*` is all limits, as in [`set_for_all`](Self::set_for_all). The override of a caller is
    /// used before that of its limit: its numbers in place of those of the limit, and its enforcement
    /// before the limit's. A [`deny`](Override::deny) is an enforcement that is used before the
    /// [global one](Self::enforce), and any other after it. An override whose
    /// [`until`](Override::until) has come is as none; a call that waits keeps the turn that it was promised.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use ratelimit_runtime::{Limiter, Override, Policy, RateLimitError};
    ///
    /// const GREET: Policy = Policy::sliding_window("greet", Duration::from_secs(60), 5);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::in_memory();
    /// let overrides = limiter.overrides();
    /// let tomorrow = SystemTime::now() + Duration::from_secs(24 * 60 * 60);
    /// overrides.set_for("greet", "acme", Override::new().threshold(500).until(tomorrow))?;
    /// overrides.set_for_all("mallory", Override::new().deny())?;
    /// assert_eq!(limiter.check(&GREET, "acme").await?.threshold(), 500);
    /// assert_eq!(limiter.check(&GREET, "alice").await?.threshold(), 5);
    /// let refused = limiter.check(&GREET, "mallory").await;
    /// assert!(matches!(refused, Err(RateLimitError::Denied(_))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set), and for a `deny` with other values than `until`.
    pub fn set_for<'a>(
        &self,
        limit: &str,
        caller: impl IntoCaller<'a>,
        what: Override,
    ) -> Result<(), OverrideError> {
        let caller = self.text_of(caller);
        let what = self.validated(limit, Some(&caller), what)?;
        self.audit(limit, &caller, Some(&what));
        self.change(self.own_source(), |layer| layer.set(limit, Some(&caller), Some(what)));
        Ok(())
    }

    /// Overrides all limits for one caller in this process. Of an override of one limit for this caller, the
    /// enforcement and the numbers are used before these, each if there is one.
    ///
    /// While there is one, each call of every limit looks its caller up.
    ///
    /// # Errors
    ///
    /// As [`set_for`](Self::set_for).
    pub fn set_for_all<'a>(
        &self,
        caller: impl IntoCaller<'a>,
        what: Override,
    ) -> Result<(), OverrideError> {
        self.set_for(ALL_LIMITS, caller, what)
    }

    /// Removes the override that [`set_for`](Self::set_for) has made for this caller of this limit, or of all
    /// limits under the name `*`.
    pub fn remove_for<'a>(&self, limit: &str, caller: impl IntoCaller<'a>) {
        let caller = self.text_of(caller);
        self.audit(limit, &caller, None);
        self.change(self.own_source(), |layer| layer.set(limit, Some(&caller), None));
    }

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
    /// # fn main() -> Result<(), ratelimit_runtime::OverrideError> {
    /// let limiter = Limiter::in_memory();
    /// for caller in ["acme-1", "acme-2", "mallory"] {
    ///     limiter.overrides().set_for("greet", caller, Override::new().deny())?;
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
            let found = layers[source as usize].of_callers().filter(|(of, caller, what)| {
                *of == limit && caller.contains(part) && !self.shared.identities.has_ended(what)
            });
            list.extend(found.map(|(_, caller, what)| (caller, (source, what))));
        }
        let list = list.into_iter().map(|(caller, (source, what))| CallerOverride {
            caller: Caller::from_parts(caller.as_bytes()),
            source,
            what: what.clone(),
        });
        list.collect()
    }

    /// Returns a caller as it is written down.
    pub(super) fn text_of<'a>(&self, caller: impl IntoCaller<'a>) -> String {
        self.shared.identities.text(&caller.into_caller())
    }

    /// Sets the time of the limiter's Redis.
    #[cfg(feature = "overrides")]
    pub(super) fn set_server_time(&self, time: SystemTime) {
        self.shared.identities.set_server_time(time);
        let now = self.shared.identities.now();
        if self.shared.layers.lock().iter().any(|layer| layer.has_returned(now)) {
            self.follow_clock();
        }
    }

    /// Records who is overridden, by the digest of events if there is one.
    pub(super) fn audit(&self, limit: &str, caller: &str, what: Option<&Override>) {
        let has_digest = self.shared.identities.has_secret();
        let caller = has_digest.then(|| caller.rsplit('-').next()).flatten();
        let operator = self.operator();
        tracing::info!(policy = limit, caller, operator, overridden = ?what, "override of a caller changed");
    }
}
