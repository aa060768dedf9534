//! Overrides: the policy and the enforcement that operators set while the program runs.
//!
//! Floor 6: imports `registry`, `policy`, `error`, `follow`, and `redis` in `hash` alone.
//! `limiter`, `macro_support` and `web` import it.

mod applied;
mod by_caller;
mod callers;
mod candidate;
#[cfg(feature = "overrides")]
pub(crate) mod document;
mod effective;
mod enforcement;
mod entry;
mod error;
#[cfg(feature = "overrides")]
mod file;
mod filter;
#[cfg(feature = "overrides")]
pub(crate) mod fleet;
#[cfg(all(any(test, fuzzing), feature = "overrides"))]
pub(crate) mod fuzz;
#[cfg(feature = "overrides")]
mod hash;
mod here;
mod history;
mod layer;
mod place;
mod problem;
mod shared_table;
mod snapshot;
mod source;
#[cfg(test)]
mod tests;
mod until;
mod validate;
mod windows;

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::watch;

#[cfg(feature = "overrides")]
use self::hash::FleetHashes;
#[cfg(feature = "overrides")]
pub use self::hash::FleetOverrides;
pub use self::{
    by_caller::CallerOverride, candidate::CandidateStats, error::OverrideError,
    here::ProcessOverrides, history::OverrideChange, place::Place, problem::OverrideProblem,
    source::OverrideSource,
};
use self::{
    callers::Identities,
    filter::NameFilter,
    history::History,
    layer::{Layers, WrittenPlace},
    problem::Problems,
    snapshot::Snapshot,
};
pub(crate) use self::{
    callers::place_in_share, candidate::Candidate, effective::Effective, layer::Layer,
};
#[doc(no_inline)]
pub use self::{enforcement::Enforcement, entry::Override};
use crate::{error::Fault, key::Caller, policy::Policy, registry};

/// The overrides of a limiter: policies and enforcement that replace those in the source while the
/// program runs.
///
/// It is a handle: clones, and clones of the limiter, share the same overrides.
///
/// ```
/// use ratelimit_runtime::{Enforcement, Limiter, Override, Policy, overrides::Place};
/// # use std::time::Duration;
///
/// const REPLY: Policy = Policy::sliding_window("reply", Duration::from_secs(60), 1);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::in_memory();
/// limiter.check(&REPLY, "harry").await?;
/// assert!(limiter.check(&REPLY, "harry").await.is_err());
///
/// // The call that was counted before still counts.
/// limiter.overrides().here().set("reply", Override::new().threshold(3))?;
/// assert_eq!(limiter.check(&REPLY, "harry").await?.remaining(), 1);
///
/// // Nothing is refused any more.
/// limiter.overrides().here().set(Place::all(), Enforcement::Off)?;
/// # Ok(())
/// # }
/// ```
///
/// # Sources
///
/// Overrides come from five [sources](OverrideSource). For each limit, the highest source that
/// names an enforcement decides the enforcement, and the highest source that names a number decides
/// all numbers.
///
/// | source, highest first | changed by |
/// |---|---|
/// | [`Operator`](OverrideSource::Operator) | an operator in this process: [`here`](Self::here) of the handle that [`by`](Self::by) returns |
/// | [`Redis`](OverrideSource::Redis) | `fleet` and `HSET`; followed by every limiter that `connect` or `from_env` builds |
/// | [`Environment`](OverrideSource::Environment) | `RATELIMIT_OVERRIDES` and `RATELIMIT_ENFORCEMENT`, at the start |
/// | [`File`](OverrideSource::File) | an edit of the file; read by `follow_file` |
/// | [`Program`](OverrideSource::Program) | [`here`](Self::here) |
///
/// Files, Redis and documents in the environment need the feature `overrides`.
#[derive(Clone)]
pub struct Overrides {
    shared: Arc<Shared>,
    /// The operator who acts by this handle; empty if the name is not known.
    operator: Option<Arc<str>>,
}

