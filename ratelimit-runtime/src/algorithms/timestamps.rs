//! The times that a log holds: a ring, so that the oldest goes at no cost, and in place while they
//! are few.

use super::packed::{Generation, Short};
use crate::time::Timestamp;

/// Times in ascending order, oldest first; and what a log has no other room for: its generation, and
/// how many of the newest are kept.
pub(crate) enum Timestamps {
    Few {
        ring: Few,
        keep: u16,
        generation: Generation,
        places: [Timestamp; FEW],
    },
    Many {
        first: u32,
        count: u32,
        keep: Short<3>,
        generation: Generation,
        places: Box<[Timestamp]>,
    },
}

/// The first place in two bits, how many follow in two, and the bits of `keep` above the sixteenth.
#[derive(Clone, Copy)]
pub(crate) struct Few(u8);

/// More than any threshold of a log, and what has room.
const MOST_KEPT: usize = (1 << 20) - 1;

/// As many times take no more room than a pointer to others does.
const FEW: usize = 3;

impl Few {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are three places, and few bits above"
    )]
    fn new(first: usize, count: usize, keep: usize) -> Self {
        Self(first as u8 | (count as u8) << 2 | ((keep >> 16) as u8) << 4)
    }

    #[inline]
    fn first(self) -> usize {
        (self.0 & 3).into()
    }

    #[inline]
    fn count(self) -> usize {
        (self.0 >> 2 & 3).into()
    }
}

impl Default for Timestamps {
    fn default() -> Self {
        Self::new(Generation::next())
    }
}

/// What both kinds are.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    first: usize,
    count: usize,
    places: &'a [Timestamp],
}

impl Ring<'_> {
    pub(crate) fn len(self) -> usize {
        self.count
    }

    /// The time that so many others are older than.
    #[inline]
    pub(crate) fn get(self, index: usize) -> Option<Timestamp> {
        (index < self.count).then(|| self.places[self.place(index)])
    }

    /// The time that so many others are newer than.
    #[inline]
    pub(crate) fn newest(self, index: usize) -> Option<Timestamp> {
        self.count.checked_sub(index + 1).and_then(|index| self.get(index))
    }

    /// How many come before the first that `is_before` does not hold for.
    pub(crate) fn partition_point(self, is_before: impl Fn(&Timestamp) -> bool) -> usize {
        let until_end = self.count.min(self.places.len() - self.first);
        let older = &self.places[self.first..self.first + until_end];
        let newer = &self.places[..self.count - until_end];
        match newer.first() {
            Some(stamp) if is_before(stamp) => until_end + newer.partition_point(is_before),
            _ => older.partition_point(is_before),
        }
    }

    #[inline]
    fn place(self, index: usize) -> usize {
        let place = self.first + index;
        place.checked_sub(self.places.len()).unwrap_or(place)
    }
}

impl Timestamps {
    fn new(generation: Generation) -> Self {
        Self::Few { ring: Few::new(0, 0, 0), keep: 0, generation, places: [Timestamp::new(0); FEW] }
    }

    /// Takes the times out.
    pub(crate) fn take(&mut self) -> Self {
        let generation = self.generation();
        std::mem::replace(self, Self::new(generation))
    }

    pub(crate) fn generation(&self) -> Generation {
        match self {
            Self::Few { generation, .. } | Self::Many { generation, .. } => *generation,
        }
    }

    /// The most times that were to be kept so far.
    #[inline]
    pub(crate) fn keep(&self) -> usize {
        match self {
            Self::Few { ring, keep, .. } => usize::from(ring.0 >> 4) << 16 | usize::from(*keep),
            Self::Many { keep, .. } => usize::try_from(keep.get()).unwrap_or(MOST_KEPT),
        }
    }

    #[inline]
    pub(crate) fn keep_at_least(&mut self, most: usize) {
        if most > self.keep() {
            self.set_keep(most);
        }
    }

