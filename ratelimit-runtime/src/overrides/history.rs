//! The last changes of overrides: which, when and by whom.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;

use super::{
    Override, OverrideSource, Overrides,
    callers::Identities,
    layer::{PlaceChange, WrittenPlace},
};
use crate::key::Caller;

/// The number of changes that are kept.
const KEPT: usize = 100;

/// A change of the override of a limit or of a caller, as [`Overrides::history`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverrideChange {
    /// The number of the change in this process, from 1 on.
    pub number: u64,
    /// The time at which it took effect in this process.
    pub at: SystemTime,
    /// The source that has changed.
    pub source: OverrideSource,
    /// The operator, if one is known; see [`Overrides::by`].
    pub operator: Option<Arc<str>>,
    /// The name of the limit; `*` is all limits.
    pub limit: String,
    /// The caller, if the override is that of a single one. Where a
    /// [`caller_digest`](crate::LimiterBuilder::caller_digest) is set, it is the digest.
    pub caller: Option<Caller>,
    /// The override of this source before.
    pub before: Option<Override>,
    /// The override of this source from then on.
    pub after: Option<Override>,
}

/// The time after which a removal on Redis is not read any more: another has undone it.
const UNREAD: Duration = Duration::from_secs(10);

/// The changes of a limiter's overrides.
#[derive(Default)]
pub(super) struct History(Mutex<Changes>);

#[derive(Default)]
struct Changes {
    last: VecDeque<OverrideChange>,
    count: u64,
    /// The removals on Redis that this process has sent and not yet read.
    removals: VecDeque<Removal>,
}

/// The removal of an override on Redis: its place, the operator and the time.
type Removal = (WrittenPlace, Arc<str>, Instant);

impl Changes {
    fn push(&mut self, change: OverrideChange) {
        self.count += 1;
        self.last.push_back(OverrideChange { number: self.count, ..change });
        if self.last.len() > KEPT {
            self.last.pop_front();
        }
    }

    /// Returns the operator who has removed this override on Redis from this process.
    fn remover(&mut self, place: &WrittenPlace) -> Option<Arc<str>> {
        self.removals.retain(|(.., at)| at.elapsed() < UNREAD);
        let index = self.removals.iter().position(|(removed, ..)| removed == place)?;
        self.removals.remove(index).map(|(_, operator, _)| operator)
    }
}

impl History {
    /// Records the changes of a source.
    pub(super) fn record(
        &self,
        source: OverrideSource,
        operator: Option<&Arc<str>>,
        places: Vec<PlaceChange>,
        identities: &Identities,
    ) {
        let mut changes = self.0.lock();
        let at = identities.now();
        // A window that begins was recorded when it was set.
        let written = places.into_iter().filter(|place| place.before != place.after);
        for PlaceChange { place, before, after } in written {
            let end = before.as_ref().and_then(Override::end).filter(|end| *end <= at);
            let signed = after.as_ref().and_then(|it| it.parts()[0].by.as_deref().map(Arc::from));
            let is_of_redis = source == OverrideSource::Redis;
            // Another has written the field again, if there is an override after the removal.
            let remover = is_of_redis.then(|| changes.remover(&place)).flatten();
            let operator = match &after {
                None if end.is_some() => None,
                None => operator.cloned().or(remover),
                Some(_) => operator.cloned().or(signed),
            };
            changes.push(OverrideChange {
                number: 0,
                at: end.filter(|_| after.is_none()).unwrap_or(at),
                source,
                operator: operator.filter(|it| !it.is_empty()),
                limit: place.limit,
                caller: place.caller.map(|it| Caller::from_parts(it.as_bytes())),
                before,
                after,
            });
        }
    }

    /// Records that this process removes an override on Redis for an operator.
    #[cfg(feature = "overrides")]
    pub(super) fn expect_removal(&self, place: &WrittenPlace, operator: &Arc<str>) {
        let mut changes = self.0.lock();
        changes.removals.push_back((place.clone(), operator.clone(), Instant::now()));
        if changes.removals.len() > KEPT {
            changes.removals.pop_front();
        }
    }

    /// Undoes [`expect_removal`](Self::expect_removal).
    #[cfg(feature = "overrides")]
    pub(super) fn forget_removal(&self, place: &WrittenPlace) {
        self.0.lock().remover(place);
    }
}

impl Overrides {
    /// Returns the last 100 changes of overrides that took effect in this process, the latest
    /// first.
    ///
    /// The operator is known if the change was made by a handle that [`by`](Self::by) returns, or
    /// if the override is signed with [`Override::by`]. In documents and on Redis that is the field
    /// `by`. A removal from Redis by another process is nobody's, because a removed field has no
    /// name in it.
    ///
    /// ```
    /// use ratelimit_runtime::{Limiter, Override};
    ///
    /// # fn main() -> Result<(), ratelimit_runtime::overrides::OverrideError> {
    /// let limiter = Limiter::in_memory();
    /// limiter.overrides().by("alice").here().set("search", Override::new().threshold(50))?;
    /// let change = limiter.overrides().history().remove(0);
    /// assert_eq!(change.operator.as_deref(), Some("alice"));
    /// assert_eq!(change.limit, "search");
    /// assert_eq!((change.before, change.after.unwrap().threshold), (None, Some(50)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn history(&self) -> Vec<OverrideChange> {
        drop(self.current());
        self.shared.history.0.lock().last.iter().rev().cloned().collect()
    }
}
