//! The system's time by a counter of unknown rate: pure over readings of both.
//!
//! An anchor is a reading of both clocks, and the rate of the counter measured up to it. The
//! counter is used for a few milliseconds; then both are read anew, so that errors never add up. It
//! is used only while it foretells the system's time: when the system is suspended, a clock is set,
//! or the counter steps or changes its rate, the system's time is used until two intervals agree
//! again, and from then on if the system itself trusts the counter no more.

use crate::{
    sync::atomic::{AtomicU64, Ordering, fence},
    time::Micros,
};

/// The time for which an anchor is used, in nanoseconds. A step of the counter that stays within it
/// goes unnoticed for as long, and a system's clock that is slewed by 500 ppm is missed by 2 us.
/// A few readings of 50 ns in 4 ms are nothing.
const WINDOW: u64 = 4_000_000;

/// The maximum time that a reading of both clocks takes, in nanoseconds: one that took longer was
/// interrupted, and does not show which counter belongs to which time.
const MAX_WIDTH: u64 = 2_000;

/// The maximum deviation at the end of a window, in nanoseconds: what readings are off, and
/// one in `1 << RATE_BITS` of the time, as the rate is no better known.
const MAX_DEVIATION: u64 = 500;
const RATE_BITS: u32 = 17;

/// The maximum error of the time by the counter, unless that steps: a window of a clock that is
/// slewed, the error of the anchor's reading, and those of the two between which its rate was
/// measured.
pub(super) const MAX_ERROR: Micros = Micros::new((WINDOW / 2_000 + 3 * (MAX_WIDTH / 2)) / 1_000);

/// The fraction bits of a rate: products with the ticks of a window fit into 64 bits.
const FRACTION_BITS: u32 = 32;

/// A reading of the system's clock, in nanoseconds, between two of the counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) before: u64,
    pub(super) nanos: u64,
    pub(super) after: u64,
}

impl Reading {
    /// Returns the ticks that the reading took.
    fn width(&self) -> u64 {
        self.after.wrapping_sub(self.before)
    }
}

/// A reading, and the rate of the counter in the interval that ended with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Anchor {
    counter: u64,
    nanos: u64,
    /// Nanoseconds per tick, as a fixed-point number. 0 if unknown.
    rate: u64,
    /// The ticks for which the anchor is used. 0 until the rate has foretold one interval.
    ticks: u64,
}

impl Anchor {
    /// The anchor of a counter that is not trusted. It is never used, and its window is never over.
    const UNTRUSTED: Self = Self { counter: 0, nanos: u64::MAX, rate: 0, ticks: 0 };

    /// Starts to measure.
    fn new(reading: Reading) -> Self {
        let counter = reading.before.wrapping_add(reading.width() / 2);
        Self { counter, nanos: reading.nanos, rate: 0, ticks: 0 }
    }

    /// Returns the time at which the counter has this value, if the anchor is used for it.
    #[inline]
    fn nanos_at(self, counter: u64) -> Option<u64> {
        // A counter that went back is far beyond the ticks.
        let ticks = counter.wrapping_sub(self.counter);
        (ticks < self.ticks).then(|| self.nanos + ((ticks * self.rate) >> FRACTION_BITS))
    }

    /// Returns `true` if the anchor's window is over.
    fn is_over(self, nanos: u64) -> bool {
        nanos.checked_sub(self.nanos).is_some_and(|nanos| nanos >= WINDOW)
    }

    /// Returns the anchor of the next window, after one that [is over](Self::is_over).
    fn next(self, reading: Reading) -> Option<Self> {
        let next = Self::new(reading);
        let nanos = next.nanos.saturating_sub(self.nanos);
        let ticks = next.counter.wrapping_sub(self.counter);
        let rate = (u128::from(nanos) << FRACTION_BITS).checked_div(ticks.into()).unwrap_or(0);
        let rate = u64::try_from(rate).unwrap_or(0);
        if self.rate == 0 {
            return Some(Self { rate, ..next });
        }
        if self.nanos_of(reading.width()) > MAX_WIDTH.into() {
            // A trusted rate stays known, and the next reading may be a better one.
            return (self.ticks == 0).then_some(next);
        }
        let deviation = self.nanos_of(ticks).abs_diff(nanos.into());
        if deviation > (MAX_DEVIATION + (nanos >> RATE_BITS)).into() {
            return Some(next);
        }
        let ticks = (WINDOW << FRACTION_BITS).checked_div(rate).unwrap_or(0);
        Some(Self { rate, ticks, ..next })
    }

