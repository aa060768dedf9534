//! The headers of responses, set once for all frameworks.
//!
//! actix-web has the types of `http` 0.2. The frameworks therefore share a trait and no types.

use super::{
    headers::{HeaderSyntax, exhausted_for},
    refusal::{Refusal, whole_wait},
};
use crate::{decision::Decision, error::RateLimitError};

const RETRY_AFTER: &str = "retry-after";

/// A response of a framework, as far as layers read and change it. Names of headers are in lower case.
pub(super) trait ResponseParts {
    /// Returns the HTTP status, or the one that a gRPC code stands for.
    fn http_status(&self) -> u16;

    /// Returns the value of a header's first line.
    fn header(&self, name: &str) -> Option<&[u8]>;

    /// Replaces all lines of a header by this value, or removes them.
    fn set_header(&mut self, name: &'static str, value: Option<String>);

    /// Returns the error of which this crate has made the response.
    fn made_of(&self) -> Option<RateLimitError>;

    /// Sets this error, for layers further out.
    fn set_made_of(&mut self, error: RateLimitError);
}

/// The methods of [`ResponseParts`] on headers and extensions, which both versions of `http` name alike.
macro_rules! parts_of_http {
    () => {
        fn header(&self, name: &str) -> Option<&[u8]> {
            self.headers().get(name).map(HeaderValue::as_bytes)
        }

        fn set_header(&mut self, name: &'static str, value: Option<String>) {
            self.headers_mut().remove(name);
            if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
                self.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }

        fn made_of(&self) -> Option<RateLimitError> {
            self.extensions().get().cloned()
        }

        fn set_made_of(&mut self, error: RateLimitError) {
            self.extensions_mut().insert(error);
        }
    };
}

pub(super) use parts_of_http;

/// Returns the response that a responder has made of a refusal, with the headers that it lacks.
pub(super) fn made_of<R: ResponseParts>(
    mut response: R,
    refusal: &Refusal,
    syntax: HeaderSyntax,
) -> R {
    complete(&mut response, refusal, syntax);
    if let Refusal::Limit(error) = refusal {
        response.set_made_of(error.clone());
    }
    response
}

/// Adds those of a refusal's headers that a response lacks; nothing of the remaining quota if the response
/// has some of it.
pub(super) fn complete(response: &mut impl ResponseParts, refusal: &Refusal, syntax: HeaderSyntax) {
    let has_quota = HeaderSyntax::ALL.iter().any(|name| response.header(name).is_some());
    for (name, value) in refusal.headers(if has_quota { HeaderSyntax::Off } else { syntax }) {
        if response.header(name).is_none() {
            response.set_header(name, Some(value));
        }
    }
}

/// Replaces the rate limit headers of a response by those of these answers, and of the refusal that made the
/// response. Without either nothing changes.
///
/// A refusal is visible, and so are its limit and its wait, also those of an explicit key. Its own
/// `Retry-After` is raised to the time at which no policy is exhausted.
pub(super) fn set_headers(
    response: &mut impl ResponseParts,
    syntax: HeaderSyntax,
    mut answers: Vec<Result<Decision, RateLimitError>>,
) {
    answers.extend(response.made_of().map(Err));
    if answers.is_empty() {
        return;
    }
    let mut waits = answers.iter().filter_map(|it| it.as_ref().err()).filter_map(whole_wait);
    let written = response.header(RETRY_AFTER);
    let own = waits.find(|wait| written == Some(wait.to_string().as_bytes()));
    let exhausted = exhausted_for(&answers);
    if own.is_some_and(|wait| wait < exhausted) {
        response.set_header(RETRY_AFTER, Some(exhausted.to_string()));
    }
    for name in HeaderSyntax::ALL {
        response.set_header(name, None);
    }
    for (name, value) in syntax.headers(&answers) {
        response.set_header(name, Some(value));
    }
}
