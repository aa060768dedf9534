//! The state of the algorithms that count: one count for each tier, also for the tiers of other
//! policies under the same key.

use ratelimit_core::MAX_TIERS;
use smallvec::SmallVec;

use super::packed::Generation;
use crate::{
    policy::{Policy, Tier},
    request::{Op, Outcome, Request, Settle},
    time::{Micros, Timestamp},
};

/// The maximum number of kept counts of other policies. Those that decided longest ago are dropped
/// first.
const MAX_OTHERS: usize = 8;

/// The count of one tier.
pub(crate) trait Count: Copy {
    /// The count and the time of its last write, in at most 28 bytes.
    type Packed: Copy;
    const EMPTY: Self::Packed;

    /// Returns the count and the time of its last write, or `None` if it was never written.
    fn unpack(packed: Self::Packed) -> Option<(Timestamp, Self)>;

    fn pack(self, written: Timestamp) -> Self::Packed;

    /// Returns a count without a unit in it.
    fn new(policy: &Policy, tier: Tier, now: Timestamp) -> Self;

    /// Returns `true` if both count the same units.
    fn is_same(&self, other: &Self) -> bool;

    /// Returns this new count with the units that the other counts record for its period, rounded
    /// up. It counts calls itself from `now` on.
    fn carried(self, others: &[Self], written: Timestamp, now: Timestamp) -> Self;

    /// Moves the counts to `now`. Returns `true` if the clock had stepped back behind them.
    fn advance(header: &mut Header, counts: &mut [Self], now: Timestamp) -> bool;

    /// Decides by the counts of the policy's tiers, and counts in the others as well. Returns
    /// `true` beside the outcome if a count has changed.
    fn decide(
        header: &mut Header,
        counts: (&mut [Self], &mut [Self]),
        now: Timestamp,
        request: Request<'_>,
    ) -> (Outcome, bool);

    /// Removes this many units that were taken at `at`, if this count, last written at `written`,
    /// still contains them. A window keeps at least so many of those that it has.
    fn lower(&mut self, written: Timestamp, units: u32, at: Timestamp, least: u32);

    /// Adds units beyond what a call was admitted with, whatever room there is.
    fn raise(&mut self, units: u32);

    /// Returns the time until the count is as if it had never counted.
    fn lasts(&self, now: Timestamp) -> Micros;
}

/// The fields that all counts of a state share.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) generation: Generation,
    /// The time of the last write.
    pub(crate) written: Timestamp,
}

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
    generation: Generation,
    written: Timestamp,
    counts: Vec<C>,
}

/// A copy of a state on which a decision works.
struct Working<C> {
    header: Header,
    counts: SmallVec<[C; MAX_TIERS]>,
}

/// The successor of a [`OneTier`] that has to count for several tiers.
type Successor<C> = Option<Box<ManyTiers<C>>>;

/// The heap memory of a state of this many counts.
fn heap_bytes<C>(counts: usize) -> usize {
    size_of::<ManyTiers<C>>() + counts * size_of::<C>()
}

impl<C: Count> OneTier<C> {
    pub(crate) fn new() -> Self {
        Self { generation: Generation::next(), packed: C::EMPTY }
    }

    /// Decides a call. The state is replaced if the call's policy needs more counts.
    #[inline]
    pub(crate) fn decide(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
    ) -> (Outcome, Successor<C>) {
        let Some((mut header, count)) = self.count_of(now, request) else {
            return self.decide_other(now, request);
        };
        let mut own = [count];
        let ahead = C::advance(&mut header, &mut own, now);
        let (outcome, is_changed) = C::decide(&mut header, (&mut own, &mut []), now, request);
        if request.op == Op::Take && (is_changed || ahead) {
            let [count] = own;
            *self = Self { generation: header.generation, packed: count.pack(header.written) };
        }
        (outcome, None)
    }

    /// Decides the first call, or one whose policy this state does not count for yet.
    #[cold]
    fn decide_other(&mut self, now: Timestamp, request: Request<'_>) -> (Outcome, Successor<C>) {
        let mut working = self.working();
        let (outcome, is_changed) = working.decide(now, request);
        if !is_changed {
            return (outcome, None);
        }
        if let [count] = working.counts[..] {
            let Header { generation, written } = working.header;
            *self = Self { generation, packed: count.pack(written) };
            return (outcome, None);
        }
        (outcome, Some(Box::new(working.into_many())))
    }

