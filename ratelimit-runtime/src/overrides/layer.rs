//! The overrides of one source.

use std::{collections::BTreeMap, fmt, mem, time::SystemTime};

use super::{Enforcement, Override};

/// The name of all limits. No function has it.
pub(super) const ALL_LIMITS: &str = "*";

/// The overrides of one source: of limits by name, of all limits under the name `*`, and of single callers.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    overrides: ByPlace,
    /// Those that have ended and that the source still has: its clock may be set back.
    ended: ByPlace,
}

/// Overrides by the caller as it is written down, if it is that of a single one, and by the limit.
type ByPlace = BTreeMap<(Option<String>, String), Override>;

impl Layer {
    /// Returns the global enforcement.
    pub(super) fn enforcement(&self) -> Option<Enforcement> {
        self.get(ALL_LIMITS, None)?.enforcement
    }

    /// Sets the global enforcement.
    pub(crate) fn enforce(&mut self, enforcement: Enforcement) {
        self.set(ALL_LIMITS, None, Some(Override::new().enforcement(enforcement)));
    }

    /// Sets or removes the override of a limit, of all limits under the name `*`, or of one caller.
    pub(super) fn set(&mut self, limit: &str, caller: Option<&str>, what: Option<Override>) {
        let place = place(limit, caller);
        self.ended.remove(&place);
        match what {
            Some(what) => self.overrides.insert(place, what),
            None => self.overrides.remove(&place),
        };
    }

    /// Returns the override of a limit, of all limits under the name `*`, or of one caller.
    pub(super) fn get(&self, limit: &str, caller: Option<&str>) -> Option<&Override> {
        self.overrides.get(&place(limit, caller))
    }

    /// Returns all overrides by the limit and the caller, those of limits first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>, &Override)> {
        self.overrides.iter().map(|((caller, limit), what)| (&**limit, caller.as_deref(), what))
    }

    /// Returns the overrides of single limits by their names.
    pub(super) fn of_limits(&self) -> impl Iterator<Item = (&str, &Override)> {
        let of_limits = self.iter().filter(|it| it.1.is_none() && it.0 != ALL_LIMITS);
        of_limits.map(|(limit, _, what)| (limit, what))
    }

    /// Returns the overrides of single callers by the limit and the caller.
    pub(super) fn of_callers(&self) -> impl Iterator<Item = (&str, &str, &Override)> {
        self.iter().filter_map(|(limit, caller, what)| Some((limit, caller?, what)))
    }

    /// Ends overrides, and undoes the ends that a clock that was set back has made too early. Ended ones are kept
    /// for that, or removed.
    pub(super) fn follow_clock(&mut self, now: SystemTime, is_kept: bool) {
        let all = mem::take(&mut self.overrides).into_iter().chain(mem::take(&mut self.ended));
        let (ended, open) = all.partition(|(_, what)| what.has_ended(now));
        self.overrides = open;
        if is_kept {
            self.ended = ended;
        }
    }

    /// Returns `true` if an override has ended by another clock, and not by this one.
    #[cfg(feature = "overrides")]
    pub(super) fn has_returned(&self, now: SystemTime) -> bool {
        self.ended.values().any(|what| !what.has_ended(now))
    }

    /// Returns the time at which the first override of a limit ends.
    pub(super) fn first_end(&self) -> Option<SystemTime> {
        let of_limits = self.iter().filter(|it| it.1.is_none());
        of_limits.filter_map(|(.., what)| what.until).min()
    }
}

/// The overrides of limits, and the number of those of callers, who do not belong in a log.
impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer")
            .field("global", &self.get(ALL_LIMITS, None))
            .field("limits", &self.of_limits().collect::<BTreeMap<_, _>>())
            .field("callers", &self.of_callers().count())
            .field("ended", &self.ended.len())
            .finish_non_exhaustive()
    }
}

fn place(limit: &str, caller: Option<&str>) -> (Option<String>, String) {
    (caller.map(str::to_owned), limit.to_owned())
}
