//! The token bucket in plain Rust: the same rule as `token_bucket.lua`.

use super::{
    Detail, Straight,
    packed::{PackedUnits, Word},
    per_tier::{Count, Header, OneTier},
    summary::Summary,
};
use crate::{
    policy::{BucketRate, Policy, Tier},
    request::{Mark, Outcome, Request},
    time::{Micros, Timestamp},
};

/// The bucket of one tier at the last write of the state.
///
/// Invariant: whichever policy decides, the tokens are taken from every bucket of the state, each of
/// which is refilled at its own rate.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct Level {
    bucket: BucketRate,
    /// The time from which the bucket counts units; 0 if it has counted since the state's first
    /// call.
    since: Timestamp,
    /// The content of the bucket, in parts of a token.
    parts: u64,
}

/// The numbers of a level, with the burst split over their unused high bits. A token has fewer than
/// 2^48 parts and a bucket fewer than 2^56; 2^56 microseconds are two thousand years.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct PackedLevel {
    token: Word,
    parts: Word,
    written: Word,
    refill: PackedUnits,
}

/// The low bits of a word, below its share of the burst.
const LOW_48: u64 = (1 << 48) - 1;
const LOW_56: u64 = (1 << 56) - 1;

impl PackedLevel {
    #[inline]
    fn new(token: u64, refill: u32, burst: u32) -> Self {
        let burst = u64::from(burst);
        Self {
            token: Word::new(token.min(LOW_48) | (burst >> 16) << 48),
            parts: Word::new((burst >> 8) << 56),
            written: Word::new(burst << 56),
            refill: PackedUnits::new(refill),
        }
    }

    #[inline]
    fn parts(&self) -> u64 {
        self.parts.get() & LOW_56
    }

    #[inline]
    fn written(&self) -> Timestamp {
        Timestamp::new(self.written.get() & LOW_56)
    }

    /// Returns the content and the time of the last write, if the bucket has this rate and size.
    #[inline]
    fn read(&self, bucket: BucketRate, burst: u32) -> Option<(u64, Timestamp)> {
        let own = Self::new(bucket.token, 0, burst);
        // The shares of an equal burst cancel out.
        let parts = self.parts.get() ^ own.parts.get();
        let written = self.written.get() ^ own.written.get();
        let is_own = self.token == own.token
            && u64::from(self.refill.get()) == bucket.refill
            && (parts | written) <= LOW_56;
        is_own.then_some((parts, Timestamp::new(written)))
    }

    #[inline]
    fn set(&mut self, parts: u64, written: Timestamp) {
        self.parts = Word::new(self.parts.get() & !LOW_56 | parts.min(LOW_56));
        self.written = Word::new(self.written.get() & !LOW_56 | written.get().min(LOW_56));
    }

    #[inline]
    fn rate(&self) -> BucketRate {
        let (token, refill) = (self.token.get() & LOW_48, self.refill.get().into());
        let [middle, low] = [self.parts, self.written].map(|word| word.get() >> 56);
        let burst = self.token.get() >> 48 << 16 | middle << 8 | low;
        BucketRate { token, refill, full: token.saturating_mul(burst) }
    }
}

impl OneTier<Level> {
    /// Takes one token, or refuses it.
    #[inline]
    pub(super) fn take_one<D: Detail>(
        &mut self,
        now: Timestamp,
        policy: &Policy,
        tier: &Tier,
    ) -> Straight<D> {
        let bucket = policy.bucket(*tier);
        let Some((parts, written)) = self.packed.read(bucket, policy.bucket_size(*tier)) else {
            return Straight::Skipped;
        };
        if written > now {
            return Straight::Skipped;
        }
        let parts = bucket.refilled(parts, now - written);
        let Some(left) = parts.checked_sub(bucket.token) else {
            let wait = bucket.until(parts, bucket.token);
            return Straight::Refused { wait, reset: bucket.until(parts, bucket.full) };
        };
        if parts == bucket.full {
            self.generation = self.generation.renewed(now);
        }
        self.packed.set(left, now);
        let lasts = bucket.until(left, bucket.full);
        let detail = D::new(|| {
            let tokens = left / bucket.token;
            let wait = bucket.until(left, (tokens + 1) * bucket.token);
            let mark = Mark { at: now, charged: self.generation.charged() };
            Outcome::admitted(u32::try_from(tokens).unwrap_or(u32::MAX), wait, lasts, mark)
        });
        Straight::Admitted { lasts, detail }
    }
}

impl Count for Level {
    type Packed = PackedLevel;
    const EMPTY: PackedLevel = PackedLevel {
        token: Word::ZERO,
        parts: Word::ZERO,
        written: Word::ZERO,
        refill: PackedUnits::ZERO,
    };

