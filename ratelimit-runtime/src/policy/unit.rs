//! The units that a policy counts, as clients read them.

/// The unit of a quota, for the parameter `qu` of `RateLimit-Policy`.
///
/// The draft's registry has `requests`, `content-bytes` and `concurrent-requests`, and the default
/// of the parameter is `requests`. The other values here are not registered: a client that does not
/// know them still reads that the quota is not one of requests. Calls in flight are always shown as
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
