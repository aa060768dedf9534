//! The log of a sliding window once a call has taken more than one unit, has waited or has an id.

use super::{
    By, Charge, Rules,
    soonest::soonest,
    units::{AT_ONCE, Units},
};

/// The most units of one entry on Redis.
const ENTRY: u64 = 99_999_999;

/// A refusal on Redis that has read more entries than this keeps the result.
const KEPT: u64 = 64;

/// The most periods of other policies that a log keeps.
const OTHERS: usize = 8;

/// The recorded calls, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    generation: u64,
    by: By,
    charges: Vec<Recorded>,
    /// The request ids, with their charges.
    names: Vec<Charge>,
    /// Periods, each with the time from which on its policy counts. A charge is dropped once it is
    /// older than all of these.
    cuts: Vec<(u64, u64)>,
    /// The periods of the policies that decide at present.
    own: Vec<u64>,
    /// The last turn, or the end of a later pause, and when it was promised; 0 without one.
    line: (u64, u64),
    /// The end of the pause; 0 without one.
    pause: u64,
}

/// The periods that a log counts for a call.
pub(super) fn own_periods(rules: &Rules, by: By) -> Vec<u64> {
    let periods: Vec<_> = rules.tiers.iter().map(|tier| tier.period).collect();
    let written: Vec<_> = rules.written.iter().map(|tier| tier.period).collect();
    match by {
        // The embedded store keeps the longest period of a policy.
        By::Number => {
            let longest = |all: &[u64]| all.iter().max().copied();
            longest(&periods).into_iter().chain(longest(&written)).collect()
        }
        By::Instant => periods.into_iter().chain(written).collect(),
    }
}

/// The units of one charge, or what one takes beyond it.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    /// The charge that took them; none of a log before this one.
    charge: Option<Charge>,
    at: u64,
    units: u64,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Charge,
    Settled,
    Excess,
}

impl Recorded {
    fn entries(&self) -> u64 {
        self.units.div_ceil(ENTRY)
    }
}

impl Calls {
    pub(super) fn new(generation: u64, by: By) -> Self {
        let (charges, names) = (Vec::new(), Vec::new());
        let (cuts, own) = (Vec::new(), Vec::new());
        Self { generation, by, charges, names, cuts, own, line: (0, 0), pause: 0 }
    }

    /// Makes calls of units, for a call that comes at `now` and is decided for `at`.
    pub(super) fn of_units(units: Units, own: Vec<u64>, now: u64, at: u64) -> Self {
        // On Redis units have no generation: the log is born with its first call.
        let generation = if units.by() == By::Instant { now } else { units.generation };
        let mut log = Self::new(generation, units.by());
        let recorded =
            |it: Charge| Recorded { charge: Some(it), at: it.at, units: 1, role: Role::Charge };
        log.charges = units.charges.into_iter().map(recorded).collect();
        log.own = own;
        for period in log.own.iter().copied().chain((units.period > 0).then_some(units.period)) {
            if !log.cuts.iter().any(|(cut, _)| *cut == period) {
                let used = if log.own.contains(&period) { at } else { now };
                log.cuts.push((period, used.saturating_sub(period)));
            }
        }
        log
    }

    pub(super) fn by(&self) -> By {
        self.by
    }

    /// Counts for a policy as of `at`, for a call that comes now. Nothing is dropped. Returns
    /// `true` if that is kept although the call is refused.
    pub(super) fn see(&mut self, rules: &Rules, now: u64, at: u64) -> bool {
        self.own = own_periods(rules, self.by);
        // Nothing is written for a caller without a state.
        let is_written = !self.cuts.is_empty();
        let own = &self.own;
        let is_other = |period: &u64| !own.contains(period);
        let last = self.line.0;
        let is_used = |(period, cut): &(u64, u64)| (cut + period).max(last) + period >= now;
        self.cuts.retain(|it| !is_other(&it.0) || is_used(it));
        while self.cuts.iter().filter(|(period, _)| is_other(period)).count() > OTHERS {
            let others = self.cuts.iter().filter(|(period, _)| is_other(period));
            let oldest = *others.min_by_key(|(period, cut)| (cut + period, *period)).expect("some");
            self.cuts.retain(|it| *it != oldest);
        }
        let mut is_changed = false;
        for period in self.own.clone() {
            let to = at.saturating_sub(period);
            if let Some((_, cut)) = self.cuts.iter_mut().find(|it| it.0 == period) {
                let left = self.charges.iter().filter(|it| *cut < it.at && it.at <= to);
                let is_large = left.map(Recorded::entries).sum::<u64>() > KEPT;
                is_changed |= is_large && self.by == By::Instant;
                *cut = to;
            } else {
                is_changed |= is_written;
                self.cuts.push((period, to));
            }
        }
        is_changed
    }

