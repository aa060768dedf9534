//! One override, and the policy that it makes of the declared one.

use std::{
    ops::RangeInclusive,
    time::{Duration, SystemTime},
};

use ratelimit_core::PolicyFault;

use super::{Enforcement, Fault};
use crate::policy::{OnStoreError, Policy, Tier};

/// Values that replace those of a limit; a value that is not set stays as declared.
///
/// It is plain data: build it with the methods, read it by the fields.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Enforcement, Override, Tier};
///
/// let lenient = Override::new().threshold(100).enforcement(Enforcement::DryRun);
/// assert_eq!(lenient.threshold, Some(100));
///
/// let mail = Override::new()
///     .tier(Duration::from_secs(60), 2)
///     .tier(Duration::from_secs(3600), 10);
/// assert_eq!(mail.tiers[1], Tier::new(Duration::from_secs(3600), 10));
/// ```
#[cfg_attr(
    feature = "overrides",
    doc = "
Its text is the JSON object, or the list of such, of files and of the hash on Redis; serde reads and
writes the same. A word alone is read as the enforcement.

```
use ratelimit_runtime::{Enforcement, Override};

# fn main() -> Result<(), ratelimit_runtime::overrides::OverrideError> {
let what: Override = r#\"{\"period\": \"1m 30s\", \"threshold\": 10}\"#.parse()?;
assert_eq!(what.to_string(), r#\"{\"period\":90,\"threshold\":10}\"#);
assert_eq!(\"off\".parse::<Override>()?, Override::new().enforcement(Enforcement::Off));
# Ok(())
# }
```
"
)]
/// # History
///
/// The callers' history is kept. In a sliding window, all units that are still in the log count
/// under the new values. A fixed window stays open from its first call on. A token bucket keeps its
/// tokens, up to the new burst. A sliding window or counter has kept no units older than the period
/// that was in effect before. Under a longer period, it counts in full once the longer period has
/// passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "an override does nothing until it is set"]
#[non_exhaustive]
pub struct Override {
    /// The enforcement of the limit.
    pub enforcement: Option<Enforcement>,
    /// The share of the callers for whom the limit is on, in percent; it is a dry run for all
    /// others. Excludes `enforcement`.
    pub enforce: Option<u8>,
    /// The length of the window of a limit with one tier: 1 ms to 366 days. A `calendar_window`
    /// keeps its own.
    pub period: Option<Duration>,
    /// The units admitted in a period, of a limit with one tier.
    pub threshold: Option<u32>,
    /// All tiers of the limit, at most [`MAX_TIERS`](crate::MAX_TIERS); none to keep those that are
    /// declared. Excludes `period` and `threshold`.
    pub tiers: Vec<Tier>,
    /// The size of a token bucket, in tokens.
    pub burst: Option<u32>,
    /// The calls of one caller in flight at one time, of a limit that declares
    /// [`concurrency`](Policy::concurrency).
    pub concurrency: Option<u32>,
    /// The numbers that are tried beside those of the limit. See
    /// [`Overrides::candidate`](crate::Overrides::candidate).
    pub candidate: Option<Box<Override>>,
    /// The start of a candidate, by the clock of the limiter's Redis. `set` writes it. One with
    /// another start has counts of its own.
    pub since: Option<SystemTime>,
    /// The factor of the numbers, in thousandths: 1 to 1 000 000.
    pub scale_in_thousandths: Option<u32>,
    /// The answer to calls that Redis cannot decide.
    pub on_store_error: Option<OnStoreError>,
    /// `true` if the caller is shut out. For single callers; excludes all other values but `from`,
    /// `until` and `by`.
    pub deny: bool,
    /// The time before which the override counts as none, by the clock of the limiter's Redis.
    pub from: Option<SystemTime>,
    /// The time from which the override counts as none, by the same clock.
    pub until: Option<SystemTime>,
    /// Overrides of the same place for their own times, of which the last one in effect decides.
    /// They exclude all other values.
    pub windows: Vec<Override>,
    /// The operator who made the override, for [`Overrides::history`](crate::Overrides::history).
    pub by: Option<String>,
}

impl Override {
    /// Returns an override that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the enforcement.
    pub fn enforcement(self, enforcement: Enforcement) -> Self {
        Self { enforcement: Some(enforcement), ..self }
    }

    /// Sets the share of the callers for whom the limit is on, in percent: 1 to 100. For all others
    /// it is a dry run.
    ///
    /// The hash of the caller decides. It is the same in all processes and for all limits, and a
    /// caller for whom the limit is on stays so while the share grows. Calls without a caller are
    /// one caller.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Override, Policy};
    ///
    /// const GREET: Policy = Policy::sliding_window("greet", Duration::from_secs(60), 1);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::in_memory();
    /// limiter.overrides().here().set("greet", Override::new().enforce(10))?;
    /// let mut refused = 0;
    /// for user in 0..1_000 {
    ///     limiter.check(&GREET, user).await?;
    ///     refused += u32::from(limiter.check(&GREET, user).await.is_err());
    /// }
    /// assert!((70..130).contains(&refused));
    /// # Ok(())
    /// # }
    /// ```
    pub fn enforce(self, percent: u8) -> Self {
        Self { enforce: Some(percent), ..self }
    }

