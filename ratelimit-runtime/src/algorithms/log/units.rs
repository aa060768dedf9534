//! The timestamps of a log: a ring, so that the oldest is dropped in constant time, and in place
//! while there are few.

mod straight;

use super::super::packed::{Generation, Short};
use crate::time::{Micros, Timestamp};

/// Timestamps in ascending order, oldest first; and two fields for which a log has no other room,
/// its generation and its capacity.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(crate) enum Timestamps {
    Inline {
        bounds: Bounds,
        capacity: u16,
        generation: Generation,
        buffer: [Timestamp; INLINE],
    },
    Heap {
        first: u32,
        count: u32,
        capacity: Short,
        generation: Generation,
        buffer: Box<[Timestamp]>,
    },
}

/// The first index in two bits, the count in two, and the bits of the capacity above the sixteenth.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct Bounds(u8);

/// The largest capacity: more than any threshold of a log, and a number of 20 bits.
const MAX_CAPACITY: usize = (1 << 20) - 1;

/// The number of timestamps that are stored without a heap buffer.
const INLINE: usize = 3;

impl Bounds {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an index below three, a count of at most three, and four bits of the capacity"
    )]
    #[inline]
    fn new(first: usize, count: usize, capacity: usize) -> Self {
        Self(first as u8 | (count as u8) << 2 | ((capacity >> 16) as u8) << 4)
    }

    fn first(self) -> usize {
        (self.0 & 3).into()
    }

    fn count(self) -> usize {
        (self.0 >> 2 & 3).into()
    }

    fn high_capacity(self) -> usize {
        usize::from(self.0 >> 4) << 16
    }
}

impl Default for Timestamps {
    fn default() -> Self {
        Self::new(Generation::next())
    }
}

/// The common view of both kinds.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    first: usize,
    count: usize,
    buffer: &'a [Timestamp],
}

impl<'a> Ring<'a> {
    pub(crate) fn len(self) -> usize {
        self.count
    }

    /// Returns the timestamp after this many older ones.
    #[inline]
    pub(crate) fn get(self, index: usize) -> Option<Timestamp> {
        (index < self.count).then(|| self.buffer[self.position(index)])
    }

    /// Returns the timestamp before this many newer ones.
    #[inline]
    pub(crate) fn newest(self, index: usize) -> Option<Timestamp> {
        self.count.checked_sub(index + 1).and_then(|index| self.get(index))
    }

    /// Returns the timestamps up to the end of the buffer, and those that go on at its start.
    pub(super) fn parts(self) -> [&'a [Timestamp]; 2] {
        let until_end = self.count.min(self.buffer.len() - self.first);
        [&self.buffer[self.first..self.first + until_end], &self.buffer[..self.count - until_end]]
    }

    /// Returns the number of timestamps before the first for which `is_before` is false.
    pub(crate) fn partition_point(self, is_before: impl Fn(&Timestamp) -> bool) -> usize {
        let [older, newer] = self.parts();
        match newer.first() {
            Some(stamp) if is_before(stamp) => older.len() + newer.partition_point(is_before),
            _ => older.partition_point(is_before),
        }
    }

    /// Returns the number of timestamps that have left a window of this length.
    pub(crate) fn expired(self, period: Micros, now: Timestamp) -> usize {
        let has_left = |stamp: &Timestamp| *stamp + period <= now;
        match (self.get(0), self.newest(0)) {
            // Mostly none of them has left, or all have.
            (Some(oldest), _) if !has_left(&oldest) => 0,
            (_, Some(newest)) if has_left(&newest) => self.len(),
            _ => self.partition_point(has_left),
        }
    }

    fn position(self, index: usize) -> usize {
        wrapped(self.first + index, self.buffer.len())
    }
}

/// Returns a position below twice the length as an index.
fn wrapped(position: usize, len: usize) -> usize {
    position.checked_sub(len).unwrap_or(position)
}

impl Timestamps {
    fn new(generation: Generation) -> Self {
        let buffer = [Timestamp::new(0); INLINE];
        Self::Inline { bounds: Bounds::new(0, 0, 0), capacity: 0, generation, buffer }
    }

