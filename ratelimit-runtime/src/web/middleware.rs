//! The decisions of the middlewares that set the caller, and the headers of all, written once for
//! all frameworks.
//!
//! actix-web has the types of `http` 0.2. The frameworks therefore share decisions and no types:
//! `tower/identity.rs` and `actix/identity.rs` apply them to their own requests and responses.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use super::{
    headers::HeaderSyntax,
    identity::{Identity, RequestHead, SharedFn},
    refusal::Refusal,
    response::{BusyWait, ResponseSettings},
    single_value::single_value,
    treatment::Replaced,
};
use crate::{
    caller::{self, Caller},
    observe::{Audience, Observation, observe_for},
};

/// Returns a predicate of requests to one of `paths`, compared as a whole. For the `skip` of a
/// middleware.
///
/// Inside axum's `nest` the compared path has no prefix.
pub fn paths<R: RequestHead, const N: usize>(
    paths: [&'static str; N],
) -> impl Fn(&R) -> bool + Clone {
    move |request| paths.contains(&request.path())
}

/// Returns a function for [`Limit::cost`](super::Limit::cost): the units of a request by the length
/// of the body that it announces, one for each `bytes` begun, and at least 1.
///
/// A request without a well-formed `Content-Length`, such as one in chunks, costs `unannounced`:
/// nothing is known of its body. Take what the largest body costs that the service reads. A length
/// beyond `u32::MAX` units costs `u32::MAX`, which a limit refuses as too large. `bytes` of 0 are
/// taken as 1.
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

/// A layer or middleware that sets the ambient caller of requests of type `R`, and adds the headers
/// with the remaining quota to responses: `web::tower::IdentityLayer` or
/// `web::actix::IdentityMiddleware`.
#[must_use = "a layer does nothing until it is added to a service"]
pub struct IdentityLayer<R, H> {
    identity: Identity<R>,
    pub(super) reply: ResponseSettings,
    explicit_keys: bool,
    skip: Option<SharedFn<R, bool>>,
    pub(super) replaced: Replaced,
    pub(super) responder: H,
}

impl<R, H> IdentityLayer<R, H> {
    /// Sets the syntax of the rate limit headers.
    pub fn headers(mut self, syntax: HeaderSyntax) -> Self {
        self.reply.syntax = syntax;
        self
    }

    /// Sets the wait that clients are told by a [`Busy`](crate::Busy), or `None` for none, instead
    /// of that of the limiter: [`retry_busy_after`](crate::LimiterBuilder::retry_busy_after).
    pub fn retry_busy_after(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.reply.busy_wait = BusyWait::OfLayer(wait.into());
        self
    }

    /// Also lists limits that counted other callers, by an explicit key. Off by default.
    ///
    /// Use it only where no client can name another's key: the headers of a login would show
    /// everyone how often an account was tried.
    pub fn explicit_keys(self, are_listed: bool) -> Self {
        Self { explicit_keys: are_listed, ..self }
    }

    /// Passes on requests for which `skip` returns `true`, without a caller and without headers.
    ///
    /// Do not decide by what the client writes, such as a header or a method: clients could skip
    /// their limits. Paths are safe, because they select the handler; see [`paths`].
    pub fn skip(self, skip: impl Fn(&R) -> bool + Send + Sync + 'static) -> Self {
        Self { skip: Some(Arc::new(skip)), ..self }
    }

    /// Answers requests whose handlers have lost a refusal, as the refusal itself is answered: with
    /// its status, its headers and problem details, or by `respond`. Off by default.
    ///
    /// The handler's response is dropped, with its body and headers, if the latest call of the
    /// request was refused and the response is
    ///
    /// - a 5xx of another status than the refusal's [own](Refusal::status), as of an error type
    ///   that converts every error into 500,
    /// - or the refusal's own status without a `Content-Type`, as of a bare `StatusCode`.
    ///
    /// Any other response stays, such as a 2xx, a 404, or a 429 with a body. A call after the
    /// refused one that is admitted shows that the handler went on. A refusal in a dry run is none.
    ///
    /// ```
    /// # #[cfg(feature = "tower")] {
    /// use ratelimit_runtime::web::tower::{Identity, IdentityLayer};
    ///
    /// let layer = IdentityLayer::new(Identity::peer()).answer_refusals();
    /// # }
    /// ```
    pub fn answer_refusals(mut self) -> Self {
        self.replaced.lost = true;
        self
    }

    /// Sets the builder of refusal responses.
    pub(super) fn responding<G>(self, responder: G) -> IdentityLayer<R, G> {
        let Self { identity, reply, explicit_keys, skip, mut replaced, .. } = self;
        replaced.made = true;
        IdentityLayer { identity, reply, explicit_keys, skip, replaced, responder }
    }
}

impl<R: RequestHead + 'static, H> IdentityLayer<R, H> {
    pub(super) fn with_responder(identity: Identity<R>, responder: H) -> Self {
        let (reply, replaced) = (ResponseSettings::default(), Replaced::default());
        Self { identity, reply, explicit_keys: false, skip: None, replaced, responder }
    }

    /// Returns the caller of a request; `None` for a request to skip.
    pub(super) fn caller(&self, request: &R) -> Result<Option<Caller>, Refusal> {
        if self.skip.as_ref().is_some_and(|skip| skip(request)) {
            return Ok(None);
        }
        self.identity.caller(request).map(Some)
    }

    /// Runs `call` for `caller`. Returns its output, the answers that may be shown to this caller,
    /// and the refusal of the request.
    pub(super) fn observe<F: Future>(
        &self,
        caller: Caller,
        call: F,
    ) -> impl Future<Output = (F::Output, Observation)> + use<R, H, F> {
        let audience = Audience { caller: caller.clone(), explicit_keys: self.explicit_keys };
        observe_for(audience, caller::scope(caller, call))
    }
}

impl<R, H: Clone> Clone for IdentityLayer<R, H> {
    fn clone(&self) -> Self {
        Self {
            identity: self.identity.clone(),
            skip: self.skip.clone(),
            responder: self.responder.clone(),
            ..*self
        }
    }
}

impl<R, H> fmt::Debug for IdentityLayer<R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityLayer")
            .field("identity", &self.identity)
            .field("headers", &self.reply.syntax)
            .finish_non_exhaustive()
    }
}
