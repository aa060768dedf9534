//! The overrides of one source.

use std::{collections::BTreeMap, time::SystemTime};

use super::{
    Enforcement, Override,
    callers::{ALL_LIMITS, CallerOverrides, Identities},
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

    /// Sets or removes the override of a limit, or of all limits under the name `*`.
    pub(super) fn set(&mut self, limit: &str, what: Option<Override>) {
        match what {
            _ if limit == ALL_LIMITS => self.global = what,
            Some(what) => drop(self.limits.insert(limit.to_owned(), what)),
            None => drop(self.limits.remove(limit)),
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

    /// Removes the overrides that have ended.
    pub(super) fn drop_ended(&mut self, identities: &Identities) {
        self.global.take_if(|what| identities.has_ended(what));
        self.limits.retain(|_, what| !identities.has_ended(what));
        self.callers.retain(|what| !identities.has_ended(what));
    }

    /// Returns the time at which the first override of a limit ends.
    pub(super) fn first_end(&self) -> Option<SystemTime> {
        self.of_limits().filter_map(|(_, what)| what.until).min()
    }
}
