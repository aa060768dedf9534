//! The token bucket in plain Rust: the same rule as `store/redis/token_bucket.lua`.

use super::{
    packed::{Short, Time, Units},
    per_tier::{Entry, Moment, Verdict},
    summary::Summary,
};
use crate::{
    policy::{BucketRate, Policy, Tier},
    request::{Detail, Mark, Request},
    time::{Micros, Timestamp},
};

/// A bucket, and what was in it when the state was last written.
///
/// Invariant: whichever policy decides, the tokens are taken from every bucket of the state, each of
/// which is refilled at its own rate.
#[derive(Clone, Copy)]
pub(crate) struct Level {
    bucket: BucketRate,
    /// 0: as long as the state.
    since: Timestamp,
    /// What is in the bucket, in parts of a token.
    parts: u64,
}

impl Entry for Level {
    /// The parts of a token, when, the parts, what comes back each microsecond, the tokens of a full
    /// bucket.
    type Packed = (Short<6>, Time, Short<7>, Units, Units);
    const NONE: Self::Packed = (Short::ZERO, Time::ZERO, Short::ZERO, Units::ZERO, Units::ZERO);

    #[inline]
    fn unpack((token, last, parts, refill, burst): Self::Packed) -> Option<(Timestamp, Self)> {
        let (token, refill) = (token.get(), refill.get());
        let bucket = BucketRate { token, refill, full: token * burst.get() };
        (token > 0).then_some((
            last.get(),
            Self { bucket, since: Timestamp::default(), parts: parts.get() },
        ))
    }

    #[inline]
    fn pack(self, last: Timestamp) -> Self::Packed {
        let BucketRate { token, refill, full } = self.bucket;
        let (refill, burst) = (Units::new(refill), Units::new(full / token));
        (Short::new(token), Time::new(last), Short::new(self.parts), refill, burst)
    }

    #[inline]
    fn new(policy: &Policy, tier: Tier, _: Timestamp) -> Self {
        let bucket = policy.bucket(tier);
        Self { bucket, since: Timestamp::default(), parts: bucket.full }
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self.bucket == other.bucket
    }

    /// The fewest whole tokens that are in any of the others.
    fn carried(self, others: &[Self], _: Timestamp, now: Timestamp) -> Self {
        let tokens = others.iter().map(|it| it.parts / it.bucket.token).min();
        let parts = tokens.map_or(u64::MAX, |tokens| tokens.saturating_mul(self.bucket.token));
        Self { since: now, parts: parts.min(self.bucket.full), ..self }
    }

    #[inline]
    fn see(moment: &mut Moment, entries: &mut [Self], now: Timestamp) -> bool {
        // A clock that stepped back neither fills a bucket nor drains it.
        let (elapsed, mut is_full) = (now - moment.last, !entries.is_empty());
        for level in entries {
            let BucketRate { refill, full, .. } = level.bucket;
            // A product that does not fit fills any bucket.
            level.parts =
                level.parts.saturating_add(elapsed.get().saturating_mul(refill)).min(full);
            is_full &= level.parts == full;
        }
        if is_full {
            // As if nothing had ever been taken: there is nothing to give back either.
            moment.generation = moment.generation.renewed(now);
        }
        moment.last > now
    }

    #[inline]
    fn judge(
        moment: &mut Moment,
        (own, others): (&mut [Self], &mut [Self]),
        now: Timestamp,
        request: Request<'_>,
        detail: Detail,
    ) -> Verdict {
        let Request { policy, cost, .. } = request;
        let admitted = own.iter().all(|level| level.parts >= level.bucket.of(cost));
        let taken = admitted || policy.counts_rejected();
        let mut verdict = Summary::new(admitted, detail);
        let mut tokens = 0;
        for (index, level) in own.iter_mut().enumerate() {
            let BucketRate { token, full, .. } = level.bucket;
            if taken {
                tokens = tokens.max(level.parts.div_ceil(token).min(cost.into()));
                level.parts = level.parts.saturating_sub(level.bucket.of(cost));
            }
            verdict.tier(index, level.until(full), || {
                let left = level.parts / token;
                let wanted = if admitted { (left + 1) * token } else { level.bucket.of(cost) };
                (u32::try_from(left).unwrap_or(u32::MAX), level.until(wanted))
            });
        }
        let mark = Mark { at: now, charged: moment.generation.charged() };
        let mut outcome = verdict.outcome(mark, cost, |units| {
            own.iter().map(|level| level.until(level.bucket.of(units))).max().unwrap_or_default()
        });
        for level in others {
            let taken = tokens.saturating_mul(level.bucket.token);
            level.parts = level.parts.saturating_sub(taken);
            outcome.lasts = outcome.lasts.max(level.until(level.bucket.full));
        }
        moment.last = now;
        Verdict { outcome, is_taken: taken }
    }

    fn refund(&mut self, _: Timestamp, cost: u32, at: Timestamp) {
        if self.since <= at {
            self.parts = (self.parts + self.bucket.of(cost)).min(self.bucket.full);
        }
    }
}

impl Level {
    /// How long until so many parts, or all that have room, are in the bucket.
    fn until(self, wanted: u64) -> Micros {
        let missing = wanted.min(self.bucket.full).saturating_sub(self.parts);
        Micros::new(missing.div_ceil(self.bucket.refill))
    }
}

impl BucketRate {
    /// The parts of this many tokens.
    fn of(self, tokens: u32) -> u64 {
        self.token * u64::from(tokens)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithms::{State, tests::take};

    const SECOND: u64 = 1_000_000;
    const POLICY: Policy = Policy::token_bucket("p", Duration::from_secs(10), 1);

    #[test]
    fn a_clock_set_back_refuses_until_the_bucket_has_filled_again() {
        let mut state = State::new(POLICY.algorithm());
        let mut admits = |now| take(&mut state, &POLICY, now, 1).admitted;
        assert!(admits(1_000 * SECOND));
        // It is of now from the first call on, also of one that is refused.
        assert!(!admits(500 * SECOND));
        assert!(!admits(510 * SECOND - 1));
        assert!(admits(510 * SECOND));
    }
}