    /// Sets the length of the window of a limit with one tier.
    pub fn period(self, period: Duration) -> Self {
        Self { period: Some(period), ..self }
    }

    /// Sets the units admitted in a period, of a limit with one tier.
    pub fn threshold(self, threshold: u32) -> Self {
        Self { threshold: Some(threshold), ..self }
    }

    /// Adds a tier. All tiers of an override together replace those that are declared.
    pub fn tier(mut self, period: Duration, threshold: u32) -> Self {
        self.tiers.push(Tier::new(period, threshold));
        self
    }

    /// Sets the size of a token bucket, in tokens.
    pub fn burst(self, burst: u32) -> Self {
        Self { burst: Some(burst), ..self }
    }

    /// Sets the calls of one caller in flight at one time, of a limit that declares
    /// [`concurrency`](Policy::concurrency). Calls that are in flight go on.
    pub fn concurrency(self, calls: u32) -> Self {
        Self { concurrency: Some(calls), ..self }
    }

    /// Sets the numbers that are tried beside those of the limit: a period, a threshold, tiers or a
    /// burst.
    pub fn candidate(self, numbers: Self) -> Self {
        Self { candidate: Some(Box::new(numbers)), ..self }
    }

    /// Sets the start of a candidate.
    pub fn since(self, since: SystemTime) -> Self {
        Self { since: Some(since), ..self }
    }

    /// Returns the override with the numbers of its candidate in place of its own, and no
    /// candidate.
    ///
    /// ```
    /// use ratelimit_runtime::Override;
    ///
    /// let tried = Override::new().threshold(50).candidate(Override::new().threshold(20));
    /// assert_eq!(tried.with_candidate_applied(), Override::new().threshold(20));
    /// ```
    pub fn with_candidate_applied(mut self) -> Self {
        let Some(candidate) = self.candidate.take() else { return self };
        let Self { period, threshold, tiers, burst, .. } = *candidate;
        Self { period, threshold, tiers, burst, ..self }
    }

