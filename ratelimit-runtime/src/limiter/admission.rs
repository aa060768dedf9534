//! The part of an admission that the author of a check receives.

use std::sync::Arc;

use super::permit::InMemory;
use crate::decision::{Decision, Permit};

/// The part of an admission that the author of a check receives.
pub(crate) trait Admission: Sized + Send + 'static {
    /// `true` if the decision is read.
    const READS: bool;

    fn new(permit: Option<Arc<dyn Permit>>, decision: impl FnOnce() -> Decision) -> Self;

    /// Adds the permit of a call that memory has admitted at once.
    fn holding(self, permit: InMemory) -> Self;
}

/// An annotated function without `concurrency` needs only the admission: its body runs.
impl Admission for () {
    const READS: bool = false;

    #[inline]
    fn new(_: Option<Arc<dyn Permit>>, _: impl FnOnce() -> Decision) -> Self {}

    fn holding(self, _: InMemory) -> Self {}
}

/// An annotated function with `concurrency` keeps this until its body has ended.
#[must_use = "the call is in flight until this is dropped"]
pub struct PermitGuard {
    /// Not on the heap.
    _in_memory: Option<InMemory>,
    _shared: Option<Arc<dyn Permit>>,
}

impl PermitGuard {
    /// A call that holds no permit: it is not checked.
    pub const UNCHECKED: Self = Self { _in_memory: None, _shared: None };
}

impl Admission for PermitGuard {
    const READS: bool = false;

    #[inline]
    fn new(permit: Option<Arc<dyn Permit>>, _: impl FnOnce() -> Decision) -> Self {
        Self { _in_memory: None, _shared: permit }
    }

    #[inline]
    fn holding(self, permit: InMemory) -> Self {
        Self { _in_memory: Some(permit), ..self }
    }
}

/// A check by hand returns the decision.
impl Admission for Decision {
    const READS: bool = true;

    #[inline]
    fn new(permit: Option<Arc<dyn Permit>>, decision: impl FnOnce() -> Decision) -> Self {
        let mut decision = decision();
        decision.hold(permit);
        decision
    }

    fn holding(mut self, permit: InMemory) -> Self {
        self.hold(Some(permit.shared()));
        self
    }
}
