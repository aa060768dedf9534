//! One override, and the policy that it makes of the declared one.

use std::time::{Duration, SystemTime};

use ratelimit_core::PolicyFault;

use super::{Enforcement, Fault};
use crate::policy::{Policy, Tier};

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
Its text is the JSON object of files and of the hash on Redis; serde reads and writes the same. A word
alone is read as the enforcement.

```
use ratelimit_runtime::{Enforcement, Override};

# fn main() -> Result<(), ratelimit_runtime::OverrideError> {
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
    /// The length of the window of a limit with one tier: 1 ms to 366 days. A `calendar_window` keeps its own.
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
    /// The numbers that are tried beside those of the limit. See [`Overrides::candidate`](crate::Overrides::candidate).
    pub candidate: Option<Box<Override>>,
    /// The start of a candidate, by the clock of the limiter's Redis. `set` writes it. One with another
    /// start has counts of its own.
    pub since: Option<SystemTime>,
    /// `true` if the caller is shut out. For single callers; excludes all other values but `until` and `by`.
    pub deny: bool,
    /// The time from which the override counts as none, by the clock of the limiter's Redis.
    pub until: Option<SystemTime>,
    /// The operator who made the override, for [`Overrides::history`](crate::Overrides::history).
    pub by: Option<String>,
}

/// The override that sets this enforcement alone.
impl From<Enforcement> for Override {
    fn from(enforcement: Enforcement) -> Self {
        Self::new().enforcement(enforcement)
    }
}

impl Override {
    /// Returns an override that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the enforcement.
    pub fn enforcement(mut self, enforcement: Enforcement) -> Self {
        self.enforcement = Some(enforcement);
        self
    }

    /// Sets the length of the window of a limit with one tier.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = Some(period);
        self
    }

    /// Sets the units admitted in a period, of a limit with one tier.
    pub fn threshold(mut self, threshold: u32) -> Self {
        self.threshold = Some(threshold);
        self
    }

    /// Adds a tier. All tiers of an override together replace those that are declared.
    pub fn tier(mut self, period: Duration, threshold: u32) -> Self {
        self.tiers.push(Tier::new(period, threshold));
        self
    }

    /// Sets the size of a token bucket, in tokens.
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// Sets the calls of one caller in flight at one time, of a limit that declares
    /// [`concurrency`](Policy::concurrency). Calls that are in flight go on.
    pub fn concurrency(mut self, calls: u32) -> Self {
        self.concurrency = Some(calls);
        self
    }

    /// Sets the numbers that are tried beside those of the limit: a period, a threshold, tiers or a burst.
    pub fn candidate(mut self, numbers: Self) -> Self {
        self.candidate = Some(Box::new(numbers));
        self
    }

    /// Sets the start of a candidate.
    pub fn since(mut self, since: SystemTime) -> Self {
        self.since = Some(since);
        self
    }

    /// Returns the override with the numbers of its candidate in place of its own, and no candidate.
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

    /// Returns `true` if nothing but numbers of a window is set, as in a candidate.
    pub(super) fn is_window_only(&self) -> bool {
        let Self { period, threshold, burst, since, .. } = *self;
        let numbers = Self { period, threshold, burst, since, ..Self::new() };
        let window = Self { tiers: self.tiers.clone(), ..numbers };
        self.has_numbers() && *self == window
    }

    /// Returns `true` if the override changes no limit and tries nothing.
    pub(super) fn is_empty(&self) -> bool {
        let is_effective = self.enforcement.is_some() || self.deny || self.candidate.is_some();
        !is_effective && !self.has_numbers()
    }

    /// Shuts a caller out: its calls fail with [`RateLimitError::Denied`](crate::RateLimitError::Denied).
    pub fn deny(mut self) -> Self {
        self.deny = true;
        self
    }

    /// Sets the time from which the override counts as none.
    pub fn until(mut self, until: SystemTime) -> Self {
        self.until = Some(until);
        self
    }

    /// Signs the override with the name of an operator. It changes no limit.
    pub fn by(mut self, operator: impl Into<String>) -> Self {
        self.by = Some(operator.into());
        self
    }

    /// Returns `true` if the override replaces a period, a threshold, tiers, a burst or the calls in
    /// flight, and not the enforcement alone.
    #[must_use]
    pub fn has_numbers(&self) -> bool {
        let Self { period, threshold, tiers, burst, concurrency, .. } = self;
        let is_window = period.is_some() || threshold.is_some() || !tiers.is_empty();
        is_window || burst.is_some() || concurrency.is_some()
    }

    /// Returns `true` if the override sets an enforcement, and no other value.
    pub(super) fn is_enforcement_only(&self) -> bool {
        let Self { deny, candidate, .. } = self;
        self.enforcement.is_some() && !self.has_numbers() && !deny && candidate.is_none()
    }

    /// Returns `true` if the override counts as none at this time.
    pub(super) fn has_ended(&self, now: SystemTime) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Returns this override, with values of a lower source if it has none. Numbers are not mixed.
    pub(super) fn layered_over(self, lower: Self) -> Self {
        let enforcement = self.enforcement.or(lower.enforcement);
        let until = self.until.into_iter().chain(lower.until).min();
        let by = self.by.clone().or_else(|| lower.by.clone());
        let candidate = self.candidate.clone().or_else(|| lower.candidate.clone());
        let numbers = if self.has_numbers() { self } else { lower };
        Self { enforcement, candidate, until, by, ..numbers }
    }

    /// Returns the policy that this override makes of the declared one. A policy that can never
    /// admit a call is no fault of the override; the call is refused.
    pub(super) fn apply(&self, declared: &Policy) -> Result<Policy, Fault> {
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
            if policy.max_concurrency().is_none() {
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