    fn set_keep(&mut self, most: usize) {
        // No log is to keep more: 100 000 is the largest threshold.
        let most = most.min(MOST_KEPT);
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "the lower bits")]
            Self::Few { ring, keep, .. } => {
                (*ring, *keep) = (Few::new(ring.first(), ring.count(), most), most as u16);
            }
            Self::Many { keep, .. } => *keep = Short::new(most as u64),
        }
    }

    #[inline]
    pub(crate) fn ring(&self) -> Ring<'_> {
        match self {
            Self::Few { ring, places, .. } => {
                Ring { first: ring.first(), count: ring.count(), places }
            }
            Self::Many { first, count, places, .. } => {
                Ring { first: *first as usize, count: *count as usize, places }
            }
        }
    }

    /// Makes `now` of every time after it.
    pub(crate) fn clamp(&mut self, now: Timestamp) {
        let after = self.ring().partition_point(|stamp| *stamp <= now);
        for index in after..self.ring().count {
            self.set(index, now);
        }
    }

    /// Adds `now`, the latest, so many times; only the newest `keep` stay, or as many as were to be
    /// kept before.
    pub(crate) fn add(&mut self, now: Timestamp, times: usize, keep: usize) {
        let keep = keep.max(self.keep());
        self.keep_at_least(keep);
        let (ring, times) = (self.ring(), times.min(keep));
        let surplus = (ring.count + times).saturating_sub(keep);
        let (first, held) = (ring.place(surplus), ring.count - surplus);
        self.turn_to(first, held);
        self.make_room(times, keep);
        for index in held..held + times {
            self.set(index, now);
        }
        self.turn_to(self.ring().first, held + times);
    }

    /// The bytes that it takes more on the heap to add so many, of which the newest `keep` stay.
    #[inline]
    pub(crate) fn growth(&self, times: usize, keep: usize) -> usize {
        let Ring { count, places, .. } = self.ring();
        let needed = (count + times).min(keep);
        if needed <= places.len() {
            return 0;
        }
        size_of::<Timestamp>() * grown(places.len(), needed, keep) - self.heap_bytes()
    }

    /// The memory that it has on the heap.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Few { .. } => 0,
            Self::Many { places, .. } => size_of_val::<[Timestamp]>(places),
        }
    }

    /// Removes those from `start` on, up to `end`.
    pub(crate) fn remove(&mut self, start: usize, end: usize) {
        let Ring { first, count, .. } = self.ring();
        for index in end..count {
            if let Some(stamp) = self.ring().get(index) {
                self.set(index - (end - start), stamp);
            }
        }
        self.turn_to(first, count - (end - start));
    }

    /// Doubles the places as needed, but never beyond what is kept.
    fn make_room(&mut self, times: usize, keep: usize) {
        let ring = self.ring();
        let (needed, capacity) = (ring.count + times, ring.places.len());
        if needed <= capacity {
            return;
        }
        let capacity = grown(capacity, needed, keep);
        let mut places = Vec::with_capacity(capacity);
        places.extend((0..ring.count).filter_map(|index| ring.get(index)));
        places.resize(capacity, Timestamp::new(0));
        *self = Self::Many {
            first: 0,
            count: units(ring.count),
            keep: Short::new(self.keep() as u64),
            generation: self.generation(),
            places: places.into(),
        };
    }

    #[inline]
    fn set(&mut self, index: usize, stamp: Timestamp) {
        let place = self.ring().place(index);
        match self {
            Self::Few { places, .. } => places[place] = stamp,
            Self::Many { places, .. } => places[place] = stamp,
        }
    }

    #[inline]
    fn turn_to(&mut self, place: usize, length: usize) {
        match self {
            Self::Few { ring, .. } => {
                let keep = usize::from(ring.0 >> 4) << 16;
                *ring = Few::new(place, length, keep);
            }
            Self::Many { first, count, .. } => (*first, *count) = (units(place), units(length)),
        }
    }
}

/// So many places there are once as many as there were do not suffice.
fn grown(capacity: usize, needed: usize, keep: usize) -> usize {
    (capacity * 2).min(keep).max(needed)
}

/// No log is longer than the largest threshold.
fn units(number: usize) -> u32 {
    u32::try_from(number).expect("a threshold is a u32")
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn it_is_a_queue_of_the_newest() {
        let mut rng = fastrand::Rng::with_seed(7);
        for keep in [1, 2, 3, 4, 5, 17] {
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
                        stamps.clamp(latest);
                        for stamp in &mut queue {
                            *stamp = latest.min(*stamp);
                        }
                    }
                    _ => {
                        let times = rng.usize(..=keep + 1);
                        let heap_bytes = stamps.heap_bytes() + stamps.growth(times, keep);
                        stamps.add(now, times, keep);
                        assert_eq!(stamps.heap_bytes(), heap_bytes);
                        queue.extend(std::iter::repeat_n(now, times));
                        queue.drain(..queue.len().saturating_sub(keep));
                    }
                }
                let held: VecDeque<_> =
                    (0..stamps.ring().len()).filter_map(|index| stamps.ring().get(index)).collect();
                assert_eq!(held, queue, "keep {keep}");
                let since = Timestamp::new(rng.u64(..=now.get()));
                let before = stamps.ring().partition_point(|stamp| *stamp < since);
                assert_eq!(before, queue.partition_point(|stamp| *stamp < since));
                assert!(stamps.ring().places.len() <= keep.max(FEW));
            }
        }
    }

    #[test]
    fn a_few_take_no_more_room_than_a_pointer_to_many() {
        assert_eq!(size_of::<Timestamps>(), 32);
    }
}
