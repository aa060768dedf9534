//! The sliding window in plain Rust: an exact log, the same rule as `log.lua`.
//!
//! While all calls take one unit, the log is their times. The first call that takes more, may wait
//! or has a request id makes an entry of each.

mod entries;
mod forecast;
mod line;
mod request_ids;
#[cfg(test)]
mod tests;
mod units;

use ratelimit_core::rules::MAX_ENTRIES;

use self::{
    entries::CallEntries,
    forecast::{Forecast, View},
    units::Timestamps,
};
use super::{
    AskForRoom,
    packed::Generation,
    summary::{behind, outcome_of},
};
use crate::{
    policy::Tier,
    request::{Charged, Mark, Op, Outcome, OutcomeKind, PlainAnswer, Request, Settle},
    time::{Micros, Timestamp},
};

/// The calls of one caller, with their units.
///
/// Invariant: nothing is missing that one of the policies counts which took units, or was new,
/// within its longest period.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(crate) enum Log {
    /// The time of each unit: the newest ones, up to the largest threshold of all policies.
    Units(Timestamps),
    Entries(Box<CallEntries>),
}

impl Default for Log {
    fn default() -> Self {
        Self::Units(Timestamps::default())
    }
}

/// Returns the largest threshold for which a call counts.
fn largest_threshold(request: Request<'_>) -> usize {
    let Request { policy, written, .. } = request;
    policy.largest_threshold().max(written.largest_threshold()) as usize
}

/// Returns `true` if the charge of a call needs an entry: the time of one unit does not suffice.
fn needs_entries(request: Request<'_>) -> bool {
    let Request { cost, id, max_wait, .. } = request;
    let waits = max_wait > Micros::ZERO;
    cost > 1 || id.is_some() || waits || largest_threshold(request) > MAX_ENTRIES
}

/// Returns the single units that a log keeps once the request is decided.
#[inline]
fn capacity_for(stamps: &Timestamps, request: Request<'_>) -> usize {
    stamps.capacity().max(largest_threshold(request).min(MAX_ENTRIES))
}