    /// The time after which all charges are older than any policy counts, and the pause is over.
    pub(super) fn ends(&self) -> Option<u64> {
        let longest = self.cuts.iter().map(|(period, _)| *period).max();
        let newest = self.charges.last().zip(longest).map(|(newest, longest)| newest.at + longest);
        newest.max(Some(self.pause))
    }

    pub(super) fn drop_old(&mut self, now: u64) {
        // The line may get shorter.
        let cuts = self.cuts.iter().map(|(period, cut)| *cut.min(&now.saturating_sub(*period)));
        let mut oldest = cuts.min().unwrap_or(0);
        if self.by == By::Instant {
            // Many are dropped by and by.
            let mut entries = 0;
            for it in self.charges.iter().filter(|it| it.at <= oldest) {
                entries += it.entries();
                if entries >= AT_ONCE as u64 {
                    oldest = it.at;
                    break;
                }
            }
        }
        self.charges.retain(|it| it.at > oldest);
    }

    pub(super) fn live(&self, period: u64, now: u64) -> u128 {
        let in_window = self.charges.iter().filter(|it| it.at + period > now);
        in_window.map(|it| u128::from(it.units)).sum()
    }

    pub(super) fn charged(&self, id: u64, now: u64, longest: u64) -> Option<Charge> {
        let is_it = |it: &&Charge| it.id == Some(id) && it.at + longest > now;
        self.names.iter().find(is_it).copied()
    }

    pub(super) fn record(&mut self, now: u64, is_admitted: bool, charge: Charge) -> u64 {
        if self.by == By::Instant {
            self.drop_old(now);
        }
        if is_admitted && charge.at > now {
            self.line = (charge.at, now);
        }
        let charge = Charge { life: self.generation, ..charge };
        self.push(Some(charge), charge.at, charge.cost.into(), Role::Charge);
        if charge.id.is_some() {
            self.names.retain(|it| it.id != charge.id);
            self.names.push(charge);
        }
        self.generation
    }

    /// Records the first units, which exceed a charge of a log that has expired.
    pub(super) fn start_with(&mut self, period: u64, now: u64, units: u64) {
        self.keep_at_least(period, now);
        self.push(None, now, units, Role::Excess);
    }

    /// Counts for this period, if there is none yet.
    fn keep_at_least(&mut self, period: u64, now: u64) {
        if self.cuts.is_empty() {
            self.cuts.push((period, now.saturating_sub(period)));
        }
    }

    fn push(&mut self, charge: Option<Charge>, at: u64, units: u64, role: Role) {
        self.charges.push(Recorded { charge, at, units, role });
        self.charges.sort_by_key(|it| it.at);
    }

    /// Returns `true` if calls are more than a period in the future.
    pub(super) fn is_ahead(&self, rules: &Rules, at: u64) -> bool {
        self.charges.iter().any(|it| it.at > at + rules.shortest())
    }

    /// Moves charges of the future to now. Returns `false`, if they are so many that the log is
    /// cleared instead.
    pub(super) fn mend(&mut self, rules: &Rules, now: u64, at: &mut u64) -> bool {
        if *at > now {
            self.forget_line();
            self.see(rules, now, now);
            *at = now;
        }
        let ahead = self.charges.iter().filter(|it| it.at > now).map(Recorded::entries);
        if ahead.sum::<u64>() > AT_ONCE as u64 {
            return false;
        }
        for it in &mut self.charges {
            it.at = it.at.min(now);
        }
        for it in &mut self.names {
            it.at = it.at.min(now);
        }
        self.cuts.retain(|(period, cut)| self.own.contains(period) || *cut < now);
        true
    }

