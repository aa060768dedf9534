//! The blocks of a caller who exceeds a limit.

use super::{Answer, Call};

/// The last block of a caller.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    /// The offences that are not forgiven.
    level: usize,
    till: u64,
    length: u64,
}

impl Block {
    /// Returns the time for which a call is still refused.
    pub(super) fn left(&mut self, Call { now, record, .. }: Call) -> u64 {
        let left = self.till.saturating_sub(now);
        if left <= self.length {
            return left;
        }
        // A clock has stepped back.
        if record {
            self.till = now + self.length;
        }
        self.length
    }

    /// Records an offence, and returns the time of its block.
    pub(super) fn offend(&mut self, lengths: &[u64], now: u64) -> u64 {
        self.level = self.level.min(lengths.len());
        let mut quiet = now - self.till.min(now);
        while self.level > 0 && quiet >= lengths[self.level - 1] {
            self.level -= 1;
            quiet -= lengths[self.level];
        }
        self.level = lengths.len().min(self.level + 1);
        self.length = lengths[self.level - 1];
        self.till = now + self.length;
        self.length
    }
}

impl Answer {
    /// The answer to a blocked caller whom the window answers so: it waits for both.
    pub(super) fn blocked(window: Self, left: u64) -> Self {
        let Self { tier, wait, .. } = if window.admitted { Self::BUSY } else { window };
        let wait = wait.max(left);
        Self { tier, wait, reset: wait, more: left, is_busy: false, ..Self::BUSY }
    }
}