    /// Sets a factor of the thresholds, of a burst and of the calls in flight, which are rounded
    /// up. It is 0.001 to 1000, rounded to thousandths. Periods stay.
    ///
    /// It applies after the numbers of all overrides. The factor of a caller comes before that of
    /// its plan, this before that of the limit, and this before that of [all
    /// limits](crate::overrides::Place::all). So a limit whose own factor is 1 stays as it is.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Enforcement, Limiter, Override, Policy, overrides::Place};
    ///
    /// const GREET: Policy = Policy::sliding_window("greet", Duration::from_secs(60), 5);
    /// const LOGIN: Policy = Policy::sliding_window("login", Duration::from_secs(60), 5);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::in_memory();
    /// let here = limiter.overrides().here();
    /// here.set(Place::all(), Override::new().scale(0.5))?;
    /// here.set("login", Override::new().scale(1.0))?;
    /// assert_eq!(limiter.check(&GREET, "alice").await?.threshold(), 3);
    /// assert_eq!(limiter.check(&LOGIN, "alice").await?.threshold(), 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scale(self, factor: f64) -> Self {
        // 0 is refused where the override is set.
        Self { scale_in_thousandths: Some(thousandths(factor).unwrap_or(0)), ..self }
    }

    /// Sets the answer to calls that Redis cannot decide, whatever the policy, the check and the
    /// limiter say. That of a caller comes before that of its plan, this before that of the limit,
    /// and this before that of [all limits](crate::overrides::Place::all).
    pub fn on_store_error(self, on_store_error: OnStoreError) -> Self {
        Self { on_store_error: Some(on_store_error), ..self }
    }

    /// Returns `true` if nothing but numbers of a window is set, as in a candidate.
    pub(super) fn is_window_only(&self) -> bool {
        let Self { period, threshold, burst, since, .. } = *self;
        let numbers = Self { period, threshold, burst, since, ..Self::new() };
        let window = Self { tiers: self.tiers.clone(), ..numbers };
        self.has_numbers() && *self == window
    }

    /// Returns `true` if the override changes no limit and tries nothing.
    pub(super) fn is_empty(&self) -> bool {
        let has_numbers = self.has_numbers() || self.scale_in_thousandths.is_some();
        let tries_or_answers = self.candidate.is_some() || self.on_store_error.is_some();
        !self.has_enforcement() && !has_numbers && !tries_or_answers && self.windows.is_empty()
    }

    /// Returns `true` if the override sets an enforcement, one for a share, or a `deny`.
    pub(super) fn has_enforcement(&self) -> bool {
        self.enforcement.is_some() || self.enforce.is_some() || self.deny
    }

    /// Returns the enforcement of the caller with this place among 100, if the override sets one.
    pub(super) fn enforcement_of(&self, place: impl FnOnce() -> u8) -> Option<Enforcement> {
        let of_share =
            |percent| if place() < percent { Enforcement::On } else { Enforcement::DryRun };
        self.enforcement.or_else(|| self.enforce.map(of_share))
    }

    /// Shuts a caller out: its calls fail with
    /// [`RateLimitError::Denied`](crate::RateLimitError::Denied).
    pub fn deny(self) -> Self {
        Self { deny: true, ..self }
    }

    /// Sets the time before which the override counts as none.
    pub fn from(self, from: SystemTime) -> Self {
        Self { from: Some(from), ..self }
    }

    /// Sets the time from which the override counts as none.
    pub fn until(self, until: SystemTime) -> Self {
        Self { until: Some(until), ..self }
    }

    /// Signs the override with the name of an operator. It changes no limit.
    pub fn by(self, operator: impl Into<String>) -> Self {
        Self { by: Some(operator.into()), ..self }
    }

    /// Returns `true` if the override replaces a period, a threshold, tiers, a burst or the calls
    /// in flight, and not the enforcement alone.
    #[must_use]
    pub fn has_numbers(&self) -> bool {
        let Self { period, threshold, tiers, burst, concurrency, .. } = self;
        let is_window = period.is_some() || threshold.is_some() || !tiers.is_empty();
        is_window || burst.is_some() || concurrency.is_some()
    }

    /// Returns `true` if the override sets what all limits can have together: an enforcement, a
    /// factor or an answer.
    pub(super) fn is_for_all_limits(&self) -> bool {
        let Self { deny, candidate, .. } = self;
        !self.is_empty() && !self.has_numbers() && !deny && candidate.is_none()
    }

    /// Returns this override, with values of a lower source if it has none. Numbers are not mixed.
    pub(super) fn layered_over(self, lower: Self) -> Self {
        let enforces = if self.has_enforcement() { &self } else { &lower };
        let (enforcement, enforce) = (enforces.enforcement, enforces.enforce);
        let from = self.from.into_iter().chain(lower.from).max();
        let until = self.until.into_iter().chain(lower.until).min();
        let scale_in_thousandths = self.scale_in_thousandths.or(lower.scale_in_thousandths);
        let on_store_error = self.on_store_error.or(lower.on_store_error);
        let by = self.by.clone().or_else(|| lower.by.clone());
        let candidate = self.candidate.clone().or_else(|| lower.candidate.clone());
        let numbers = if self.has_numbers() { self } else { lower };
        let numbers = Self { enforcement, enforce, on_store_error, ..numbers };
        Self { candidate, scale_in_thousandths, from, until, by, ..numbers }
    }

    /// Returns the policy that this override makes of the declared one. A policy that can never
    /// admit a call is no fault of the override; the call is refused.
    pub(super) fn apply(&self, declared: &Policy) -> Result<Policy, Fault> {
        let policy = self.with_numbers(declared)?;
        match self.scale_in_thousandths {
            Some(scale) => Ok(policy.scaled(scale).map_err(|invalid| invalid.rule())?),
            None => Ok(policy),
        }
    }

    /// Returns the same without regard to the factor.
    pub(super) fn with_numbers(&self, declared: &Policy) -> Result<Policy, Fault> {
        if !self.has_numbers() {
            return Ok(*declared);
        }
        // Calls under other numbers ask the store.
        let declared = &declared.without_lease();
        let Self { period, threshold, tiers, burst, concurrency, .. } = self;
        let is_single = period.is_some() || threshold.is_some();
        let mut policy = match declared.tiers() {
            _ if is_single && !tiers.is_empty() => {
                return Err(Fault::new("`tiers` replace `period` and `threshold`; give one"));
            }
            _ if !tiers.is_empty() => declared.with_tiers(tiers),
            [tier] if is_single => {
                let period = period.unwrap_or(tier.period());
                let tier = Tier::new(period, threshold.unwrap_or(tier.threshold()));
                declared.with_tiers(&[tier])
            }
            [] if is_single => {
                let why = "the limit has no window; give `tiers`, or `concurrency` alone";
                return Err(Fault::new(why));
            }
            several if is_single => {
                let count = several.len();
                let why = format!("the limit has {count} tiers; give all of them as `tiers`");
                return Err(Fault::new(why));
            }
            _ => *declared,
        };
        if policy.calendar_unit() != declared.calendar_unit() {
            return Err(PolicyFault::CalendarWith { argument: "period" }.into());
        }
        if let Some(burst) = burst {
            policy = policy.burst(*burst);
        }
        if let Some(calls) = concurrency {
            if policy.get_concurrency().is_none() {
                return Err(Fault::new(
                    "the limit declares no `concurrency`, and its calls would hold no permit; declare \
                     one in the program",
                ));
            }
            policy = policy.concurrency(*calls);
        }
        policy.validate_shape().map_err(|invalid| invalid.rule())?;
        Ok(policy)
    }
}

/// The factors that are valid, in thousandths.
pub(super) const SCALES: RangeInclusive<u32> = 1..=1_000_000;

/// Returns a valid factor in thousandths.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1 000 000")]
pub(super) fn thousandths(factor: f64) -> Option<u32> {
    // 0.0005 is too small, and rounding would make 0.001 of it.
    (0.001..=1e3).contains(&factor).then(|| (factor * 1e3).round() as u32)
}
