//! The token bucket in plain Rust: the same rule as `token_bucket.lua`.

use ratelimit_core::rules::MAX_EXACT_INTEGER;

use super::per_tier::{Count, GivenBack, OneTier};
use crate::{
    policy::{BucketRate, Policy, Tier},
    request::{PlainAnswer, PlainNumbers},
    time::{Micros, Timestamp},
};

/// The bucket of one tier at the last write of the state.
///
/// A call that is settled above its cost may leave a debt, of one full bucket at most.
///
/// Invariant: whichever policy decides, the tokens are taken from every bucket of the state, each
/// of which is refilled at its own rate. All charges together give a bucket back no more than they
/// took from it.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct Level {
    bucket: BucketRate,
    /// The time from which on charges are of this bucket; 0 if it has been there since the state's
    /// first call.
    since: Timestamp,
    /// The content of the bucket, in parts of a token; below 0 it is a debt.
    parts: i64,
    /// The parts that the bucket lacks because of earlier charges, which it has taken over from
    /// others.
    carried: i64,
    /// The units of charges up to a time for which the bucket had no tokens: what comes back of
    /// these charges is first for those.
    untaken: u32,
    untaken_until: Timestamp,
}

/// The numbers of a level, with the burst split over their unused high bits. A token has fewer than
/// 2^48 parts and a bucket fewer than 2^56; 2^56 microseconds are two thousand years.
#[derive(Clone, Copy, Default)]
#[cfg_attr(test, derive(Debug, PartialEq))]
#[repr(C, packed)]
pub(crate) struct PackedLevel {
    token: u64,
    parts: u64,
    written: u64,
    refill: u32,
}

/// The low bits of a word, below its share of the burst.
const LOW_48: u64 = (1 << 48) - 1;

/// The bit of a packed token that makes the content a debt. No token has it: a period has fewer
/// than 2^45 microseconds. So the rate differs from that of any policy, and the call is not plain.
const DEBT: u64 = 1 << 47;

const LOW_56: u64 = (1 << 56) - 1;

impl PackedLevel {
    #[inline]
    fn new(token: u64, refill: u32, burst: u32) -> Self {
        let burst = u64::from(burst);
        let token = token & LOW_48 | (burst >> 16) << 48;
        Self { token, parts: (burst >> 8) << 56, written: burst << 56, refill }
    }

    /// Returns an empty bucket of this rate and size, and the content and the time of the last
    /// write, if this bucket has them.
    #[inline]
    fn read(&self, bucket: BucketRate, burst: u32) -> Option<(Self, u64, Timestamp)> {
        let own = Self::new(bucket.token, self.refill, burst);
        // The shares of an equal burst cancel out.
        let (parts, written) = (self.parts ^ own.parts, self.written ^ own.written);
        let is_own = self.token == own.token
            && u64::from(self.refill) == bucket.refill
            && (parts | written) >> 56 == 0;
        is_own.then_some((own, parts, Timestamp::new(written)))
    }
}

impl OneTier<Level> {
    /// Takes tokens, or refuses them.
    #[inline(never)]
    pub(super) fn take_units<A: PlainAnswer>(
        &mut self,
        now: Timestamp,
        policy: &Policy,
        units: u32,
    ) -> Option<A> {
        // A policy on this path has no lease.
        let [tier] = policy.tiers() else { return None };
        let burst = policy.written_bucket_size(*tier);
        let bucket = tier.bucket(burst);
        let (own, parts, written) = self.packed.read(bucket, burst)?;
        if written > now {
            return None;
        }
        let parts = bucket.refilled(parts, now - written);
        let wanted = bucket.token.saturating_mul(units.into());
        let Some(left) = parts.checked_sub(wanted) else {
            let (wait, reset) = (bucket.until(parts, wanted), bucket.until(parts, bucket.full));
            return A::refused_unit(policy, units, wait, reset);
        };
        // As in `are_renewed`: what was taken before cannot be refunded to a full bucket.
        if parts == bucket.full {
            self.generation = self.generation.renewed(now);
        }
        let (parts, written) = (own.parts | left, own.written | now.get());
        self.packed = PackedLevel { parts, written, ..own };
        Some(A::taken(bucket.until(left, bucket.full), || {
            let tokens = left / bucket.token;
            let remaining = u32::try_from(tokens).unwrap_or(u32::MAX);
            let wait = bucket.until(left, (tokens + 1) * bucket.token);
            PlainNumbers { remaining, wait, charged: self.generation.charged() }
        }))
    }
}

