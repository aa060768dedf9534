//! What operators say of limits, by their names, while the program runs.

#[cfg(feature = "overrides")]
pub(crate) mod document;
mod enforcement;
mod entry;
mod error;
#[cfg(all(any(test, fuzzing), feature = "overrides"))]
pub(crate) mod fuzz;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::watch;

pub(crate) use self::error::Fault;
pub use self::{
    enforcement::Enforcement, entry::Override, error::OverrideError, source::OverrideSource,
};
use crate::{policy::Policy, registry};

/// All that one source says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Of all limits.
    pub(crate) enforcement: Option<Enforcement>,
    pub(crate) limits: BTreeMap<String, Override>,
}

/// The overrides of a limiter: what holds for its limits instead of what is written in the source.
///
/// ```
/// use ratelimit_runtime::{Enforcement, Limiter, Override, Policy};
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
/// // Harry has been counted, and goes on with that.
/// limiter.overrides().set("reply", Override::new().threshold(3))?;
/// assert_eq!(limiter.check(&REPLY, "harry").await?.remaining(), 1);
///
/// // Nothing is refused any more.
/// limiter.overrides().enforce(Some(Enforcement::Off));
/// # Ok(())
/// # }
/// ```
pub struct Overrides {
    /// Something is said: a look at this is all that a call costs otherwise.
    speak: AtomicBool,
    said: RwLock<Said>,
    /// Wakes the calls that wait.
    changes: watch::Sender<()>,
    /// The hash on Redis is followed.
    #[cfg(feature = "overrides")]
    follow_redis: AtomicBool,
}

/// What the sources say, each for itself.
#[derive(Clone, Default)]
pub(crate) struct Said {
    pub(crate) layers: [Layer; OverrideSource::ALL.len()],
    /// The limits whose override did not fit a call, once each.
    warned: BTreeSet<&'static str>,
}

/// The policy and the enforcement of one call, after overrides.
pub(crate) struct Effective<'a> {
    /// The policy as declared.
    pub(crate) written: &'a Policy,
    pub(crate) enforcement: Enforcement,
    /// The policy after overrides, if one changes it.
    overridden: Option<Policy>,
}

impl<'a> Effective<'a> {
    #[inline]
    fn declared(written: &'a Policy, enforcement: Enforcement) -> Self {
        Self { written, enforcement, overridden: None }
    }

    /// Returns the policy that decides the call.
    #[inline]
    pub(crate) fn policy(&self) -> &Policy {
        self.overridden.as_ref().unwrap_or(self.written)
    }

    /// Returns `true` if refused calls pass.
    #[inline]
    pub(crate) fn is_dry_run(&self) -> bool {
        self.enforcement == Enforcement::DryRun
    }

    /// Returns `true` if calls pass without being counted.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.enforcement == Enforcement::Off
    }
}

impl Overrides {
    pub(crate) fn none() -> Self {
        Self {
            speak: AtomicBool::new(false),
            said: RwLock::default(),
            changes: watch::Sender::default(),
            #[cfg(feature = "overrides")]
            follow_redis: AtomicBool::new(false),
        }
    }

    /// Says from now on what holds for the limit of this name, in place of what the program has
    /// said of it before.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] when an annotated function of this name would have a limit that breaks a
    /// rule; what was said before stays.
    pub fn set(&self, name: &str, what: Override) -> Result<(), OverrideError> {
        judge(name, &what).map_err(|fault| OverrideError::of(name, fault))?;
        self.change(OverrideSource::Program, |layer| {
            layer.limits.insert(name.to_owned(), what);
        });
        Ok(())
    }

    /// Takes back what the program has said of a limit.
    pub fn remove(&self, name: &str) {
        self.change(OverrideSource::Program, |layer| {
            layer.limits.remove(name);
        });
    }

    /// Says of all limits what their refusals are worth at most, or takes that back. With
    /// [`Enforcement::Off`] nothing is limited any more.
    ///
    /// [`Enforcement::On`] changes no limit; it holds before what an earlier
    /// [source](OverrideSource) says of all limits.
    pub fn enforce(&self, enforcement: Option<Enforcement>) {
        self.change(OverrideSource::Program, |layer| layer.enforcement = enforcement);
    }

    /// What all refusals are worth at most, and who says so.
    #[must_use]
    pub fn enforcement(&self) -> Option<(Enforcement, OverrideSource)> {
        self.read(Said::enforcement)
    }

    /// All overrides that hold, by the limits' names. One of them may be what two sources say: one
    /// of the numbers, one of the enforcement.
    #[must_use]
    pub fn list(&self) -> BTreeMap<String, Override> {
        self.read(|said| {
            let names = said.layers.iter().flat_map(|layer| layer.limits.keys());
            names.map(|name| (name.clone(), said.of(name))).collect()
        })
    }

    /// The highest source that says something of this limit.
    #[must_use]
    pub fn source(&self, name: &str) -> Option<OverrideSource> {
        let mut sources = OverrideSource::ALL.into_iter().rev();
        self.read(|said| {
            sources.find(|source| said.layers[*source as usize].limits.contains_key(name))
        })
    }