/// The part of a limiter that operators see: its callers, and the version of the program.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    /// The secret of the callers' digests; without it there are none.
    pub(crate) secret: Option<Box<str>>,
    /// `true` if callers are named.
    pub(crate) callers: bool,
    /// The version of the program.
    pub(crate) version: Option<Box<str>>,
}

/// State that all clones of a handle share.
#[derive(Default)]
struct Shared {
    /// The limits that the snapshot overrides. Each call reads this.
    filter: NameFilter,
    snapshot: ArcSwap<Snapshot>,
    identities: Arc<Identities>,
    shown: Shown,
    /// The overrides of each source. Held during a change, which builds the next snapshot from the
    /// current one.
    layers: Mutex<Layers>,
    /// The number of changes; wakes waiting calls.
    changes: watch::Sender<u64>,
    problems: Problems,
    history: History,
    /// The hashes on the limiter's Redis.
    #[cfg(feature = "overrides")]
    hashes: Option<FleetHashes>,
}

impl Shared {
    fn new(shown: Shown) -> Self {
        let identities = Arc::new(Identities::new(shown.secret.clone()));
        let snapshot = ArcSwap::from_pointee(Snapshot::new(Arc::clone(&identities)));
        Self { snapshot, identities, shown, ..Self::default() }
    }
}

impl Overrides {
    /// Returns a handle without overrides.
    ///
    /// With a secret, callers are written as digests under it.
    pub(crate) fn none(shown: Shown) -> Self {
        Self::of(&Arc::new(Shared::new(shown)))
    }

