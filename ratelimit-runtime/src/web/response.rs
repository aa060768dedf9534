//! The headers of responses, set once for all frameworks.
//!
//! actix-web has the types of `http` 0.2. The frameworks therefore share a trait and no types.

use std::time::{Duration, Instant};

use super::{
    headers::{HeaderSyntax, RETRY_AFTER, RETRY_AFTER_MS, exhausted_for},
    refusal::Refusal,
    wait::Wait,
};
use crate::{decision::Decision, error::RateLimitError};

/// The metadata key of gRPC with the time after which the retry policy of a client retries (gRFC
/// A6).
pub(super) const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The value under which a client does not retry.
pub(super) const NO_RETRY: &str = "-1";

/// The settings by which a layer answers a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResponseSettings {
    pub(super) syntax: HeaderSyntax,
    pub(super) busy_wait: BusyWait,
    /// The time at which the client of a gRPC call gives up.
    pub(super) gives_up: Option<Instant>,
}

/// The wait that a `Busy` names.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum BusyWait {
    #[default]
    OfLimiter,
    OfLayer(Option<Duration>),
}

impl ResponseSettings {
    /// Returns the error with the layer's own wait.
    fn told(self, error: RateLimitError) -> RateLimitError {
        match (error, self.busy_wait) {
            (RateLimitError::Busy(busy), BusyWait::OfLayer(wait)) => busy.with_wait(wait).into(),
            (error, _) => error,
        }
    }

    /// Returns the refusal with the layer's own wait.
    pub(super) fn refusal(self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Limit(error) => self.told(error).into(),
            refusal => refusal,
        }
    }

    /// Adds what a handler's response to this refusal lacks, and tells a gRPC client the layer's
    /// own wait.
    pub(super) fn complete(self, response: &mut impl ResponseParts, refusal: Refusal) {
        let refusal = self.refusal(refusal);
        add_missing(response, &refusal, self.syntax);
        if let (BusyWait::OfLayer(_), Refusal::Limit(error @ RateLimitError::Busy(_))) =
            (self.busy_wait, &refusal)
            && response.header(PUSHBACK).is_some()
        {
            response.set_header(PUSHBACK, Wait::of(error).map(|wait| wait.millis().to_string()));
        }
    }

    /// Asks a gRPC client for no retry if it would give up before. Otherwise the client would wait
    /// for its deadline, and report that in place of the refusal.
    fn fit_deadline(self, response: &mut impl ResponseParts) {
        let Some(gives_up) = self.gives_up else { return };
        let left = gives_up.saturating_duration_since(Instant::now()).as_millis();
        let pushback =
            response.header(PUSHBACK).and_then(|it| str::from_utf8(it).ok()?.parse().ok());
        if pushback.is_some_and(|pushback: u128| pushback > left) {
            response.set_header(PUSHBACK, Some(NO_RETRY.to_owned()));
        }
    }
}

/// A response of a framework, as far as layers read and change it. Names of headers are in lower
/// case.
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

/// The methods of [`ResponseParts`] on headers and extensions, which both versions of `http` name
/// alike.
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
    refusal: Refusal,
    reply: ResponseSettings,
) -> R {
    add_missing(&mut response, &refusal, reply.syntax);
    reply.fit_deadline(&mut response);
    if let Refusal::Limit(error) = refusal {
        response.set_made_of(error);
    }
    response
}

/// Adds those of a refusal's headers that a response lacks; nothing of the remaining quota if the
/// response has some of it, and no part of the wait if the response has one of its own.
fn add_missing(response: &mut impl ResponseParts, refusal: &Refusal, syntax: HeaderSyntax) {
    let has_quota = HeaderSyntax::ALL.iter().any(|name| response.header(name).is_some());
    let has_wait = response.header(RETRY_AFTER).is_some();
    for (name, value) in refusal.headers(if has_quota { HeaderSyntax::Off } else { syntax }) {
        if response.header(name).is_none() && !(has_wait && name == RETRY_AFTER_MS) {
            response.set_header(name, Some(value));
        }
    }
}

/// Replaces the rate limit headers of a response by those of these answers, and of the refusal that
/// made the response. Without either nothing changes.
///
/// A refusal is visible, and so are its limit and its wait, also those of an explicit key. Its own
/// `Retry-After` is raised to the time at which no policy is exhausted.
pub(super) fn set_headers(
    response: &mut impl ResponseParts,
    reply: ResponseSettings,
    mut answers: Vec<Result<Decision, RateLimitError>>,
) {
    reply.fit_deadline(response);
    answers.extend(response.made_of().map(Err));
    if answers.is_empty() {
        return;
    }
    let written = response.header(RETRY_AFTER);
    let is_own = |error: &&RateLimitError| {
        let own = Wait::of(error).map(|wait| wait.whole_seconds().to_string());
        own.is_some_and(|own| written == Some(own.as_bytes()))
    };
    let own = answers.iter().filter_map(|it| it.as_ref().err()).find(is_own);
    if let Some(error) = own.map(|own| reply.told(own.clone())) {
        let wait = Wait::of(&error).map(|wait| wait.at_least(exhausted_for(&answers)));
        let none = [(RETRY_AFTER, None), (RETRY_AFTER_MS, None)];
        for (name, value) in wait.map_or(none, Wait::headers) {
            response.set_header(name, value);
        }
    }
    for name in HeaderSyntax::ALL {
        response.set_header(name, None);
    }
    for (name, value) in reply.syntax.headers(&answers) {
        response.set_header(name, Some(value));
    }
}