    /// Returns the policy and the enforcement of a call. While nothing is overridden, this is one
    /// atomic load and copies no policy.
    #[inline]
    pub(crate) fn effective<'a>(&self, policy: &'a Policy, declared: Enforcement) -> Effective<'a> {
        if self.speak.load(Ordering::Relaxed) {
            self.look_up(policy, declared)
        } else {
            Effective::declared(policy, declared)
        }
    }

    /// Notifies of each change from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    #[cold]
    fn look_up<'a>(&self, written: &'a Policy, declared: Enforcement) -> Effective<'a> {
        let (of_all, of_this) = self.read(|said| (said.enforcement(), said.of(written.name())));
        let enforcement = of_this.given_enforcement().unwrap_or(declared);
        let enforcement = of_all.map_or(enforcement, |(most, _)| enforcement.max(most));
        let overridden = match of_this.apply(written) {
            Ok(policy) => Some(policy),
            Err(fault) => {
                self.warn_once(written, &fault);
                None
            }
        };
        Effective { written, enforcement, overridden }
    }

    /// An override fits the limits that are known when it is said; the values of a call may still
    /// make it one that it does not fit.
    fn warn_once(&self, policy: &Policy, fault: &Fault) {
        if self.write(|said| said.warned.insert(policy.name())) {
            tracing::warn!(
                policy = policy.name(),
                %fault,
                "an override does not fit a call, which is decided as is written in the source"
            );
        }
    }

    /// Puts a layer in the place of what its source has said before, unless a limit would break a
    /// rule.
    pub(crate) fn replace(
        &self,
        source: OverrideSource,
        layer: Layer,
    ) -> Result<(), OverrideError> {
        for (name, what) in &layer.limits {
            judge(name, what).map_err(|fault| OverrideError::of(name, fault))?;
        }
        self.change(source, |before| *before = layer);
        Ok(())
    }

    /// Changes what a source says, under one lock: nothing that is said meanwhile is lost.
    fn change(&self, source: OverrideSource, change: impl FnOnce(&mut Layer)) {
        let other = self.write(|said| {
            let before = said.layers[source as usize].clone();
            change(&mut said.layers[source as usize]);
            let now = &said.layers[source as usize];
            let other = (*now != before).then(|| now.clone());
            if other.is_some() {
                said.warned.clear();
                self.speak.store(said.speak(), Ordering::Relaxed);
            }
            other
        });
        if let Some(now) = other {
            self.changes.send_replace(());
            tracing::info!(%source, overrides = ?now, "other overrides of limits hold now");
        }
    }

    /// From now on what the hash on Redis says holds.
    #[cfg(feature = "overrides")]
    pub(crate) fn follow_redis(&self) {
        self.follow_redis.store(true, Ordering::Relaxed);
    }

    /// Whether what the hash on Redis says holds.
    #[cfg(feature = "dashboard")]
    pub(crate) fn follows_redis(&self) -> bool {
        self.follow_redis.load(Ordering::Relaxed)
    }

    /// What this source says.
    #[cfg(feature = "overrides")]
    pub(crate) fn layer(&self, source: OverrideSource) -> Layer {
        self.read(|said| said.layers[source as usize].clone())
    }

    /// What all sources say at one moment.
    #[cfg(feature = "dashboard")]
    pub(crate) fn said(&self) -> Said {
        self.read(Said::clone)
    }

    fn read<T>(&self, look: impl FnOnce(&Said) -> T) -> T {
        look(&self.said.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What subscribers are told is told after this, not in it: they may have limits themselves.
    fn write<T>(&self, change: impl FnOnce(&mut Said) -> T) -> T {
        change(&mut self.said.write().unwrap_or_else(PoisonError::into_inner))
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

impl Said {
    fn speak(&self) -> bool {
        self.layers.iter().any(|layer| *layer != Layer::default())
    }

    /// The highest source's word on all limits.
    pub(crate) fn enforcement(&self) -> Option<(Enforcement, OverrideSource)> {
        OverrideSource::ALL.into_iter().rev().find_map(|source| {
            self.layers[source as usize].enforcement.map(|enforcement| (enforcement, source))
        })
    }

    /// What holds for a limit: the highest source's enforcement, and the highest source's numbers.
    pub(crate) fn of(&self, name: &str) -> Override {
        let said = self.layers.iter().filter_map(|layer| layer.limits.get(name));
        said.fold(Override::new(), |lower, higher| higher.clone().over(lower))
    }
}

/// Whether an override fits all limits of this name that the program is known to have.
pub(crate) fn judge(name: &str, what: &Override) -> Result<(), Fault> {
    let mut is_known = false;
    for limit in registry::policies().into_iter().filter(|limit| limit.name() == name) {
        is_known = true;
        limit.judge(what)?;
    }
    if is_known { Ok(()) } else { what.judge_alone() }
}