impl Log {
    /// Decides a call: see [`State::decide`](super::State::decide).
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        room: AskForRoom<'_>,
    ) -> Option<Outcome> {
        if request.max_wait == Micros::ZERO && self.last_turn() <= now {
            self.decide_at(now, now, request, true, room)
        } else {
            self.decide_in_line(now, request, room)
        }
    }

    /// Takes units, or refuses one: see [`State::take_units`](super::State::take_units).
    #[inline(always)]
    pub(super) fn take_units<A: PlainAnswer>(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        expires: Timestamp,
    ) -> Option<A> {
        let Request { policy, cost, id, .. } = request;
        match self {
            Self::Units(stamps) if cost == 1 && id.is_none() => {
                stamps.take_one(now, policy, expires)
            }
            // A copy for this call alone: the request of all others stays in registers.
            Self::Entries(entries) if !policy.counts_rejected() => {
                entries.take_units(now, request.apart())
            }
            _ => None,
        }
    }

    /// Decides a call for this time, which lies ahead if others wait for their turns. `may_pass` is
    /// `false` for one that cannot wait until then.
    fn decide_at(
        &mut self,
        at: Timestamp,
        now: Timestamp,
        request: Request<'_>,
        may_pass: bool,
        room: AskForRoom<'_>,
    ) -> Option<Outcome> {
        let Request { policy, op, .. } = request;
        let forecast = self.forecast(at, now, request, may_pass);
        let longest = policy.longest_period();
        // The call's own units would be the newest ones of the log.
        let reset = match forecast.own {
            0 => forecast.log.newest(at).map_or(Micros::ZERO, |newest| newest + longest - at),
            _ => longest,
        };
        let (mut mark, mut kind) = (Mark { at, charged: Charged::Nothing }, OutcomeKind::Plain);
        if let (View::Entries(entries), Some(charge)) = (forecast.log, forecast.charged) {
            mark = Mark { at: charge.stamp, charged: entries.charged(charge.entry, false) };
            kind = OutcomeKind::Repeated;
        }
        let mut outcome = outcome_of(
            request,
            forecast.admitted,
            mark,
            |_, tier| (forecast.left(*tier), reset),
            |_, tier, units| forecast.wait(*tier, units),
        );
        if !may_pass {
            let one = policy.tiers().iter().map(|tier| forecast.wait(*tier, 1)).max();
            outcome = behind(outcome, at - now, one.unwrap_or_default());
            kind = if outcome.admitted { kind } else { outcome.kind };
        }
        // The log has as many entries as it may, whatever room the windows have.
        if forecast.full > Micros::ZERO {
            let (remaining, wait) = (0, (at - now + forecast.full).max(outcome.wait));
            outcome = Outcome { remaining, wait, more: wait, ..outcome };
        }
        outcome.kind = kind;
        let own = forecast.own;
        if op == Op::Take {
            // First, because what has left the log makes room: less memory is asked for.
            if own > 0
                && let Self::Entries(entries) = self
            {
                entries.drop_surplus(now, request);
            }
            if !room(self.growth(own, request)) {
                return None;
            }
            let charged = self.record(at, now, own, request);
            if outcome.admitted && own > 0 {
                outcome.mark.charged = charged;
            }
        }
        outcome.lasts = match self {
            // The units count again when an override is removed.
            Self::Units(stamps) => {
                let longest = longest.max(request.written.longest_period());
                let newest = stamps.ring().newest(0);
                newest.map_or(Micros::ZERO, |newest| newest.min(now) + longest - now)
            }
            Self::Entries(_) => (at - now + outcome.lasts).max(self.lasts(at, now)),
        };
        Some(outcome)
    }

    /// Returns the bytes by which the heap grows at most if a decided call and so many units of it
    /// are recorded.
    fn growth(&self, own: u32, request: Request<'_>) -> usize {
        match self {
            Self::Units(_) if own == 0 => 0,
            Self::Units(stamps) if needs_entries(request) => {
                CallEntries::bytes_of_units(stamps.ring().len(), request)
            }
            Self::Units(stamps) => stamps.growth(1, capacity_for(stamps, request)),
            Self::Entries(entries) => {
                let added = if own > 0 { entries.growth(request) } else { 0 };
                entries.growth_of_kept(request) + added
            }
        }
    }

    /// Returns the memory on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Units(stamps) => stamps.heap_bytes(),
            Self::Entries(entries) => entries.heap_bytes(),
        }
    }

    /// Returns the time of the newest unit, if the log has only their times.
    #[inline]
    pub(super) fn newest_unit(&self) -> Option<Timestamp> {
        match self {
            Self::Units(stamps) => stamps.ring().newest(0),
            Self::Entries(_) => None,
        }
    }

    /// Keeps what a policy of this period counts, which has decided before the log has had entries.
    /// Returns the time for which the state counts then.
    pub(super) fn keep_period(&mut self, now: Timestamp, period: Micros) -> Micros {
        if let Self::Entries(entries) = self {
            entries.keep([period; 2], now, now);
        }
        self.lasts(now, now)
    }

    /// Changes the units of a call, at most once. Returns the time for which the state counts then.
    ///
    /// Units that are given back were never taken. Units beyond those that were taken count from
    /// now on, also if the log that took the others has expired since.
    pub(crate) fn settle(&mut self, now: Timestamp, settle: &Settle) -> Micros {
        let Settle { from, to, mark, id, .. } = *settle;
        if to == from {
            return Micros::ZERO;
        }
        if let Self::Units(stamps) = self
            && to < from
        {
            if stamps.generation().charged() == mark.charged {
                stamps.remove_at(mark.at);
            }
            return Micros::ZERO;
        }
        let generation = self.generation();
        let is_own = match mark.charged {
            Charged::Entry(entry) => generation.number() == entry.birth(),
            charged => generation.charged() == charged,
        };
        // Before the charge ends, another state means a reset, after which nothing of it counts.
        if !is_own && (to < from || settle.ends() > now) {
            return Micros::ZERO;
        }
        let entries = self.entries_mut();
        if to > from {
            entries.keep_at_least(now, settle.lasts());
        }
        if !is_own {
            entries.add_nameless(now, to - from);
            return self.lasts(now, now);
        }
        // A repetition under a request id may have another cost than the charge.
        let at = entries.position(mark).filter(|at| entries.units(*at) == from);
        if to < from {
            let Some(at) = at else { return Micros::ZERO };
            entries.lower(at, to);
            if to == 0 {
                entries.forget(id, mark.at);
                entries.end_line(now, mark.at);
            }
        } else {
            // A young entry that is gone was settled before. A unit has none: it may have been one
            // too many to keep.
            let is_young = mark.at + entries.longest_kept() > now;
            if at.is_none() && is_young && mark.charged.has_entry() {
                return Micros::ZERO;
            }
            entries.raise(now, at, mark.charged, to - from);
        }
        self.lasts(now, now)
    }

    fn forecast(
        &self,
        at: Timestamp,
        now: Timestamp,
        request: Request<'_>,
        may_pass: bool,
    ) -> Forecast<'_> {
        let Request { policy, cost, id, .. } = request;
        let (log, entries) = match self {
            Self::Units(stamps) => (View::Units(stamps.ring()), None),
            Self::Entries(entries) => (View::Entries(entries), Some(entries)),
        };
        // An id is found for longer than its charge counts: it stays until its room is needed.
        let charged = id.and_then(|id| {
            let charge = entries?.named(id)?;
            (charge.stamp + policy.longest_period() > now).then_some(charge)
        });
        let mut forecast =
            Forecast { log, at, own: 0, charged, admitted: true, full: Micros::ZERO };
        if charged.is_some() || cost == 0 {
            return forecast;
        }
        let has_room =
            |tier: &Tier| cost <= tier.threshold() && forecast.wait(*tier, cost) == Micros::ZERO;
        forecast.admitted = may_pass && policy.tiers().iter().all(has_room);
        if forecast.admitted || policy.counts_rejected() {
            let full = entries.and_then(|entries| entries.full_until(now, request));
            match full {
                Some(until) => {
                    // 0 would say that there is room.
                    forecast.full = (until - at).max(Micros::new(1));
                    forecast.admitted = false;
                }
                None => forecast.own = cost,
            }
        }
        forecast
    }

    /// Records a decided call, and its units if it has any. Returns their mark.
    fn record(&mut self, at: Timestamp, now: Timestamp, own: u32, request: Request<'_>) -> Charged {
        match self {
            Self::Units(stamps) if own == 0 || !needs_entries(request) => {
                stamps.record(now, own, capacity_for(stamps, request));
                stamps.generation().charged()
            }
            Self::Entries(entries) if own == 0 => {
                entries.keep_new(at, now, request);
                Charged::Nothing
            }
            Self::Units(_) | Self::Entries(_) => {
                let entries = self.entries_mut();
                entries.keep_for(at, now, request);
                entries.add(at, now, own, request)
            }
        }
    }

    fn generation(&self) -> Generation {
        match self {
            Self::Units(stamps) => stamps.generation(),
            Self::Entries(entries) => entries.generation(),
        }
    }

    /// Returns the entries of a log, which units become first.
    fn entries_mut(&mut self) -> &mut CallEntries {
        if let Self::Units(stamps) = self {
            *self = Self::Entries(Box::new(CallEntries::of_units(stamps)));
        }
        match self {
            Self::Entries(entries) => entries,
            Self::Units(_) => unreachable!("units have become entries"),
        }
    }

    /// Returns the time until all entries have left, as far as a policy counts them. The latest
    /// call was decided for `at`, which may be a turn that is not promised yet.
    pub(super) fn lasts(&self, at: Timestamp, now: Timestamp) -> Micros {
        let Self::Entries(entries) = self else { return Micros::ZERO };
        let newest = entries.newest().map(|newest| newest.min(at.max(entries.last_turn())));
        let counts = newest.map(|newest| newest + entries.longest_kept() - now);
        counts.unwrap_or_default().max(entries.pause_left(now))
    }
}
