//! The windows of time in which an override is in effect.

use std::{slice, time::SystemTime};

use super::{Enforcement, Override};

/// Overrides of one place, each for its own time. Of those in effect, the last one decides.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use ratelimit_runtime::{Limiter, Override};
///
/// # fn main() -> Result<(), ratelimit_runtime::overrides::OverrideError> {
/// let launch = SystemTime::now() + Duration::from_secs(3_600);
/// let limiter = Limiter::in_memory();
/// let plan = [Override::new().threshold(20), Override::new().from(launch).threshold(500)];
/// limiter.overrides().here().set("search", plan)?;
/// assert_eq!(limiter.overrides().get("search").unwrap().threshold, Some(20));
/// # Ok(())
/// # }
/// ```
impl From<Vec<Self>> for Override {
    fn from(windows: Vec<Self>) -> Self {
        Self { windows, ..Self::new() }
    }
}

impl<const N: usize> From<[Self; N]> for Override {
    fn from(windows: [Self; N]) -> Self {
        Vec::from(windows).into()
    }
}

/// The override that sets this enforcement alone.
impl From<Enforcement> for Override {
    fn from(enforcement: Enforcement) -> Self {
        Self::new().enforcement(enforcement)
    }
}

impl Override {
    /// Returns the part that is in effect at a time: this override, or one of its
    /// [`windows`](Self::windows).
    #[must_use]
    pub fn at(&self, time: SystemTime) -> Option<&Self> {
        let has_begun = |part: &&Self| part.from.is_none_or(|from| from <= time);
        let is_in_effect =
            |part: &&Self| has_begun(part) && part.until.is_none_or(|until| time < until);
        self.parts().iter().rev().find(is_in_effect)
    }

    /// Returns the time from which no part is in effect any more; none if there is no such time.
    #[must_use]
    pub fn end(&self) -> Option<SystemTime> {
        let until = |last: SystemTime, part: &Self| part.until.map(|until| last.max(until));
        self.parts().iter().try_fold(SystemTime::UNIX_EPOCH, until)
    }

    /// Returns the windows, or the override itself if it has none.
    pub(super) fn parts(&self) -> &[Self] {
        if self.windows.is_empty() { slice::from_ref(self) } else { &self.windows }
    }

    /// Returns the override with each part replaced.
    pub(super) fn map_parts(self, map: impl Fn(Self) -> Self) -> Self {
        if self.windows.is_empty() {
            return map(self);
        }
        self.windows.into_iter().map(map).collect::<Vec<_>>().into()
    }

    /// Returns these windows followed by those of another override.
    pub(super) fn and(&self, later: &Self) -> Self {
        [self.parts(), later.parts()].concat().into()
    }

    /// Returns the times at which a part begins or ends.
    pub(super) fn turns(&self) -> impl Iterator<Item = SystemTime> {
        self.parts().iter().flat_map(|part| part.from.into_iter().chain(part.until))
    }

    /// Returns `true` if no part is in effect from this time on.
    pub(super) fn has_ended(&self, now: SystemTime) -> bool {
        self.end().is_some_and(|end| end <= now)
    }
}
