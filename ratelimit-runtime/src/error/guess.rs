//! Waits that nobody knows, spread so that clients do not come back together.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::time::Micros;

/// The wait of a [`Busy`](super::Busy), unless another one is set, and of an
/// [`Unavailable`](super::Unavailable).
pub(crate) const GUESS: Duration = Duration::from_secs(1);

/// Returns a wait between `wait` and twice that.
pub(crate) fn spread(wait: Duration) -> Micros {
    /// 2^32 divided by the golden ratio: whatever their number, its multiples are evenly spread.
    const STEP: u32 = 0x9E37_79B9;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let fraction = f64::from(NEXT.fetch_add(STEP, Ordering::Relaxed)) / f64::from(u32::MAX);
    // More than any client waits for, and `mul_f64` does not overflow.
    let wait = wait.min(Duration::from_secs(u32::MAX.into()));
    Micros::rounded_up(wait.mul_f64(1.0 + fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_lie_between_a_wait_and_twice_that_and_are_evenly_spread() {
        let mut waits: Vec<_> = (0..100).map(|_| spread(GUESS).get()).collect();
        waits.sort_unstable();
        for (index, wait) in (0..).zip(waits) {
            let even = 1_000_000 + index * 10_000;
            assert!(wait.abs_diff(even) < 30_000, "{index}: {wait}");
        }
        assert!(spread(Duration::MAX).get() < u64::MAX);
    }
}
