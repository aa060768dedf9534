//! The state of the algorithms that count: one count for each tier, also for the tiers of other
//! policies under the same key.

mod count;

use std::slice;

use ratelimit_core::MAX_TIERS;
use smallvec::SmallVec;

pub(crate) use self::count::{Count, GivenBack};
use super::{
    AskForRoom,
    packed::{Generation, Header},
    summary::outcome_of,
};
use crate::{
    policy::{Policy, Tier},
    request::{Mark, Op, Outcome, Request, Settle},
    time::{Micros, Timestamp},
};

/// The maximum number of kept counts of other policies. Those that decided longest ago are dropped
/// first.
const MAX_OTHERS: usize = 8;

/// A state of at most one count, which needs no heap.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(crate) struct OneTier<C: Count> {
    pub(super) generation: Generation,
    pub(super) packed: C::Packed,
}

/// A state of several counts.
#[derive(Clone)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct ManyTiers<C> {
    header: Header,
    counts: Box<[C]>,
}

/// A copy of a state on which a decision works.
struct Working<C> {
    header: Header,
    counts: SmallVec<[C; MAX_TIERS]>,
}

impl<C: Count> OneTier<C> {
    pub(crate) fn new() -> Self {
        Self { generation: Generation::next(), packed: C::Packed::default() }
    }

    /// Decides a call. Returns what `several` makes of the counts that replace this one, if the
    /// call's policy needs several.
    pub(crate) fn decide<M>(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        several: impl FnOnce(ManyTiers<C>) -> M,
    ) -> (Outcome, Option<M>) {
        let mut working = self.working();
        let (outcome, is_changed) = working.decide(now, request);
        match Self::of(working.header, &working.counts) {
            _ if !is_changed => {}
            Some(one) => *self = one,
            None => return (outcome, Some(several(working.to_many()))),
        }
        (outcome, None)
    }

    pub(crate) fn settle(&mut self, now: Timestamp, settle: &Settle) -> Option<Micros> {
        let (mut header, mut count) = self.unpack()?;
        let counts = slice::from_mut(&mut count);
        let lasts = change(&mut header, counts, now, settle, 0)?;
        *self = Self::of(header, counts)?;
        Some(lasts)
    }

    /// Returns the time until the count is as if it had never counted.
    pub(super) fn lasts(&self, now: Timestamp) -> Micros {
        let Some((header, mut count)) = self.unpack() else { return Micros::ZERO };
        count.advance(header.written, now);
        count.lasts(now)
    }

    pub(super) fn to_many(&self) -> ManyTiers<C> {
        self.working().to_many()
    }

    /// Returns the state of these counts, if there is at most one.
    #[inline]
    fn of(header: Header, counts: &[C]) -> Option<Self> {
        let packed = match counts {
            [] => C::Packed::default(),
            [count] => count.pack(header.written),
            _ => return None,
        };
        Some(Self { generation: header.generation, packed })
    }

    /// Returns the count, unless it was never written.
    #[inline]
    fn unpack(&self) -> Option<(Header, C)> {
        let (written, count) = C::unpack(self.packed)?;
        Some((Header { generation: self.generation, written }, count))
    }

    fn working(&self) -> Working<C> {
        let empty = Header { generation: self.generation, written: Timestamp::default() };
        let (header, count) = self.unpack().unzip();
        Working { header: header.unwrap_or(empty), counts: count.into_iter().collect() }
    }
}

