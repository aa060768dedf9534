//! The memory of entries, and the bytes by which a call makes them grow.

use super::{
    super::request_ids, CallEntries, CallEntry, FIRST_ENTRIES, KeptPeriod, MOST_KEPT_AT_FIRST,
    periods,
};
use crate::request::Request;

impl CallEntries {
    /// Returns the number of entries for which units that become entries, and the call that makes
    /// them, allocate.
    pub(super) fn room_for(units: usize) -> usize {
        (units + 1).max(FIRST_ENTRIES)
    }

    /// Returns the bytes of a log, at most, of which so many units become entries for a call.
    pub(in super::super) fn bytes_of_units(units: usize, request: Request<'_>) -> usize {
        let names = if request.id.is_some() { request_ids::FIRST_BYTES } else { 0 };
        Self::bytes(Self::room_for(units), MOST_KEPT_AT_FIRST) + names
    }

    pub(in super::super) fn has_spare(&self) -> bool {
        self.entries.len() < self.entries.capacity()
    }

    /// Returns the memory of entries with room for this much, without that of request ids.
    fn bytes(entries: usize, kept: usize) -> usize {
        size_of::<Self>() + entries * size_of::<CallEntry>() + kept * size_of::<KeptPeriod>()
    }

    pub(in super::super) fn heap_bytes(&self) -> usize {
        let kept = if self.kept.spilled() { self.kept.capacity() } else { 0 };
        Self::bytes(self.entries.capacity(), kept) + self.named.heap_bytes()
    }

    /// Returns the bytes by which the heap grows if one more entry and request id are added.
    pub(in super::super) fn growth(&self, request: Request<'_>) -> usize {
        let entries = if self.has_spare() { 0 } else { self.entries.len().max(FIRST_ENTRIES) };
        let ids = if request.id.is_some() { self.named.growth() } else { 0 };
        entries * size_of::<CallEntry>() + ids
    }

    /// Returns the bytes by which the heap grows at most if the policies of a call are kept.
    #[inline]
    pub(in super::super) fn growth_of_kept(&self, request: Request<'_>) -> usize {
        let [period, written] = periods(request);
        // Mostly one policy decides.
        if matches!(self.kept[..], [kept] if [kept.period; 2] == [period, written]) {
            return 0;
        }
        let is_new = |period| !self.kept.iter().any(|it| it.period == period);
        let new = usize::from(is_new(period)) + usize::from(written != period && is_new(written));
        let (needed, room) = (self.kept.len() + new, self.kept.capacity());
        let held = if self.kept.spilled() { room } else { 0 };
        if needed > room { (needed - held) * size_of::<KeptPeriod>() } else { 0 }
    }
}
