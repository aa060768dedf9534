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
    single_value::single_value,
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

/// Returns a function for [`Limit::cost`](super::Limit::cost): the units of a request by the length of the
/// body that it announces, one for each `bytes` begun, and at least 1.
///
/// A request without a well-formed `Content-Length`, such as one in chunks, costs `unannounced`: nothing is
/// known of its body. Take what the largest body costs that the service reads. A length beyond `u32::MAX`
/// units costs `u32::MAX`, which a limit refuses as too large. `bytes` of 0 are taken as 1.
///
/// ```
/// # #[cfg(feature = "tower")] {
/// use std::time::Duration;
/// use ratelimit_runtime::{Policy, web::tower::{Limit, RateLimitLayer, body_units}};
///
/// const UPLOAD: Policy = Policy::token_bucket("upload", Duration::from_secs(60), 10_000);
///
/// // A unit for each KiB, and 2 MiB if the length is not announced.
/// let layer = RateLimitLayer::new(Limit::new(UPLOAD).cost(body_units(1_024, 2_048)));
/// # }
/// ```
pub fn body_units<R: RequestHead>(
    bytes: u32,
    unannounced: u32,
) -> impl Fn(&R) -> u32 + Clone + Send + Sync + 'static {
    move |request| {
        let length = single_value(request.header_lines("content-length"));
        let Some(length) = length.ok().flatten() else { return unannounced };
        if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
            return unannounced;
        }
        // More digits than a u64 has are more units than any limit has.
        let length = length.parse::<u64>().unwrap_or(u64::MAX);
        u32::try_from(length.div_ceil(bytes.max(1).into())).unwrap_or(u32::MAX).max(1)
    }
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
