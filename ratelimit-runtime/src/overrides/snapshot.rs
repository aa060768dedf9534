//! The overrides of all sources at one moment, merged for calls to read.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hashbrown::HashTable;
use once_cell::sync::OnceCell;

use super::{Enforcement, Override, OverrideSource, filter::NameBits};
use crate::policy::{Policy, PolicyName};

/// The overrides of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    /// The global enforcement.
    pub(crate) enforcement: Option<Enforcement>,
    /// The overrides of single limits, by name.
    pub(crate) limits: BTreeMap<String, Override>,
}

/// The overrides of all sources at one moment. A change makes another snapshot.
#[derive(Default)]
pub(super) struct Snapshot {
    layers: [Arc<Layer>; OverrideSource::ALL.len()],
    /// By the hash of the name that every policy carries.
    limits: HashTable<LimitEntry>,
}

/// The merged override of one limit.
struct LimitEntry {
    name: String,
    merged: Override,
    applied: [OnceCell<Box<Applied>>; APPLIED],
    /// `true` once a misfit was logged.
    is_warned: AtomicBool,
}

/// Declared policies of one limit whose overridden form is kept. Plans that share a name are
/// declared differently; further ones are computed for each call.
const APPLIED: usize = 4;

/// A declared policy, and the policy that the override makes of it; none if it does not fit.
struct Applied {
    written: Policy,
    policy: Option<Arc<Policy>>,
}

/// The policy and the enforcement of one call, after overrides.
pub(crate) struct Effective<'a> {
    /// The policy as declared.
    pub(crate) written: &'a Policy,
    pub(crate) enforcement: Enforcement,
    /// The policy after overrides, if one changes it.
    overridden: Option<Arc<Policy>>,
}

impl Snapshot {
    /// Returns the snapshot after a change of one layer, or nothing if that leaves it as it is.
    pub(super) fn changed(
        &self,
        source: OverrideSource,
        change: impl FnOnce(&mut Layer),
    ) -> Option<Self> {
        let mut layers = self.layers.clone();
        change(Arc::make_mut(&mut layers[source as usize]));
        (layers != self.layers).then(|| Self::merge(layers))
    }

    fn merge(layers: [Arc<Layer>; OverrideSource::ALL.len()]) -> Self {
        let mut merged = BTreeMap::<&str, Override>::new();
        for (name, higher) in layers.iter().flat_map(|layer| &layer.limits) {
            let lower = merged.remove(name.as_str()).unwrap_or_default();
            merged.insert(name, higher.clone().layered_over(lower));
        }
        let mut limits = HashTable::with_capacity(merged.len());
        for (name, merged) in merged {
            limits.insert_unique(
                PolicyName::hash_of(name),
                LimitEntry::new(name, merged),
                |limit| PolicyName::hash_of(&limit.name),
            );
        }
        Self { layers, limits }
    }

    /// Returns the names of the limits whose calls may differ from their declarations.
    pub(super) fn names(&self) -> NameBits {
        if self.enforcement().is_some() {
            return NameBits::ALL;
        }
        let mut names = NameBits::default();
        self.limits.iter().for_each(|limit| names.insert(PolicyName::hash_of(&limit.name)));
        names
    }

    /// Returns the overrides of one source.
    pub(super) fn layer(&self, source: OverrideSource) -> &Arc<Layer> {
        &self.layers[source as usize]
    }

    /// Returns the global enforcement of the highest source that has one.
    pub(super) fn enforcement(&self) -> Option<(Enforcement, OverrideSource)> {
        OverrideSource::ALL.into_iter().rev().find_map(|source| {
            self.layer(source).enforcement.map(|enforcement| (enforcement, source))
        })
    }

    pub(super) fn list(&self) -> BTreeMap<String, Override> {
        self.limits.iter().map(|limit| (limit.name.clone(), limit.merged.clone())).collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Override> {
        self.find(PolicyName::hash_of(name), name).map(|limit| &limit.merged)
    }

    pub(super) fn by_source(&self, name: &str) -> Vec<(OverrideSource, Override)> {
        let sources = OverrideSource::ALL.into_iter().rev();
        let found = |source| Some((source, self.layer(source).limits.get(name)?.clone()));
        sources.filter_map(found).collect()
    }

    pub(super) fn effective<'a>(
        &self,
        written: &'a Policy,
        declared: Enforcement,
    ) -> Effective<'a> {
        let name = written.full_name();
        let limit = self.find(name.hash(), name.text());
        let own = limit.and_then(|limit| limit.merged.enforcement).unwrap_or(declared);
        let enforcement = self.enforcement().map_or(own, |(global, _)| own.max(global));
        let overridden = limit.and_then(|limit| limit.apply(written));
        Effective { written, enforcement, overridden }
    }

    fn find(&self, hash: u64, name: &str) -> Option<&LimitEntry> {
        self.limits.find(hash, |limit| limit.name == name)
    }
}

