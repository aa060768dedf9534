//! What a state other than a log holds: an entry for each tier, also for those of other policies
//! that decide on the same key.

use ratelimit_core::MAX_TIERS;
use smallvec::SmallVec;

use super::{NeedsRoom, packed::Generation};
use crate::{
    policy::{Policy, Tier},
    request::{Detail, Op, Outcome, Refund, Request},
    time::Timestamp,
};

/// As many entries of other policies are kept; the ones decided by longest ago go.
const OTHERS: usize = 8;

/// The count of one tier.
pub(crate) trait Entry: Copy {
    /// The entry, and when it was last written, in as few bytes as an [`Alone`] has room for.
    type Packed: Copy;
    const NONE: Self::Packed;

    /// None of what was never written.
    fn unpack(packed: Self::Packed) -> Option<(Timestamp, Self)>;

    fn pack(self, last: Timestamp) -> Self::Packed;

    /// Without a unit in it.
    fn new(policy: &Policy, tier: Tier, now: Timestamp) -> Self;

    /// Whether both count the same.
    fn is_same(&self, other: &Self) -> bool;

    /// Counts at least what the others, last written then, know of the units that it would have
    /// counted, and counts since `now`.
    fn carried(self, others: &[Self], last: Timestamp, now: Timestamp) -> Self;

    /// Makes the entries what they are now; whether the clock had stepped back behind them.
    fn see(moment: &mut Moment, entries: &mut [Self], now: Timestamp) -> bool;

    /// Decides by the entries of the policy's tiers, and counts in the others as well.
    fn judge(
        moment: &mut Moment,
        entries: (&mut [Self], &mut [Self]),
        now: Timestamp,
        request: Request<'_>,
        detail: Detail,
    ) -> Verdict;

    /// Gives back units that were taken then, if this entry, last written at `last`, counts them.
    fn refund(&mut self, last: Timestamp, cost: u32, at: Timestamp);
}

/// An answer, and whether it changes what is held.
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) is_taken: bool,
}

/// What all entries of a state have in common.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) generation: Generation,
    /// When the state was last written.
    pub(crate) last: Timestamp,
}

/// The memory of so many entries.
fn heap_bytes<E>(count: usize) -> usize {
    size_of::<Several<E>>() + count * size_of::<E>()
}

/// What a state holds, as a decision reads and changes it.
struct Held<E> {
    moment: Moment,
    entries: SmallVec<[E; MAX_TIERS]>,
}

/// What takes the place of an [`Alone`], if anything does.
type Next<E> = Option<Box<Several<E>>>;

/// A state of one tier, as most are.
pub(crate) struct Alone<E: Entry> {
    generation: Generation,
    packed: E::Packed,
}

pub(crate) struct Several<E> {
    moment: Moment,
    entries: Vec<E>,
}

impl<E: Entry> Alone<E> {
    pub(crate) fn new() -> Self {
        Self { generation: Generation::next(), packed: E::NONE }
    }

    /// Decides a call of the policy that has written the state, and of no other.
    #[inline(never)]
    pub(crate) fn decide(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        detail: Detail,
    ) -> Option<Outcome> {
        let Request { policy, written, op, .. } = request;
        let (last, entry) = E::unpack(self.packed)?;
        let [tier] = policy.tiers() else { return None };
        if !std::ptr::eq(policy, written) || !entry.is_same(&E::new(policy, *tier, now)) {
            return None;
        }
        let (mut moment, mut own) = (Moment { generation: self.generation, last }, [entry]);
        let ahead = E::see(&mut moment, &mut own, now);
        let verdict = E::judge(&mut moment, (&mut own, &mut []), now, request, detail);
        if op == Op::Take && (verdict.is_taken || ahead) {
            let [entry] = own;
            *self = Self { generation: moment.generation, packed: entry.pack(moment.last) };
        }
        Some(verdict.outcome)
    }

    /// Decides any other call. What takes this state's place, if it is one of several entries from
    /// now on, needs `room`.
    #[cold]
    pub(crate) fn decide_anew(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        detail: Detail,
        room: usize,
    ) -> Result<(Outcome, Next<E>), NeedsRoom> {
        let mut held = self.held();
        let (outcome, is_written) = held.decide(now, request, detail);
        if !is_written {
            return Ok((outcome, None));
        }
        if let [entry] = held.entries[..] {
            let Moment { generation, last } = held.moment;
            *self = Self { generation, packed: entry.pack(last) };
            return Ok((outcome, None));
        }
        NeedsRoom::unless_fits(heap_bytes::<E>(held.entries.len()), room)?;
        Ok((outcome, Some(Box::new(held.several()))))
    }