impl<C: Count> ManyTiers<C> {
    /// Decides a call: see [`State::decide`](super::State::decide).
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        room: AskForRoom<'_>,
    ) -> Option<Outcome> {
        let mut working = self.working();
        let (outcome, is_changed) = working.decide(now, request);
        if is_changed {
            let more = working.counts.len().saturating_sub(self.len());
            if !room(more * size_of::<C>()) {
                return None;
            }
            self.store(&working);
        }
        Some(outcome)
    }

    /// Returns `true` if the state has the counts of the call's policy.
    pub(super) fn has_counts(&self, now: Timestamp, request: Request<'_>) -> bool {
        !self.working().align(now, request)
    }

    /// Returns the memory on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val::<[C]>(&self.counts)
    }

    /// Changes the units of a call. Returns the time for which the state then counts, if that is
    /// longer than before; nothing if the state has not changed. A window keeps at least so many of
    /// its units.
    pub(crate) fn settle(&mut self, now: Timestamp, settle: &Settle, least: u32) -> Option<Micros> {
        change(&mut self.header, &mut self.counts, now, settle, least)
    }

    /// Returns the outcome that the call would have.
    pub(super) fn peek(&self, now: Timestamp, request: Request<'_>) -> Outcome {
        self.working().decide(now, request).0
    }

    /// Adds the units of a turn at this time, whatever room there is. If that renews the state, its
    /// generation is the one in the mark of the call.
    pub(super) fn add_turn(&mut self, at: Timestamp, units: u32, promised: Generation) {
        let before = self.generation();
        raise(&mut self.header, &mut self.counts, at, units);
        if self.generation() != before {
            self.header.generation = promised;
        }
    }

    pub(super) fn generation(&self) -> Generation {
        self.header.generation
    }

    /// Returns the time from `at` on until no count has a unit.
    pub(super) fn lasts(&self, at: Timestamp) -> Micros {
        let Working { mut header, mut counts } = self.working();
        advance(&mut header, &mut counts, at);
        lasts(&counts, at)
    }

    /// Returns the number of counts.
    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Returns the same state without heap memory, if it has at most one count.
    pub(super) fn to_one(&self) -> Option<OneTier<C>> {
        OneTier::of(self.header, &self.counts)
    }

    fn working(&self) -> Working<C> {
        Working { header: self.header, counts: SmallVec::from_slice(&self.counts) }
    }

    fn store(&mut self, working: &Working<C>) {
        if self.len() == working.counts.len() {
            self.header = working.header;
            self.counts.copy_from_slice(&working.counts);
        } else {
            *self = working.to_many();
        }
    }
}

impl<C: Count> Working<C> {
    fn to_many(&self) -> ManyTiers<C> {
        ManyTiers { header: self.header, counts: self.counts[..].into() }
    }

    /// Decides by the counts of the policy's tiers, and counts in the others as well. Returns the
    /// outcome, and `true` if the state has to be written.
    #[inline]
    fn decide(&mut self, now: Timestamp, request: Request<'_>) -> (Outcome, bool) {
        let Request { policy, cost, op, .. } = request;
        let is_ahead = advance(&mut self.header, &mut self.counts, now);
        let is_new = self.align(now, request);
        let tiers = policy.tiers();
        let (own, others) = self.counts.split_at_mut(tiers.len());
        own.iter_mut().zip(tiers).for_each(|(count, tier)| count.date(policy, tier, now));
        // A charge of the microsecond in which a count was added is not one that it has taken over.
        let at = own.iter().chain(&*others).map(C::since).fold(now, Timestamp::max);
        let kept = |tier: &Tier| C::kept(policy, tier);
        let needed = |tier: &Tier, units: u32| units.saturating_add(kept(tier));
        let has_room = |(count, tier): (&C, &Tier)| count.has_room(now, tier, needed(tier, cost));
        let admitted = cost == 0 || own.iter().zip(tiers).all(has_room);
        let takes = admitted || (C::COUNTS_REFUSED && policy.counts_rejected());
        if takes {
            // A refused call takes what its tiers still have: other counts record the most of that.
            let took = own.iter_mut().zip(tiers).map(|(count, tier)| count.take(tier, cost)).max();
            for count in &mut *others {
                count.follow(took.unwrap_or_default(), admitted.then_some(at));
            }
        }
        if takes || C::COUNTS_REFUSED {
            self.header.written = now;
        }
        let mark = Mark { at, charged: self.header.generation.charged() };
        let mut outcome = outcome_of(
            request,
            admitted,
            mark,
            |index, tier| {
                let left = own[index].left(now, tier).saturating_sub(kept(tier));
                (left, own[index].lasts(now))
            },
            |index, tier, units| own[index].until(now, tier, needed(tier, units)),
        );
        outcome.lasts = outcome.lasts.max(lasts(others, now));
        (outcome, op == Op::Take && (takes || is_ahead || is_new))
    }

    /// Moves the counts of the policy's tiers to the front, in their order. If an override decides,
    /// those of the policy in the source follow. Returns `true` if any of them is new: a policy
    /// counts from its first call on, also if that is refused.
    fn align(&mut self, now: Timestamp, request: Request<'_>) -> bool {
        !is_aligned(&self.counts, now, request) && self.realign(now, request)
    }

