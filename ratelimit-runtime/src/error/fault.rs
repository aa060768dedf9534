//! The fault of a setting.

use std::borrow::Cow;

use ratelimit_core::PolicyFault;

/// The reason for which a setting is not applied, in words. The error around it names the setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Fault(Cow<'static, str>);

impl Fault {
    pub(crate) fn new(why: impl Into<Cow<'static, str>>) -> Self {
        Self(why.into())
    }
}

/// The overridden policy breaks a rule.
impl From<PolicyFault> for Fault {
    fn from(fault: PolicyFault) -> Self {
        Self::new(fault.to_string())
    }
}
