//! The weighted log in plain Rust: the same rule as `weighted_window.lua`.

mod entries;
mod line;
#[cfg(test)]
mod tests;

use self::entries::CallEntries;
use super::{
    packed::Generation,
    request_ids::NamedCharge,
    summary::{behind, outcome_of},
};
use crate::{
    policy::{Policy, Tier},
    request::{Charged, Mark, Op, Outcome, OutcomeKind, PlainOutcome, Request, Settle},
    time::{Micros, Timestamp},
};

/// One entry for each call, with its units.
///
/// Invariant: no entry is missing that one of the policies counts which decided within its longest
/// period.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(crate) struct WeightedLog(Option<Box<CallEntries>>);

/// The log during a decision, with the call's own units as if they were recorded.
struct Forecast<'a> {
    entries: Option<&'a CallEntries>,
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

impl WeightedLog {
    /// Decides a call.
    pub(crate) fn decide(&mut self, now: Timestamp, request: Request<'_>) -> Outcome {
        if request.max_wait == Micros::ZERO && self.last_turn() <= now {
            self.decide_at(now, now, request, true)
        } else {
            self.decide_in_line(now, request)
        }
    }

    /// Takes units, or refuses one.
    #[inline]
    pub(super) fn take_units(
        &mut self,
        now: Timestamp,
        policy: &Policy,
        units: u32,
    ) -> Option<PlainOutcome> {
        self.0.as_mut().filter(|_| !policy.counts_rejected())?.take_units(now, policy, units)
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
            && let Some(entries) = &mut self.0
        {
            entries.drop_surplus(now, request);
        }
        let forecast = self.forecast(at, now, request, may_pass);
        let longest = policy.longest_period();
        let reset = match forecast.own {
            0 => forecast.newest().map_or(Micros::ZERO, |newest| newest + longest - at),
            _ => longest,
        };
        let (mut mark, mut kind) = (Mark { at, charged: Charged::Nothing }, OutcomeKind::Plain);
        if let (Some(entries), Some(charge)) = (forecast.entries, forecast.charged) {
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
        outcome.lasts = (at - now + outcome.lasts).max(self.lasts(at, now));
        outcome
    }

    /// Returns the bytes by which the heap grows at most if the call is decided now.
    pub(crate) fn growth(&self, now: Timestamp, request: Request<'_>) -> usize {
        let Request { op, id, .. } = request;
        if op == Op::Peek {
            return 0;
        }
        let Some(entries) = &self.0 else { return CallEntries::first_bytes(request) };
        let kept = entries.growth_of_kept(request);
        if kept == 0 && id.is_none() && entries.has_spare() {
            return 0;
        }
        let waits = request.max_wait > Micros::ZERO || self.last_turn() > now;
        let adds = waits || self.forecast(now, now, request, true).own > 0;
        kept + if adds { entries.growth(now, request) } else { 0 }
    }

    /// Returns the memory on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |entries| entries.heap_bytes())
    }

    /// Changes the units of a call, at most once. Returns the time for which the state counts then.
    ///
    /// Units that are given back were never taken. Units beyond those that were taken count from now
    /// on, also if the log that took the others has expired since.
    pub(crate) fn settle(&mut self, now: Timestamp, settle: Settle) -> Micros {
        let Settle { from, to, mark, id, .. } = settle;
        let (Some(entries), Charged::Entry(entry)) = (&mut self.0, mark.charged) else {
            return Micros::ZERO;
        };
        if !entries.is_of(entry) {
            if to > from && settle.ends() <= now {
                entries.add_nameless(now, to - from);
            }
            return self.lasts(now, now);
        }
        let at = entries.position(mark.at, entry);
        if to < from {
            let Some(at) = at.filter(|at| entries.units(*at) == from) else { return Micros::ZERO };
            entries.lower(at, to);
            if to == 0 {
                entries.forget(id, mark.at);
                entries.end_line(now, mark.at);
            }
        } else if to > from {
            let is_young = mark.at + entries.longest_kept() > now;
            // A young one that is gone was settled before.
            if at.is_none() && is_young && !entry.is_joined() {
                return Micros::ZERO;
            }
            entries.raise(now, at, entry, to - from);
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
        let entries = self.0.as_deref();
        let charged = id.and_then(|id| {
            let charge = entries?.named(id)?;
            (charge.stamp + policy.longest_period() > now).then_some(charge)
        });
        let (own, full, admitted) = (0, Micros::ZERO, true);
        let mut forecast = Forecast { entries, at, own, charged, admitted, full };
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
        if own == 0 && self.0.is_none() {
            return Charged::Nothing;
        }
        let entries = self.0.get_or_insert_with(|| Box::new(CallEntries::new(Generation::next())));
        entries.keep_for(at, now, request);
        if own == 0 {
            return Charged::Nothing;
        }
        entries.add(at, now, own, request)
    }

    /// Returns the time until all entries have left, as far as a policy counts them. The latest call was decided for
    /// `at`, which may be a turn that is not promised yet.
    pub(super) fn lasts(&self, at: Timestamp, now: Timestamp) -> Micros {
        let Some(entries) = &self.0 else { return Micros::ZERO };
        let newest = entries.newest().map(|newest| newest.min(at.max(entries.last_turn())));
        let counts = newest.map(|newest| newest + entries.longest_kept() - now);
        counts.unwrap_or_default().max(entries.pause_left(now))
    }
}

impl Forecast<'_> {
    fn newest(&self) -> Option<Timestamp> {
        self.entries?.newest()
    }

    /// Returns the units that the tier has left.
    fn left(&self, tier: Tier) -> u32 {
        let live = self.entries.map_or(0, |entries| entries.live(tier.micros(), self.at));
        let left = u64::from(tier.threshold()).saturating_sub(live + u64::from(self.own));
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// Returns the time until the tier has room for this many units, 0 for more than its threshold.
    fn wait(&self, tier: Tier, units: u32) -> Micros {
        let Some(most) = tier.threshold().checked_sub(units) else { return Micros::ZERO };
        let (period, most) = (tier.micros(), u64::from(most));
        let live = self.entries.map_or(0, |entries| entries.live(period, self.at));
        let Some(excess) = (live + u64::from(self.own)).checked_sub(most).filter(|it| *it > 0)
        else {
            return Micros::ZERO;
        };
        // Once the entries do not suffice, the call's own leave last.
        let stamp = self.entries.and_then(|entries| entries.leaving(period, self.at, excess));
        stamp.unwrap_or(self.at) + period - self.at
    }
}
