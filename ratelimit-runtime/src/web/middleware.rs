//! The decisions of the middlewares that set the caller, and the headers of all, written once for all
//! frameworks.
//!
//! actix-web has the types of `http` 0.2. The frameworks therefore share decisions and no types:
//! `tower/identity.rs` and `actix/identity.rs` apply them to their own requests and responses.

use std::{future::Future, sync::Arc};

use super::{
    headers::{HeaderSyntax, exhausted_for},
    identity::{Identity, RequestHead, SharedFn},
    refusal::{Refusal, whole_wait},
    treatment::Replaced,
};
use crate::{
    caller::{self, Caller},
    decision::Decision,
    error::RateLimitError,
    observe::{Audience, Observation, observe_for},
};

pub(super) const RETRY_AFTER: &str = "retry-after";

/// A header to set, or with `None` to remove.
type HeaderChange = (&'static str, Option<String>);

/// Returns a predicate of requests to one of `paths`, compared as a whole. For the `skip` of a
/// middleware.
///
/// Inside axum's `nest` the compared path has no prefix.
pub fn paths<R: RequestHead, const N: usize>(
    paths: [&'static str; N],
) -> impl Fn(&R) -> bool + Clone {
    move |request| paths.contains(&request.path())
}

/// The settings of a middleware that sets the ambient caller.
pub(super) struct Middleware<R> {
    pub(super) identity: Identity<R>,
    pub(super) syntax: HeaderSyntax,
    pub(super) explicit_keys: bool,
    pub(super) skip: Option<SharedFn<R, bool>>,
    pub(super) replaced: Replaced,
}

impl<R: RequestHead + 'static> Middleware<R> {
    pub(super) fn new(identity: Identity<R>) -> Self {
        Self {
            identity,
            syntax: HeaderSyntax::default(),
            explicit_keys: false,
            skip: None,
            replaced: Replaced::default(),
        }
    }

    /// Returns the caller of a request; `None` for a request to skip.
    pub(super) fn caller(&self, request: &R) -> Result<Option<Caller>, Refusal> {
        if self.skip.as_ref().is_some_and(|skip| skip(request)) {
            return Ok(None);
        }
        self.identity.caller(request).map(Some)
    }

    /// Runs `call` for `caller`. Returns its output, the answers that may be shown to this caller, and the
    /// refusal of the request.
    pub(super) async fn observe<F: Future>(
        &self,
        caller: Caller,
        call: F,
    ) -> (F::Output, Observation) {
        let audience = Audience { caller: caller.clone(), explicit_keys: self.explicit_keys };
        observe_for(audience, caller::scope(caller, call)).await
    }
}

impl<R> Clone for Middleware<R> {
    fn clone(&self) -> Self {
        Self {
            identity: self.identity.clone(),
            syntax: self.syntax,
            explicit_keys: self.explicit_keys,
            skip: self.skip.as_ref().map(Arc::clone),
            replaced: self.replaced,
        }
    }
}

/// Returns the changes to a response's headers: the rate limit headers of these answers, and of the
/// refusal that made the response, replace all others. Without either nothing changes.
///
/// A refusal is visible, and so are its limit and its wait, also those of an explicit key. Its own
/// `Retry-After` is raised to the time at which no policy is exhausted.
pub(super) fn header_changes(
    syntax: HeaderSyntax,
    mut answers: Vec<Result<Decision, RateLimitError>>,
    refused: Option<&RateLimitError>,
    retry_after: Option<&[u8]>,
) -> Vec<HeaderChange> {
    answers.extend(refused.cloned().map(Err));
    if answers.is_empty() {
        return Vec::new();
    }
    let mut waits = answers.iter().filter_map(|it| it.as_ref().err()).filter_map(whole_wait);
    let own = retry_after.and_then(|it| waits.find(|wait| wait.to_string().as_bytes() == it));
    let exhausted = exhausted_for(&answers);
    let raised = own.filter(|wait| *wait < exhausted).map(|_| exhausted.to_string());
    let mut headers = syntax.headers(&answers);
    let value = |name| {
        headers
            .iter_mut()
            .find(|header| header.0 == name)
            .map(|header| std::mem::take(&mut header.1))
    };
    let changes = HeaderSyntax::ALL.into_iter().zip(HeaderSyntax::ALL.map(value));
    changes.chain(raised.map(|wait| (RETRY_AFTER, Some(wait)))).collect()
}

/// Returns those of a refusal's headers that a response lacks; nothing of the remaining quota if the response
/// has some of it.
pub(super) fn missing_headers(
    refusal: &Refusal,
    syntax: HeaderSyntax,
    has: impl Fn(&str) -> bool,
) -> Vec<(&'static str, String)> {
    let syntax =
        if HeaderSyntax::ALL.iter().any(|name| has(name)) { HeaderSyntax::Off } else { syntax };
    refusal.headers(syntax).into_iter().filter(|(name, _)| !has(name)).collect()
}
