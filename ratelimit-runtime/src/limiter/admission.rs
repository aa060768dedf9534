//! The part of an admission that the author of a check receives.

use std::sync::Arc;

use crate::decision::{Decision, Permit};

/// The part of an admission that the author of a check receives.
pub(crate) trait Admission: Sized + Send + 'static {
    /// The constructor if nothing of the decision is read. A value would be as large as a decision, and
    /// copied.
    const UNREAD: Option<fn() -> Self>;

    fn new(permit: Option<Arc<dyn Permit>>, decision: impl FnOnce() -> Decision) -> Self;
}

/// An annotated function without `concurrency` needs only the admission: its body runs.
impl Admission for () {
    const UNREAD: Option<fn() -> Self> = Some(|| ());

    #[inline]
    fn new(_: Option<Arc<dyn Permit>>, _: impl FnOnce() -> Decision) -> Self {}
}

/// An annotated function with `concurrency` keeps this until its body has ended.
#[must_use = "the call is in flight until this is dropped"]
pub struct CallInFlight {
    _permit: Option<Arc<dyn Permit>>,
}

impl CallInFlight {
    /// A call that holds no permit: it is not checked.
    pub const UNCHECKED: Self = Self { _permit: None };
}

impl Admission for CallInFlight {
    const UNREAD: Option<fn() -> Self> = Some(|| Self::UNCHECKED);

    #[inline]
    fn new(permit: Option<Arc<dyn Permit>>, _: impl FnOnce() -> Decision) -> Self {
        Self { _permit: permit }
    }
}

/// A check by hand returns the decision.
impl Admission for Decision {
    const UNREAD: Option<fn() -> Self> = None;

    #[inline]
    fn new(permit: Option<Arc<dyn Permit>>, decision: impl FnOnce() -> Decision) -> Self {
        let decision = decision();
        match permit {
            None => decision,
            Some(permit) => decision.with_permit(permit),
        }
    }
}
