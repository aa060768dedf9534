//! The part of an admission that the author of a check receives.

use std::sync::Arc;

use super::permit::InMemory;
use crate::{
    decision::{Decision, Permit},
    error::RateLimitError,
    request::Outcome,
    telemetry::Recorder,
};

/// The part of an admission that the author of a check receives.
pub(crate) trait Admission: Sized + Send + 'static {
    /// `true` if the decision is read.
    const READS: bool;

    /// `true` if a refusal is neither recorded nor returned: another limit may admit the call.
    const DEFERS: bool = false;

    fn new(permit: Option<CallPermit>, decision: impl FnOnce() -> Decision) -> Self;

    /// Creates the answer of a call whose refusal is deferred.
    fn deferred(_: Deferred) -> Self {
        unreachable!("`DEFERS` is false")
    }
}

/// A refusal that is not recorded yet: the outcome of a store, or the error of a call that its
/// limit never admits.
pub(crate) struct Deferred {
    pub(super) recorder: Recorder,
    pub(super) refusal: Result<Outcome, RateLimitError>,
}

/// The permit of a call. A function without a decision owns it in place: nobody clones it. Its
/// future is some 90 bytes larger.
pub(crate) enum CallPermit {
    Own(InMemory),
    Shared(Arc<dyn Permit>),
}

impl CallPermit {
    /// Returns the permit of a decision, whose clones share it.
    #[inline(never)]
    fn into_shared(self) -> Arc<dyn Permit> {
        match self {
            Self::Own(permit) => Arc::new(permit),
            Self::Shared(permit) => permit,
        }
    }
}

/// An annotated function without `concurrency` needs only the admission: its body runs.
impl Admission for () {
    const READS: bool = false;

    #[inline]
    fn new(_: Option<CallPermit>, _: impl FnOnce() -> Decision) -> Self {}
}

/// An annotated function with `concurrency` keeps this until its body has ended.
#[must_use = "the call is in flight until this is dropped"]
pub struct PermitGuard {
    _permit: Option<CallPermit>,
}

impl PermitGuard {
    /// A call that holds no permit: it is not checked.
    pub const UNCHECKED: Self = Self { _permit: None };
}

impl Admission for PermitGuard {
    const READS: bool = false;

    #[inline]
    fn new(permit: Option<CallPermit>, _: impl FnOnce() -> Decision) -> Self {
        Self { _permit: permit }
    }
}

/// A check by hand returns the decision.
impl Admission for Decision {
    const READS: bool = true;

    #[inline(always)]
    fn new(permit: Option<CallPermit>, decision: impl FnOnce() -> Decision) -> Self {
        // Before the decision, which is then written to its final place.
        let permit = permit.map(CallPermit::into_shared);
        decision().holding(permit)
    }
}
