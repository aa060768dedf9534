//! The overrides of one source.

use std::{collections::BTreeMap, time::SystemTime};

use super::{
    Enforcement, Override,
    callers::{ALL_LIMITS, CallerOverrides},
};

/// The overrides of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    /// The override of all limits, which sets nothing but an enforcement.
    pub(super) global: Option<Override>,
    /// The overrides of single limits, by name.
    pub(super) limits: BTreeMap<String, Override>,
    /// The overrides of single callers.
    pub(super) callers: CallerOverrides,
    /// The overrides that have ended and that the source still has: its clock may be set back. Those of limits
    /// are under the empty caller.
    pub(super) ended: CallerOverrides,
}

impl Layer {
    /// Returns the global enforcement.
    pub(super) fn enforcement(&self) -> Option<Enforcement> {
        self.global.as_ref()?.enforcement
    }

    /// Sets the global enforcement.
    pub(crate) fn enforce(&mut self, enforcement: Enforcement) {
        self.global = Some(Override::new().enforcement(enforcement));
    }

    /// Sets or removes the override of a limit, of all limits under the name `*`, or of one caller.
    pub(super) fn set(&mut self, limit: &str, caller: Option<&str>, what: Option<Override>) {
        self.ended.remove(limit, caller.unwrap_or_default());
        match (caller, what) {
            (Some(caller), Some(what)) => self.callers.insert(limit, caller.to_owned(), what),
            (Some(caller), None) => self.callers.remove(limit, caller),
            (None, what) if limit == ALL_LIMITS => self.global = what,
            (None, Some(what)) => drop(self.limits.insert(limit.to_owned(), what)),
            (None, None) => drop(self.limits.remove(limit)),
        }
    }

    /// Returns the override of a limit, or of all limits under the name `*`.
    pub(super) fn limit(&self, limit: &str) -> Option<&Override> {
        if limit == ALL_LIMITS { self.global.as_ref() } else { self.limits.get(limit) }
    }

    /// Returns the override of a limit, or of one caller of it.
    pub(super) fn get(&self, limit: &str, caller: Option<&str>) -> Option<&Override> {
        match caller {
            Some(caller) => self.callers.0.get(limit)?.get(caller),
            None => self.limit(limit),
        }
    }

    /// Returns the overrides of limits by their names.
    pub(super) fn of_limits(&self) -> impl Iterator<Item = (&str, &Override)> {
        let limits = self.limits.iter().map(|(name, what)| (name.as_str(), what));
        self.global.iter().map(|what| (ALL_LIMITS, what)).chain(limits)
    }

    /// Returns all overrides, by the limit and the caller.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>, &Override)> {
        let callers = self.callers.iter().map(|(limit, caller, what)| (limit, Some(caller), what));
        self.of_limits().map(|(limit, what)| (limit, None, what)).chain(callers)
    }

    /// Ends overrides, and undoes the ends that a clock that was set back has made too early. Ended ones are kept
    /// for that, or removed.
    pub(super) fn follow_clock(&mut self, now: SystemTime, is_kept: bool) {
        let owned = |(limit, caller, what): (&str, Option<&str>, &Override)| {
            (limit.to_owned(), caller.map(str::to_owned), what.clone())
        };
        let ended: Vec<_> = self.iter().filter(|(.., it)| it.has_ended(now)).map(owned).collect();
        let open: Vec<_> = self.returned(now).map(owned).collect();
        for (limit, caller, what) in ended {
            self.set(&limit, caller.as_deref(), None);
            if is_kept {
                self.ended.insert(&limit, caller.unwrap_or_default(), what);
            }
        }
        for (limit, caller, what) in open {
            self.set(&limit, caller.as_deref(), Some(what));
        }
    }

    /// Returns the overrides that have ended by another clock, and not by this one.
    pub(super) fn returned(
        &self,
        now: SystemTime,
    ) -> impl Iterator<Item = (&str, Option<&str>, &Override)> {
        let ended = self.ended.iter().filter(move |(.., what)| !what.has_ended(now));
        ended.map(|(limit, caller, what)| (limit, Some(caller).filter(|it| !it.is_empty()), what))
    }

    /// Returns the time at which the first override of a limit ends.
    pub(super) fn first_end(&self) -> Option<SystemTime> {
        self.of_limits().filter_map(|(_, what)| what.until).min()
    }
}
