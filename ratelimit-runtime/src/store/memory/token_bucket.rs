//! The token bucket in plain Rust: the same rule as `store/redis/token_bucket.lua`.

use std::num::NonZeroU64;

use super::per_tier::PerTier;
use crate::{
    policy::Bucket,
    rules::MAX_TIERS,
    store::{Outcome, Refund, Request, verdict::Verdict},
};

/// One level for each tier, as it was when it was last taken from. No level is a full bucket.
#[derive(Default)]
pub(super) struct TokenBucket {
    updated: u64,
    levels: PerTier<Level>,
}

#[derive(Clone, Copy)]
struct Level {
    /// What is in the bucket, in parts of a token.
    parts: u64,
    /// The parts of one token, at the rate the level was written under; never 0, which spares the
    /// state a word.
    token: NonZeroU64,
}

impl TokenBucket {
    #[inline]
    pub(super) fn decide(&mut self, now: u64, request: Request<'_>) -> Outcome {
        let Request { policy, cost, record, .. } = request;
        // A clock that stepped back neither fills a bucket nor drains it.
        let elapsed = now.saturating_sub(self.updated);
        let (tiers, mut working) = (policy.tiers(), [(Bucket::default(), 0); MAX_TIERS]);
        let levels = &mut working[..tiers.len()];
        for (index, (level, tier)) in levels.iter_mut().zip(tiers).enumerate() {
            let bucket = policy.bucket(*tier);
            *level = (bucket, Level::parts(self.levels.get(index), bucket, elapsed));
        }
        let admitted = levels.iter().all(|(bucket, parts)| *parts >= bucket.of(cost));
        let taken = admitted || policy.counts_rejected();
        if taken {
            for (bucket, parts) in &mut *levels {
                *parts = parts.saturating_sub(bucket.of(cost));
            }
        }

        let mut verdict = Verdict::new(admitted);
        for (index, (bucket, parts)) in (0..).zip(&*levels) {
            let left = parts / bucket.token;
            let wanted = if admitted { (left + 1) * bucket.token } else { bucket.of(cost) };
            let until = |level: u64| level.saturating_sub(*parts).div_ceil(bucket.refill);
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            verdict.tier(index, left, until(wanted.min(bucket.full)), until(bucket.full));
        }
        if record && (taken || self.updated > now) {
            self.updated = now;
            self.levels.keep(levels.iter().map(|(bucket, parts)| Level::new(*bucket, *parts)));
        }
        verdict.outcome(now)
    }

    /// Gives tokens back, as many as there is room for.
    pub(super) fn refund(&mut self, refund: Refund<'_>) {
        let Refund { policy, cost, .. } = refund;
        for (level, tier) in self.levels.iter_mut().zip(policy.tiers()) {
            let bucket = policy.bucket(*tier);
            // At another rate the tokens are those of another time.
            if level.token.get() == bucket.token {
                level.parts = (level.parts + bucket.of(cost)).min(bucket.full);
            }
        }
    }
}

impl Level {
    fn new(bucket: Bucket, parts: u64) -> Self {
        Self { parts, token: NonZeroU64::new(bucket.token).unwrap_or(NonZeroU64::MIN) }
    }

    /// The parts in the bucket so long after they were written.
    fn parts(stored: Option<&Self>, bucket: Bucket, elapsed: u64) -> u64 {
        let Bucket { token, refill, full } = bucket;
        let Some(stored) = stored else { return full };
        let parts = if stored.token.get() == token {
            stored.parts
        } else {
            // At another rate the parts mean something else: the whole tokens are kept.
            (stored.parts / stored.token).saturating_mul(token)
        };
        // Time enough to fill the bucket is told first: the product stays exact.
        let room = full.saturating_sub(parts);
        if elapsed >= room.div_ceil(refill) { full } else { parts + elapsed * refill }
    }
}

impl Bucket {
    /// The parts of this many tokens.
    fn of(self, tokens: u32) -> u64 {
        self.token * u64::from(tokens)
    }
}
