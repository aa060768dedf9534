//! The token bucket in plain Rust: the same rule as `store/redis/token_bucket.lua`.

use std::num::NonZeroU64;

use super::per_tier::PerTier;
use crate::{
    policy::{Bucket, Tier},
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
        let tiers = policy.tiers();
        let fits = |(index, tier): (usize, &Tier)| {
            let bucket = policy.bucket(*tier);
            Level::parts(self.levels.get(index), bucket, elapsed) >= bucket.of(cost)
        };
        let admitted = tiers.iter().enumerate().all(fits);
        let taken = admitted || policy.counts_rejected();
        let kept = record && (taken || self.updated > now);
        if kept {
            self.updated = now;
            self.levels.fit(tiers, |tier| {
                let bucket = policy.bucket(*tier);
                Level::new(bucket, bucket.full)
            });
        }

        let mut verdict = Verdict::new(admitted);
        for (index, tier) in tiers.iter().enumerate() {
            let bucket = policy.bucket(*tier);
            let mut parts = Level::parts(self.levels.get(index), bucket, elapsed);
            if taken {
                parts = parts.saturating_sub(bucket.of(cost));
            }
            if kept {
                self.levels[index] = Level::new(bucket, parts);
            }
            let left = parts / bucket.token;
            let wanted = if admitted { (left + 1) * bucket.token } else { bucket.of(cost) };
            let until = |level: u64| level.saturating_sub(parts).div_ceil(bucket.refill);
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            verdict.tier(index, left, until(wanted.min(bucket.full)), until(bucket.full));
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
        // A product that does not fit fills any bucket.
        parts.saturating_add(elapsed.saturating_mul(refill)).min(full)
    }
}

impl Bucket {
    /// The parts of this many tokens.
    fn of(self, tokens: u32) -> u64 {
        self.token * u64::from(tokens)
    }
}