    pub(crate) fn refund(&mut self, refund: Refund<'_>) {
        let mut held = self.held();
        held.refund(refund);
        if let [entry] = held.entries[..] {
            self.packed = entry.pack(held.moment.last);
        }
    }

    fn held(&self) -> Held<E> {
        let moment = Moment { generation: self.generation, last: Timestamp::default() };
        let mut held = Held { moment, entries: SmallVec::new() };
        if let Some((last, entry)) = E::unpack(self.packed) {
            held.moment.last = last;
            held.entries.push(entry);
        }
        held
    }
}

impl<E: Entry> Several<E> {
    pub(crate) fn decide(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        detail: Detail,
        room: usize,
    ) -> Result<Outcome, NeedsRoom> {
        let mut held = self.held();
        let (outcome, is_written) = held.decide(now, request, detail);
        if is_written {
            let more = held.entries.len().saturating_sub(self.entries.capacity());
            NeedsRoom::unless_fits(more * size_of::<E>(), room)?;
            self.put(&held);
        }
        Ok(outcome)
    }

    /// The memory that it has on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        heap_bytes::<E>(self.entries.capacity())
    }

    pub(crate) fn refund(&mut self, refund: Refund<'_>) {
        let mut held = self.held();
        held.refund(refund);
        self.put(&held);
    }

    fn held(&self) -> Held<E> {
        Held { moment: self.moment, entries: SmallVec::from_slice(&self.entries) }
    }

    fn put(&mut self, held: &Held<E>) {
        self.moment = held.moment;
        self.entries.clear();
        self.entries.reserve_exact(held.entries.len());
        self.entries.extend_from_slice(&held.entries);
    }
}

impl<E: Entry> Held<E> {
    fn several(&self) -> Several<E> {
        Several { moment: self.moment, entries: self.entries.to_vec() }
    }

    /// The answer, and whether what is held now has to be written.
    fn decide(&mut self, now: Timestamp, request: Request<'_>, detail: Detail) -> (Outcome, bool) {
        let ahead = E::see(&mut self.moment, &mut self.entries, now);
        let is_new = self.arrange(now, request);
        let entries = self.entries.split_at_mut(request.policy.tiers().len());
        let verdict = E::judge(&mut self.moment, entries, now, request, detail);
        (verdict.outcome, request.op == Op::Take && (verdict.is_taken || ahead || is_new))
    }

    /// Gives back what a call took, unless the state has begun anew since.
    fn refund(&mut self, refund: Refund<'_>) {
        let Refund { cost, mark, .. } = refund;
        if self.moment.generation.charged() == mark.charged {
            for entry in &mut self.entries {
                entry.refund(self.moment.last, cost, mark.at);
            }
        }
    }

    /// Brings the entries of the policy's tiers to the front, in their order; those of another that
    /// is written in the source come next. Whether any was not there: a policy is known from its
    /// first call on, also if that is refused.
    #[inline]
    fn arrange(&mut self, now: Timestamp, request: Request<'_>) -> bool {
        let Request { policy, written, .. } = request;
        let tiers = policy.tiers();
        let is_in_place = |(tier, entry): (&Tier, &E)| entry.is_same(&E::new(policy, *tier, now));
        let are_in_place = std::ptr::eq(policy, written)
            && self.entries.len() >= tiers.len()
            && tiers.iter().zip(&self.entries).all(is_in_place);
        !are_in_place && self.rearrange(now, request)
    }

    #[cold]
    fn rearrange(&mut self, now: Timestamp, request: Request<'_>) -> bool {
        let Request { policy, written, .. } = request;
        let held = std::mem::take(&mut self.entries);
        let mut is_new = false;
        let tiers = |policy: &Policy| {
            let policy = *policy;
            policy.tiers().iter().map(move |tier| E::new(&policy, *tier, now)).collect::<Vec<_>>()
        };
        for new in tiers(policy).into_iter().chain(tiers(written)) {
            if !self.entries.iter().any(|entry| entry.is_same(&new)) {
                let known = held.iter().find(|entry| entry.is_same(&new)).copied();
                let carried = || {
                    if held.is_empty() { new } else { new.carried(&held, self.moment.last, now) }
                };
                is_new |= known.is_none();
                self.entries.push(known.unwrap_or_else(carried));
            }
        }
        let most = policy.tiers().len() + OTHERS;
        for entry in &held {
            let is_new = !self.entries.iter().any(|it| it.is_same(entry));
            if is_new && self.entries.len() < most {
                self.entries.push(*entry);
            }
        }
        is_new
    }
}
