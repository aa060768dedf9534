//! The entries of a log, one for each call, with running sums: a decision reads a few of them.

mod charges;
mod memory;
mod straight;
mod turns;

use std::collections::VecDeque;

use ratelimit_core::rules::MAX_ENTRIES;
use smallvec::SmallVec;

use super::{
    request_ids::{NamedCharge, RequestIds},
    units::Timestamps,
};
use crate::{
    algorithms::packed::Generation,
    policy::Policy,
    request::{Charged, EntryMark, Request},
    time::{Micros, Timestamp},
};

/// The number of entries from which on a call joins the newest one if both lie in one part of the
/// shortest period. What has joined can be raised, but no longer be lowered.
const CROWDED: usize = 90_000;

/// The parts of the shortest period. Each has at most one entry more than [`CROWDED`].
const PARTS: u64 = 4_096;

/// The id of an entry that no call settles any more.
const NOBODY: u32 = 0;

/// The entries for which the first of them allocates.
const FIRST_ENTRIES: usize = 2;

/// The kept periods that a log starts with at most: those of the call, and the longest one before
/// it.
const MOST_KEPT_AT_FIRST: usize = 3;

/// The maximum number of kept periods of other policies. Those that took units longest ago are
/// dropped first.
const MAX_OTHERS: usize = 8;

/// The entries in ascending order of their stamps, oldest first.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(crate) struct CallEntries {
    generation: Generation,
    /// The id of the last charge.
    last: u32,
    entries: VecDeque<CallEntry>,
    /// The charges with a request id.
    named: RequestIds,
    /// The longest period of each policy that decides.
    kept: SmallVec<[KeptPeriod; 1]>,
    /// The last turn that was promised, or the end of a later pause.
    last_turn: Timestamp,
    /// The end of the last pause.
    pause: Timestamp,
}

/// The units of one call, or of several that have joined.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
struct CallEntry {
    stamp: Timestamp,
    /// The sum of the units up to this one, counted from any start.
    sum: u64,
    units: u32,
    /// An even number for a charge, the next one for its excess.
    id: u32,
}

/// A period of a policy, and the time for which it last took units, or first decided.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
struct KeptPeriod {
    period: Micros,
    used: Timestamp,
}

impl KeptPeriod {
    /// Returns `true` if the policy counts none of the entries at `now` that it would not find
    /// later.
    fn is_unused(self, last_turn: Timestamp, now: Timestamp) -> bool {
        self.counts_until(last_turn) < now
    }

    /// Returns the time until which the policy counts entries if it decides no more.
    fn counts_until(self, last_turn: Timestamp) -> Timestamp {
        self.used.max(last_turn) + self.period
    }
}

fn periods(request: Request<'_>) -> [Micros; 2] {
    [request.policy, request.written].map(Policy::longest_period)
}

