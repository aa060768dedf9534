//! The limit of a layer: policy, cost and caller by the head of each request.

use std::{fmt, sync::Arc};

use super::{
    identity::{Identity, RequestHead, SharedFn},
    refusal::Refusal,
};
use crate::{caller::Caller, policy::Policy};

/// A limit of requests of type `R`, for a `RateLimitLayer` or a `RateLimitMiddleware`.
///
/// The policy, the cost and the caller are constants or functions of a request's head: its method,
/// path, [route](RequestHead::route), headers and extensions. The frameworks' modules have aliases
/// for their requests: `web::tower::Limit` and `web::actix::Limit`. A [`Policy`] converts into a
/// limit of one unit a request.
///
/// ```
/// # #[cfg(feature = "tower")] {
/// use std::time::Duration;
/// use http::{Method, request::Parts};
/// use ratelimit_runtime::{Policy, web::tower::{Limit, RateLimitLayer}};
///
/// const READS: Policy = Policy::sliding_window("reads", Duration::from_secs(60), 600);
/// const WRITES: Policy = Policy::token_bucket("writes", Duration::from_secs(60), 1_000);
///
/// let limit = Limit::from_fn(|request: &Parts| match request.method {
///     Method::GET | Method::HEAD => Some(READS),
///     _ => Some(WRITES),
/// })
/// .cost(|request| if request.uri.path() == "/import" { 100 } else { 1 });
/// let layer = RateLimitLayer::new(limit);
/// # }
/// ```
#[must_use = "a limit does nothing until a layer applies it"]
pub struct Limit<R> {
    policy: SharedFn<R, Option<Policy>>,
    cost: Option<SharedFn<R, u32>>,
    leave: Option<SharedFn<R, u32>>,
    identity: Option<Identity<R>>,
}

/// One check of a request.
pub(super) struct PlannedCheck {
    pub(super) policy: Policy,
    pub(super) cost: u32,
    pub(super) leave: u32,
    pub(super) caller: Caller,
}

impl<R: RequestHead + 'static> Limit<R> {
    /// Creates a limit that takes one unit of `policy` for each request.
    pub fn new(policy: Policy) -> Self {
        Self::from_fn(move |_| Some(policy))
    }

    /// Creates a limit whose policy a function of the request selects. The limit leaves out
    /// requests for which it returns `None`.
    ///
    /// Policies of one name and algorithm share their counts. Do not leave out requests by what the
    /// client writes, such as a header: clients could skip the limit.
    pub fn from_fn(policy: impl Fn(&R) -> Option<Policy> + Send + Sync + 'static) -> Self {
        Self { policy: Arc::new(policy), cost: None, leave: None, identity: None }
    }

    /// Sets the function that returns the units of a request; 1 by default. A request of 0 units is
    /// admitted and takes nothing.
    ///
    /// A request of more units than the policy ever admits is refused with 422.
    pub fn cost(self, cost: impl Fn(&R) -> u32 + Send + Sync + 'static) -> Self {
        Self { cost: Some(Arc::new(cost)), ..self }
    }

    /// Sets the function that returns the share of the limit, in percent, which a request leaves to
    /// others; 0 by default. See [`Check::leave`](crate::Check::leave).
    ///
    /// ```
    /// # #[cfg(feature = "tower")] {
    /// # use std::time::Duration;
    /// # use http::request::Parts;
    /// # use ratelimit_runtime::{Policy, web::tower::Limit};
    /// # const SEARCH: Policy = Policy::sliding_window("search", Duration::from_secs(60), 600);
    /// /// Found by the service in the API key.
    /// #[derive(Clone)]
    /// struct IsBatch;
    ///
    /// let limit = Limit::new(SEARCH)
    ///     .leave(|request: &Parts| if request.extensions.get::<IsBatch>().is_some() { 20 } else { 0 });
    /// # }
    /// ```
    pub fn leave(self, percent: impl Fn(&R) -> u32 + Send + Sync + 'static) -> Self {
        Self { leave: Some(Arc::new(percent)), ..self }
    }

    /// Counts for the caller that `identity` finds, instead of the layer's.
    pub fn identity(self, identity: Identity<R>) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Returns the check of a request, for the limit's own caller or that of the layer; `None` for
    /// a request that the limit leaves out.
    pub(super) fn plan(
        &self,
        request: &R,
        layer: impl FnOnce(&Policy) -> Result<Caller, Refusal>,
    ) -> Option<Result<PlannedCheck, Refusal>> {
        let policy = (self.policy)(request)?;
        let cost = self.cost.as_ref().map_or(1, |cost| cost(request));
        let leave = self.leave.as_ref().map_or(0, |leave| leave(request));
        let caller = match &self.identity {
            Some(identity) => identity.caller(request),
            None => layer(&policy),
        };
        Some(caller.map(|caller| PlannedCheck { policy, cost, leave, caller }))
    }
}

impl<R: RequestHead + 'static> From<Policy> for Limit<R> {
    fn from(policy: Policy) -> Self {
        Self::new(policy)
    }
}

impl<R> Clone for Limit<R> {
    fn clone(&self) -> Self {
        let Self { policy, cost, leave, identity } = self;
        let (cost, leave) = (cost.clone(), leave.clone());
        Self { policy: Arc::clone(policy), cost, leave, identity: identity.clone() }
    }
}

impl<R> fmt::Debug for Limit<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("identity", &self.identity).finish_non_exhaustive()
    }
}
