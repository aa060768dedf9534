//! The part of a policy that shuts callers out who exceed it.

use std::time::Duration;

use ratelimit_core::rules::MAX_BLOCKS;

use super::{Flags, Policy};
use crate::time::Micros;

impl Policy {
    /// Shuts a caller out who exceeds the limit: for the first of these lengths, and each time that it happens
    /// again for the next one.
    ///
    /// An offence is a call that a window refuses, also in a dry run. A wrong password is none. Until the block is
    /// over, all calls of the caller are refused that cost anything. These refusals are no offences, and neither are
    /// those of a [`peek`](crate::Limiter::peek) and of [`concurrency`](Self::concurrency). Their wait is that of the
    /// block, or of the window if that is longer.
    ///
    /// After the block the window alone decides: its next refusal is the next offence. Each quiet stretch as long
    /// as the block was forgives one step. Make the first length longer than the period: the window's own wait hides a
    /// shorter one, and that of a caller who waits as told is forgiven each time if it is at most half the period.
    ///
    /// [`Limiter::reset`](crate::Limiter::reset) ends a block; a refund, a settle and a raised threshold do not. If
    /// [other limits](crate::Limiter::check_all) refuse a call, the units that it took here are given back. If another
    /// call was refused meanwhile, and would have passed with these units, its block ends. A call that is settled above
    /// its cost may leave a debt, by which the next one offends. While [enforcement](crate::Enforcement) is off, blocks
    /// are kept and calls pass. [`LimitUsage::blocked_for`](crate::usage::LimitUsage::blocked_for) shows a block to its
    /// caller.
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
        self.blocks = [Micros::ZERO; MAX_BLOCKS];
        self.block_count = (lengths.len() > MAX_BLOCKS) as u8;
        let mut count = 0;
        while count < lengths.len() && count < MAX_BLOCKS {
            self.blocks[count] = Micros::whole_millis(lengths[count]);
            count += 1;
            self.block_count += 1;
        }
        self.checked()
    }

    /// Returns `true` if callers are shut out who exceed the limit.
    pub(crate) const fn has_block(&self) -> bool {
        self.flags.has(Flags::BLOCKS)
    }

    /// Returns the lengths for which [`block`](Self::block) shuts callers out.
    pub fn get_block(&self) -> impl Iterator<Item = Duration> {
        self.block_lengths().iter().map(|it| Duration::from(*it))
    }

    /// Returns the lengths of blocks.
    pub(crate) fn block_lengths(&self) -> &[Micros] {
        &self.blocks[..usize::from(self.block_count).min(MAX_BLOCKS)]
    }

    /// Returns the lengths for the rules, with one more if there are too many.
    pub(super) fn block_drafts(&self) -> Vec<Option<u64>> {
        let mut lengths: Vec<_> = self.block_lengths().iter().map(|it| Some(it.get())).collect();
        if usize::from(self.block_count) > MAX_BLOCKS {
            lengths.push(None);
        }
        lengths
    }
}