    pub(crate) fn generation(&self) -> Generation {
        match self {
            Self::Inline { generation, .. } | Self::Heap { generation, .. } => *generation,
        }
    }

    /// Returns the number of timestamps that are kept: the largest that was ever set.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        match self {
            Self::Inline { bounds, capacity, .. } => {
                bounds.high_capacity() | usize::from(*capacity)
            }
            Self::Heap { capacity, .. } => capacity.get() as usize,
        }
    }

    #[inline]
    pub(crate) fn raise_capacity(&mut self, most: usize) {
        if most > self.capacity() {
            self.set_capacity(most);
        }
    }

    fn set_capacity(&mut self, most: usize) {
        // 100 000 is the largest threshold of such a log.
        let most = most.min(MAX_CAPACITY);
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "the lower bits")]
            Self::Inline { bounds, capacity, .. } => {
                *bounds = Bounds::new(bounds.first(), bounds.count(), most);
                *capacity = most as u16;
            }
            Self::Heap { capacity, .. } => *capacity = short(most),
        }
    }

    #[inline]
    pub(crate) fn ring(&self) -> Ring<'_> {
        match self {
            Self::Inline { bounds, buffer, .. } => {
                Ring { first: bounds.first(), count: bounds.count(), buffer }
            }
            Self::Heap { first, count, buffer, .. } => {
                Ring { first: *first as usize, count: *count as usize, buffer }
            }
        }
    }

    /// Records the units of a decided call, none if it was refused.
    pub(super) fn record(&mut self, now: Timestamp, own: u32, capacity: usize) {
        // A clock that stepped back leaves units in the future. They count from now on instead.
        if self.ring().newest(0) > Some(now) {
            self.clamp_future(now);
        }
        if own == 0 {
            // A policy with a larger threshold counts from its first call on, also if that is
            // refused.
            self.raise_capacity(capacity);
        } else {
            self.add(now, own as usize, capacity);
        }
    }

    /// Removes one unit of this time, if there is one. Those of one instant are all alike.
    pub(super) fn remove_at(&mut self, stamp: Timestamp) {
        let end = self.ring().partition_point(|it| *it <= stamp);
        if end.checked_sub(1).and_then(|last| self.ring().get(last)) == Some(stamp) {
            self.remove(end - 1, end);
        }
    }

    /// Replaces every timestamp after `now` by `now`.
    pub(crate) fn clamp_future(&mut self, now: Timestamp) {
        let after = self.ring().partition_point(|stamp| *stamp <= now);
        for index in after..self.ring().count {
            self.set(index, now);
        }
    }

    /// Adds `now`, the latest, this many times. The newest `capacity` stay, or the present capacity
    /// if that is larger.
    pub(crate) fn add(&mut self, now: Timestamp, times: usize, capacity: usize) {
        let capacity = capacity.max(self.capacity());
        self.raise_capacity(capacity);
        let (ring, times) = (self.ring(), times.min(capacity));
        let surplus = (ring.count + times).saturating_sub(capacity);
        let (first, count) = (ring.position(surplus), ring.count - surplus);
        // Without the surplus first, so that the buffer grows no more than it has to.
        self.set_bounds(first, count);
        self.grow(times, capacity);
        for index in count..count + times {
            self.set(index, now);
        }
        // A buffer that has grown starts at 0, and no longer at `first`.
        self.set_bounds(self.ring().first, count + times);
    }

    /// Returns the bytes by which the heap grows if this many are added.
    #[inline]
    pub(crate) fn growth(&self, times: usize, capacity: usize) -> usize {
        let Ring { count, buffer, .. } = self.ring();
        let needed = (count + times).min(capacity);
        if needed <= buffer.len() {
            return 0;
        }
        size_of::<Timestamp>() * grown(buffer.len(), needed, capacity) - self.heap_bytes()
    }

    /// Returns the memory on the heap.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Heap { buffer, .. } => size_of_val::<[Timestamp]>(buffer),
        }
    }

    /// Removes those from `start` up to `end`, which is excluded.
    pub(crate) fn remove(&mut self, start: usize, end: usize) {
        let Ring { first, count, .. } = self.ring();
        for index in end..count {
            if let Some(stamp) = self.ring().get(index) {
                self.set(index - (end - start), stamp);
            }
        }
        self.set_bounds(first, count - (end - start));
    }

    /// Doubles the buffer as needed, but never beyond the capacity.
    fn grow(&mut self, times: usize, capacity: usize) {
        let ring = self.ring();
        let (needed, len) = (ring.count + times, ring.buffer.len());
        if needed <= len {
            return;
        }
        let len = grown(len, needed, capacity);
        let mut buffer = Vec::with_capacity(len);
        ring.parts().into_iter().for_each(|part| buffer.extend_from_slice(part));
        buffer.resize(len, Timestamp::new(0));
        *self = Self::Heap {
            first: 0,
            count: units(ring.count),
            capacity: short(self.capacity()),
            generation: self.generation(),
            buffer: buffer.into(),
        };
    }

    #[inline]
    fn set(&mut self, index: usize, stamp: Timestamp) {
        let position = self.ring().position(index);
        match self {
            Self::Inline { buffer, .. } => buffer[position] = stamp,
            Self::Heap { buffer, .. } => buffer[position] = stamp,
        }
    }

    #[inline]
    fn set_bounds(&mut self, first: usize, count: usize) {
        match self {
            Self::Inline { bounds, .. } => {
                *bounds = Bounds::new(first, count, bounds.high_capacity());
            }
            Self::Heap { first: at, count: of, .. } => (*at, *of) = (units(first), units(count)),
        }
    }
}

