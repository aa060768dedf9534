//! Why a request got no other response: its status, fields and problem details.

use std::fmt::Write;

use super::headers::{HeaderSyntax, seconds, wire_name};
use crate::error::RateLimitError;

/// The content type of [`Refusal::problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The problem type of a request that takes more than its limit ever admits; it leads to the
/// documentation.
const TOO_LARGE: &str =
    "https://docs.rs/ratelimit-runtime/latest/ratelimit_runtime/struct.TooLarge.html";

/// The detail of [`Refusal::NoIdentity`].
pub(super) const NO_IDENTITY: &str = "the request does not say who is calling";

/// The detail of [`Refusal::MalformedIdentity`].
pub(super) const MALFORMED_IDENTITY: &str =
    "the header that identifies the caller is repeated, empty, or not UTF-8";

/// Why a request is not served.
///
/// Its parts make a response: [`status`](Self::status), [`fields`](Self::fields), and
/// [`problem`](Self::problem) as the body. None of them names the caller, the key or the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A limit did not let it through.
    Limit(RateLimitError),
    /// It does not say who is calling, and that is required.
    NoIdentity,
    /// The header that identifies its caller is repeated, empty, or not UTF-8.
    MalformedIdentity,
}

impl From<RateLimitError> for Refusal {
    fn from(error: RateLimitError) -> Self {
        Self::Limit(error)
    }
}

impl Refusal {
    /// The HTTP status: 429 for a limit that is reached, 422 for a request that its limit can never
    /// admit, 503 when the store could not decide, 500 for a policy that breaks a rule, 400 without
    /// a well-formed identity.
    ///
    /// Common clients repeat requests after 408, 413, 429 and 5xx by themselves, and not after 422.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Limit(RateLimitError::Exceeded(_)) => 429,
            Self::Limit(RateLimitError::TooLarge(_)) => 422,
            Self::Limit(RateLimitError::Unavailable(_)) => 503,
            Self::Limit(RateLimitError::InvalidPolicy(_)) => 500,
            Self::NoIdentity | Self::MalformedIdentity => 400,
        }
    }

    /// When the request may be repeated, in whole seconds, rounded up and at least 1: the value of
    /// `Retry-After`. `None` if that is not known.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Limit(RateLimitError::Exceeded(exceeded)) => {
                Some(seconds(exceeded.retry_after()).max(1))
            }
            _ => None,
        }
    }

    /// The header fields of the response but for its content type: `Retry-After`, `Cache-Control`,
    /// and those of the syntax. Names are in lower case.
    #[must_use]
    pub fn fields(&self, syntax: HeaderSyntax) -> Vec<(&'static str, String)> {
        let mut fields = vec![("cache-control", "no-store".to_owned())];
        fields.extend(self.retry_after().map(|wait| ("retry-after", wait.to_string())));
        if let Self::Limit(error) = self {
            fields.extend(syntax.fields(&[Err(error.clone())]));
        }
        fields
    }

    /// Problem details (RFC 9457): a JSON object, whose content type is [`PROBLEM_JSON`].
    ///
    /// For a limit that is reached or can never admit the request, `violated-policies` holds the
    /// policy's name as the header fields have it.
    #[must_use]
    pub fn problem(&self) -> String {
        let (kind, title) = match self {
            Self::Limit(RateLimitError::Exceeded(_)) => (
                "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "Request cannot be satisfied as assigned quota has been exceeded",
            ),
            Self::Limit(RateLimitError::TooLarge(_)) => {
                (TOO_LARGE, "Request takes more than its rate limit ever admits")
            }
            Self::Limit(RateLimitError::Unavailable(_)) => (
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "Request cannot be satisfied due to temporary server capacity constraints",
            ),
            Self::Limit(RateLimitError::InvalidPolicy(_)) => {
                ("about:blank", "Internal Server Error")
            }
            Self::NoIdentity | Self::MalformedIdentity => ("about:blank", "Bad Request"),
        };
        let mut body = String::from("{\"type\":");
        push_json(&mut body, kind);
        body.push_str(",\"title\":");
        push_json(&mut body, title);
        let _ = write!(body, ",\"status\":{},\"detail\":", self.status());
        match self {
            Self::Limit(error) => push_json(&mut body, &error.to_string()),
            Self::NoIdentity => push_json(&mut body, NO_IDENTITY),
            Self::MalformedIdentity => push_json(&mut body, MALFORMED_IDENTITY),
        }
        let violated = match self {
            Self::Limit(RateLimitError::Exceeded(error)) => Some(error.policy()),
            Self::Limit(RateLimitError::TooLarge(error)) => Some(error.policy()),
            _ => None,
        };
        if let Some(policy) = violated {
            body.push_str(",\"violated-policies\":[");
            push_json(&mut body, &wire_name(policy));
            body.push(']');
        }
        body.push('}');
        body
    }
}

/// A JSON string (RFC 8259, section 7).
fn push_json(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            '\0'..='\x1f' => {
                let _ = write!(json, "\\u{:04x}", u32::from(character));
            }
            _ => json.push(character),
        }
    }
    json.push('"');
}
