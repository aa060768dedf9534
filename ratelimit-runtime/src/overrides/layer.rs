//! The overrides of one source, and what changes of them.

use std::{collections::BTreeMap, fmt, mem, time::SystemTime};

use super::{Enforcement, Override, OverrideSource};

/// The name of all limits. No function has it.
pub(super) const ALL_LIMITS: &str = "*";

/// The overrides of all sources, the lowest source first.
pub(super) type Layers = [Layer; OverrideSource::ALL.len()];

/// The overrides of one source: of limits by name, of all limits under the name `*`, and of single
/// callers.
///
/// It is changed in place, and knows what has changed: a change costs as much beside 10 000
/// overrides as beside one.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(crate) struct Layer {
    /// Those in effect or to come, and those that have ended and that the source still has: its
    /// clock may be set back.
    overrides: BTreeMap<WrittenPlace, Override>,
    /// The time by which overrides have ended; none if none has.
    now: Option<SystemTime>,
    /// A time before which no further one begins or ends. Until then, none is read for that.
    next_turn: Option<SystemTime>,
    /// The limits of which another part is in effect than before, or none, or one again.
    turned: Vec<WrittenPlace>,
    /// The number of overrides of each name that have not ended.
    names: BTreeMap<String, usize>,
    /// The overrides before the changes, by their places.
    before: BTreeMap<WrittenPlace, Option<Override>>,
}

/// A [`Place`](super::Place) with its caller as it is written down. Those of limits come before
/// those of callers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WrittenPlace {
    /// The caller, if the place is that of a single one.
    pub(super) caller: Option<String>,
    /// The name of the limit or of the plan; `*` is all limits.
    pub(super) limit: String,
}

/// The change of the override of a limit, of all limits, or of one caller. Both are equal if
/// another part of it is in effect.
pub(super) struct PlaceChange {
    pub(super) place: WrittenPlace,
    pub(super) before: Option<Override>,
    pub(super) after: Option<Override>,
}

impl WrittenPlace {
    /// Returns the place of a limit, or of all limits under the name `*`.
    pub(super) fn of_limit(limit: impl Into<String>) -> Self {
        Self { caller: None, limit: limit.into() }
    }
}

impl Layer {
    /// Sets the global enforcement. What else the override of all limits has stays.
    pub(crate) fn enforce(&mut self, enforcement: Enforcement) {
        let alone = Override::new().enforcement(enforcement);
        let before = self.of_limit(ALL_LIMITS).cloned().unwrap_or_default();
        let has_times = before.turns().next().is_some();
        let both =
            before.map_parts(|part| Override { enforce: None, ..part }.enforcement(enforcement));
        // It has no times of its own: before and after those of the others, it is alone.
        let what = if has_times { alone.and(&both) } else { both };
        self.set(WrittenPlace::of_limit(ALL_LIMITS), Some(what));
    }

    /// Sets or removes the override of a place.
    pub(super) fn set(&mut self, place: WrittenPlace, what: Option<Override>) {
        if self.overrides.get(&place) == what.as_ref() {
            return;
        }
        let before = self.get(&place).cloned();
        let is_open = what.as_ref().is_some_and(|what| self.is_open(what));
        if before.is_some() != is_open {
            self.count(&place.limit, is_open);
        }
        // Of several changes, it is what was there before the first one.
        self.before.entry(place.clone()).or_insert(before);
        match what {
            Some(what) => {
                self.next_turn = self.next_turn.into_iter().chain(what.turns()).min();
                self.overrides.insert(place, what);
            }
            None => drop(self.overrides.remove(&place)),
        }
    }

    /// Replaces all overrides.
    pub(super) fn replace(&mut self, with: Self) {
        let is_gone = |place: &&WrittenPlace| !with.overrides.contains_key(*place);
        let gone: Vec<_> = self.overrides.keys().filter(is_gone).cloned().collect();
        for place in gone {
            self.set(place, None);
        }
        for (place, what) in with.overrides {
            self.set(place, Some(what));
        }
    }