    #[cold]
    fn realign(&mut self, now: Timestamp, request: Request<'_>) -> bool {
        let Request { policy, written: in_source, .. } = request;
        let before = std::mem::take(&mut self.counts);
        let mut is_new = false;
        let counts_of = |policy: &Policy| {
            let policy = *policy;
            policy.tiers().iter().map(move |tier| C::new(&policy, *tier, now)).collect::<Vec<_>>()
        };
        for new in counts_of(policy).into_iter().chain(counts_of(in_source)) {
            if self.counts.iter().any(|count| count.is_same(&new)) {
                continue;
            }
            // A count that is there keeps its units. Only a new one takes over those of others.
            let known = before.iter().find(|count| count.is_same(&new)).copied();
            let carried = || match &before[..] {
                [] => new,
                others => new.carried(others, self.header.written, now),
            };
            is_new |= known.is_none();
            self.counts.push(known.unwrap_or_else(carried));
        }
        let most = policy.tiers().len() + MAX_OTHERS;
        for count in &before {
            let is_other = !self.counts.iter().any(|it| it.is_same(count));
            if is_other && self.counts.len() < most {
                self.counts.push(*count);
            }
        }
        is_new
    }
}

/// Moves the counts to `now`. Returns `true` if the clock had stepped back behind them.
#[inline]
fn advance<C: Count>(header: &mut Header, counts: &mut [C], now: Timestamp) -> bool {
    let mut is_ahead = false;
    for count in &mut *counts {
        is_ahead |= count.advance(header.written, now);
    }
    if C::are_renewed(counts) {
        header.generation = header.generation.renewed(now);
    }
    header.written = header.written.min(now);
    is_ahead
}

/// Changes the units of a call, unless the state was emptied since. Returns the time for which the
/// state then counts, if that is longer than before; nothing if the state has not changed.
#[inline]
fn change<C: Count>(
    header: &mut Header,
    counts: &mut [C],
    now: Timestamp,
    settle: &Settle,
    least: u32,
) -> Option<Micros> {
    let (mark, raised) = (settle.mark, settle.raised());
    let is_same = header.generation.charged() == mark.charged;
    if raised == 0 {
        if is_same {
            lower(
                header.written,
                counts,
                GivenBack { units: settle.lowered(), at: mark.at, least },
            );
        }
        return is_same.then_some(Micros::ZERO);
    }
    // What exceeds a charge counts from now on, also in the successor of a state that expired.
    if !is_same && now < settle.ends() {
        return None;
    }
    raise(header, counts, now, raised);
    Some(lasts(counts, now))
}

/// Gives units of a charge back to every count that contains them. A count has taken over no more
/// of an earlier charge than those that were there before.
#[inline]
fn lower<C: Count>(written: Timestamp, counts: &mut [C], charge: GivenBack) {
    // Mostly there is one, which needs no order.
    if let [count] = counts {
        count.lower(written, charge, charge.units);
        return;
    }
    // A count has taken over charges of the older ones, so that these limit what it gives back.
    let mut oldest_first: SmallVec<[&mut C; MAX_TIERS]> = counts.iter_mut().collect();
    oldest_first.sort_by_key(|count| count.since());
    let mut since = Timestamp::default();
    let (mut limit, mut least) = (charge.units, charge.units);
    for count in oldest_first {
        if count.since() > since {
            (since, limit) = (count.since(), least);
        }
        least = least.min(count.lower(written, charge, limit));
    }
}

/// Adds units at this time, whatever room there is.
fn raise<C: Count>(header: &mut Header, counts: &mut [C], at: Timestamp, units: u32) {
    advance(header, counts, at);
    header.written = at;
    for count in counts {
        count.raise(units);
    }
}

/// Returns the time until no count has a unit, of counts that have advanced to `now`.
fn lasts<C: Count>(counts: &[C], now: Timestamp) -> Micros {
    counts.iter().map(|count| count.lasts(now)).max().unwrap_or_default()
}

/// Returns `true` if the first counts are those of the policy's tiers, and no override decides.
#[inline]
fn is_aligned<C: Count>(counts: &[C], now: Timestamp, request: Request<'_>) -> bool {
    let Request { policy, written: in_source, .. } = request;
    let tiers = policy.tiers();
    let is_of = |(tier, count): (&Tier, &C)| count.is_same(&C::new(policy, *tier, now));
    // By address, which is cheap. An equal policy elsewhere comes to the same by `realign`.
    std::ptr::eq(policy, in_source)
        && counts.len() >= tiers.len()
        && tiers.iter().zip(counts).all(is_of)
}
