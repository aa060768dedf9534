//! What a state other than a log holds: an entry for each tier, also for those of other policies
//! that decide on the same key.

use smallvec::SmallVec;

use super::{packed::Generation, state::NeedsRoom};
use crate::{
    policy::{Policy, Tier},
    rules::MAX_TIERS,
    store::{Outcome, Refund, Request},
};

/// As many entries of other policies are kept; the ones decided by longest ago go.
const OTHERS: usize = 8;

/// The count of one tier.
pub(super) trait Entry: Copy {
    /// The entry, and when it was last written, in as few bytes as an [`Alone`] has room for.
    type Packed: Copy;
    const NONE: Self::Packed;

    /// None of what was never written.
    fn unpack(packed: Self::Packed) -> Option<(u64, Self)>;

    fn pack(self, last: u64) -> Self::Packed;

    /// Without a unit in it.
    fn new(policy: &Policy, tier: Tier, now: u64) -> Self;

    /// Whether both count the same.
    fn is_same(&self, other: &Self) -> bool;

    /// Counts at least what the others, last written then, know of the units that it would have
    /// counted, and counts since `now`.
    fn carried(self, others: &[Self], last: u64, now: u64) -> Self;

    fn decide(held: &mut Held<Self>, now: u64, request: Request<'_>, looks: bool) -> Verdict;

    /// Gives back units that were taken then, if this entry, last written at `last`, counts them.
    fn refund(&mut self, last: u64, cost: u32, at: u64);
}

/// An answer, and whether what is held now has to be written.
pub(super) struct Verdict {
    pub(super) outcome: Outcome,
    pub(super) is_written: bool,
}

/// The memory of so many entries.
fn heap_bytes<E>(count: usize) -> usize {
    size_of::<Several<E>>() + count * size_of::<E>()
}

/// What a state holds, as a decision reads and changes it.
pub(super) struct Held<E> {
    pub(super) generation: Generation,
    /// When it was last written.
    pub(super) last: u64,
    pub(super) entries: SmallVec<[E; MAX_TIERS]>,
}

/// A state of one tier, as most are.
pub(super) struct Alone<E: Entry> {
    generation: Generation,
    packed: E::Packed,
}

/// What takes the place of an [`Alone`], if anything does.
type Next<E> = Option<Box<Several<E>>>;

pub(super) struct Several<E> {
    generation: Generation,
    last: u64,
    entries: Vec<E>,
}

impl<E: Entry> Alone<E> {
    pub(super) fn new() -> Self {
        Self { generation: Generation::next(), packed: E::NONE }
    }

    /// The answer, and what takes this state's place if it is one of several entries from now on,
    /// which needs `room`.
    #[inline]
    pub(super) fn decide(
        &mut self,
        now: u64,
        request: Request<'_>,
        looks: bool,
        room: usize,
    ) -> Result<(Outcome, Next<E>), NeedsRoom> {
        let mut held = self.held();
        let Verdict { outcome, is_written } = E::decide(&mut held, now, request, looks);
        if !is_written {
            return Ok((outcome, None));
        }
        Ok((outcome, self.put(&held, room)?))
    }

    pub(super) fn refund(&mut self, refund: Refund<'_>) {
        let mut held = self.held();
        held.refund(refund);
        if let [entry] = held.entries[..] {
            self.packed = entry.pack(held.last);
        }
    }

    #[inline]
    fn held(&self) -> Held<E> {
        let mut held = Held { generation: self.generation, last: 0, entries: SmallVec::new() };
        if let Some((last, entry)) = E::unpack(self.packed) {
            held.last = last;
            held.entries.push(entry);
        }
        held
    }

    /// Writes what is held, if it is one entry; otherwise it is several.
    #[inline]
    fn put(&mut self, held: &Held<E>, room: usize) -> Result<Next<E>, NeedsRoom> {
        if let [entry] = held.entries[..] {
            *self = Self { generation: held.generation, packed: entry.pack(held.last) };
            return Ok(None);
        }
        NeedsRoom::unless_fits(heap_bytes::<E>(held.entries.len()), room)?;
        Ok(Some(Box::new(held.several())))
    }
}

impl<E: Entry> Several<E> {
    pub(super) fn decide(
        &mut self,
        now: u64,
        request: Request<'_>,
        looks: bool,
        room: usize,
    ) -> Result<Outcome, NeedsRoom> {
        let mut held = self.held();
        let Verdict { outcome, is_written } = E::decide(&mut held, now, request, looks);
        if is_written {
            let more = held.entries.len().saturating_sub(self.entries.capacity());
            NeedsRoom::unless_fits(more * size_of::<E>(), room)?;
            self.put(&held);
        }
        Ok(outcome)
    }

    /// The memory that it has on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        heap_bytes::<E>(self.entries.capacity())
    }

    pub(super) fn refund(&mut self, refund: Refund<'_>) {
        let mut held = self.held();
        held.refund(refund);
        self.put(&held);
    }

    fn held(&self) -> Held<E> {
        let entries = SmallVec::from_slice(&self.entries);
        Held { generation: self.generation, last: self.last, entries }
    }

    fn put(&mut self, held: &Held<E>) {
        (self.generation, self.last) = (held.generation, held.last);
        self.entries.clear();
        self.entries.reserve_exact(held.entries.len());
        self.entries.extend_from_slice(&held.entries);
    }
}

impl<E: Entry> Held<E> {
    fn several(&self) -> Several<E> {
        let Self { generation, last, ref entries } = *self;
        Several { generation, last, entries: entries.to_vec() }
    }

    /// Gives back what a call took, unless the state has begun anew since.
    fn refund(&mut self, refund: Refund<'_>) {
        let Refund { cost, mark, .. } = refund;
        if self.generation.number() == mark.of {
            for entry in &mut self.entries {
                entry.refund(self.last, cost, mark.at);
            }
        }
    }

    /// Brings the entries of the policy's tiers to the front, in their order; those of another that
    /// is written in the source come next. Whether any was not there: a policy is known from its
    /// first call on, also if that is refused.
    #[inline]
    pub(super) fn arrange(&mut self, now: u64, request: Request<'_>) -> bool {
        let Request { policy, written, .. } = request;
        let tiers = policy.tiers();
        let is_in_place = |(tier, entry): (&Tier, &E)| entry.is_same(&E::new(policy, *tier, now));
        let are_in_place = std::ptr::eq(policy, written)
            && self.entries.len() >= tiers.len()
            && tiers.iter().zip(&self.entries).all(is_in_place);
        !are_in_place && self.rearrange(now, request)
    }

    #[cold]
    fn rearrange(&mut self, now: u64, request: Request<'_>) -> bool {
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
                let carried =
                    || if held.is_empty() { new } else { new.carried(&held, self.last, now) };
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
