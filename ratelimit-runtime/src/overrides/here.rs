//! Overrides of this process: reading, setting and removing them.

use super::{Override, OverrideError, OverrideSource, Overrides, Place, layer::WrittenPlace};

/// The overrides that a handle sets in this process, as [`Overrides::here`] returns them.
///
/// They are those of the program, or of the operator of a handle that [`by`](Overrides::by)
/// returns.
#[derive(Clone, Copy, Debug)]
pub struct ProcessOverrides<'a>(pub(super) &'a Overrides);

impl ProcessOverrides<'_> {
    /// Returns the override of a place, as it was set.
    #[must_use]
    pub fn get(&self, place: impl Into<Place>) -> Option<Override> {
        let Self(overrides) = self;
        let place = overrides.written(place);
        drop(overrides.current());
        let layers = overrides.shared.layers.lock();
        layers[overrides.own_source() as usize].get(&place).cloned()
    }

    /// Overrides a place, instead of an earlier `set`.
    ///
    /// The override of [all limits](Place::all) has an [`Enforcement`](super::Enforcement), and may
    /// have an end. It is the global one: each limit has its own or the global one, whichever
    /// refuses less. [`Enforcement::On`](super::Enforcement::On) changes no limit; it replaces the
    /// global enforcement of a lower [source](OverrideSource).
    ///
    /// A name that no limit has yet is accepted, since a check by hand may bring it, and logged. It
    /// is one of the [`problems`](Overrides::problems) until then.
    ///
    /// # One caller
    ///
    /// The override of a caller is used before that of its limit: its numbers in place of those of
    /// the limit, and its enforcement before the limit's. A [`deny`](Override::deny) is an
    /// enforcement that is used before the global one, and any other after it. Of all limits it is
    /// used after that of one limit. While there is such an override, each call of every limit
    /// looks its caller up.
    ///
    /// An override whose [`until`](Override::until) has come is as none; a call that waits keeps
    /// the turn that it was promised.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use ratelimit_runtime::{Limiter, Override, Policy, RateLimitError, overrides::Place};
    ///
    /// const GREET: Policy = Policy::sliding_window("greet", Duration::from_secs(60), 5);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::in_memory();
    /// let here = limiter.overrides().here();
    /// let tomorrow = SystemTime::now() + Duration::from_secs(24 * 60 * 60);
    /// here.set(("greet", "acme"), Override::new().threshold(500).until(tomorrow))?;
    /// here.set((Place::all(), "mallory"), Override::new().deny())?;
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
    /// [`OverrideError`] if the policy of a callsite of this name would break a rule, one that was
    /// checked by hand is a `calendar_window` of another period, or a `deny` has other values than
    /// `until`. The earlier override stays in effect.
    pub fn set(
        &self,
        place: impl Into<Place>,
        what: impl Into<Override>,
    ) -> Result<(), OverrideError> {
        let Self(overrides) = self;
        let place = overrides.written(place);
        let what = overrides.validated(&place, what.into())?;
        overrides.audit(&place, Some(&what));
        overrides.change(overrides.own_source(), |layer| {
            let what = overrides.started(what, layer.get(&place));
            layer.set(place, Some(what));
        });
        Ok(())
    }

    /// Removes the override that [`set`](Self::set) has made of a place.
    pub fn remove(&self, place: impl Into<Place>) {
        let Self(overrides) = self;
        let place = overrides.written(place);
        overrides.audit(&place, None);
        overrides.change(overrides.own_source(), |layer| layer.set(place, None));
    }
}

impl Overrides {
    /// Returns the overrides that this handle sets in this process.
    #[must_use]
    pub fn here(&self) -> ProcessOverrides<'_> {
        ProcessOverrides(self)
    }

    /// Returns the source of overrides that this handle sets in this process.
    fn own_source(&self) -> OverrideSource {
        match self.operator {
            Some(_) => OverrideSource::Operator,
            None => OverrideSource::Program,
        }
    }

    /// Returns a place with its caller as it is written down.
    pub(super) fn written(&self, place: impl Into<Place>) -> WrittenPlace {
        let Place { limit, caller } = place.into();
        WrittenPlace { limit, caller: caller.map(|caller| self.shared.identities.text(&caller)) }
    }

    /// Records which caller is overridden, by the digest of events if there is one.
    pub(super) fn audit(&self, place: &WrittenPlace, what: Option<&Override>) {
        let WrittenPlace { limit, caller: Some(caller) } = place else { return };
        let has_digest = self.shared.identities.has_secret();
        let caller = has_digest.then(|| caller.rsplit('-').next()).flatten();
        let operator = self.operator();
        tracing::info!(policy = limit, caller, operator, overridden = ?what, "override of a caller changed");
    }
}