    /// Returns the bytes by which the heap grows if the call is decided now.
    #[inline]
    pub(crate) fn growth(&self, now: Timestamp, request: Request<'_>) -> usize {
        match request.op {
            Op::Take if self.count_of(now, request).is_none() => self.growth_of_other(now, request),
            Op::Take | Op::Peek => 0,
        }
    }

    #[cold]
    fn growth_of_other(&self, now: Timestamp, request: Request<'_>) -> usize {
        let mut working = self.working();
        working.align(now, request);
        match working.counts.len() {
            1 => 0,
            counts => heap_bytes::<C>(counts),
        }
    }

    #[inline]
    pub(crate) fn settle(&mut self, now: Timestamp, settle: Settle) -> Micros {
        let mut working = self.working();
        let lasts = working.settle(now, settle, 0);
        if let [count] = working.counts[..] {
            let Header { generation, written } = working.header;
            *self = Self { generation, packed: count.pack(written) };
        }
        lasts.unwrap_or_default()
    }

    pub(super) fn to_many(&self) -> ManyTiers<C> {
        self.working().into_many()
    }

    /// Returns the count if it is the one of the call's policy, and no override decides.
    #[inline]
    fn count_of(&self, now: Timestamp, request: Request<'_>) -> Option<(Header, C)> {
        let Request { policy, written: in_source, .. } = request;
        let (written, count) = C::unpack(self.packed)?;
        let [tier] = policy.tiers() else { return None };
        let is_own = std::ptr::eq(policy, in_source) && count.is_same(&C::new(policy, *tier, now));
        is_own.then_some((Header { generation: self.generation, written }, count))
    }

    fn working(&self) -> Working<C> {
        let header = Header { generation: self.generation, written: Timestamp::default() };
        let mut working = Working { header, counts: SmallVec::new() };
        if let Some((written, count)) = C::unpack(self.packed) {
            working.header.written = written;
            working.counts.push(count);
        }
        working
    }
}

impl<C: Count> ManyTiers<C> {
    pub(crate) fn decide(&mut self, now: Timestamp, request: Request<'_>) -> Outcome {
        let mut working = self.working();
        let (outcome, is_changed) = working.decide(now, request);
        if is_changed {
            self.store(&working);
        }
        outcome
    }

    /// Returns the bytes by which the heap grows if the call is decided now.
    pub(crate) fn growth(&self, now: Timestamp, request: Request<'_>) -> usize {
        if request.op == Op::Peek || is_aligned(&self.counts, now, request) {
            return 0;
        }
        self.growth_to(self.len_after(now, request))
    }

    /// Returns the bytes by which the heap grows if the state has this many counts.
    pub(super) fn growth_to(&self, counts: usize) -> usize {
        counts.saturating_sub(self.counts.capacity()) * size_of::<C>()
    }

    /// Returns `true` if the state has the counts of the call's policy.
    pub(super) fn has_counts(&self, now: Timestamp, request: Request<'_>) -> bool {
        !self.working().align(now, request)
    }

    /// Returns the number of counts after a decision of this call.
    pub(super) fn len_after(&self, now: Timestamp, request: Request<'_>) -> usize {
        let mut working = self.working();
        working.align(now, request);
        working.counts.len()
    }