    fn mend_or_clear(&mut self, rules: &Rules, now: u64, at: &mut u64) -> bool {
        if !self.mend(rules, now, at) {
            let own = self.own.iter().map(|period| (*period, now.saturating_sub(*period)));
            let cuts = own.collect();
            *self = Self { cuts, own: self.own.clone(), ..Self::new(now, self.by) };
        }
        true
    }

    pub(super) fn settle(&mut self, charge: Charge, to: u32, now: u64) {
        let (from, to) = (u64::from(charge.cost), u64::from(to));
        // Redis finds a single unit by its id alone.
        let is_own = if charge.is_single && self.by == By::Instant {
            self.position(charge).is_some()
        } else {
            charge.life == self.generation
        };
        if !is_own && (to <= from || now < charge.ends) {
            return;
        }
        // On Redis the charges of one request id at one time are one.
        let is_it = |it: &Charge| match charge.id {
            Some(_) if self.by == By::Instant => it.id == charge.id && it.at == charge.at,
            _ => it.number == charge.number,
        };
        let is_open = |it: &Recorded| {
            let is_there = charge.id.is_none() || it.at == charge.at;
            is_there && it.role == Role::Charge && it.charge.as_ref().is_some_and(is_it)
        };
        // In memory, units of one instant are equal.
        let is_alike = |it: &Recorded| {
            let is_unit = it.charge.is_some_and(|it| it.is_single) || it.role == Role::Settled;
            self.by == By::Number
                && charge.is_single
                && is_unit
                && (it.at, it.units) == (charge.at, 1)
        };
        let own = self.charges.iter().position(is_open);
        let open = own.or_else(|| self.charges.iter().position(is_alike)).filter(|_| is_own);
        let longest = self.cuts.iter().map(|(period, _)| *period).max().unwrap_or(0);
        if to > from {
            // Redis recognizes the same number again, and the embedded store any in its own log.
            let is_excess = |it: &Recorded| {
                let is_same = it.role == Role::Excess && it.charge.as_ref().is_some_and(is_it);
                is_same && if self.by == By::Number { is_own } else { it.units == to - from }
            };
            // In memory, a unit has no number to be known by: its decision settles once.
            let has_number = !charge.is_single || self.by == By::Instant;
            let is_known = is_own && has_number && charge.at + longest > now;
            let was_settled = is_known || self.charges.iter().any(is_excess);
            if open.is_some() || !was_settled {
                if let Some(open) = open {
                    self.charges[open].role = Role::Settled;
                }
                self.keep_at_least(charge.tier.period, now);
                self.push(Some(charge), now, to - from, Role::Excess);
            }
        } else if let Some(open) = open.filter(|_| to < from) {
            let at = self.charges[open].at;
            (self.charges[open].units, self.charges[open].role) = (to, Role::Settled);
            self.charges.retain(|it| it.units > 0);
            if to == 0 {
                self.names.retain(|it| !is_it(it));
                self.end_line(now, at);
            }
        }
    }
}

impl Calls {
    /// The last turn that lies ahead, or now, also if the clock has stepped back.
    pub(super) fn line_end(&self, rules: &Rules, now: u64) -> u64 {
        let (turn, promised) = self.line;
        if turn > now && promised <= now + rules.shortest() {
            return turn;
        }
        now
    }

    pub(super) fn move_to(&mut self, at: u64) {
        let own = &self.own;
        for (period, cut) in self.cuts.iter_mut().filter(|(period, _)| own.contains(period)) {
            *cut = at.saturating_sub(*period);
        }
    }

    pub(super) fn forget_line(&mut self) {
        (self.line, self.pause) = ((0, 0), 0);
    }