impl Count for Level {
    type Packed = PackedLevel;
    const COUNTS_REFUSED: bool = true;

    #[inline]
    fn unpack(packed: PackedLevel) -> Option<(Timestamp, Self)> {
        let PackedLevel { token: high, parts, written, refill } = packed;
        let (token, refill) = (high & LOW_48 & !DEBT, refill.into());
        let burst = high >> 48 << 16 | parts >> 56 << 8 | written >> 56;
        let bucket = BucketRate { token, refill, full: token.saturating_mul(burst) };
        let parts = (parts & LOW_56).cast_signed();
        let parts = if high & DEBT == 0 { parts } else { -parts };
        let level = Self { parts, ..Self::full_of(bucket) };
        (token > 0).then_some((Timestamp::new(written & LOW_56), level))
    }

    #[inline]
    fn pack(self, written: Timestamp) -> PackedLevel {
        let BucketRate { token, refill, full } = self.bucket;
        let units = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let mut packed = PackedLevel::new(token, units(refill), units(full / token));
        packed.parts |= self.parts.unsigned_abs() & LOW_56;
        packed.written |= written.get() & LOW_56;
        if self.parts < 0 {
            packed.token |= DEBT;
        }
        packed
    }

    fn new(policy: &Policy, tier: Tier, _: Timestamp) -> Self {
        Self::full_of(policy.bucket(tier))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.bucket == other.bucket
    }

    /// The fewest whole tokens in any of the others. Without their charges, it would have those of
    /// the smallest one.
    fn carried(self, others: &[Self], written: Timestamp, now: Timestamp) -> Self {
        // Whole tokens, rounded down also for a debt: the new bucket has no more than the others.
        let tokens = |it: &Self, parts: i64| parts.div_euclid(it.bucket.token.cast_signed());
        let fewest = |it: &mut dyn Iterator<Item = i64>| {
            let tokens = it.min().unwrap_or(i64::MAX);
            self.bounded(tokens.saturating_mul(self.bucket.token.cast_signed()))
        };
        let parts = fewest(&mut others.iter().map(|it| tokens(it, it.parts)));
        let most = fewest(&mut others.iter().map(|it| tokens(it, it.full())));
        let last = others.iter().map(|it| it.since).fold(written, Timestamp::max);
        // A charge of the microsecond of the last write is not one of this bucket.
        let since = now.max(last + Micros::new(1));
        Self { since, parts, carried: most - parts, ..self }
    }

    /// Refills the bucket. A clock that stepped back neither fills it nor drains it.
    #[inline]
    fn advance(&mut self, written: Timestamp, now: Timestamp) -> bool {
        let gained = (now - written).get().saturating_mul(self.bucket.refill);
        let gained = i64::try_from(gained).unwrap_or(i64::MAX);
        self.parts = self.parts.saturating_add(gained).min(self.full());
        // What refills a bucket is no longer missing because of earlier charges.
        self.carried = self.carried.min(self.full() - self.parts);
        let is_ahead = written > now;
        if is_ahead {
            self.since = self.since.min(now);
        }
        is_ahead
    }

    /// Full buckets are as if nothing had ever been taken: there is nothing to refund either.
    #[inline]
    fn are_renewed(levels: &[Self]) -> bool {
        !levels.is_empty() && levels.iter().all(|level| level.parts == level.full())
    }

    fn kept(policy: &Policy, tier: &Tier) -> u32 {
        policy.tokens_left(*tier)
    }

    fn has_room(&self, _: Timestamp, _: &Tier, units: u32) -> bool {
        self.parts >= self.of(units)
    }

    #[inline]
    fn left(&self, _: Timestamp, _: &Tier) -> u32 {
        u32::try_from(self.content() / self.bucket.token).unwrap_or(u32::MAX)
    }

