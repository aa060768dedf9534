//! The token bucket in plain Rust: the same rule as `token_bucket.lua`.

use ratelimit_core::rules::MAX_EXACT_INTEGER;

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
/// A call that is settled above its cost may leave a debt, of one full bucket at most.
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
    /// The content of the bucket, in parts of a token; below 0 it is a debt.
    parts: i64,
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

/// The bit of a packed token that makes the content a debt. No token has it: a period has fewer than
/// 2^45 microseconds. So the rate differs from that of any policy, and the straight path is left.
const DEBT: u64 = 1 << 47;

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
        // A policy on this path has no lease.
        let burst = policy.written_bucket_size(*tier);
        let bucket = tier.bucket(burst);
        let Some((parts, written)) = self.packed.read(bucket, burst) else {
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
        let token = packed.token.get();
        let bucket = PackedLevel { token: Word::new(token & !DEBT), ..packed }.rate();
        let parts = packed.parts().cast_signed();
        let parts = if token & DEBT == 0 { parts } else { -parts };
        let level = Self { bucket, since: Timestamp::default(), parts };
        (bucket.token > 0).then_some((packed.written(), level))
    }

    #[inline]
    fn pack(self, written: Timestamp) -> PackedLevel {
        let BucketRate { token, refill, full } = self.bucket;
        let units = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let mut packed = PackedLevel::new(token, units(refill), units(full / token));
        packed.set(self.parts.unsigned_abs(), written);
        if self.parts < 0 {
            packed.token = Word::new(packed.token.get() | DEBT);
        }
        packed
    }

    #[inline]
    fn new(policy: &Policy, tier: Tier, _: Timestamp) -> Self {
        let bucket = policy.bucket(tier);
        Self { bucket, since: Timestamp::default(), parts: bucket.full.cast_signed() }
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self.bucket == other.bucket
    }

    /// The fewest whole tokens in any of the others.
    fn carried(self, others: &[Self], _: Timestamp, now: Timestamp) -> Self {
        let token = |it: &Self| it.bucket.token.cast_signed();
        let tokens = others.iter().map(|it| it.parts.div_euclid(token(it))).min();
        let parts = tokens.map_or(i64::MAX, |tokens| tokens.saturating_mul(token(&self)));
        Self { since: now, parts: self.bounded(parts), ..self }
    }

    #[inline]
    fn advance(header: &mut Header, levels: &mut [Self], now: Timestamp) -> bool {
        // A clock that stepped back neither fills a bucket nor drains it.
        let (elapsed, mut is_full) = (now - header.written, !levels.is_empty());
        for level in levels {
            level.refill(elapsed);
            is_full &= level.parts == level.full();
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
        let admitted = own.iter().all(|level| cost == 0 || level.parts >= level.of(cost.into()));
        let takes = admitted || policy.counts_rejected();
        let mut summary = Summary::new(admitted);
        let mut tokens = 0;
        for (index, level) in (0..).zip(&mut *own) {
            if takes {
                tokens = tokens.max(level.content().div_ceil(level.bucket.token).min(cost.into()));
                level.take(cost.into());
            }
            let left = level.content() / level.bucket.token;
            let wait = level.until(level.of(if admitted { left + 1 } else { cost.into() }));
            let full = level.until(level.full());
            summary.add_tier(index, full, u32::try_from(left).unwrap_or(u32::MAX), wait);
        }
        let mark = Mark { at: now, charged: header.generation.charged() };
        let mut outcome = summary.outcome(mark, cost, |units| {
            let until = |level: &Self| level.until(level.of(units.into()));
            own.iter().map(until).max().unwrap_or_default()
        });
        for level in others {
            level.take(tokens);
            outcome.lasts = outcome.lasts.max(level.lasts(now));
        }
        header.written = now;
        (outcome, takes)
    }

    fn lower(&mut self, _: Timestamp, units: u32, at: Timestamp, _: u32) {
        if self.since <= at {
            self.parts = self.bounded(self.parts.saturating_add(self.of(units.into())));
        }
    }

    fn raise(&mut self, units: u32) {
        self.parts = self.bounded(self.parts.saturating_sub(self.of(units.into())));
    }

    fn lasts(&self, _: Timestamp) -> Micros {
        self.until(self.full())
    }
}

impl Level {
    /// Returns the parts of this many tokens, which may be more than any bucket has.
    fn of(&self, tokens: u64) -> i64 {
        i64::try_from(self.bucket.token.saturating_mul(tokens)).unwrap_or(i64::MAX)
    }

    /// Returns the parts of a full bucket.
    fn full(&self) -> i64 {
        self.bucket.full.cast_signed()
    }

    /// Returns the parts in the bucket, none if it has a debt.
    fn content(&self) -> u64 {
        self.parts.max(0).unsigned_abs()
    }

    /// Returns this level, not above a full bucket and not below its largest debt. Both together are
    /// at most 2^53, so that the script's numbers are exact.
    fn bounded(&self, parts: i64) -> i64 {
        let debt = self.full().min(MAX_EXACT_INTEGER.cast_signed() - self.full());
        parts.max(-debt).min(self.full())
    }

    /// Takes tokens as far as there are any. A debt stays as it is.
    fn take(&mut self, tokens: u64) {
        self.parts = self.parts.saturating_sub(self.of(tokens)).max(self.parts.min(0));
    }

    fn refill(&mut self, elapsed: Micros) {
        let gained = elapsed.get().saturating_mul(self.bucket.refill);
        let gained = i64::try_from(gained).unwrap_or(i64::MAX);
        self.parts = self.parts.saturating_add(gained).min(self.full());
    }

    /// Returns the time until the bucket has this many parts, or is full.
    fn until(&self, wanted: i64) -> Micros {
        let missing = wanted.min(self.full()).saturating_sub(self.parts).max(0).unsigned_abs();
        Micros::new(missing.div_ceil(self.bucket.refill))
    }
}

impl BucketRate {
    /// Returns the content after this time. A product that overflows fills any bucket.
    #[inline]
    fn refilled(self, parts: u64, elapsed: Micros) -> u64 {
        parts.saturating_add(elapsed.get().saturating_mul(self.refill)).min(self.full)
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
        let mut state = State::new(POLICY.state());
        let mut admits = |now| take(&mut state, &POLICY, now, 1).admitted;
        assert!(admits(1_000 * SECOND));
        // The bucket is filled from the first call on, which is refused.
        assert!(!admits(500 * SECOND));
        assert!(!admits(510 * SECOND - 1));
        assert!(admits(510 * SECOND));
    }
}