/// Returns the length of a buffer that was too short.
fn grown(len: usize, needed: usize, capacity: usize) -> usize {
    (len * 2).min(capacity).max(needed)
}

/// No log is longer than the largest threshold.
#[inline]
fn units(number: usize) -> u32 {
    u32::try_from(number).expect("a threshold is a u32")
}

fn short(number: usize) -> Short {
    Short::new(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn it_is_a_queue_of_the_newest() {
        let mut rng = fastrand::Rng::with_seed(7);
        for capacity in [1, 2, 3, 4, 5, 17] {
            let (mut stamps, mut queue) = (Timestamps::default(), VecDeque::new());
            for now in (1..2_000).map(Timestamp::new) {
                match rng.u8(..10) {
                    0 => {
                        let start = rng.usize(..=queue.len());
                        let end = rng.usize(start..=queue.len());
                        stamps.remove(start, end);
                        queue.drain(start..end);
                    }
                    1 => {
                        let latest = Timestamp::new(rng.u64(..=now.get()));
                        stamps.clamp_future(latest);
                        for stamp in &mut queue {
                            *stamp = latest.min(*stamp);
                        }
                    }
                    _ => {
                        let times = rng.usize(..=capacity + 1);
                        let heap_bytes = stamps.heap_bytes() + stamps.growth(times, capacity);
                        stamps.add(now, times, capacity);
                        assert_eq!(stamps.heap_bytes(), heap_bytes);
                        queue.extend(std::iter::repeat_n(now, times));
                        queue.drain(..queue.len().saturating_sub(capacity));
                    }
                }
                let kept: VecDeque<_> =
                    (0..stamps.ring().len()).filter_map(|index| stamps.ring().get(index)).collect();
                assert_eq!(kept, queue, "capacity {capacity}");
                let since = Timestamp::new(rng.u64(..=now.get()));
                let before = stamps.ring().partition_point(|stamp| *stamp < since);
                assert_eq!(before, queue.partition_point(|stamp| *stamp < since));
                assert!(stamps.ring().buffer.len() <= capacity.max(INLINE));
            }
        }
    }

    #[test]
    fn a_few_take_no_more_room_than_a_pointer_to_others() {
        assert_eq!(size_of::<Timestamps>(), 32);
    }
}