    /// Begins and ends overrides, and undoes what a clock that was set back has made too early.
    /// Ended ones are kept for that, or removed.
    pub(super) fn follow_clock(&mut self, now: SystemTime, is_kept: bool) {
        let before = self.now.replace(now);
        let is_set_back = before.is_some_and(|before| now < before);
        if !is_set_back && self.next_turn.is_none_or(|turn| now < turn) {
            return;
        }
        // Callers are looked up with their times.
        let of_limits = self.overrides.iter().take_while(|(place, _)| place.caller.is_none());
        let is_other =
            |what: &Override| before.is_some_and(|before| what.at(before) != what.at(now));
        let turned = of_limits.filter(|(_, what)| is_other(what)).map(|(place, _)| place);
        self.turned.extend(turned.cloned());
        let had_ended = |what: &Override| before.is_some_and(|before| what.has_ended(before));
        let turned = self.overrides.iter().filter(|(_, it)| had_ended(it) != it.has_ended(now));
        let turned: Vec<_> = turned.map(|(place, it)| (place.clone(), it.clone())).collect();
        for (place, what) in turned {
            let returns = had_ended(&what);
            self.count(&place.limit, returns);
            self.before.entry(place).or_insert(Some(what).filter(|_| !returns));
        }
        if !is_kept {
            self.overrides.retain(|_, what| !what.has_ended(now));
        }
        let turns = self.overrides.values().flat_map(Override::turns);
        self.next_turn = turns.filter(|turn| now < *turn).min();
    }

    /// Counts an override of a name that is there, or has ended.
    fn count(&mut self, limit: &str, is_open: bool) {
        if is_open {
            *self.names.entry(limit.to_owned()).or_default() += 1;
        } else if let Some(count) = self.names.get_mut(limit) {
            *count -= 1;
            if *count == 0 {
                self.names.remove(limit);
            }
        }
    }

    /// Returns what has changed since this was last called: what was removed or has ended, and then
    /// what was set.
    pub(super) fn take_changes(&mut self) -> Vec<PlaceChange> {
        let mut changes = Vec::new();
        for (place, before) in mem::take(&mut self.before) {
            let after = self.get(&place).cloned();
            if before != after {
                changes.push(PlaceChange { place, before, after });
            }
        }
        for place in mem::take(&mut self.turned) {
            let what = self.get(&place).cloned();
            changes.push(PlaceChange { place, before: what.clone(), after: what });
        }
        changes.sort_by_key(|change| change.after.is_some());
        changes
    }

    /// Returns the part in effect of the override of a limit, or of all limits under the name `*`.
    pub(super) fn current(&self, limit: &str) -> Option<&Override> {
        let what = self.of_limit(limit)?;
        self.now.map_or(Some(what), |now| what.at(now))
    }

    /// Returns the override of a limit, or of all limits under the name `*`, unless it has ended.
    pub(super) fn of_limit(&self, limit: &str) -> Option<&Override> {
        self.get(&WrittenPlace::of_limit(limit))
    }

    /// Returns the override of a place, unless it has ended.
    pub(super) fn get(&self, place: &WrittenPlace) -> Option<&Override> {
        self.overrides.get(place).filter(|what| self.is_open(what))
    }

    fn is_open(&self, what: &Override) -> bool {
        self.now.is_none_or(|now| !what.has_ended(now))
    }

    /// Returns all overrides that have not ended, those of limits first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&WrittenPlace, &Override)> {
        self.overrides.iter().filter(|(_, what)| self.is_open(what))
    }

    /// Returns the overrides of limits by their names, and that of all limits under the name `*`.
    pub(super) fn of_limits(&self) -> impl Iterator<Item = (&str, &Override)> {
        let of_limits = self.iter().take_while(|(place, _)| place.caller.is_none());
        of_limits.map(|(place, what)| (&*place.limit, what))
    }

    /// Returns the names of the limits that are overridden, also for single callers.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(|name| &**name).filter(|name| *name != ALL_LIMITS)
    }

    /// Returns `true` if an override has begun or ended since, also by a clock that was set back.
    #[cfg(feature = "overrides")]
    pub(super) fn has_turned(&self, now: SystemTime) -> bool {
        self.now.is_some_and(|before| {
            let is_other = |what: &Override| what.at(before) != what.at(now);
            let has_come = self.next_turn.is_some_and(|turn| turn <= now);
            has_come || now < before && self.overrides.values().any(is_other)
        })
    }

    /// Returns the time at which the next override of a limit begins or ends.
    pub(super) fn next_turn_of_limits(&self) -> Option<SystemTime> {
        let turns = self.of_limits().flat_map(|(_, what)| what.turns());
        turns.filter(|turn| self.now.is_none_or(|now| now < *turn)).min()
    }
}

/// The overrides of limits, and the number of those of callers, who do not belong in a log.
impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut limits: BTreeMap<_, _> = self.of_limits().collect();
        let global = limits.remove(ALL_LIMITS);
        let in_effect: usize = self.names.values().sum();
        f.debug_struct("Layer")
            .field("global", &global)
            .field("callers", &(in_effect - limits.len() - usize::from(global.is_some())))
            .field("limits", &limits)
            .field("ended", &(self.overrides.len() - in_effect))
            .finish_non_exhaustive()
    }
}