    #[inline]
    fn unpack(packed: PackedLevel) -> Option<(Timestamp, Self)> {
        let (bucket, since) = (packed.rate(), Timestamp::default());
        let level = Self { bucket, since, parts: packed.parts() };
        (bucket.token > 0).then_some((packed.written(), level))
    }

    #[inline]
    fn pack(self, written: Timestamp) -> PackedLevel {
        let BucketRate { token, refill, full } = self.bucket;
        let units = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let mut packed = PackedLevel::new(token, units(refill), units(full / token));
        packed.set(self.parts, written);
        packed
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

    /// The fewest whole tokens in any of the others.
    fn carried(self, others: &[Self], _: Timestamp, now: Timestamp) -> Self {
        let tokens = others.iter().map(|it| it.parts / it.bucket.token).min();
        let parts = tokens.map_or(u64::MAX, |tokens| tokens.saturating_mul(self.bucket.token));
        Self { since: now, parts: parts.min(self.bucket.full), ..self }
    }

    #[inline]
    fn advance(header: &mut Header, levels: &mut [Self], now: Timestamp) -> bool {
        // A clock that stepped back neither fills a bucket nor drains it.
        let (elapsed, mut is_full) = (now - header.written, !levels.is_empty());
        for level in levels {
            level.parts = level.bucket.refilled(level.parts, elapsed);
            is_full &= level.parts == level.bucket.full;
        }
        if is_full {
            // As if nothing had ever been taken: there is nothing to refund either.
            header.generation = header.generation.renewed(now);
        }
        header.written > now
    }

    #[inline]
    fn decide(
        header: &mut Header,
        (own, others): (&mut [Self], &mut [Self]),
        now: Timestamp,
        request: Request<'_>,
    ) -> (Outcome, bool) {
        let Request { policy, cost, .. } = request;
        let admitted = own.iter().all(|level| level.parts >= level.bucket.of(cost));
        let takes = admitted || policy.counts_rejected();
        let mut summary = Summary::new(admitted);
        let mut tokens = 0;
        for (index, level) in (0..).zip(&mut *own) {
            let BucketRate { token, full, .. } = level.bucket;
            if takes {
                tokens = tokens.max(level.parts.div_ceil(token).min(cost.into()));
                level.parts = level.parts.saturating_sub(level.bucket.of(cost));
            }
            let left = level.parts / token;
            let wanted = if admitted { (left + 1) * token } else { level.bucket.of(cost) };
            let wait = level.until(wanted);
            summary.add_tier(
                index,
                level.until(full),
                u32::try_from(left).unwrap_or(u32::MAX),
                wait,
            );
        }
        let mark = Mark { at: now, charged: header.generation.charged() };
        let mut outcome = summary.outcome(mark, cost, |units| {
            own.iter().map(|level| level.until(level.bucket.of(units))).max().unwrap_or_default()
        });
        for level in others {
            let parts = tokens.saturating_mul(level.bucket.token);
            level.parts = level.parts.saturating_sub(parts);
            outcome.lasts = outcome.lasts.max(level.until(level.bucket.full));
        }
        header.written = now;
        (outcome, takes)
    }

    fn lower(&mut self, _: Timestamp, units: u32, at: Timestamp) {
        if self.since <= at {
            self.parts = (self.parts + self.bucket.of(units)).min(self.bucket.full);
        }
    }
}

impl Level {
    /// Returns the time until the bucket has this many parts, or is full.
    fn until(self, wanted: u64) -> Micros {
        self.bucket.until(self.parts, wanted)
    }
}

impl BucketRate {
    /// Returns the parts of this many tokens.
    fn of(self, tokens: u32) -> u64 {
        self.token * u64::from(tokens)
    }

    /// Returns the content after this time. A product that overflows fills any bucket.
    #[inline]
    fn refilled(self, parts: u64, elapsed: Micros) -> u64 {
        parts.saturating_add(elapsed.get().saturating_mul(self.refill)).min(self.full)
    }

    /// Returns the time until a bucket with this content has `wanted` parts, or is full.
    #[inline]
    fn until(self, parts: u64, wanted: u64) -> Micros {
        let missing = wanted.min(self.full).saturating_sub(parts);
        // Mostly one part returns each microsecond, and there is nothing to divide.
        Micros::new(if self.refill == 1 { missing } else { missing.div_ceil(self.refill) })
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
        // The bucket is filled from the first call on, which is refused.
        assert!(!admits(500 * SECOND));
        assert!(!admits(510 * SECOND - 1));
        assert!(admits(510 * SECOND));
    }
}
