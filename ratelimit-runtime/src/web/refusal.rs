//! The refusal of a request: status, headers and problem details. Pure.

use std::fmt::Write;

use super::{
    headers::{HeaderSyntax, name_in_flight, push_quoted, scope, wire_name},
    wait::Wait,
};
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
    /// The header that identifies the caller is repeated, empty, not UTF-8, or not the address that
    /// it should be.
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
    /// - 429 for a limit that is reached, also of calls in flight, and for a caller that is shut
    ///   out until a time,
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
    /// - the wait [told](crate::Exceeded::told_after) for a limit that is reached, and the wait of
    ///   a caller that is shut out until a time, rounded up and at least 1,
    /// - 1 or 2 if the store could not decide, or all permits of calls in flight are held, unless
    ///   [another wait](crate::LimiterBuilder::retry_busy_after) is set: a guess, rounded to the
    ///   nearest second,
    /// - `None` for anything else.
    ///
    /// It is at most 2 147 483, some 24 days: after a longer wait, clients on Node repeat a request
    /// at once.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        let Self::Limit(error) = self else { return None };
        Wait::of(error).map(Wait::whole_seconds)
    }

    /// Returns the headers of the response except its content type: `Cache-Control`, `Retry-After`,
    /// `WWW-Authenticate`, and those of the syntax. Names are in lower case.
    ///
    /// `retry-after-ms` stands beside `Retry-After` if the wait is no whole second. The SDKs of
    /// `OpenAI`, Anthropic, Cohere and Mistral read it first.
    #[must_use]
    pub fn headers(&self, syntax: HeaderSyntax) -> Vec<(&'static str, String)> {
        let mut headers = vec![("cache-control", "no-store".to_owned())];
        if let Self::Limit(error) = self {
            let fields = Wait::of(error).into_iter().flat_map(Wait::headers);
            headers.extend(fields.filter_map(|(name, value)| Some((name, value?))));
        }
        if let Self::Unauthorized { challenge } = self {
            headers.push(("www-authenticate", (*challenge).to_owned()));
        }
        if let Self::Limit(error) = self {
            headers.extend(syntax.headers(&[Err(error.clone())]));
        }
        headers
    }

    /// Returns the problem details (RFC 9457): a JSON object, whose content type is
    /// [`PROBLEM_JSON`].
    ///
    /// For a limit that is reached, also of calls in flight, or can never admit the request,
    /// `violated-policies` lists the policy's name as the headers have it. These three have problem
    /// types of their own, and so has a caller that is shut out. For a limit that is reached,
    /// `scope` is `user` if it is the caller's own, and `shared` if [several
    /// clients](crate::Exceeded::is_shared) share it.
    #[must_use]
    pub fn problem(&self) -> String {
        self.open_problem() + "}"
    }

    /// Returns the same with one more member, `error`, which has the members `message`, `type` and
    /// `code`.
    ///
    /// Clients of language models look for it: async-openai repeats no request without it, and the
    /// SDKs of `OpenAI` and Vercel show its message alone.
    ///
    /// ```
    /// use ratelimit_runtime::web::Refusal;
    ///
    /// let error = r#""error":{"message":"the request does not identify its caller","type":"invalid_request_error","#;
    /// assert!(Refusal::NoIdentity.problem_with_error().contains(error));
    /// ```
    #[must_use]
    pub fn problem_with_error(&self) -> String {
        let mut body = self.open_problem();
        let status = self.status();
        let kind = match status {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        };
        let code = if status == 429 { "rate_limit_exceeded" } else { kind };
        body.push_str(",\"error\":{\"message\":");
        push_quoted(&mut body, &self.detail());
        let _ = write!(body, ",\"type\":\"{kind}\",\"code\":\"{code}\"}}}}");
        body
    }

    /// Returns the sentence for people.
    fn detail(&self) -> String {
        match self {
            Self::Limit(error) => error.to_string(),
            Self::NoIdentity | Self::Unauthorized { .. } => NO_IDENTITY.to_owned(),
            Self::MalformedIdentity => MALFORMED_IDENTITY.to_owned(),
        }
    }

    /// Returns the problem details without the last brace.
    fn open_problem(&self) -> String {
        let (status, kind, title) = self.kind();
        let mut body = format!(r#"{{"type":"{kind}","title":"{title}","status":{status}"#);
        let (violated, is_shared) = match self {
            Self::Limit(RateLimitError::Exceeded(error)) => {
                (Some(wire_name(error.shown_name())), Some(error.is_shared()))
            }
            Self::Limit(RateLimitError::Busy(error)) => {
                (Some(name_in_flight(error)), Some(error.is_shared()))
            }
            Self::Limit(RateLimitError::TooLarge(error)) => {
                (Some(wire_name(error.shown_name())), None)
            }
            _ => (None, None),
        };
        if let Some(is_shared) = is_shared {
            let _ = write!(body, ",\"scope\":\"{}\"", scope(is_shared));
        }
        body.push_str(",\"detail\":");
        push_quoted(&mut body, &self.detail());
        if let Some(name) = violated {
            body.push_str(",\"violated-policies\":[");
            push_quoted(&mut body, &name);
            body.push(']');
        }
        body
    }
}
