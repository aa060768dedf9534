//! The error of a policy that breaks a rule.

use std::fmt;

use ratelimit_core::PolicyFault;

/// The error of a policy that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid rate limit policy `{policy}`: {fault}")]
pub struct InvalidPolicy {
    policy: &'static str,
    /// On the heap, so that the errors of calls are small.
    fault: Box<PolicyFault>,
}

impl InvalidPolicy {
    pub(crate) fn new(policy: &'static str, fault: PolicyFault) -> Self {
        Self { policy, fault: Box::new(fault) }
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the broken rule, as a sentence without the name of the policy.
    #[must_use]
    pub fn fault(&self) -> impl fmt::Display + use<> {
        *self.fault
    }

    /// Returns the broken rule.
    pub(crate) fn rule(&self) -> PolicyFault {
        *self.fault
    }
}
