//! The settings of a policy beside its tiers and its zone, and their getters.

use std::time::Duration;

use ratelimit_core::{Algorithm, rules::MAX_BLOCKS};

use super::{Flags, OnStoreError, Policy, QuotaUnit};
use crate::time::Micros;

/// The timeout without [`Policy::concurrency_timeout`].
const DEFAULT_TIMEOUT: Micros = Micros::new(30_000_000);

impl Policy {
    /// Sets the size of a [`token_bucket`](Self::token_bucket), in tokens; the threshold by
    /// default. A caller can take this many tokens at once after a pause. A burst is invalid with
    /// several tiers, and with other algorithms.
    pub const fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self.checked()
    }

    /// Returns the size of the bucket in tokens, if [`burst`](Self::burst) has set one.
    #[must_use]
    pub const fn get_burst(&self) -> Option<u32> {
        self.burst
    }

    /// Records refused calls as well: a caller that does not stop stays refused.
    ///
    /// A sliding window or counter counts the units of a refused call like those of an admitted
    /// one, up to the threshold. A token bucket loses its tokens. The wait of a refusal includes
    /// this. A fixed window with it is invalid.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::Policy;
    /// const LOGIN: Policy =
    ///     Policy::sliding_window("login", Duration::from_secs(60), 3).count_rejected();
    /// assert!(LOGIN.counts_rejected());
    /// ```
    pub const fn count_rejected(mut self) -> Self {
        self.flags = self.flags.with(Flags::COUNT_REJECTED, true);
        self.checked()
    }

    /// Returns `true` if refused calls are recorded as well.
    #[must_use]
    pub const fn counts_rejected(&self) -> bool {
        self.flags.has(Flags::COUNT_REJECTED)
    }

    /// Returns this policy without recording of refused calls.
    pub(crate) const fn without_count_rejected(mut self) -> Self {
        self.flags = self.flags.with(Flags::COUNT_REJECTED, false);
        self.checked()
    }

    /// Creates a policy of at most `calls` in flight at one time, without a window.
    ///
    /// A call that finds no permit free fails with [`Busy`](crate::Busy).
    ///
    /// ```
    /// use ratelimit_runtime::{Limiter, Policy, RateLimitError};
    ///
    /// const UPLOAD: Policy = Policy::concurrency_limit("upload", 1);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimitError> {
    /// let limiter = Limiter::in_memory();
    /// let upload = limiter.check(&UPLOAD, "alice").await?;
    /// let second = limiter.check(&UPLOAD, "alice").await;
    /// assert!(matches!(second, Err(RateLimitError::Busy(_))));
    /// drop(upload);
    /// assert!(limiter.check(&UPLOAD, "alice").await?.has_permit());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn concurrency_limit(name: &'static str, calls: u32) -> Self {
        Self::without_tiers(name, Algorithm::SlidingWindow).concurrency(calls)
    }

    /// Admits a call only while fewer than `calls` of its caller are in flight, over all processes.
    ///
    /// An admitted call holds a permit until the last clone of its [`Decision`](crate::Decision) is
    /// dropped. The windows and the permit are decided together: a call takes both or none.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::Policy;
    /// /// A hundred exports a day, and two at one time.
    /// const EXPORT: Policy =
    ///     Policy::sliding_window("export", Duration::from_secs(86_400), 100).concurrency(2);
    /// assert_eq!(EXPORT.get_concurrency(), Some(2));
    /// ```
    ///
    /// # Faults of permits
    ///
    /// Redis never counts more calls than the limit. More run only if a call goes on without its
    /// permit:
    ///
    /// | Event | Calls above the limit, at most |
    /// |---|---|
    /// | a process is killed, or a release is lost or comes before its call | none; the permit is taken until its timeout |
    /// | a process is paused, or cut off from Redis, for a timeout | the permits that it held |
    /// | Redis loses all state, or its clock steps forward by the timeout | the limit, until the next renewals |
    /// | a failover loses the last writes | the permits that were granted in them |
    /// | Redis' clock steps back | none |
    /// | Redis is away, under [`OnStoreError::Local`](crate::OnStoreError::Local) | the limit for each process, which counts the permits that it holds already |
    pub const fn concurrency(mut self, calls: u32) -> Self {
        self.concurrency = Some(calls);
        self.checked()
    }

    /// Returns this policy without a bound of calls in flight.
    pub(crate) const fn without_concurrency(mut self) -> Self {
        (self.concurrency, self.concurrency_timeout) = (None, None);
        self.checked()
    }

    /// Sets the time after which the permit of a process that died is free; 30 s by default, at
    /// least 100 ms and at most one day.
    ///
    /// It matters on Redis alone. Permits of living processes are renewed there each third of the
    /// timeout, so that a call may take longer. In memory a permit ends with its process.
    pub const fn concurrency_timeout(mut self, timeout: Duration) -> Self {
        self.concurrency_timeout = Some(Micros::whole_millis(timeout));
        self.checked()
    }

    /// Returns the time after which a permit that is not renewed is free.
    pub(crate) fn permit_timeout(&self) -> Micros {
        self.concurrency_timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    /// Returns the calls of one caller that may be in flight at one time, if
    /// [`concurrency`](Self::concurrency) has set their number.
    #[must_use]
    pub const fn get_concurrency(&self) -> Option<u32> {
        self.concurrency
    }

    /// Lets each process reserve units of a busy caller on Redis, and decide by them in memory for
    /// at most this long.
    ///
    /// It is for a few callers with many calls, such as one key for a whole service: see
    /// [leases](crate::guide::waiting#leases). Without it every call asks Redis, whose one thread
    /// decides some 100 000 calls a second. In memory a lease changes no count: the store is in the
    /// process already.
    ///
    /// No window of a sliding window admits more than the threshold, except by the
    /// [faults](#faults-of-leases) below. A lease makes refusals earlier: units that a process has
    /// taken are missing in others until they are used or given back. A window loses at most two
    /// leases of its period, and the units that nobody uses. The wait of a refusal may be too long
    /// by as much, and never too short.
    ///
    /// A `length` is at least 1 ms and at most a tenth of the shortest period, in whole
    /// milliseconds. A fiftieth is advised. It does not go with
    /// [`count_rejected`](Self::count_rejected), [`concurrency`](Self::concurrency), and calls with
    /// [`request_id`](crate::Check::request_id) or [`max_wait`](crate::Check::max_wait): they need
    /// the store at each call. An [override](crate::Overrides) of the limit has no lease.
    ///
    /// A [`token_bucket`](Self::token_bucket) under a lease holds fewer tokens, by as many as
    /// refill during the lease, also in memory. At least one must be left.
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

    /// Shuts a caller out who exceeds the limit: for the first of these lengths, and each time that
    /// it happens again for the next one.
    ///
    /// An offence is a call that a window refuses, also in a dry run. A wrong password is none.
    /// Until the block is over, all calls of the caller are refused that cost anything. These
    /// refusals are no offences, and neither are those of a [`peek`](crate::Limiter::peek) and of
    /// [`concurrency`](Self::concurrency). Their wait is that of the block, or of the window if
    /// that is longer.
    ///
    /// After the block the window alone decides: its next refusal is the next offence. Each quiet
    /// stretch as long as the block was forgives one step. Make the first length longer than the
    /// period: the window's own wait hides a shorter one, and that of a caller who waits as told is
    /// forgiven each time if it is at most half the period.
    ///
    /// [`Limiter::reset`](crate::Limiter::reset) ends a block; a refund, a settle and a raised
    /// threshold do not. If [other limits](crate::Limiter::check_all) refuse a call, the units that
    /// it took here are given back. If another call was refused meanwhile, and would have passed
    /// with these units, its block ends. A call that is settled above its cost may leave a debt, by
    /// which the next one offends. While [enforcement](crate::Enforcement) is off, blocks are kept
    /// and calls pass. [`LimitUsage::blocked_for`](crate::usage::LimitUsage::blocked_for) shows a
    /// block to its caller.
    ///
    /// One to four lengths of 1 ms to 31 days, in whole milliseconds, each longer than the one
    /// before. Beside them a policy has at most seven tiers. They do not go with a
    /// [`lease`](Self::lease), and with calls that have a [`max_wait`](crate::Check::max_wait), a
    /// [`request_id`](crate::Check::request_id) or [`leave`](crate::Check::leave) a share, and with
    /// a [`pause`](crate::Limiter::pause).
    ///
    /// Never block by a name that strangers can write, such as that of an account at its login:
    /// they could shut its owner out.
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

    /// Sets the unit that header fields name, for calls whose cost is not 1. It changes no
    /// decision.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use ratelimit_runtime::{Policy, QuotaUnit};
    ///
    /// const TOKENS: Policy = Policy::sliding_window("tokens", Duration::from_secs(60), 1_000)
    ///     .quota_unit(QuotaUnit::Tokens);
    /// assert_eq!(TOKENS.get_quota_unit(), QuotaUnit::Tokens);
    /// ```
    pub const fn quota_unit(mut self, unit: QuotaUnit) -> Self {
        self.flags = self.flags.with_unit(unit);
        self
    }

    /// Returns what a unit is, which [`quota_unit`](Self::quota_unit) has set.
    #[must_use]
    pub const fn get_quota_unit(&self) -> QuotaUnit {
        self.flags.unit()
    }

    /// Sets the answer to a call that Redis cannot decide in time, or for which memory is full; by
    /// default the limiter's own [setting](crate::LimiterBuilder::on_store_error).
    ///
    /// [`Check::on_store_error`](crate::Check::on_store_error) and the attribute's argument set it
    /// for single calls and functions, and come before this. An
    /// [override](crate::Override::on_store_error) comes before all.
    pub const fn on_store_error(mut self, on_store_error: OnStoreError) -> Self {
        self.on_store_error = Some(on_store_error);
        self
    }

    /// Returns this policy with the answer of an override.
    pub(crate) const fn with_overridden_answer(mut self, on_store_error: OnStoreError) -> Self {
        self.overridden_answer = Some(on_store_error);
        self
    }

    /// Returns the answer to a call with this one of its own; none for that of the limiter.
    pub(crate) fn answer(&self, of_call: Option<OnStoreError>) -> Option<OnStoreError> {
        self.overridden_answer.or(of_call).or(self.on_store_error)
    }

    /// Returns the answer to calls without one of their own.
    pub(crate) const fn declared_answer(&self) -> Option<OnStoreError> {
        self.on_store_error
    }
}
