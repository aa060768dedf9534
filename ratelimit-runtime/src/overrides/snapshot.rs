//! The overrides of all sources at one moment, merged for calls to read.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    Enforcement, Layer, Override, OverrideSource, Overrides,
    applied::{AppliedOverride, PLANS},
    callers::{CallerTable, Identities, place_in_share},
    candidate::Candidate,
    effective::Effective,
    filter::NameBits,
    layer::{ALL_LIMITS, Layers, PlaceChange},
    shared_table::SharedTable,
    validate,
};
use crate::{
    error::Denied,
    key::Caller,
    policy::{OnStoreError, Policy, PolicyName, plans},
};

/// The overrides of all sources at one moment. A change makes another snapshot.
#[derive(Clone, Default)]
pub(super) struct Snapshot {
    /// By the hash of the name that every policy carries.
    limits: SharedTable<LimitEntry>,
    callers: CallerTable,
    /// The override of all limits of the highest source that has an enforcement.
    global: Option<(Override, OverrideSource)>,
    /// The factor of all limits, in thousandths, of the highest source that has one.
    scale: Option<u32>,
    /// The limits that this factor does not fit. They stay as they are.
    unscalable: Arc<BTreeSet<String>>,
    /// The answer to calls that Redis cannot decide, of the highest source that has one.
    on_store_error: Option<OnStoreError>,
    /// The time at which the next override of a limit begins or ends.
    next_turn: Option<SystemTime>,
}

/// The merged override of one limit.
struct LimitEntry {
    name: String,
    merged: AppliedOverride<PLANS>,
    candidate: Option<Arc<Candidate>>,
}

impl Snapshot {
    /// Returns a snapshot without overrides.
    pub(super) fn new(identities: Arc<Identities>) -> Self {
        Self { callers: CallerTable::new(identities), ..Self::default() }
    }

    /// Returns the snapshot after changes of the layers. It shares what has not changed.
    pub(super) fn after(&self, layers: &Layers, changes: &[PlaceChange]) -> Self {
        let mut next = self.clone();
        for PlaceChange { place, .. } in changes {
            let limit = &*place.limit;
            match &place.caller {
                Some(caller) => {
                    let all = layers.iter().filter_map(|layer| layer.get(place));
                    next.callers.replace(limit, caller, all.rev());
                }
                None if limit == ALL_LIMITS => {}
                None => next.merge(limit, layers.iter().filter_map(|layer| layer.current(limit))),
            }
        }
        let of_all = |source| Some((layers[source as usize].current(ALL_LIMITS)?, source));
        let of_all = || OverrideSource::ALL.into_iter().rev().filter_map(of_all);
        let global = of_all().find(|(what, _)| what.has_enforcement());
        next.global = global.map(|(what, source)| (what.clone(), source));
        next.scale = of_all().find_map(|(what, _)| what.scale_in_thousandths);
        if next.scale != self.scale {
            let errors = next.scale.map(|scale| validate::unscalable(scale, |_| false));
            let names = errors.iter().flatten().filter_map(|it| it.limit().map(str::to_owned));
            next.unscalable = Arc::new(names.collect());
        }
        next.on_store_error = of_all().find_map(|(what, _)| what.on_store_error);
        next.at_next_turn(layers)
    }

    /// Returns these overrides with the time at which one of a limit begins or ends next.
    pub(super) fn at_next_turn(&self, layers: &[Layer]) -> Self {
        let next_turn = layers.iter().filter_map(Layer::next_turn_of_limits).min();
        Self { next_turn, ..self.clone() }
    }