    /// Returns the time until the bucket has this many tokens, or is full.
    fn until(&self, _: Timestamp, _: &Tier, units: u32) -> Micros {
        self.until_parts(self.of(units))
    }

    #[inline]
    fn take(&mut self, _: &Tier, units: u32) -> u32 {
        // Rounded up: a refused call takes the last part of a token, too.
        let tokens = self.content().div_ceil(self.bucket.token);
        self.follow(units, None);
        u32::try_from(tokens).map_or(units, |tokens| tokens.min(units))
    }

    /// Takes tokens as far as there are any. A debt stays as it is.
    fn follow(&mut self, units: u32, charged: Option<Timestamp>) {
        let tokens = u32::try_from(self.content() / self.bucket.token).unwrap_or(u32::MAX);
        if let Some(at) = charged.filter(|_| tokens < units) {
            self.untaken = self.untaken.saturating_add(units - tokens);
            self.untaken_until = at;
        }
        self.parts = self.parts.saturating_sub(self.of(units)).max(self.parts.min(0));
    }

    fn since(&self) -> Timestamp {
        self.since
    }

    fn lower(&mut self, _: Timestamp, charge: GivenBack, limit: u32) -> u32 {
        let GivenBack { mut units, at, .. } = charge;
        let is_own = self.since <= at;
        if !is_own {
            units = limit;
        }
        if at <= self.untaken_until {
            let untaken = self.untaken.min(units);
            (self.untaken, units) = (self.untaken - untaken, units - untaken);
        }
        let mut parts = self.of(units);
        if !is_own {
            parts = parts.min(self.carried);
            self.carried -= parts;
            let tokens = parts.unsigned_abs() / self.bucket.token;
            units = u32::try_from(tokens).unwrap_or(u32::MAX);
        }
        self.parts = self.bounded(self.parts.saturating_add(parts));
        units
    }

    fn raise(&mut self, units: u32) {
        self.parts = self.bounded(self.parts.saturating_sub(self.of(units)));
    }

    fn lasts(&self, _: Timestamp) -> Micros {
        self.until_parts(self.full())
    }
}

impl Level {
    fn full_of(bucket: BucketRate) -> Self {
        let [since, untaken_until] = [Timestamp::default(); 2];
        let parts = bucket.full.cast_signed();
        Self { bucket, since, parts, carried: 0, untaken: 0, untaken_until }
    }

    /// Returns the parts of this many tokens, which may be more than any bucket has.
    fn of(&self, tokens: u32) -> i64 {
        i64::try_from(self.bucket.token.saturating_mul(tokens.into())).unwrap_or(i64::MAX)
    }

    /// Returns the parts of a full bucket.
    fn full(&self) -> i64 {
        self.bucket.full.cast_signed()
    }

    /// Returns the parts in the bucket, none if it has a debt.
    fn content(&self) -> u64 {
        self.parts.max(0).unsigned_abs()
    }

    /// Returns this level, not above a full bucket and not below its largest debt. Both together
    /// are at most 2^53, so that the script's numbers are exact.
    fn bounded(&self, parts: i64) -> i64 {
        let debt = self.full().min(MAX_EXACT_INTEGER.cast_signed() - self.full());
        parts.max(-debt).min(self.full())
    }

    /// Returns the time until the bucket has this many parts, or is full.
    fn until_parts(&self, wanted: i64) -> Micros {
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
    use crate::{
        algorithms::{State, tests::take},
        request::LinePlace,
    };

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

    #[test]
    fn a_refund_gives_tokens_beside_those_that_were_refilled_since() {
        let policy = Policy::token_bucket("p", Duration::from_secs(1), 10);
        let mut state = State::new(policy.state());
        let outcome = take(&mut state, &policy, SECOND, 3);
        // 9.9 tokens are in the bucket, and 9 of them are taken.
        let now = SECOND + 290_000;
        assert!(take(&mut state, &policy, now, 9).admitted);
        let charge = LinePlace { policy: &policy, cost: 3, mark: outcome.mark, id: None };
        state.settle(Timestamp::new(now), &charge.leave());
        assert!(take(&mut state, &policy, now, 3).admitted);
        assert!(!take(&mut state, &policy, now, 1).admitted);
    }
}
