//! The callers of one limit that are refused most, of the last hour, in bounded memory.
//!
//! The callers of the current minute are counted by the space-saving algorithm: Metwally, Agrawal
//! and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams" (2005). A
//! caller beyond the [`CALLERS`] that are counted takes the place, and the count, of the one with
//! the fewest refusals. So no count is too small, and each is too large by at most what it took
//! over. The counts of a minute add up to its refusals, so that each caller of more than a 16th of
//! them is among the [`KEPT`] of a past minute.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasher,
    sync::atomic::{AtomicU64, Ordering},
};

use foldhash::fast::FixedState;
use parking_lot::Mutex;

use crate::{
    key::{Caller, CallerBytes, StoredCaller},
    time::{self, Micros},
};

/// The callers that are counted in a minute.
const CALLERS: usize = 64;

/// The callers that are kept of a past minute.
const KEPT: usize = 16;

/// The minutes that are kept.
const MINUTES: u64 = 60;

/// In microseconds.
const MINUTE: u64 = 60_000_000;

/// The number of tags that are compared at once.
const GROUP: usize = 16;

/// A time up to now, in whole minutes: the current one is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeWindow {
    /// The current minute and the one before.
    Minute,
    /// The current minute and the nine before.
    TenMinutes,
    /// The current minute and the 59 before.
    Hour,
}

impl TimeWindow {
    /// All variants.
    pub const ALL: &'static [Self] = &[Self::Minute, Self::TenMinutes, Self::Hour];

    /// Returns the first minute of the process that lies in the window.
    fn first(self) -> u64 {
        let minutes = match self {
            Self::Minute => 2,
            Self::TenMinutes => 10,
            Self::Hour => MINUTES,
        };
        (minute_of(time::uptime().into()) + 1).saturating_sub(minutes)
    }
}

/// The refusals of one limit by some threads. A limit that refuses nobody has none on the heap.
#[derive(Default)]
pub(crate) struct RefusalSketch {
    minutes: Mutex<Option<Box<Minutes>>>,
    /// The refusals that found the lock taken. They are not sampled.
    unsampled: AtomicU64,
}

struct Minutes {
    current: CurrentMinute,
    /// The minutes before with refusals, the latest last.
    past: VecDeque<Minute>,
}

/// The refusals of one minute.
struct Minute {
    number: u64,
    calls: u64,
    callers: Vec<(StoredCaller, RefusalCount)>,
}

/// The number of a caller's refused calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RefusalCount {
    pub(crate) calls: u64,
    /// The maximum by which `calls` is too large.
    pub(crate) at_most_wrong: u64,
}

/// The sketch of the minute that is not over.
struct CurrentMinute {
    minute: Minute,
    /// The end of the minute.
    ends: Micros,
    /// The place of the latest caller.
    latest: usize,
    /// The refusals of the caller whose place was taken last. No caller has fewer.
    fewest: u64,
    /// Hashes of the callers; 0 of a place that is free.
    tags: [u16; CALLERS],
}

impl RefusalSketch {
    /// Counts a refused call of this minute. It is not sampled if another thread does the same now.
    #[inline(always)]
    pub(crate) fn count(&self, now: Micros, caller: CallerBytes<'_>) {
        let Some(mut minutes) = self.minutes.try_lock() else {
            self.unsampled.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let current = self.current(&mut minutes, now);
        current.minute.calls += 1;
        current.count(caller);
    }

    /// Returns the sketch of the minute of this time, with the refusals that were not sampled.
    #[inline(always)]
    fn current<'a>(
        &self,
        minutes: &'a mut Option<Box<Minutes>>,
        now: Micros,
    ) -> &'a mut CurrentMinute {
        let minutes = minutes.get_or_insert_with(|| Minutes::new(minute_of(now)));
        if now >= minutes.current.ends {
            minutes.end_minute(minute_of(now));
        }
        if self.unsampled.load(Ordering::Relaxed) > 0 {
            minutes.current.minute.calls += self.unsampled.swap(0, Ordering::Relaxed);
        }
        &mut minutes.current
    }

    /// Returns the number of refused calls in a window of time.
    pub(super) fn calls_within(&self, window: TimeWindow) -> u64 {
        let mut minutes = self.minutes.lock();
        if self.unsampled.load(Ordering::Relaxed) > 0 {
            self.current(&mut minutes, time::uptime().into());
        }
        minutes.as_ref().map_or(0, |minutes| minutes.since(window.first()).map(|it| it.calls).sum())
    }
}

/// Returns the callers that were refused in a window of time, the most often refused first. Calls
/// that are not in the sum of a past minute's callers are not known by caller.
pub(super) fn callers_within<'a>(
    sketches: impl Iterator<Item = &'a RefusalSketch>,
    window: TimeWindow,
) -> Vec<(Caller, RefusalCount)> {
    let mut sums = HashMap::<Vec<u8>, RefusalCount>::new();
    for sketch in sketches {
        let minutes = sketch.minutes.lock();
        let minutes = minutes.iter().flat_map(|minutes| minutes.since(window.first()));
        for (caller, count) in minutes.flat_map(|minute| &minute.callers) {
            let sum = sums.entry(caller.bytes().to_vec()).or_default();
            sum.calls += count.calls;
            sum.at_most_wrong += count.at_most_wrong;
        }
    }
    let mut counted: Vec<_> = sums.into_iter().collect();
    counted.sort_by(|(one, a), (other, b)| (b.calls, one).cmp(&(a.calls, other)));
    counted.into_iter().map(|(caller, count)| (Caller::from_parts(&caller), count)).collect()
}