    /// Merges the overrides of a limit, the lowest source first. A candidate that stays goes on
    /// with its counts.
    fn merge<'a>(&mut self, name: &str, sources: impl Iterator<Item = &'a Override>) {
        let over = |lower: Override, higher: Override| higher.layered_over(lower);
        let merged = sources.cloned().reduce(over).map(|merged| {
            let candidate = merged.candidate.as_ref().map(|what| {
                let before = self.find(PolicyName::hash_of(name), name);
                let before = before.and_then(|limit| limit.candidate.as_ref());
                let same = before.filter(|before| before.what() == &**what).cloned();
                same.unwrap_or_else(|| Arc::new(Candidate::new(what, self.identities().now())))
            });
            LimitEntry { name: name.to_owned(), merged: AppliedOverride::new(merged), candidate }
        });
        self.limits.replace(PolicyName::hash_of(name), |limit| limit.name == name, merged);
    }

    /// Returns `true` if the override of a limit has begun or ended since.
    pub(super) fn has_turned(&self) -> bool {
        self.next_turn.is_some_and(|turn| turn <= self.identities().now())
    }

    /// Returns the time until an override of a limit, or of the call's caller, begins or ends next.
    pub(super) fn next_turn(&self, policy: &Policy, caller: &Caller) -> Option<Duration> {
        let names = [policy.label(), Some(policy.full_name())];
        let now = self.identities().now();
        let of_limits = self.next_turn.filter(|turn| now < *turn);
        let turns = self.callers.next_turn(names, caller, now).into_iter().chain(of_limits);
        turns.min()?.duration_since(now).ok()
    }

    /// Returns the wait of a caller who is shut out now; none if there is no end. Another `deny`
    /// may follow at once.
    #[cold]
    fn denied_for(&self, names: [Option<PolicyName>; 2], caller: &Caller) -> Option<Duration> {
        let now = self.identities().now();
        let mut turns = iter::successors(self.callers.next_turn(names, caller, now), |turn| {
            self.callers.next_turn(names, caller, *turn)
        });
        let is_denied = |turn: &SystemTime| {
            let then = self.callers.select(names, caller, |what| what.at(*turn).is_some());
            then.into_iter()
                .flatten()
                .map(AppliedOverride::what)
                .find(|it| it.has_enforcement())
                .is_some_and(|it| it.deny)
        };
        let end = turns.find(|turn| !is_denied(turn))?;
        Some(end.duration_since(now).unwrap_or_default())
    }

    fn identities(&self) -> &Arc<Identities> {
        &self.callers.identities
    }

    /// Returns the names of the limits whose calls may differ from their declarations.
    pub(super) fn names(&self, layers: &Layers) -> NameBits {
        // A global `On` changes no limit. What begins or ends is looked up: another may follow.
        let is_on = |what: &Override| what.enforcement == Some(Enforcement::On);
        let changes_none = self.global.as_ref().is_none_or(|(global, _)| is_on(global));
        let all_limits = layers.iter().filter_map(|layer| layer.of_limit(ALL_LIMITS));
        let has_turns = all_limits.flat_map(Override::turns).next().is_some();
        let changes_all = self.scale.is_some() || self.on_store_error.is_some();
        let is_idle = changes_none && !changes_all && !has_turns;
        if !is_idle || self.callers.has_all_limits() {
            return NameBits::ALL;
        }
        let mut names = NameBits::default();
        for name in layers.iter().flat_map(Layer::names) {
            names.insert(PolicyName::hash_of(name));
            names.insert(PolicyName::hash_of(plans::limit_of(name)));
        }
        names
    }

    /// Returns the candidates by the names of their limits.
    pub(super) fn candidates(&self) -> impl Iterator<Item = (&str, &Candidate)> {
        self.limits.iter().filter_map(|limit| Some((&*limit.name, &**limit.candidate.as_ref()?)))
    }

    /// Returns the policy, the enforcement or the answer of a call. The caller's overrides come
    /// before the plan's, this before the limit's, and a `deny`, which is an enforcement, before
    /// the global one. Enforcement and numbers are found separately, and numbers of several
    /// overrides are not mixed.
    pub(super) fn effective<'a>(
        &self,
        written: &'a Policy,
        caller: &Caller,
        declared: Enforcement,
    ) -> Effective<'a> {
        // That of the plan, and that of the limit.
        let names = [written.label(), Some(written.full_name())];
        let of_callers = self.callers.find(names, caller);
        let of_caller = || of_callers.into_iter().flatten();
        let enforces = |it: &&Override| it.has_enforcement();
        if let Some(what) = of_caller().map(AppliedOverride::what).find(enforces)
            && what.deny
        {
            let answer = Denied::new(written, self.denied_for(names, caller));
            return Effective::answered(written, answer.into());
        }
        let enforcement_by = |what: &Override| what.enforcement_of(|| place_in_share(caller));
        let global = self.global.as_ref().and_then(|(global, _)| enforcement_by(global));
        let globally = |own: Enforcement| global.map_or(own, |global| own.max(global));
        let entries = names.map(|name| name.and_then(|it| self.find(it.hash(), it.text())));
        let fits = || !self.unscalable.contains(written.shown_name().text());
        let scale_of_all = || self.scale.filter(|_| fits());
        // Only what all limits share applies: nothing is copied or computed.
        if of_caller().next().is_none() && entries.iter().all(Option::is_none) {
            let declared = Effective::declared(written, globally(declared));
            return declared.scaled(scale_of_all()).answering(self.on_store_error);
        }
        let of_limits = || entries.into_iter().flatten();
        let limits = || of_limits().map(|limit| limit.merged.what());
        // Those of the caller, the plan and the limit, in this order.
        let own = || of_caller().map(AppliedOverride::what).chain(limits());
        let enforcement = globally(own().find_map(enforcement_by).unwrap_or(declared));
        let scale = own().find_map(|what| what.scale_in_thousandths);
        // That of all limits may fit other numbers.
        let has_own = own().any(Override::has_numbers);
        let scale = scale.or(if has_own { self.scale } else { scale_of_all() });
        let on_store_error = own().find_map(|what| what.on_store_error).or(self.on_store_error);

        let numbers_of_caller = of_caller().find(|it| it.what().has_numbers());
        let has_numbers = |limit: &&LimitEntry| limit.merged.what().has_numbers();
        let numbers_of_limit = || of_limits().find(has_numbers).map(|limit| &limit.merged);
        // Numbers of the caller or the plan would also be used in place of an applied candidate.
        let tries = of_limits().find(|it| it.candidate.is_some() || has_numbers(it));
        let candidate = tries
            .filter(|_| numbers_of_caller.is_none())
            .and_then(|limit| limit.candidate.as_ref())
            .and_then(|it| Some((it.policy(written, scale, on_store_error)?, Arc::clone(it))));
        let numbers = numbers_of_caller
            .map(|it| (it.what(), it.apply(written)))
            .or_else(|| numbers_of_limit().map(|it| (it.what(), it.apply(written))));
        let (by, policy) = numbers.unzip();
        let overridden = Effective::overridden(written, enforcement, policy.flatten(), by);
        overridden.scaled(scale).answering(on_store_error).trying(candidate)
    }

    #[inline]
    fn find(&self, hash: u64, name: &str) -> Option<&LimitEntry> {
        self.limits.find(hash, |limit| limit.name == name)
    }
}

