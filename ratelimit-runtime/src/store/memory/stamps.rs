//! The times that a log holds: a ring, so that the oldest goes at no cost, and in place while they
//! are few.

/// Times in ascending order, oldest first.
pub(super) enum Stamps {
    Few { first: u8, count: u8, places: [u64; FEW] },
    Many { first: u32, count: u32, places: Box<[u64]> },
}

/// As many times take no more room than a pointer to others does.
const FEW: usize = 3;

impl Default for Stamps {
    fn default() -> Self {
        Self::Few { first: 0, count: 0, places: [0; FEW] }
    }
}

/// What both kinds are.
#[derive(Clone, Copy)]
pub(super) struct Ring<'a> {
    first: usize,
    count: usize,
    places: &'a [u64],
}

impl Ring<'_> {
    pub(super) fn len(self) -> usize {
        self.count
    }

    /// The time that so many others are older than.
    #[inline]
    pub(super) fn get(self, index: usize) -> Option<u64> {
        (index < self.count).then(|| self.places[self.place(index)])
    }

    /// The time that so many others are newer than.
    #[inline]
    pub(super) fn newest(self, index: usize) -> Option<u64> {
        self.count.checked_sub(index + 1).and_then(|index| self.get(index))
    }

    /// How many come before the first that `is_before` does not hold for.
    pub(super) fn partition_point(self, is_before: impl Fn(&u64) -> bool) -> usize {
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

impl Stamps {
    #[inline]
    pub(super) fn ring(&self) -> Ring<'_> {
        match self {
            Self::Few { first, count, places } => {
                Ring { first: (*first).into(), count: (*count).into(), places }
            }
            Self::Many { first, count, places } => {
                Ring { first: *first as usize, count: *count as usize, places }
            }
        }
    }

    /// Makes `now` of every time after it.
    pub(super) fn clamp(&mut self, now: u64) {
        let after = self.ring().partition_point(|stamp| *stamp <= now);
        for index in after..self.ring().count {
            self.set(index, now);
        }
    }

    /// Adds `now`, the latest, so many times; only the newest `keep` stay.
    pub(super) fn add(&mut self, now: u64, times: usize, keep: usize) {
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
    pub(super) fn growth(&self, times: usize, keep: usize) -> usize {
        let Ring { count, places, .. } = self.ring();
        let needed = (count + times).min(keep);
        if needed <= places.len() {
            return 0;
        }
        size_of::<u64>() * grown(places.len(), needed, keep) - self.heap_bytes()
    }

    /// The memory that it has on the heap.
    #[inline]
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Few { .. } => 0,
            Self::Many { places, .. } => size_of_val::<[u64]>(places),
        }
    }

    /// Removes those from `start` on, up to `end`.
    pub(super) fn remove(&mut self, start: usize, end: usize) {
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
        places.resize(capacity, 0);
        *self = Self::Many { first: 0, count: units(ring.count), places: places.into() };
    }

    #[inline]
    fn set(&mut self, index: usize, stamp: u64) {
        let place = self.ring().place(index);
        match self {
            Self::Few { places, .. } => places[place] = stamp,
            Self::Many { places, .. } => places[place] = stamp,
        }
    }

    #[inline]
    fn turn_to(&mut self, place: usize, length: usize) {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "there are three places")]
            Self::Few { first, count, .. } => (*first, *count) = (place as u8, length as u8),
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
            let (mut stamps, mut queue) = (Stamps::default(), VecDeque::new());
            for now in 1..2_000 {
                match rng.u8(..10) {
                    0 => {
                        let start = rng.usize(..=queue.len());
                        let end = rng.usize(start..=queue.len());
                        stamps.remove(start, end);
                        queue.drain(start..end);
                    }
                    1 => {
                        let latest = rng.u64(..=now);
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
                let since = rng.u64(..=now);
                let before = stamps.ring().partition_point(|stamp| *stamp < since);
                assert_eq!(before, queue.partition_point(|stamp| *stamp < since));
                assert!(stamps.ring().places.len() <= keep.max(FEW));
            }
        }
    }

    #[test]
    fn a_few_take_no_more_room_than_a_pointer_to_many() {
        assert_eq!(size_of::<Stamps>(), 32);
    }
}
