//! The error of a call that its policy can never admit.

use std::{error::Error, fmt, time::Duration};

use ratelimit_core::PolicyFault;

use super::{Flags, Policy, Tier, plans};
use crate::time::Micros;

/// The error of a call that its limit can never admit, after any wait.
///
/// Its cost is larger than a threshold or a burst, or a threshold or burst is 0.
///
/// Such numbers come from clients and from plans, and are no failure of the service. There is no
/// wait, because a repeated call fails as well.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Policy, RateLimitError};
///
/// const MAIL: Policy = Policy::sliding_window("mail", Duration::from_secs(60), 5);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limiter = Limiter::in_memory();
/// let Err(RateLimitError::TooLarge(refused)) = limiter.check(&MAIL, "alice").cost(6).await else {
///     panic!("six units never fit");
/// };
/// assert_eq!((refused.cost(), refused.threshold()), (6, 5));
/// assert_eq!(refused.to_string(), "rate limit `mail` never admits 6 units at once: at most 5 per 60s");
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLarge {
    policy: &'static str,
    period: Micros,
    threshold: u32,
    cost: u32,
    flags: Flags,
    /// On the heap, so that the errors of calls are small.
    fault: Box<PolicyFault>,
}

impl TooLarge {
    /// Builds the error of a call of this cost; `tier` has the smallest threshold of the policy.
    pub(super) fn new(policy: &Policy, cost: u32, tier: Tier, fault: PolicyFault) -> Self {
        let (period, threshold) = (tier.micros(), tier.threshold());
        let (policy, flags) = (policy.name(), policy.flags());
        Self { policy, period, threshold, cost, flags, fault: Box::new(fault) }
    }

    /// Returns the name by which clients know the policy: `api@pro` for a plan.
    pub(crate) fn shown_name(&self) -> &'static str {
        plans::shown(self.policy, self.flags)
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the cost of the call, in units.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// Returns the smallest threshold of the effective policy.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Returns the period of that threshold.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period.into()
    }

    /// Returns the rule that the call breaks, as a sentence without the name of the policy.
    /// Literals of an attribute that break it do not compile.
    #[must_use]
    pub fn fault(&self) -> impl fmt::Display + use<> {
        *self.fault
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policy, cost) = (self.shown_name(), self.cost);
        let mut nothing = |what| write!(f, "rate limit `{policy}` admits nothing: its {what} is 0");
        let why = match *self.fault {
            PolicyFault::ThresholdZero => return nothing("threshold"),
            PolicyFault::BurstZero => return nothing("burst"),
            PolicyFault::ConcurrencyZero => return nothing("concurrency"),
            PolicyFault::CostOverBurst { burst, .. } => format!("its burst is {burst}"),
            PolicyFault::CostOverLeasedBucket { largest, .. } => {
                format!("its bucket holds {largest} under its lease")
            }
            PolicyFault::LeaveTooLarge { share } | PolicyFault::LeavesNothing { share, .. } => {
                return write!(f, "rate limit `{policy}` admits nothing: a call leaves {share} %");
            }
            _ => format!("at most {} per {}", self.threshold, self.flags.period_text(self.period)),
        };
        write!(f, "rate limit `{policy}` never admits {cost} units at once: {why}")
    }
}

impl Error for TooLarge {}
