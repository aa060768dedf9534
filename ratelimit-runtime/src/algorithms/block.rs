//! Blocks: a caller who exceeds a limit is shut out, each time for longer.

use crate::{
    request::{Mark, Op, Outcome, OutcomeKind, Request},
    time::{Micros, Timestamp},
};

/// The last block of a caller, beside the state of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LastBlock {
    /// The offences that are not forgiven, at most the number of lengths.
    level: u8,
    /// The units that the call lacked, as far as they have not been given back.
    lacked: u32,
    began: Timestamp,
    until: Timestamp,
}

impl LastBlock {
    /// Refuses the calls of a blocked caller. Of others a peek is admitted, and a take is an
    /// offence: the window has refused a call that lacked as many units as the request's cost.
    pub(super) fn decide(&mut self, now: Timestamp, request: Request<'_>) -> Outcome {
        let kind = if now < self.until { OutcomeKind::Gated } else { OutcomeKind::Plain };
        if now >= self.until {
            if request.op == Op::Peek {
                return Outcome::admitted(0, Micros::ZERO, Micros::ZERO, Mark::NONE);
            }
            self.offend(now, request);
        }
        let left = self.until - now;
        // The state is needed until the last offence is forgiven, one after the other.
        let forgiven = request.policy.block_lengths().iter().take(self.level.into());
        let lasts = forgiven.fold(left.get(), |sum, length| sum + length.get());
        Outcome { lasts: Micros::new(lasts), kind, ..Outcome::refused(left, left) }
    }

    /// Blocks the caller. Each quiet stretch as long as the last block has forgiven one offence.
    fn offend(&mut self, now: Timestamp, request: Request<'_>) {
        let lengths = request.policy.block_lengths();
        let mut level = usize::from(self.level).min(lengths.len());
        let mut forgiven = self.until;
        while level > 0 && forgiven + lengths[level - 1] <= now {
            forgiven = forgiven + lengths[level - 1];
            level -= 1;
        }
        let length = lengths[level.min(lengths.len() - 1)];
        self.level = u8::try_from(lengths.len().min(level + 1)).unwrap_or(u8::MAX);
        self.began = now;
        self.until = now + length;
        self.lacked = request.cost;
    }

    /// Gives back units that were taken at a time before the block began. Once its call has lacked
    /// none, the block is lifted, and its offence is taken back.
    pub(super) fn lift(&mut self, taken: Timestamp, units: u32) {
        if self.until > self.began && self.began >= taken {
            self.lacked = self.lacked.saturating_sub(units);
            if self.lacked == 0 {
                self.until = self.began;
                self.level -= 1;
            }
        }
    }
}
