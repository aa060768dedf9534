//! The sliding window in plain Rust: an exact log, the same rule as `log.lua`.
//!
//! While all calls take one unit, the log is their times. The first call that takes more, may wait or has a request
//! id makes an entry of each.

mod entries;
mod line;
mod request_ids;
#[cfg(test)]
mod tests;
mod units;

use ratelimit_core::rules::MAX_ENTRIES;

use self::{
    entries::CallEntries,
    request_ids::NamedCharge,
    units::{Ring, Timestamps},
};
use super::{
    packed::Generation,
    summary::{behind, outcome_of},
};
use crate::{
    policy::{Policy, Tier},
    request::{Charged, Mark, Op, Outcome, OutcomeKind, PlainOutcome, Request, Settle},
    time::{Micros, Timestamp},
};

/// The calls of one caller, with their units.
///
/// Invariant: nothing is missing that one of the policies counts which decided within its longest
/// period.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(crate) enum Log {
    /// The time of each unit: the newest ones, up to the largest threshold of all policies.
    Units(Timestamps),
    Entries(Box<CallEntries>),
}

/// The log during a decision, with the call's own units as if they were recorded.
struct Forecast<'a> {
    log: View<'a>,
    /// The time that the call is decided for.
    at: Timestamp,
    /// The units that the call records.
    own: u32,
    /// The earlier charge under the same request id.
    charged: Option<&'a NamedCharge>,
    admitted: bool,
    /// The time until an entry can be added; 0 unless the log has as many as it may.
    full: Micros,
}

