//! The part of a policy that lets processes reserve units, and the buckets that are smaller by it.

use std::time::Duration;

use ratelimit_core::rules;

use super::{BucketRate, Policy, StateKind, Tier};
use crate::time::Micros;

impl Policy {
    /// Lets each process reserve units of a busy caller on Redis, and decide by them in memory for at most this
    /// long.
    ///
    /// It is for a few callers with many calls, such as one key for a whole service: see
    /// [leases](crate::guide::waiting#leases). Without it every call asks Redis, whose one thread
    /// decides some 100 000 calls a second. In memory a lease changes no count: the store is in the process
    /// already.
    ///
    /// No window of a sliding window admits more than the threshold, except by the [faults](#faults-of-leases)
    /// below. A lease makes refusals earlier: units that a process has taken are missing
    /// in others until they are used or given back. A window loses at most two
    /// leases of its period, and the units that nobody uses. The wait of a refusal may be too long by as
    /// much, and never too short.
    ///
    /// A `length` is at least 1 ms and at most a tenth of the shortest period, in whole milliseconds. A
    /// fiftieth is advised. It does not go with
    /// [`count_rejected`](Self::count_rejected), [`concurrency`](Self::concurrency), and calls with
    /// [`request_id`](crate::Check::request_id) or [`max_wait`](crate::Check::max_wait): they need the
    /// store at each call. An [override](crate::Overrides) of the limit has no lease.
    ///
    /// A [`token_bucket`](Self::token_bucket) under a lease holds fewer tokens, by as many as refill
    /// during the lease, also in memory. At least one must be left.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::Policy;
    ///
    /// const SEARCH: Policy = Policy::sliding_window("search", Duration::from_secs(1), 1_000_000)
    ///     .lease(Duration::from_millis(20));
    /// assert!(SEARCH.validate().is_ok());
    /// ```
    ///
    /// # Faults of leases
    ///
    /// | Event | Effect on units on lease |
    /// |---|---|
    /// | a process dies, or loses the reply to a lease | its units come free when the lease and one period have passed |
    /// | the process cannot reach Redis | it uses its units until they are gone or their lease ends; then [`OnStoreError`](crate::OnStoreError) decides |
    /// | a process stands still, as by `kill -STOP` | it uses no unit after the end of the lease, by the monotonic clock of its system |
    /// | its machine is suspended, or restored from a snapshot | that clock may stand still too: after the return, it uses units for at most one lease more |
    /// | the clock of Redis is set back | calls are refused for at most one period and a lease more |
    /// | the clock of Redis is set forward, or it loses its keys | at most one more threshold is admitted |
    /// | a failover loses the last writes | the lost units are admitted once more |
    /// | [`Limiter::reset`](crate::Limiter::reset), or the key is deleted | leases of the process that resets end at once; others use theirs until their end |
    /// | an [override](crate::Overrides) changes the limit | each call asks Redis, which counts the units on lease as taken until the end of the lease |
    pub const fn lease(mut self, length: Duration) -> Self {
        self.lease = Some(Micros::whole_millis(length));
        self.checked()
    }

    /// Returns the length of a [lease](Self::lease), if the policy has one.
    #[must_use]
    pub const fn get_lease(&self) -> Option<Duration> {
        match self.lease {
            Some(length) => Some(Duration::from_micros(length.get())),
            None => None,
        }
    }

    /// Returns the length of a lease, if the policy has one.
    pub(crate) const fn lease_micros(&self) -> Option<Micros> {
        self.lease
    }

    /// Returns this policy without its lease.
    pub(crate) const fn without_lease(mut self) -> Self {
        self.lease = None;
        self.checked()
    }

    /// Returns the units that come free during a lease, of the tier with the fewest; `None` without a
    /// lease.
    pub(crate) fn units_of_lease(&self) -> Option<u64> {
        let lease = self.lease_micros()?;
        self.tiers().iter().map(|tier| tier.refilled(lease)).min()
    }

    /// Returns the rate and size of this tier as a token bucket.
    pub(crate) fn bucket(&self, tier: Tier) -> BucketRate {
        tier.bucket(self.bucket_size(tier))
    }

    /// Returns the tokens of a full bucket of this tier, if the policy has buckets.
    #[inline]
    pub(crate) fn burst_of(&self, tier: Tier) -> Option<u32> {
        matches!(self.state, StateKind::TokenBucket).then(|| self.bucket_size(tier))
    }

    /// Returns the tokens of a full bucket of this tier, without regard to a lease.
    pub(crate) fn written_bucket_size(&self, tier: Tier) -> u32 {
        self.burst.unwrap_or(tier.threshold())
    }

    /// Returns the tokens of a full bucket of this tier, as far as calls under the policy may take
    /// them.
    #[inline]
    pub(crate) fn bucket_size(&self, tier: Tier) -> u32 {
        let written = self.written_bucket_size(tier);
        match self.lease_micros() {
            None => written,
            Some(lease) => {
                let refilled = u32::try_from(tier.refilled(lease)).unwrap_or(u32::MAX);
                written.saturating_sub(refilled)
            }
        }
    }
}

impl Tier {
    fn refilled(self, lease: Micros) -> u64 {
        rules::refilled((self.period, self.threshold.into()), lease.get())
    }
}
