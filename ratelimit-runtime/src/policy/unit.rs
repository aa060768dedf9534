//! The units that a policy counts, as clients read them.

use super::Policy;

/// The unit of a quota, for the parameter `qu` of `RateLimit-Policy`.
///
/// The draft's registry has `requests`, `content-bytes` and `concurrent-requests`, and the default of the
/// parameter is `requests`. The other values here are not registered: a client that does not know them
/// still reads that the quota is not one of requests. Calls in flight are always shown as
/// `concurrent-requests`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuotaUnit {
    /// `requests`, which is left out of the header field.
    #[default]
    Requests,
    /// `content-bytes`: bytes of request or response bodies.
    ContentBytes,
    /// `tokens`: those of a language model.
    Tokens,
    /// `rows`: those of a database or a table.
    Rows,
    /// `units`: anything else.
    Other,
}

impl QuotaUnit {
    /// Returns the value of the parameter `qu`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::ContentBytes => "content-bytes",
            Self::Tokens => "tokens",
            Self::Rows => "rows",
            Self::Other => "units",
        }
    }
}

impl Policy {
    /// Sets the unit that header fields name, for calls whose cost is not 1. It changes no decision.
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
}