impl Overrides {
    /// Returns the global enforcement and its source. If it is on for a [share](Override::enforce)
    /// of the callers, it is that of all others.
    #[must_use]
    pub fn enforcement(&self) -> Option<(Enforcement, OverrideSource)> {
        let snapshot = self.current();
        let (what, source) = snapshot.global.as_ref()?;
        Some((what.enforcement.unwrap_or(Enforcement::DryRun), *source))
    }

    /// Returns the factor of all limits, in thousandths. A limit may have its own.
    ///
    /// ```
    /// use ratelimit_runtime::{Limiter, Override, overrides::Place};
    ///
    /// # fn main() -> Result<(), ratelimit_runtime::overrides::OverrideError> {
    /// let limiter = Limiter::in_memory();
    /// limiter.overrides().here().set(Place::all(), Override::new().scale(0.5))?;
    /// assert_eq!(limiter.overrides().scale_in_thousandths(), Some(500));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn scale_in_thousandths(&self) -> Option<u32> {
        self.current().scale
    }

    /// Returns the overrides by the limits' names, each merged from all sources as by
    /// [`get`](Self::get).
    #[must_use]
    pub fn list(&self) -> BTreeMap<String, Override> {
        let snapshot = self.current();
        let limits = snapshot.limits.iter();
        limits.map(|limit| (limit.name.clone(), limit.merged.what().clone())).collect()
    }

    /// Returns the override of a limit, merged from all sources: its numbers may be from one source
    /// and its enforcement from another.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Override> {
        let snapshot = self.current();
        snapshot.find(PolicyName::hash_of(name), name).map(|limit| limit.merged.what().clone())
    }

    /// Returns the override of a limit in each source that has one, the highest source first. The
    /// name `*` is that of all limits. Overrides that have not begun are among them;
    /// [`Override::at`] has the part in effect.
    ///
    /// ```
    /// use ratelimit_runtime::{Limiter, Override, overrides::OverrideSource};
    ///
    /// # fn main() -> Result<(), ratelimit_runtime::overrides::OverrideError> {
    /// let limiter = Limiter::in_memory();
    /// limiter.overrides().here().set("search", Override::new().threshold(50))?;
    /// let sources = limiter.overrides().by_source("search");
    /// assert_eq!(sources, [(OverrideSource::Program, Override::new().threshold(50))]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by_source(&self, name: &str) -> Vec<(OverrideSource, Override)> {
        drop(self.current());
        let layers = self.shared.layers.lock();
        let sources = OverrideSource::ALL.into_iter().rev();
        let found = |source| Some((source, layers[source as usize].of_limit(name)?.clone()));
        sources.filter_map(found).collect()
    }

    /// Returns the highest source that overrides this limit.
    #[must_use]
    pub fn source(&self, name: &str) -> Option<OverrideSource> {
        self.by_source(name).first().map(|(source, _)| *source)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::overrides::layer::WrittenPlace;

    const MINUTE: Duration = Duration::from_secs(60);

    fn snapshot(name: &str, what: Override) -> Snapshot {
        changed(&mut Layers::default(), name, Some(what)).0
    }

    /// Returns the snapshot after a change by an operator, and its names.
    fn changed(layers: &mut Layers, name: &str, what: Option<Override>) -> (Snapshot, NameBits) {
        let layer = &mut layers[OverrideSource::Operator as usize];
        layer.set(WrittenPlace::of_limit(name), what);
        let changes = layer.take_changes();
        let snapshot = Snapshot::default().after(layers, &changes);
        let names = snapshot.names(layers);
        (snapshot, names)
    }

    fn thresholds(snapshot: &Snapshot, policy: &Policy) -> Vec<u32> {
        let effective = snapshot.effective(policy, &Caller::shared(), Enforcement::On);
        effective.policy().tiers().iter().map(|tier| tier.threshold()).collect()
    }

    #[test]
    fn plans_of_one_name_keep_their_own_values() {
        let snapshot = snapshot("plan", Override::new().period(2 * MINUTE));
        // More plans than are kept, each twice.
        for threshold in (1..10).chain(1..10) {
            let plan = Policy::fixed_window("plan", MINUTE, threshold);
            let effective = snapshot.effective(&plan, &Caller::shared(), Enforcement::On);
            assert_eq!(*effective.policy(), Policy::fixed_window("plan", 2 * MINUTE, threshold));
            assert_eq!(effective.written, &plan);
        }
        let limit = snapshot.find(PolicyName::hash_of("plan"), "plan").unwrap();
        assert_eq!(limit.merged.kept(), PLANS);
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
            let effective = snapshot.effective(policy, &Caller::shared(), Enforcement::On);
            assert!(std::ptr::eq(effective.policy(), policy));
            assert_eq!(effective.enforcement, enforcement);
        }
    }

    #[test]
    fn a_global_enforcement_is_looked_up_if_it_changes_limits_or_ends() {
        let names = |what: Override| changed(&mut Layers::default(), ALL_LIMITS, Some(what)).1;
        let [on, off] =
            [Enforcement::On, Enforcement::Off].map(|it| Override::new().enforcement(it));
        assert_eq!(names(on.clone()), NameBits::default());
        let until = SystemTime::now() + MINUTE;
        assert_eq!([names(off), names(on.until(until))], [NameBits::ALL, NameBits::ALL]);
    }

    #[test]
    fn a_limit_whose_override_is_removed_is_looked_up_no_more() {
        let mut layers = Layers::default();
        let set = changed(&mut layers, "mail", Some(Override::new().threshold(9)));
        let removed = changed(&mut layers, "mail", None);
        assert!(set.1 != NameBits::default() && removed.1 == NameBits::default());
    }
}
