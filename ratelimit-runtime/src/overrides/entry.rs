//! One override: what it says, and what a policy becomes by it.

use std::time::Duration;

use super::{Enforcement, Fault};
use crate::policy::Policy;

/// What holds for a limit instead of what is written; what it does not say stays as it is.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Enforcement, Override};
///
/// let lenient = Override::new().threshold(100).enforcement(Enforcement::DryRun);
/// let tiers = Override::new()
///     .tier(Duration::from_secs(60), 2)
///     .tier(Duration::from_secs(3600), 10);
/// assert_ne!(lenient, tiers);
/// ```
///
/// The callers' history goes on: in a sliding window all units that are still in the log count
/// under the new numbers, a fixed window stays open from its first call on, a token bucket keeps
/// the tokens it has, up to the new burst. A log and a sliding counter remember no longer than the
/// period that held so far: a longer one is full in effect once it has passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "an override does nothing until it is set"]
pub struct Override {
    pub(super) enforcement: Option<Enforcement>,
    pub(super) quota: Quota,
}

/// Numbers that break no rule, for those that are not known yet.
const SOME_PERIOD: Duration = Duration::from_secs(60);
const SOME_THRESHOLD: u32 = 1;

/// The numbers of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Quota {
    pub(super) period: Option<Duration>,
    pub(super) threshold: Option<u32>,
    pub(super) tiers: Vec<(Duration, u32)>,
    pub(super) burst: Option<u32>,
}

impl Override {
    /// One that says nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What refusals are worth.
    pub fn enforcement(mut self, enforcement: Enforcement) -> Self {
        self.enforcement = Some(enforcement);
        self
    }

    /// The length of the window of a limit that has one.
    pub fn period(mut self, period: Duration) -> Self {
        self.quota.period = Some(period);
        self
    }

    /// The units admitted in a period, of a limit with one tier.
    pub fn threshold(mut self, threshold: u32) -> Self {
        self.quota.threshold = Some(threshold);
        self
    }

    /// One tier of several, which together replace all that are written.
    pub fn tier(mut self, period: Duration, threshold: u32) -> Self {
        self.quota.tiers.push((period, threshold));
        self
    }

    /// The size of a token bucket, in tokens.
    pub fn burst(mut self, burst: u32) -> Self {
        self.quota.burst = Some(burst);
        self
    }

    /// What refusals are worth, if it says so.
    #[must_use]
    pub fn given_enforcement(&self) -> Option<Enforcement> {
        self.enforcement
    }

    /// What refusals are worth, if it says no more than that.
    #[cfg(feature = "overrides")]
    pub(crate) fn only_enforcement(&self) -> Result<Enforcement, Fault> {
        match self.enforcement {
            Some(enforcement) if self.quota == Quota::default() => Ok(enforcement),
            _ => Err(Fault::MoreThanEnforcement),
        }
    }

    /// Whether it says anything of the numbers.
    #[cfg(feature = "dashboard")]
    pub(crate) fn gives_numbers(&self) -> bool {
        self.quota != Quota::default()
    }

    /// This one, and of what it does not say the other.
    pub(super) fn over(self, lower: Self) -> Self {
        let quota = if self.quota == Quota::default() { lower.quota } else { self.quota };
        Self { enforcement: self.enforcement.or(lower.enforcement), quota }
    }

    /// The policy that this makes of the one that is written. A call that it never admits is refused
    /// by it, and is no fault of the override.
    pub(crate) fn apply(&self, written: &Policy) -> Result<Policy, Fault> {
        if self.quota == Quota::default() {
            return Ok(*written);
        }
        let Quota { period, threshold, tiers, burst } = &self.quota;
        let one = period.is_some() || threshold.is_some();
        let mut policy = match written.tiers() {
            _ if one && !tiers.is_empty() => return Err(Fault::TiersAndOne),
            _ if !tiers.is_empty() => written.with_tiers(tiers),
            [tier] if one => {
                let period = period.unwrap_or(tier.period());
                written.with_tiers(&[(period, threshold.unwrap_or(tier.threshold()))])
            }
            several if one => return Err(Fault::SeveralTiers(several.len())),
            _ => *written,
        };
        if let Some(burst) = burst {
            policy = policy.burst(*burst);
        }
        policy.validate_shape().map_err(|invalid| Fault::Policy(invalid.fault()))?;
        Ok(policy)
    }

    /// Whether it makes a policy of the one that is written that obeys all rules, also with calls of
    /// this cost.
    pub(crate) fn judge(&self, written: &Policy, cost: Option<u32>) -> Result<Policy, Fault> {
        let policy = self.apply(written)?;
        match policy.validate_with(cost) {
            Err(invalid) if self.quota != Quota::default() => Err(Fault::Policy(invalid.fault())),
            _ => Ok(policy),
        }
    }

    /// Whether this could fit some policy of one tier.
    pub(super) fn judge_alone(&self) -> Result<(), Fault> {
        self.judge_late(&match self.quota.burst {
            Some(_) => Policy::token_bucket("", SOME_PERIOD, SOME_THRESHOLD),
            None => Policy::sliding_counter("", SOME_PERIOD, SOME_THRESHOLD),
        })
    }

    /// Whether this could fit a policy of which only its calls know all numbers.
    pub(crate) fn judge_late(&self, written: &Policy) -> Result<(), Fault> {
        let Quota { period, threshold, tiers, .. } = &self.quota;
        let policy = match written.tiers() {
            [_] => written.with_tiers(&[(SOME_PERIOD, SOME_THRESHOLD)]),
            _ if period.is_some() || threshold.is_some() || !tiers.is_empty() => *written,
            // What is left is for a call to find.
            _ => return Ok(()),
        };
        self.judge(&policy, None).map(drop)
    }
}