    fn of(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), operator: None }
    }

    /// Returns a handle for the actions of an operator, whom the [`history`](Self::history) and the
    /// log name. An operator without a name is the empty one.
    ///
    /// Its overrides in this process come before all other sources, also before Redis:
    /// [`OverrideSource::Operator`]. On Redis they have the name with them, so that the history of
    /// every process shows it.
    ///
    /// ```
    /// use ratelimit_runtime::{Enforcement, Limiter, overrides::{OverrideSource, Place}};
    ///
    /// # fn main() -> Result<(), ratelimit_runtime::overrides::OverrideError> {
    /// let limiter = Limiter::in_memory();
    /// limiter.overrides().by("alice").here().set(Place::all(), Enforcement::Off)?;
    /// let (enforcement, source) = limiter.overrides().enforcement().unwrap();
    /// assert_eq!((enforcement, source), (Enforcement::Off, OverrideSource::Operator));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by(&self, operator: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), operator: Some(operator.into()) }
    }

    /// Returns what operators see.
    pub(crate) fn shown(&self) -> &Shown {
        &self.shared.shown
    }

    /// Returns the name of the operator who acts by this handle.
    fn operator(&self) -> Option<&str> {
        self.operator.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns the override with the name of this handle's operator, if there is one.
    fn signed(&self, what: Override) -> Override {
        match self.operator {
            Some(_) => {
                let by = || self.operator().map(str::to_owned);
                what.map_parts(|part| Override { by: by(), ..part })
            }
            None => what,
        }
    }

    /// Returns the signed override, if the policies of all callsites obey the rules under it.
    fn validated(&self, place: &WrittenPlace, what: Override) -> Result<Override, OverrideError> {
        validate::against(&registry::policies(), place, &what)?;
        Ok(self.signed(what))
    }

    /// Returns a receiver that is notified of each change from now on. Its value is the number of
    /// changes so far.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Returns the number of changes so far.
    pub(crate) fn version(&self) -> u64 {
        *self.shared.changes.borrow()
    }

    /// Returns `true` if an override may apply to calls of this policy. Mostly none does, which is
    /// one atomic load.
    #[inline]
    pub(crate) fn may_apply(&self, policy: &Policy) -> bool {
        self.shared.filter.may_contain(policy.full_name())
    }

    /// Returns the policy and the enforcement of a call, or its answer.
    #[inline]
    pub(crate) fn effective<'a>(
        &self,
        policy: &'a Policy,
        caller: &Caller,
        declared: Enforcement,
    ) -> Effective<'a> {
        if self.may_apply(policy) {
            self.overridden(policy, caller, declared)
        } else {
            Effective::declared(policy, declared)
        }
    }

    /// Returns the time until an override that may apply to the call begins or ends next.
    pub(crate) fn next_turn(&self, policy: &Policy, caller: &Caller) -> Option<Duration> {
        if self.may_apply(policy) { self.current().next_turn(policy, caller) } else { None }
    }

    /// Returns the overrides at this moment.
    fn current(&self) -> Guard<Arc<Snapshot>> {
        let snapshot = self.shared.snapshot.load();
        if !snapshot.has_turned() {
            return snapshot;
        }
        self.follow_clock();
        self.shared.snapshot.load()
    }

    /// Begins and ends the overrides whose time has come, and undoes this for those whose time
    /// comes again by a clock that was set back.
    fn follow_clock(&self) {
        let clock = Self::of(&self.shared);
        for source in OverrideSource::ALL {
            clock.change(source, |_| ());
        }
        let layers = self.shared.layers.lock();
        let snapshot = self.shared.snapshot.load();
        // A turn that changes nothing leaves the snapshot as it was, with that turn as the next
        // one.
        if snapshot.has_turned() {
            self.shared.snapshot.store(Arc::new(snapshot.at_next_turn(&*layers)));
        }
    }

    #[inline(never)]
    fn overridden<'a>(
        &self,
        policy: &'a Policy,
        caller: &Caller,
        declared: Enforcement,
    ) -> Effective<'a> {
        self.current().effective(policy, caller, declared)
    }

    /// Parses a document.
    #[cfg(feature = "overrides")]
    pub(crate) fn parse(&self, text: &str) -> Result<Layer, OverrideError> {
        Ok(document::parse(text, &self.shared.identities)?)
    }

    /// Replaces all overrides of a source.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if the policy of a callsite would break a rule. Nothing is replaced.
    pub(crate) fn replace(
        &self,
        source: OverrideSource,
        layer: Layer,
    ) -> Result<(), OverrideError> {
        validate::all(&layer)?;
        self.change(source, |before| before.replace(layer));
        Ok(())
    }

    /// Changes the overrides of a source. Changes of several threads come one after the other, and
    /// none is lost.
    fn change(&self, source: OverrideSource, change: impl FnOnce(&mut Layer)) {
        let shared = &*self.shared;
        let mut layers = shared.layers.lock();
        let layer = &mut layers[source as usize];
        change(layer);
        // What a process sets itself ends for good: nobody else removes it.
        let is_kept = !matches!(source, OverrideSource::Program | OverrideSource::Operator);
        layer.follow_clock(shared.identities.now(), is_kept);
        let changes = layer.take_changes();
        if changes.is_empty() {
            return;
        }
        let next = shared.snapshot.load().after(&layers, &changes);
        let names = next.names(&layers);
        shared.snapshot.store(Arc::new(next));
        // After the snapshot: a call that sees the bit of its limit sees the override as well. The
        // lock keeps the filters of two changes in the order of their snapshots.
        shared.filter.replace(&names);
        shared.history.record(source, self.operator.as_ref(), changes, &shared.identities);
        let is_logged = tracing::enabled!(tracing::Level::INFO);
        let shown = is_logged.then(|| format!("{:?}", layers[source as usize]));
        drop(layers);
        // Outside the lock: subscribers of events may have limits themselves.
        shared.changes.send_modify(|changes| *changes += 1);
        let operator = self.operator();
        tracing::info!(%source, operator, overrides = shown, "overrides changed");
        self.report_problems();
    }
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overrides")
            .field("enforcement", &self.enforcement())
            .field("limits", &self.list())
            .finish()
    }
}