    /// Admits nobody before `ends`, and moves the turns that lie ahead behind it, at their
    /// distances.
    pub(super) fn pause(&mut self, rules: &Rules, now: u64, ends: u64, drops: bool) {
        let (before, mut end) = (self.clone(), self.line_end(rules, now));
        self.see(rules, now, end);
        if drops && self.by == By::Number {
            self.drop_old(now);
        }
        if end == now {
            self.forget_line();
        }
        let is_mended = self.is_ahead(rules, end) && self.mend_or_clear(rules, now, &mut end);
        if ends <= self.pause {
            *self = if is_mended { self.clone() } else { before };
            return;
        }
        let last = self.line.0;
        let first = self.charges.iter().map(|it| it.at).find(|at| *at > now && *at <= last);
        let later = first.map_or(0, |first| ends.saturating_sub(first));
        for it in self.charges.iter_mut().filter(|it| it.at > now) {
            it.at += later;
            if let Some(charge) = it.charge.as_mut().filter(|_| it.role == Role::Charge) {
                charge.at += later;
            }
        }
        for it in self.names.iter_mut().filter(|it| it.at > now) {
            it.at += later;
        }
        for (_, cut) in self.cuts.iter_mut().filter(|(period, cut)| cut + period > now) {
            *cut += later;
        }
        (self.line, self.pause) = (((last + later).max(ends), now), ends);
    }

    /// The time of a charge that is not settled.
    pub(super) fn turn(&self, charge: Charge) -> Option<u64> {
        self.position(charge).map(|position| self.charges[position].at)
    }

    pub(super) fn turns_ahead(&self, now: u64) -> u64 {
        let entries = |it: &Recorded| if self.by == By::Number { 1 } else { it.entries() };
        self.charges.iter().filter(|it| it.at > now).map(entries).sum()
    }

    /// Ends the line at the newest charge, once its last turn is given back or has moved.
    fn end_line(&mut self, now: u64, turn: u64) {
        if self.line.0 == turn && turn > now {
            let newest = self.charges.last().map_or(0, |it| it.at).max(self.pause);
            if newest > now {
                self.line.0 = newest;
            } else {
                self.forget_line();
            }
        }
    }

    /// The position of a charge that is not settled. In memory it is not found by its later time,
    /// if another call of its request id has moved it forwards.
    pub(super) fn position(&self, charge: Charge) -> Option<usize> {
        let is_it = |it: &Recorded| {
            it.role == Role::Charge && it.charge.is_some_and(|it| it.number == charge.number)
        };
        let is_found = |it: &Recorded| self.by == By::Instant || it.at >= charge.at;
        self.charges.iter().position(|it| is_it(it) && is_found(it))
    }

    pub(super) fn advance(&mut self, charge: &mut Charge, rules: &Rules, now: u64) -> bool {
        let Some(position) = self.position(*charge) else {
            // It has left the log long after its turn.
            return charge.at <= now && charge.life == self.generation && !charge.is_single;
        };
        let at = self.charges[position].at;
        let is_before = |other: usize, it: u64| match self.by {
            By::Number => other < position,
            By::Instant => it < at,
        };
        let mut ahead = self.charges.iter().enumerate().filter(|(_, it)| it.at > now);
        let is_first = !ahead.any(|(index, it)| is_before(index, it.at));
        charge.at = at;
        if at <= now || !is_first {
            return true;
        }
        let cost = u128::from(charge.cost);
        let has_room = |at: u64| {
            rules.tiers.iter().all(|tier| {
                let passed = self.charges.iter().filter(|it| it.at <= now);
                let live = passed.filter(|it| it.at + tier.period > at);
                live.map(|it| u128::from(it.units)).sum::<u128>() + cost <= tier.threshold.into()
            })
        };
        let may_come = |at: u64| at >= self.pause && has_room(at);
        let earliest = now + soonest(|wait| now + wait >= at || may_come(now + wait));
        if earliest < at {
            self.see(rules, now, earliest);
            charge.at = earliest;
            let position = self.position(*charge).expect("still open");
            self.charges[position].at = earliest;
            if let Some(it) = &mut self.charges[position].charge {
                it.at = earliest;
            }
            for it in self.names.iter_mut().filter(|it| it.number == charge.number) {
                it.at = earliest;
            }
            self.charges.sort_by_key(|it| it.at);
            self.end_line(now, at);
        }
        true
    }
}