/// The two forms of a log, to read.
#[derive(Clone, Copy)]
enum View<'a> {
    Units(Ring<'a>),
    Entries(&'a CallEntries),
}

impl View<'_> {
    fn newest(self, at: Timestamp) -> Option<Timestamp> {
        match self {
            // A unit of the future, after a clock has stepped back, counts from now on.
            Self::Units(ring) => ring.newest(0).map(|newest| newest.min(at)),
            Self::Entries(entries) => entries.newest(),
        }
    }

    /// Returns the units that are younger than the period.
    fn live(self, period: Micros, at: Timestamp) -> u64 {
        match self {
            Self::Units(ring) => (ring.len() - ring.expired(period, at)) as u64,
            Self::Entries(entries) => entries.live(period, at),
        }
    }

    /// Returns the time of the call with which so many of the live units have left, or `None` if there are
    /// fewer.
    fn leaving(self, period: Micros, at: Timestamp, units: u64) -> Option<Timestamp> {
        match self {
            Self::Units(ring) => {
                let index = ring.expired(period, at) as u64 + units - 1;
                ring.get(usize::try_from(index).ok()?).map(|stamp| stamp.min(at))
            }
            Self::Entries(entries) => entries.leaving(period, at, units),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::Units(Timestamps::default())
    }
}

/// Returns `true` if the charge of a call needs an entry: the time of one unit does not suffice.
fn needs_entries(request: Request<'_>) -> bool {
    let Request { policy, written, cost, id, max_wait, .. } = request;
    let largest = policy.largest_threshold().max(written.largest_threshold());
    cost > 1 || id.is_some() || max_wait > Micros::ZERO || largest as usize > MAX_ENTRIES
}

impl Log {
    /// Decides a call.
    pub(crate) fn decide(&mut self, now: Timestamp, request: Request<'_>) -> Outcome {
        if request.max_wait == Micros::ZERO && self.last_turn() <= now {
            self.decide_at(now, now, request, true)
        } else {
            self.decide_in_line(now, request)
        }
    }

    /// Takes units, or refuses one: see [`State::take_units`](super::State::take_units).
    #[expect(clippy::inline_always, reason = "so that the look-up stays in registers")]
    #[inline(always)]
    pub(super) fn take_units(
        &mut self,
        now: Timestamp,
        policy: &Policy,
        units: u32,
        reads: bool,
        expires: Timestamp,
    ) -> Option<PlainOutcome> {
        match self {
            Self::Units(stamps) if units == 1 => stamps.take_one(now, policy, reads, expires),
            Self::Entries(entries) if !policy.counts_rejected() => {
                entries.take_units(now, policy, units)
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
    ) -> Outcome {
        let Request { policy, op, .. } = request;
        if op == Op::Take
            && let Self::Entries(entries) = self
        {
            entries.drop_surplus(now, request);
        }
        let forecast = self.forecast(at, now, request, may_pass);
        let longest = policy.longest_period();
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
        if forecast.full > Micros::ZERO {
            let (remaining, wait) = (0, (at - now + forecast.full).max(outcome.wait));
            outcome = Outcome { remaining, wait, more: wait, ..outcome };
        }
        outcome.kind = kind;
        let own = forecast.own;
        if op == Op::Take {
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
        outcome
    }

    /// Returns the bytes by which the heap grows at most if the call is decided now.
    #[inline]
    pub(crate) fn growth(&self, now: Timestamp, request: Request<'_>) -> usize {
        if request.op == Op::Peek {
            return 0;
        }
        let waits = request.max_wait > Micros::ZERO || self.last_turn() > now;
        let adds = || waits || self.forecast(now, now, request, true).own > 0;
        match self {
            Self::Units(stamps) if needs_entries(request) => {
                let bytes = || CallEntries::bytes_of_units(stamps.ring().len(), request);
                if adds() { bytes() } else { 0 }
            }
            Self::Units(stamps) => {
                let growth = stamps.growth(1, self.capacity_for(request));
                if growth > 0 && adds() { growth } else { 0 }
            }
            Self::Entries(entries) => {
                let kept = entries.growth_of_kept(request);
                if kept == 0 && request.id.is_none() && entries.has_spare() {
                    return 0;
                }
                kept + if adds() { entries.growth(now, request) } else { 0 }
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

    /// Keeps what a policy of this period counts, which has decided before the log has had entries. Returns the time
    /// for which the state counts then.
    pub(super) fn keep_period(&mut self, now: Timestamp, period: Micros) -> Micros {
        if let Self::Entries(entries) = self {
            entries.keep([period; 2], now, now);
        }
        self.lasts(now, now)
    }

    /// Changes the units of a call, at most once. Returns the time for which the state counts then.
    ///
    /// Units that are given back were never taken. Units beyond those that were taken count from now
    /// on, also if the log that took the others has expired since.
    pub(crate) fn settle(&mut self, now: Timestamp, settle: Settle) -> Micros {
        let Settle { from, to, mark, id, .. } = settle;
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
        if !is_own && (to < from || settle.ends() > now) {
            return Micros::ZERO;
        }
        let entries = self.entries_mut();
        if to > from {
            entries.keep_at_least(now, settle.tier.micros());
        }
        if !is_own {
            entries.add_nameless(now, to - from);
            return self.lasts(now, now);
        }
        let at = entries.position(mark);
        if to < from {
            let Some(at) = at.filter(|at| entries.units(*at) == from) else { return Micros::ZERO };
            entries.lower(at, to);
            if to == 0 {
                entries.forget(id, mark.at);
                entries.end_line(now, mark.at);
            }
        } else {
            let is_young = mark.at + entries.longest_kept() > now;
            // A young one that is gone was settled before.
            if at.is_none() && is_young && !mark.charged.is_joined() {
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
        let charged = id.and_then(|id| {
            let charge = entries?.named(id)?;
            (charge.stamp + policy.longest_period() > now).then_some(charge)
        });
        let (own, full, admitted) = (0, Micros::ZERO, true);
        let mut forecast = Forecast { log, at, own, charged, admitted, full };
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
        let capacity = self.capacity_for(request);
        match self {
            Self::Units(stamps) if own == 0 || !needs_entries(request) => {
                stamps.record(now, own, capacity);
                stamps.generation().charged()
            }
            Self::Units(_) | Self::Entries(_) => {
                let entries = self.entries_mut();
                entries.keep_for(at, now, request);
                if own == 0 { Charged::Nothing } else { entries.add(at, now, own, request) }
            }
        }
    }

    /// Returns the units that a log of units keeps once the request is decided.
    #[inline]
    fn capacity_for(&self, request: Request<'_>) -> usize {
        let Request { policy, written, .. } = request;
        let largest = policy.largest_threshold().max(written.largest_threshold());
        match self {
            Self::Units(stamps) => stamps.capacity().max((largest as usize).min(MAX_ENTRIES)),
            Self::Entries(_) => 0,
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

    /// Returns the time until all entries have left, as far as a policy counts them. The latest call was decided for
    /// `at`, which may be a turn that is not promised yet.
    pub(super) fn lasts(&self, at: Timestamp, now: Timestamp) -> Micros {
        let Self::Entries(entries) = self else { return Micros::ZERO };
        let newest = entries.newest().map(|newest| newest.min(at.max(entries.last_turn())));
        let counts = newest.map(|newest| newest + entries.longest_kept() - now);
        counts.unwrap_or_default().max(entries.pause_left(now))
    }
}

impl Forecast<'_> {
    /// Returns the units that the tier has left.
    fn left(&self, tier: Tier) -> u32 {
        let live = self.log.live(tier.micros(), self.at);
        let left = u64::from(tier.threshold()).saturating_sub(live + u64::from(self.own));
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// Returns the time until the tier has room for this many units, 0 for more than its threshold.
    fn wait(&self, tier: Tier, units: u32) -> Micros {
        let Some(most) = tier.threshold().checked_sub(units) else { return Micros::ZERO };
        let (period, most) = (tier.micros(), u64::from(most));
        let live = self.log.live(period, self.at);
        let Some(excess) = (live + u64::from(self.own)).checked_sub(most).filter(|it| *it > 0)
        else {
            return Micros::ZERO;
        };
        // Once the entries do not suffice, the call's own leave last.
        let stamp = self.log.leaving(period, self.at, excess);
        stamp.unwrap_or(self.at) + period - self.at
    }
}