    fn nanos_of(self, ticks: u64) -> u128 {
        (u128::from(ticks) * u128::from(self.rate)) >> FRACTION_BITS
    }
}

/// The anchor of all threads. Readers check by a version that all parts are of one anchor: it is
/// odd while they are written. Nobody waits: the system's clock is always there.
///
/// It has a cache line to itself, which is written once in a window.
#[repr(align(64))]
pub(super) struct SharedAnchor {
    version: AtomicU64,
    counter: AtomicU64,
    nanos: AtomicU64,
    rate: AtomicU64,
    ticks: AtomicU64,
}

impl SharedAnchor {
    pub(super) fn new(reading: Reading) -> Self {
        let Anchor { counter, nanos, rate, ticks } = Anchor::new(reading);
        Self {
            version: AtomicU64::new(0),
            counter: AtomicU64::new(counter),
            nanos: AtomicU64::new(nanos),
            rate: AtomicU64::new(rate),
            ticks: AtomicU64::new(ticks),
        }
    }

    /// Returns the time at which the counter has this value, if the anchor is used for it.
    #[inline]
    pub(super) fn nanos_at(&self, counter: u64) -> Option<u64> {
        self.load()?.1.nanos_at(counter)
    }

    /// Returns the system's time, and replaces the anchor if that is due. Asks after a window that
    /// was foretold wrongly whether the counter is to be trusted.
    pub(super) fn renew(
        &self,
        mut read: impl FnMut() -> Reading,
        is_trusted: impl FnOnce() -> bool,
    ) -> u64 {
        let known = self.load();
        let first = read();
        if let Some((version, anchor)) = known
            && anchor.is_over(first.nanos)
            && let Some(next) = anchor.next(narrowest(first, read))
        {
            let has_failed = anchor.ticks > 0 && next.ticks == 0;
            let is_lost = has_failed && !is_trusted();
            self.store(version, if is_lost { Anchor::UNTRUSTED } else { next });
        }
        first.nanos
    }

    /// Returns the anchor with its version, unless it is being replaced.
    #[inline]
    fn load(&self) -> Option<(u64, Anchor)> {
        let version = self.version.load(Ordering::Acquire);
        let anchor = Anchor {
            counter: self.counter.load(Ordering::Relaxed),
            nanos: self.nanos.load(Ordering::Relaxed),
            rate: self.rate.load(Ordering::Relaxed),
            ticks: self.ticks.load(Ordering::Relaxed),
        };
        // A part of a later anchor was stored after that anchor's odd version, which is seen now.
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some((version, anchor))
    }

    /// Replaces the anchor of this version, if no other thread has.
    fn store(&self, version: u64, anchor: Anchor) {
        let (own, relaxed) = (version + 1, Ordering::Relaxed);
        if self.version.compare_exchange(version, own, relaxed, relaxed).is_err() {
            return;
        }
        fence(Ordering::Release);
        self.counter.store(anchor.counter, relaxed);
        self.nanos.store(anchor.nanos, relaxed);
        self.rate.store(anchor.rate, relaxed);
        self.ticks.store(anchor.ticks, relaxed);
        self.version.store(version + 2, Ordering::Release);
    }
}

/// Returns the shortest of three readings. The first one often finds nothing in the cache, and
/// takes microseconds.
fn narrowest(first: Reading, mut read: impl FnMut() -> Reading) -> Reading {
    [read(), read()]
        .into_iter()
        .fold(first, |it, other| if other.width() < it.width() { other } else { it })
}

#[cfg(all(test, ratelimit_loom))]
mod schedules;
#[cfg(test)]
mod tests;
