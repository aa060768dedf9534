//! The part of a policy that shuts callers out who exceed it.
//!
//! The lengths are in the room of the last tier: a policy without them is no larger.

use std::time::Duration;

use ratelimit_core::{MAX_TIERS, rules::MAX_BLOCKS};

use super::{Policy, Tier};
use crate::time::Micros;

/// The index of the tier whose room they are in.
pub(super) const ROOM: usize = MAX_TIERS - 1;

impl Policy {
    /// Shuts a caller out who exceeds the limit: for the first of these lengths, and each time that it happens
    /// again for the next one.
    ///
    /// A call that a window refuses is an offence, also in a dry run. From then on all calls of the caller are
    /// refused, whatever they cost, until the block is over and the window has room. These refusals are no
    /// offences, and neither are those of a [`peek`](crate::Limiter::peek) and of
    /// [`concurrency`](Self::concurrency). After a block, each quiet stretch as long as it was forgives one step.
    ///
    /// [`Limiter::reset`](crate::Limiter::reset) ends a block; a refund, a settle and a raised threshold do not.
    /// A call that is settled above its cost may leave a debt, by which the next one offends. While
    /// [enforcement](crate::Enforcement) is off, blocks are kept and calls pass.
    ///
    /// One to four lengths of 1 ms to 31 days, in whole milliseconds, each longer than the one before. Beside them
    /// a policy has at most seven tiers. They do not go with a
    /// [`lease`](Self::lease), and with calls that have a [`max_wait`](crate::Check::max_wait), a
    /// [`request_id`](crate::Check::request_id) or [`leave`](crate::Check::leave) a share, and with a
    /// [`pause`](crate::Limiter::pause).
    ///
    /// Never block by a name that strangers can write, such as that of an account at its login: they could
    /// shut its owner out.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy, RateLimitError};
    ///
    /// const SEARCH: Policy = Policy::sliding_window("search", Duration::from_secs(60), 1)
    ///     .block(&[Duration::from_secs(120), Duration::from_secs(600)]);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limiter = Limiter::in_memory();
    /// assert!(limiter.check(&SEARCH, "10.0.0.7").await.is_ok());
    /// let Err(RateLimitError::Exceeded(refused)) = limiter.check(&SEARCH, "10.0.0.7").await else {
    ///     panic!("the second call");
    /// };
    /// assert_eq!(refused.retry_after(), Duration::from_secs(120));
    /// # }
    /// ```
    pub const fn block(mut self, lengths: &[Duration]) -> Self {
        if self.count as usize <= ROOM {
            self.tiers[ROOM] = Tier::of_blocks(lengths);
        } else if !lengths.is_empty() {
            self.count = u8::MAX;
        }
        self.checked()
    }

    /// Returns `true` if callers are shut out who exceed the limit.
    #[inline]
    pub(crate) const fn has_block(&self) -> bool {
        self.count as usize <= ROOM && self.tiers[ROOM].threshold > 0
    }

    /// Returns the lengths for which [`block`](Self::block) shuts callers out.
    pub fn blocks(&self) -> impl Iterator<Item = Duration> {
        self.block_lengths().map(Duration::from)
    }

    /// Returns the lengths of blocks.
    pub(crate) fn block_lengths(&self) -> impl Iterator<Item = Micros> {
        let Tier { period, token, threshold, .. } = self.tiers[ROOM];
        let count = if self.has_block() { threshold as usize } else { 0 };
        let all: [u64; MAX_BLOCKS] = [period >> 32, period & LOW, token >> 32, token & LOW];
        all.into_iter().take(count).map(|millis| Micros::new(millis * 1_000))
    }

    /// Returns the lengths for the rules, with one more if there are too many.
    pub(super) fn block_drafts(&self) -> Vec<Option<u64>> {
        let mut lengths: Vec<_> = self.block_lengths().map(|it| Some(it.get())).collect();
        if self.has_block() && self.tiers[ROOM].threshold as usize > MAX_BLOCKS {
            lengths.push(None);
        }
        lengths
    }

    /// Returns the tiers of this policy without windows.
    pub(super) const fn tiers_without_windows(&self) -> [Tier; MAX_TIERS] {
        let mut tiers = [Tier::NONE; MAX_TIERS];
        if self.has_block() {
            tiers[ROOM] = self.tiers[ROOM];
        }
        tiers
    }

    /// Returns this policy without blocks.
    pub(crate) const fn without_block(self) -> Self {
        if self.has_block() { self.block(&[]) } else { self }
    }
}

/// The lower half of a number.
const LOW: u64 = u32::MAX as u64;

impl Tier {
    /// Keeps the lengths in milliseconds, two in a number, and their count. One beyond the last is not kept, but
    /// counted. What does not fit is far beyond any maximum.
    #[expect(clippy::cast_possible_truncation, reason = "compared just before, and few")]
    const fn of_blocks(lengths: &[Duration]) -> Self {
        let mut millis = [0; MAX_BLOCKS];
        let mut index = 0;
        while index < lengths.len() && index < MAX_BLOCKS {
            let length = lengths[index].as_millis();
            millis[index] = if length > LOW as u128 { LOW } else { length as u64 };
            index += 1;
        }
        let [first, second, third, fourth] = millis;
        let (period, token) = (first << 32 | second, third << 32 | fourth);
        let count = if lengths.len() > MAX_BLOCKS { MAX_BLOCKS + 1 } else { lengths.len() };
        Self { period, token, threshold: count as u32, refill: 0 }
    }
}