impl LimitEntry {
    fn new(name: &str, merged: Override) -> Self {
        let (applied, is_warned) = (Default::default(), AtomicBool::new(false));
        Self { name: name.to_owned(), merged, applied, is_warned }
    }

    /// Returns the declared policy after the override; `None` if the override changes no limit, or
    /// does not fit. Results are cached for each declared policy.
    fn apply(&self, written: &Policy) -> Option<Arc<Policy>> {
        if !self.merged.changes_limits() {
            return None;
        }
        let mut known = self.applied.iter().map_while(OnceCell::get);
        // All of them have the name of this limit.
        if let Some(known) = known.find(|known| known.written.limits_as(written)) {
            return known.policy.clone();
        }
        // Not within a cell: a subscriber of the event in it may have the same limit.
        let policy = self.compute(written).map(Arc::new);
        let applied = Box::new(Applied { written: *written, policy: policy.clone() });
        let _ = self
            .applied
            .iter()
            .try_fold(applied, |applied, cell| cell.set(applied).err().ok_or(()));
        policy
    }

    /// Computes the policy. An override is validated when it is set, but may not fit values that
    /// are known only at the call. This is logged once after each change.
    #[cold]
    fn compute(&self, written: &Policy) -> Option<Policy> {
        match self.merged.apply(written) {
            Ok(policy) => Some(policy),
            Err(fault) => {
                if !self.is_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        policy = written.name(),
                        %fault,
                        "override does not fit the policy of a call; the declared policy decides"
                    );
                }
                None
            }
        }
    }
}

impl<'a> Effective<'a> {
    /// Returns the declared policy and enforcement, unchanged.
    #[inline]
    pub(crate) fn declared(written: &'a Policy, enforcement: Enforcement) -> Self {
        Self { written, enforcement, overridden: None }
    }

    /// Returns the policy that decides the call.
    #[inline]
    pub(crate) fn policy(&self) -> &Policy {
        self.overridden.as_deref().unwrap_or(self.written)
    }

    /// Returns `true` if the declared policy decides, and refuses.
    #[inline]
    pub(crate) fn is_declared(&self) -> bool {
        self.overridden.is_none() && self.enforcement == Enforcement::On
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn snapshot(name: &str, what: Override) -> Snapshot {
        let change = |layer: &mut Layer| drop(layer.limits.insert(name.to_owned(), what));
        Snapshot::default().changed(OverrideSource::Program, change).unwrap()
    }

    fn thresholds(snapshot: &Snapshot, policy: &Policy) -> Vec<u32> {
        let effective = snapshot.effective(policy, Enforcement::On);
        effective.policy().tiers().iter().map(|tier| tier.threshold()).collect()
    }

    #[test]
    fn plans_of_one_name_keep_their_own_values() {
        let snapshot = snapshot("plan", Override::new().period(2 * MINUTE));
        // More plans than are kept, each twice.
        for threshold in (1..10).chain(1..10) {
            let plan = Policy::fixed_window("plan", MINUTE, threshold);
            let effective = snapshot.effective(&plan, Enforcement::On);
            assert_eq!(*effective.policy(), Policy::fixed_window("plan", 2 * MINUTE, threshold));
            assert_eq!(effective.written, &plan);
        }
        let limit = snapshot.find(PolicyName::hash_of("plan"), "plan").unwrap();
        assert!(limit.applied.iter().all(|cell| cell.get().is_some()));
    }

    #[test]
    fn a_policy_that_the_override_does_not_fit_is_kept_as_such() {
        let snapshot = snapshot("mail", Override::new().threshold(9));
        let several = Policy::fixed_window("mail", MINUTE, 1).tier(60 * MINUTE, 5);
        for _ in 0..2 {
            assert_eq!(thresholds(&snapshot, &several), [1, 5]);
            assert_eq!(thresholds(&snapshot, &Policy::fixed_window("mail", MINUTE, 1)), [9]);
        }
    }

    #[test]
    fn a_limit_without_an_override_is_not_copied() {
        let snapshot = snapshot("mail", Override::new().enforcement(Enforcement::Off));
        let (mail, other) =
            (Policy::fixed_window("mail", MINUTE, 1), Policy::fixed_window("other", MINUTE, 1));
        for (policy, enforcement) in [(&mail, Enforcement::Off), (&other, Enforcement::On)] {
            let effective = snapshot.effective(policy, Enforcement::On);
            assert!(std::ptr::eq(effective.policy(), policy));
            assert_eq!(effective.enforcement, enforcement);
        }
    }

    #[test]
    fn a_change_that_changes_nothing_makes_no_snapshot() {
        let before = snapshot("mail", Override::new().threshold(9));
        assert!(before.changed(OverrideSource::File, |_| ()).is_none());
        let removed = before.changed(OverrideSource::Program, |layer| layer.limits.clear());
        let names = [before.names(), removed.unwrap().names()];
        assert!(names[0] != NameBits::default() && names[1] == NameBits::default());
    }
}
