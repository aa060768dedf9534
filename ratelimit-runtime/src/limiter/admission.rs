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
    fn hold(&mut self, permit: InMemory);
}

/// An annotated function without `concurrency` needs only the admission: its body runs.
impl Admission for () {
    const READS: bool = false;

    #[inline]
    fn new(_: Option<Arc<dyn Permit>>, _: impl FnOnce() -> Decision) -> Self {}

    fn hold(&mut self, _: InMemory) {}
}

/// An annotated function with `concurrency` keeps this until its body has ended.
#[must_use = "the call is in flight until this is dropped"]
pub struct PermitGuard(HeldPermit);

#[expect(dead_code, reason = "a permit is free once it is dropped")]
enum HeldPermit {
    Unchecked,
    /// Not on the heap.
    InMemory(InMemory),
    Shared(Arc<dyn Permit>),
}

impl PermitGuard {
    /// A call that holds no permit: it is not checked.
    pub const UNCHECKED: Self = Self(HeldPermit::Unchecked);
}

impl Admission for PermitGuard {
    const READS: bool = false;

    #[inline]
    fn new(permit: Option<Arc<dyn Permit>>, _: impl FnOnce() -> Decision) -> Self {
        Self(permit.map_or(HeldPermit::Unchecked, HeldPermit::Shared))
    }

    #[inline]
    fn hold(&mut self, permit: InMemory) {
        *self = Self(HeldPermit::InMemory(permit));
    }
}

/// A check by hand returns the decision.
impl Admission for Decision {
    const READS: bool = true;

    #[inline]
    fn new(permit: Option<Arc<dyn Permit>>, decision: impl FnOnce() -> Decision) -> Self {
        let mut decision = decision();
        decision.set_permit(permit);
        decision
    }

    fn hold(&mut self, permit: InMemory) {
        self.set_permit(Some(permit.shared()));
    }
}
