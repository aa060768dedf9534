//! The token bucket in plain Rust: the same rule as `store/redis/token_bucket.lua`.

use std::num::NonZeroU64;

use super::per_tier::PerTier;
use crate::{
    policy::{Bucket, Tier},
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
    #[inline(never)]
    pub(super) fn decide(&mut self, now: u64, request: Request<'_>, looks: bool) -> Outcome {
        let Request { policy, cost, record, .. } = request;
        // A clock that stepped back neither fills a bucket nor drains it.
        let elapsed = now.saturating_sub(self.updated);
        let tiers = policy.tiers();
        let stored: &[Level] = &self.levels;
        let (mut levels, mut admitted) = ([Level::default(); MAX_TIERS], true);
        for (index, (tier, level)) in tiers.iter().zip(&mut levels).enumerate() {
            let bucket = policy.bucket(*tier);
            *level = Level::at(stored.get(index), bucket, elapsed);
            admitted &= level.parts >= bucket.of(cost);
        }
        let taken = admitted || policy.counts_rejected();

        let mut verdict = Verdict::new(admitted, looks);
        for (index, (tier, level)) in tiers.iter().zip(&mut levels).enumerate() {
            let bucket = policy.bucket(*tier);
            if taken {
                level.parts = level.parts.saturating_sub(bucket.of(cost));
            }
            let until = |wanted: u64| level.until(bucket, wanted);
            verdict.tier(index, until(bucket.full), || {
                let left = level.parts / bucket.token;
                let wanted = if admitted { (left + 1) * bucket.token } else { bucket.of(cost) };
                let left = u32::try_from(left).unwrap_or(u32::MAX);
                (left, until(wanted.min(bucket.full)))
            });
        }
        if record && (taken || self.updated > now) {
            self.updated = now;
            self.levels.put(&levels[..tiers.len()]);
        }
        verdict.outcome(now, cost, |units| {
            let until = |(tier, level): (&Tier, &Level)| {
                let bucket = policy.bucket(*tier);
                level.until(bucket, bucket.of(units).min(bucket.full))
            };
            tiers.iter().zip(&levels).map(until).max().unwrap_or(0)
        })
    }

    /// The bytes that it takes more on the heap to record a call of so many tiers.
    #[inline]
    pub(super) fn growth(&self, tiers: usize) -> usize {
        self.levels.growth(tiers)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.levels.heap_bytes()
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

impl Default for Level {
    fn default() -> Self {
        Self { parts: 0, token: NonZeroU64::MIN }
    }
}

impl Level {
    /// The level so long after it was written; of a bucket never taken from, a full one.
    fn at(stored: Option<&Self>, bucket: Bucket, elapsed: u64) -> Self {
        let parts = stored.map_or(bucket.full, |stored| stored.parts(bucket, elapsed));
        Self { parts, token: NonZeroU64::new(bucket.token).unwrap_or(NonZeroU64::MIN) }
    }

    /// How long until so many parts are in the bucket.
    fn until(self, bucket: Bucket, wanted: u64) -> u64 {
        wanted.saturating_sub(self.parts).div_ceil(bucket.refill)
    }

    fn parts(self, bucket: Bucket, elapsed: u64) -> u64 {
        let Bucket { token, refill, full } = bucket;
        let parts = if self.token.get() == token {
            self.parts
        } else {
            // At another rate the parts mean something else: the whole tokens are kept.
            (self.parts / self.token).saturating_mul(token)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::Policy;

    const SECOND: u64 = 1_000_000;
    const POLICY: Policy = Policy::token_bucket("p", Duration::from_secs(10), 1);

    #[test]
    fn a_clock_set_back_refuses_until_the_bucket_has_filled_again() {
        let mut bucket = TokenBucket::default();
        let request = Request { policy: &POLICY, cost: 1, record: true, id: None };
        let mut admits = |now| bucket.decide(now, request, true).admitted;
        assert!(admits(1_000 * SECOND));
        // It is of now from the first call on, also of one that is refused.
        assert!(!admits(500 * SECOND));
        assert!(!admits(510 * SECOND - 1));
        assert!(admits(510 * SECOND));
    }
}
