//! The refusal of a request: status, headers and problem details. Pure.

use std::{fmt::Write, time::Duration};

use super::headers::{HeaderSyntax, name_in_flight, push_quoted, seconds, wire_name};
use crate::error::RateLimitError;

/// The content type of [`Refusal::problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The problem type of a request that finds no permit free: the address of its documentation.
const BUSY: &str = "https://docs.rs/ratelimit-runtime/latest/ratelimit_runtime/struct.Busy.html";

/// The problem type of a request whose caller is shut out.
const DENIED: &str =
    "https://docs.rs/ratelimit-runtime/latest/ratelimit_runtime/struct.Denied.html";

/// The problem type of a request that its limit can never admit.
const TOO_LARGE: &str =
    "https://docs.rs/ratelimit-runtime/latest/ratelimit_runtime/struct.TooLarge.html";

/// The wait of a request that the store could not decide. A failing server is tested at least this often.
const UNDECIDED: Duration = Duration::from_secs(1);

/// The detail of [`Refusal::NoIdentity`].
pub(super) const NO_IDENTITY: &str = "the request does not identify its caller";

/// The detail of [`Refusal::MalformedIdentity`].
pub(super) const MALFORMED_IDENTITY: &str =
    "the header that identifies the caller is repeated, empty, not UTF-8, or no address";

/// The reason why a request is not served.
///
/// A response consists of its [`status`](Self::status), its [`headers`](Self::headers), and
/// [`problem`](Self::problem) as the body. None of them names the caller, the key or the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A limit refused the request, or the store could not decide.
    Limit(RateLimitError),
    /// The request has no identity, and one is required.
    NoIdentity,
    /// The request has no identity, and one that the client can prove is required.
    Unauthorized {
        /// The value of `WWW-Authenticate`.
        challenge: &'static str,
    },
    /// The header that identifies the caller is repeated, empty, not UTF-8, or not the address that it
    /// should be.
    MalformedIdentity,
}

impl From<RateLimitError> for Refusal {
    fn from(error: RateLimitError) -> Self {
        Self::Limit(error)
    }
}

impl Refusal {
    /// Returns the HTTP status.
    ///
    /// - 429 for a limit that is reached, also of calls in flight, and for a caller that is shut out until a time,
    /// - 403 for a caller that is shut out without an end,
    /// - 422 for a request that its limit can never admit,
    /// - 503 if the store could not decide,
    /// - 500 for a policy that breaks a rule,
    /// - 400 without a well-formed identity,
    /// - 401 without an identity under [`OnMissing::Unauthorized`](super::OnMissing::Unauthorized).
    ///
    /// Common clients repeat requests after 408, 413, 429 and 5xx by themselves, and not after 422.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.kind().0
    }

    /// Returns the status, the problem type and its title.
    fn kind(&self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Limit(RateLimitError::Exceeded(_)) => (
                429,
                "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "Request cannot be satisfied as assigned quota has been exceeded",
            ),
            Self::Limit(RateLimitError::Busy(_)) => {
                (429, BUSY, "As many requests are in flight as the rate limit allows")
            }
            Self::Limit(RateLimitError::Denied(denied)) => {
                let status = if denied.retry_after().is_some() { 429 } else { 403 };
                (status, DENIED, "The client is shut out")
            }
            Self::Limit(RateLimitError::TooLarge(_)) => {
                (422, TOO_LARGE, "Request takes more than its rate limit ever admits")
            }
            Self::Limit(RateLimitError::Unavailable(_)) => (
                503,
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "Request cannot be satisfied due to temporary server capacity constraints",
            ),
            Self::Limit(RateLimitError::InvalidPolicy(_)) => {
                (500, "about:blank", "Internal Server Error")
            }
            Self::NoIdentity | Self::MalformedIdentity => (400, "about:blank", "Bad Request"),
            Self::Unauthorized { .. } => (401, "about:blank", "Unauthorized"),
        }
    }

    /// Returns the value of `Retry-After` in seconds:
    ///
    /// - the wait for a limit that is reached or a caller that is shut out until a time, rounded up and at
    ///   least 1,
    /// - 1 if the store could not decide, because a [circuit breaker](crate::guide::failures) tests a
    ///   failing server at least once a second,
    /// - `None` for anything else. A permit of calls in flight is free at any time.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        let Self::Limit(error) = self else { return None };
        whole_wait(error)
    }

    /// Returns the headers of the response except its content type: `Cache-Control`, `Retry-After`,
    /// `WWW-Authenticate`, and those of the syntax. Names are in lower case.
    #[must_use]
    pub fn headers(&self, syntax: HeaderSyntax) -> Vec<(&'static str, String)> {
        let mut headers = vec![("cache-control", "no-store".to_owned())];
        headers.extend(self.retry_after().map(|wait| ("retry-after", wait.to_string())));
        if let Self::Unauthorized { challenge } = self {
            headers.push(("www-authenticate", (*challenge).to_owned()));
        }
        if let Self::Limit(error) = self {
            headers.extend(syntax.headers(&[Err(error.clone())]));
        }
        headers
    }

    /// Returns the problem details (RFC 9457): a JSON object, whose content type is [`PROBLEM_JSON`].
    ///
    /// For a limit that is reached, also of calls in flight, or can never admit the request,
    /// `violated-policies` lists the policy's name as the headers have it. These three have problem types
    /// of their own, and so has a caller that is shut out.
    #[must_use]
    pub fn problem(&self) -> String {
        let (status, kind, title) = self.kind();
        let mut body = String::from("{\"type\":");
        push_quoted(&mut body, kind);
        body.push_str(",\"title\":");
        push_quoted(&mut body, title);
        let _ = write!(body, ",\"status\":{status},\"detail\":");
        match self {
            Self::Limit(error) => push_quoted(&mut body, &error.to_string()),
            Self::NoIdentity | Self::Unauthorized { .. } => push_quoted(&mut body, NO_IDENTITY),
            Self::MalformedIdentity => push_quoted(&mut body, MALFORMED_IDENTITY),
        }
        let violated = match self {
            Self::Limit(RateLimitError::Exceeded(error)) => Some(wire_name(error.shown_name())),
            Self::Limit(RateLimitError::Busy(error)) => Some(name_in_flight(error)),
            Self::Limit(RateLimitError::TooLarge(error)) => Some(wire_name(error.shown_name())),
            _ => None,
        };
        if let Some(name) = violated {
            body.push_str(",\"violated-policies\":[");
            push_quoted(&mut body, &name);
            body.push(']');
        }
        body.push('}');
        body
    }
}

/// Returns the wait in seconds, rounded up and at least 1.
pub(super) fn whole_wait(error: &RateLimitError) -> Option<u64> {
    wait(error).map(|wait| seconds(wait).max(1))
}

/// Returns the time after which a client may repeat its request, if it is known.
pub(super) fn wait(error: &RateLimitError) -> Option<Duration> {
    match error {
        RateLimitError::Exceeded(exceeded) => Some(exceeded.retry_after()),
        RateLimitError::Denied(denied) => denied.retry_after(),
        RateLimitError::Unavailable(_) => Some(UNDECIDED),
        RateLimitError::Busy(_)
        | RateLimitError::TooLarge(_)
        | RateLimitError::InvalidPolicy(_) => None,
    }
}
