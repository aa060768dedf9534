//! The pauses between attempts that fail.

use std::time::Duration;

/// Pauses that double from the first to the longest.
#[derive(Clone)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// Returns the next pause, less up to a half of it at random: processes that lost a server
    /// together do not return together.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Returns the pause after so many failures, as [`next`](Self::next) does.
    pub(super) fn after(&self, failures: u32) -> Duration {
        // The shift must not overflow. The longest pause is reached long before.
        let doublings = failures.saturating_sub(1).min(31);
        let next = (self.first * (1 << doublings)).min(self.longest);
        Self { next, ..*self }.next()
    }

    /// Starts over with the first pause.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over() {
        let millis = Duration::from_millis;
        let mut backoff = Backoff::new(millis(100), millis(700));
        for _ in 0..100 {
            for (failures, full) in (1..).zip([100, 200, 400, 700, 700]) {
                for pause in [backoff.after(failures), backoff.next()] {
                    let expected = millis(full / 2)..=millis(full);
                    assert!(expected.contains(&pause), "{pause:?} of {full}");
                }
            }
            backoff.reset();
        }
    }

    #[test]
    fn pauses_are_spread() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
        let first = backoff.next();
        assert!((0..100).any(|_| backoff.next() != first));
    }
}
