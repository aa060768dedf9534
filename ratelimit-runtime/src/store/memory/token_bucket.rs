//! The token bucket in plain Rust: the same rule as `store/redis/token_bucket.lua`.

use super::PerTier;
use crate::{
    policy::Bucket,
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
    /// The parts of one token, at the rate the level was written under.
    token: u64,
}

impl TokenBucket {
    pub(super) fn decide(&mut self, now: u64, request: Request<'_>) -> Outcome {
        let Request { policy, cost, record, .. } = request;
        let buckets = || policy.tiers().iter().map(|tier| policy.bucket(*tier)).enumerate();
        // A clock that stepped back neither fills a bucket nor drains it.
        let elapsed = now.saturating_sub(self.updated);
        let mut levels: PerTier<Level> = buckets()
            .map(|(index, bucket)| Level::at(self.levels.get(index), bucket, elapsed))
            .collect();
        let admitted = buckets().all(|(index, bucket)| levels[index].parts >= bucket.of(cost));
        let taken = admitted || policy.counts_rejected();
        if taken {
            for (index, bucket) in buckets() {
                levels[index].parts = levels[index].parts.saturating_sub(bucket.of(cost));
            }
        }

        let mut verdict = Verdict::new(admitted);
        for (index, bucket) in buckets() {
            let parts = levels[index].parts;
            let left = parts / bucket.token;
            let wanted = if admitted { (left + 1) * bucket.token } else { bucket.of(cost) };
            let until = |level: u64| level.saturating_sub(parts).div_ceil(bucket.refill);
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            verdict.tier(index, left, until(wanted.min(bucket.full)), until(bucket.full));
        }
        if record && (taken || self.updated > now) {
            *self = Self { updated: now, levels };
        }
        verdict.outcome(now)
    }

    /// Gives tokens back, as many as there is room for.
    pub(super) fn refund(&mut self, refund: Refund<'_>) {
        let Refund { policy, cost, .. } = refund;
        for (level, tier) in self.levels.iter_mut().zip(policy.tiers()) {
            let bucket = policy.bucket(*tier);
            // At another rate the tokens are those of another time.
            if level.token == bucket.token {
                level.parts = (level.parts + bucket.of(cost)).min(bucket.full);
            }
        }
    }
}

impl Level {
    fn at(stored: Option<&Self>, bucket: Bucket, elapsed: u64) -> Self {
        let Bucket { token, refill, full } = bucket;
        let parts = stored.map_or(full, |stored| {
            let parts = if stored.token == token {
                stored.parts
            } else {
                // At another rate the parts mean something else: the whole tokens are kept.
                (stored.parts / stored.token).saturating_mul(token)
            };
            // Time enough to fill the bucket is told first: the product stays exact.
            let room = full.saturating_sub(parts);
            if elapsed >= room.div_ceil(refill) { full } else { parts + elapsed * refill }
        });
        Self { parts, token }
    }
}

impl Bucket {
    /// The parts of this many tokens.
    fn of(self, tokens: u32) -> u64 {
        self.token * u64::from(tokens)
    }
}