impl Minutes {
    fn new(minute: u64) -> Box<Self> {
        Box::new(Self { current: CurrentMinute::new(minute), past: VecDeque::new() })
    }

    /// Ends the current minute with its callers of most refusals, starts this one, and drops those
    /// that no reader asks for.
    #[cold]
    fn end_minute(&mut self, minute: u64) {
        let mut ended = std::mem::replace(&mut self.current, CurrentMinute::new(minute)).minute;
        ended.callers.sort_by_key(|(_, count)| std::cmp::Reverse(count.calls));
        ended.callers.truncate(KEPT);
        self.past.push_back(ended);
        while self.past.front().is_some_and(|past| past.number + MINUTES <= minute) {
            self.past.pop_front();
        }
    }

    /// Returns the refusals of each minute from this one on.
    fn since(&self, minute: u64) -> impl Iterator<Item = &Minute> {
        self.past.iter().chain([&self.current.minute]).filter(move |it| it.number >= minute)
    }
}

impl CurrentMinute {
    fn new(number: u64) -> Self {
        let minute = Minute { number, calls: 0, callers: Vec::new() };
        let ends = Micros::new((number + 1) * MINUTE);
        Self { minute, ends, latest: 0, fewest: 0, tags: [0; CALLERS] }
    }

    #[inline]
    fn count(&mut self, caller: CallerBytes<'_>) {
        match self.minute.callers.get_mut(self.latest) {
            Some((latest, count)) if latest.is(&caller) => count.calls += 1,
            _ => {
                let tag = tag(caller);
                let known = self.find(tag, &caller);
                self.latest = known.unwrap_or_else(|| self.replace(tag, caller));
                self.minute.callers[self.latest].1.calls += 1;
            }
        }
    }

    /// Returns the place of a caller. Tags are compared in groups, which the compiler makes
    /// comparisons of vectors.
    #[inline]
    fn find(&self, tag: u16, caller: &CallerBytes<'_>) -> Option<usize> {
        let (groups, _) = self.tags.as_chunks::<GROUP>();
        for (index, group) in groups.iter().enumerate() {
            // Without an early end, as `contains` has one, the compiler compares the group as a
            // vector.
            let mut has_tag = false;
            for known in group {
                has_tag |= *known == tag;
            }
            if !has_tag {
                continue;
            }
            for (offset, _) in group.iter().enumerate().filter(|(_, known)| **known == tag) {
                let place = index * GROUP + offset;
                if self.minute.callers[place].0.is(caller) {
                    return Some(place);
                }
            }
        }
        None
    }

    /// Gives a place to a caller that has none.
    fn replace(&mut self, tag: u16, caller: CallerBytes<'_>) -> usize {
        let caller = StoredCaller::new(caller);
        let mut place = self.minute.callers.len();
        if place < CALLERS {
            self.minute.callers.push((caller, RefusalCount::default()));
        } else {
            place = (self.latest + 1) % CALLERS;
            // In a flood of callers that come once, the next place has as few as the one before.
            if self.minute.callers[place].1.calls != self.fewest {
                place = self.place_of_fewest();
            }
            let (replaced, count) = &mut self.minute.callers[place];
            *replaced = caller;
            self.fewest = count.calls;
            count.at_most_wrong = count.calls;
        }
        self.tags[place] = tag;
        place
    }

    /// Returns the next place behind the latest caller with as few refusals as the one taken last,
    /// or else the one with the fewest.
    #[cold]
    fn place_of_fewest(&self) -> usize {
        let places = (self.latest + 1..CALLERS).chain(0..=self.latest);
        let calls = |place: &usize| self.minute.callers[*place].1.calls;
        let next = places.clone().find(|place| calls(place) == self.fewest);
        next.or_else(|| places.min_by_key(calls)).unwrap_or_default()
    }
}

/// Returns the minute in which this time of the process lies.
fn minute_of(uptime: Micros) -> u64 {
    uptime.get() / MINUTE
}

/// Returns a hash of a caller, never 0. Callers of one tag are compared, so that a cheap hash will
/// do.
#[inline]
fn tag(caller: CallerBytes<'_>) -> u16 {
    let [first, second] = match caller {
        CallerBytes::Short(words) => words,
        CallerBytes::Long(bytes) => [FixedState::default().hash_one(bytes), 0],
    };
    // Fibonacci hashing: the high bits of the product depend on all bits.
    let product = (first ^ second.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (product >> 48) as u16 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_found_the_lock_taken_is_counted_before_the_next_one() {
        let sketch = RefusalSketch::default();
        let caller = Caller::from("alice");
        let reading = sketch.minutes.lock();
        sketch.count(time::uptime().into(), caller.parts().into());
        drop(reading);
        let counts = || TimeWindow::ALL.iter().map(|window| sketch.calls_within(*window));
        assert!(counts().all(|calls| calls == 1));
        sketch.count(time::uptime().into(), caller.parts().into());
        assert!(counts().all(|calls| calls == 2));
    }
}