    /// Returns the memory on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        heap_bytes::<C>(self.counts.capacity())
    }

    /// Changes the units of a call. Returns the time for which the state then counts, if that is longer
    /// than before; nothing if the state has not changed. A window keeps at least so many of its units.
    pub(crate) fn settle(&mut self, now: Timestamp, settle: Settle, least: u32) -> Option<Micros> {
        let mut working = self.working();
        let lasts = working.settle(now, settle, least)?;
        self.store(&working);
        Some(lasts)
    }

    /// Returns the outcome that the call would have.
    pub(super) fn peek(&self, now: Timestamp, request: Request<'_>) -> Outcome {
        self.working().decide(now, request).0
    }

    /// Adds the units of a turn at this time, whatever room there is. If that renews the state, its
    /// generation is the one that the call was told.
    pub(super) fn add_turn(&mut self, at: Timestamp, units: u32, told: Generation) {
        let mut header = Header { generation: self.generation, written: self.written };
        raise(&mut header, &mut self.counts, at, units);
        self.written = header.written;
        if header.generation != self.generation {
            self.generation = told;
        }
    }

    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the time until no count has a unit.
    pub(super) fn lasts(&self, at: Timestamp) -> Micros {
        lasts(&self.counts, at)
    }

    /// Returns the number of counts.
    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Returns the same state without heap memory, if it has at most one count.
    pub(super) fn to_one(&self) -> Option<OneTier<C>> {
        let packed = match self.counts[..] {
            [] => C::EMPTY,
            [count] => count.pack(self.written),
            _ => return None,
        };
        Some(OneTier { generation: self.generation, packed })
    }

    fn working(&self) -> Working<C> {
        let header = Header { generation: self.generation, written: self.written };
        Working { header, counts: SmallVec::from_slice(&self.counts) }
    }

    fn store(&mut self, working: &Working<C>) {
        Header { generation: self.generation, written: self.written } = working.header;
        self.counts.clear();
        self.counts.reserve_exact(working.counts.len());
        self.counts.extend_from_slice(&working.counts);
    }
}

impl<C: Count> Working<C> {
    fn into_many(self) -> ManyTiers<C> {
        let Header { generation, written } = self.header;
        ManyTiers { generation, written, counts: self.counts.to_vec() }
    }

    /// Returns the outcome, and `true` if the state has to be written.
    fn decide(&mut self, now: Timestamp, request: Request<'_>) -> (Outcome, bool) {
        let ahead = C::advance(&mut self.header, &mut self.counts, now);
        let is_new = self.align(now, request);
        let counts = self.counts.split_at_mut(request.policy.tiers().len());
        let (outcome, is_changed) = C::decide(&mut self.header, counts, now, request);
        (outcome, request.op == Op::Take && (is_changed || ahead || is_new))
    }

    /// Changes the units of a call, unless the state was emptied since. Returns the time for which
    /// the state then counts, if that is longer than before; nothing if the state has not changed.
    fn settle(&mut self, now: Timestamp, settle: Settle, least: u32) -> Option<Micros> {
        let (mark, raised) = (settle.mark, settle.raised());
        let is_same = self.header.generation.charged() == mark.charged;
        if raised == 0 {
            for count in self.counts.iter_mut().filter(|_| is_same) {
                count.lower(self.header.written, settle.lowered(), mark.at, least);
            }
            return is_same.then_some(Micros::ZERO);
        }
        // What exceeds a charge counts from now on, also in the successor of a state that expired.
        if !is_same && now < settle.ends() {
            return None;
        }
        raise(&mut self.header, &mut self.counts, now, raised);
        Some(lasts(&self.counts, now))
    }

    /// Moves the counts of the policy's tiers to the front, in their order. If an override decides,
    /// those of the policy in the source follow. Returns `true` if any of them is new: a policy
    /// counts from its first call on, also if that is refused.
    #[inline]
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

/// Adds units at this time, whatever room there is.
fn raise<C: Count>(header: &mut Header, counts: &mut [C], at: Timestamp, units: u32) {
    C::advance(header, counts, at);
    header.written = at;
    for count in counts {
        count.raise(units);
    }
}

/// Returns the time until no count has a unit.
fn lasts<C: Count>(counts: &[C], now: Timestamp) -> Micros {
    counts.iter().map(|count| count.lasts(now)).max().unwrap_or_default()
}

/// Returns `true` if the first counts are those of the policy's tiers, and no override decides.
#[inline]
fn is_aligned<C: Count>(counts: &[C], now: Timestamp, request: Request<'_>) -> bool {
    let Request { policy, written: in_source, .. } = request;
    let tiers = policy.tiers();
    let is_of = |(tier, count): (&Tier, &C)| count.is_same(&C::new(policy, *tier, now));
    std::ptr::eq(policy, in_source)
        && counts.len() >= tiers.len()
        && tiers.iter().zip(counts).all(is_of)
}