impl CallEntries {
    /// Returns the entries of a log that has had units alone. No call of one has an id: units of
    /// one instant are alike.
    pub(super) fn of_units(stamps: &Timestamps) -> Self {
        let mut entries = VecDeque::with_capacity(Self::room_for(stamps.ring().len()));
        let stamps_in_order = stamps.ring().parts().into_iter().flatten();
        entries.extend((1..).zip(stamps_in_order).map(|(sum, stamp)| CallEntry {
            stamp: *stamp,
            sum,
            units: 1,
            id: NOBODY,
        }));
        let (generation, (named, kept, last_turn, pause)) =
            (stamps.generation(), Default::default());
        Self { generation, last: 0, entries, named, kept, last_turn, pause }
    }

    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.entries.back().map(|entry| entry.stamp)
    }

    /// Returns the units that are younger than the period.
    #[inline]
    pub(super) fn live(&self, period: Micros, now: Timestamp) -> u64 {
        let newest = self.entries.back().map_or(0, |entry| entry.sum);
        newest - self.sum_before(self.expired(period, now))
    }

    /// Returns the stamp of the entry with which so many of the live units have left, or `None` if
    /// there are fewer.
    pub(super) fn leaving(&self, period: Micros, now: Timestamp, units: u64) -> Option<Timestamp> {
        let expired = self.expired(period, now);
        let sum = self.sum_before(expired) + units;
        // Mostly the oldest one suffices.
        let oldest = self.entries.get(expired).filter(|entry| entry.sum >= sum);
        let leaves = || self.entries.get(self.entries.partition_point(|entry| entry.sum < sum));
        oldest.or_else(leaves).map(|entry| entry.stamp)
    }

    /// Returns the number of entries that have left a window of this length.
    #[inline]
    fn expired(&self, period: Micros, now: Timestamp) -> usize {
        let has_left = |entry: &CallEntry| entry.stamp + period <= now;
        // Mostly none has left since the last call, or one.
        match (self.entries.front(), self.entries.get(1)) {
            (Some(oldest), _) if !has_left(oldest) => 0,
            (Some(_), Some(second)) if !has_left(second) => 1,
            _ => self.entries.partition_point(has_left),
        }
    }

    #[inline]
    fn sum_before(&self, at: usize) -> u64 {
        let before = at.checked_sub(1).and_then(|before| self.entries.get(before));
        let first = || self.entries.front().map_or(0, |entry| entry.sum - u64::from(entry.units));
        before.map_or_else(first, |entry| entry.sum)
    }

    /// Drops the entries that no policy counts any more once this one has decided.
    pub(super) fn drop_surplus(&mut self, now: Timestamp, request: Request<'_>) {
        self.drop_first(self.surplus(now, request));
    }

    /// Drops the oldest entries: mostly none, or one.
    #[inline]
    fn drop_first(&mut self, entries: usize) {
        match entries {
            0 => {}
            1 => drop(self.entries.pop_front()),
            _ => drop(self.entries.drain(..entries)),
        }
    }

    /// Returns the number of entries that no policy counts any more once this one has decided.
    fn surplus(&self, now: Timestamp, request: Request<'_>) -> usize {
        let own = periods(request);
        // Units have just become entries: others may count them.
        if self.kept.is_empty() {
            return 0;
        }
        // Mostly one policy decides.
        if own[0] == own[1] && self.kept.iter().all(|it| it.period == own[0]) {
            return self.expired(own[0], now);
        }
        // The last use may be a turn that lies ahead.
        let others = self.others(now, own).map(|it| (it.period, it.used.min(now)));
        let all = own.map(|period| (period, now)).into_iter().chain(others);
        all.map(|(period, used)| self.expired(period, used)).min().unwrap_or_default()
    }

    /// Returns the kept periods of other policies that count entries.
    fn others(&self, now: Timestamp, own: [Micros; 2]) -> impl Iterator<Item = &KeptPeriod> {
        let is_other = move |it: &&KeptPeriod| !own.contains(&it.period);
        self.kept.iter().filter(is_other).filter(move |it| !it.is_unused(self.last_turn, now))
    }

    /// Returns the time until an entry can be added, if the log has as many as it may and the call
    /// joins none of them. Another policy may make it shorter by a call of its own.
    pub(super) fn full_until(&self, now: Timestamp, request: Request<'_>) -> Option<Timestamp> {
        if self.entries.len() < MAX_ENTRIES {
            return None;
        }
        let surplus = self.surplus(now, request);
        let is_full = self.entries.len() - surplus >= MAX_ENTRIES;
        let joins = request.id.is_none() && self.joined(now, request).is_some();
        let oldest = self.entries.get(surplus).filter(|_| is_full && !joins)?.stamp;
        let own = periods(request);
        let counts = |it: &&KeptPeriod| oldest + it.period > it.used.min(now);
        let others = self.others(now, own).filter(counts);
        let uncounted = others.map(|it| it.counts_until(self.last_turn) + Micros::new(1));
        own.map(|period| oldest + period).into_iter().chain(uncounted).max()
    }

    /// Returns the newest entry with the units of a call that joins it.
    fn joined(&self, now: Timestamp, request: Request<'_>) -> Option<u32> {
        let newest = self.entries.back().filter(|newest| newest.id == NOBODY)?;
        let part = (request.policy.shortest_period().get() / PARTS).max(1);
        let is_near = newest.stamp.get() / part == now.get() / part;
        newest.units.checked_add(request.cost).filter(|_| is_near)
    }

    /// Keeps what the policies of a call that is decided for `at` count.
    pub(super) fn keep_for(&mut self, at: Timestamp, now: Timestamp, request: Request<'_>) {
        self.clamp_future(now);
        self.keep(periods(request), at, now);
        self.forget_line(now);
    }

    /// Keeps what a new policy of a call without units counts. Where all are known, the log stays
    /// as it is: the store may repeat the refusal without asking the log (`memory/refusal.rs`).
    pub(super) fn keep_new(&mut self, at: Timestamp, now: Timestamp, request: Request<'_>) {
        let is_known = |period: &Micros| self.kept.iter().any(|it| it.period == *period);
        if periods(request).iter().all(is_known) {
            self.clamp_future(now);
        } else {
            self.keep_for(at, now, request);
        }
    }

    /// Moves entries to now that a clock has left in the future when it stepped back.
    fn clamp_future(&mut self, now: Timestamp) {
        let latest = now.max(self.last_turn);
        for entry in self.entries.iter_mut().rev().take_while(|entry| entry.stamp > latest) {
            entry.stamp = latest;
        }
    }

    /// Keeps what a policy of this period counts, if there is nothing that another one counts.
    pub(super) fn keep_at_least(&mut self, now: Timestamp, period: Micros) {
        if self.kept.is_empty() && self.entries.is_empty() {
            self.keep([period; 2], now, now);
        }
    }

    /// Keeps what policies of these periods count.
    pub(super) fn keep(&mut self, own: [Micros; 2], at: Timestamp, now: Timestamp) {
        // Mostly one policy decides.
        if let [kept] = &mut self.kept[..]
            && own == [kept.period; 2]
        {
            kept.used = at;
            return;
        }
        let last_turn = self.last_turn;
        self.kept.retain(|it| !it.is_unused(last_turn, now) || own.contains(&it.period));
        for period in own {
            if let Some(kept) = self.kept.iter_mut().find(|it| it.period == period) {
                kept.used = at;
            } else {
                // One at a time, as `growth_of_kept` expects.
                self.kept.reserve_exact(1);
                self.kept.push(KeptPeriod { period, used: at });
            }
        }
        let is_other = |it: &KeptPeriod| !own.contains(&it.period);
        while self.kept.iter().filter(|it| is_other(it)).count() > MAX_OTHERS {
            let others = self.kept.iter().filter(|it| is_other(it));
            // By the period as well, so that memory and `log/state.lua` drop the same one.
            let dropped = others.min_by_key(|it| (it.used, it.period)).map(|it| it.period);
            self.kept.retain(|it| Some(it.period) != dropped);
        }
    }

    /// Adds the units of a call that is decided for `at`, and returns their mark.
    pub(super) fn add(
        &mut self,
        at: Timestamp,
        now: Timestamp,
        units: u32,
        request: Request<'_>,
    ) -> Charged {
        // In steps of two, because a charge's excess has the next number. 0 is `NOBODY`.
        self.last = self.last.wrapping_add(2).max(2);
        let id = self.last;
        // What lies ahead may be given back.
        let is_crowded = self.entries.len() >= CROWDED && request.id.is_none() && at <= now;
        match is_crowded.then(|| self.joined(at, request)).flatten() {
            Some(joined) => {
                if let Some(newest) = self.entries.back_mut() {
                    newest.sum += u64::from(units);
                    (newest.units, newest.stamp) = (joined, at);
                }
            }
            None => self.insert(at, units, if is_crowded { NOBODY } else { id }),
        }
        if let Some(name) = request.id {
            let oldest = self.entries.front().map(|entry| entry.stamp);
            let charge = NamedCharge { id: name, stamp: at, entry: id };
            self.named.remember(charge, oldest);
        }
        self.charged(id, is_crowded)
    }

    /// Adds an entry behind those of the same stamp.
    fn insert(&mut self, stamp: Timestamp, units: u32, id: u32) {
        if !self.has_spare() {
            // Exactly as many as `growth` has asked room for.
            self.entries.reserve_exact(self.entries.len().max(FIRST_ENTRIES));
        }
        let more = u64::from(units);
        if self.newest().is_none_or(|newest| newest <= stamp) {
            let sum = self.entries.back().map_or(0, |entry| entry.sum) + more;
            self.entries.push_back(CallEntry { stamp, sum, units, id });
            return;
        }
        // Others wait for their turns.
        let at = self.entries.partition_point(|entry| entry.stamp <= stamp);
        let sum = self.sum_before(at) + more;
        for later in self.entries.range_mut(at..) {
            later.sum += more;
        }
        self.entries.insert(at, CallEntry { stamp, sum, units, id });
    }

    /// Returns the charge with this request id.
    pub(super) fn named(&self, id: u64) -> Option<&NamedCharge> {
        self.named.get(id)
    }

    /// Forgets a request id, if it is the one of this charge.
    pub(super) fn forget(&mut self, id: Option<u64>, stamp: Timestamp) {
        if let Some(id) = id {
            self.named.forget(id, stamp);
        }
    }

    /// Returns the mark of a charge. If it has joined an entry, it has none of its own.
    pub(super) fn charged(&self, id: u32, is_joined: bool) -> Charged {
        Charged::Entry(EntryMark::new(id.into(), self.generation.number(), is_joined))
    }

    /// Returns `true` if turns may have moved to later times.
    pub(super) fn was_paused(&self) -> bool {
        self.pause > Timestamp::default()
    }

    #[inline]
    pub(super) fn longest_kept(&self) -> Micros {
        self.kept.iter().map(|it| it.period).max().unwrap_or_default()
    }
}
