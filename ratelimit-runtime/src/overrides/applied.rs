//! An override with the policies that it makes, which are computed once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use once_cell::sync::OnceCell;

use super::Override;
use crate::policy::Policy;

/// Declared policies of one limit whose overridden form is kept: plans that share a name are
/// declared differently.
pub(super) const PLANS: usize = 8;

/// An override, with the overridden forms of the first `KEPT` declared policies. Those of further
/// ones are computed for each call.
pub(super) struct AppliedOverride<const KEPT: usize> {
    what: Override,
    applied: [OnceCell<Box<Applied>>; KEPT],
    /// `true` once a misfit was logged.
    is_warned: AtomicBool,
}

/// A declared policy, and the policy that the override makes of it; none if it does not fit.
struct Applied {
    written: Policy,
    policy: Option<Arc<Policy>>,
}

impl<const KEPT: usize> AppliedOverride<KEPT> {
    pub(super) fn new(what: Override) -> Self {
        Self {
            what,
            applied: std::array::from_fn(|_| OnceCell::new()),
            is_warned: AtomicBool::new(false),
        }
    }

    pub(super) fn what(&self) -> &Override {
        &self.what
    }

    /// Returns the number of policies that are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.applied.iter().filter(|cell| cell.get().is_some()).count()
    }

    /// Returns the declared policy after the override; `None` if the override changes no limit, or
    /// does not fit. Results are cached for each declared policy.
    pub(super) fn apply(&self, written: &Policy) -> Option<Arc<Policy>> {
        if !self.what.has_numbers() {
            return None;
        }
        // The override of all limits has policies of several names.
        let is_same = |known: &Policy| {
            known.full_name() == written.full_name()
                // Plans of equal numbers differ in them.
                && known.flags() == written.flags()
                && known.declared_answer() == written.declared_answer()
                && known.limits_as(written)
        };
        let mut known = self.applied.iter().map_while(OnceCell::get);
        if let Some(known) = known.find(|known| is_same(&known.written)) {
            return known.policy.clone();
        }
        // Not within a cell: a subscriber of the event in it may have the same limit.
        let policy = self.compute(written).map(Arc::new);
        let applied = Box::new(Applied { written: *written, policy: policy.clone() });
        let _ = self
            .applied
            .iter()
            .try_fold(applied, |applied, cell| cell.set(applied).err().ok_or(()));
        policy
    }

    /// Computes the policy. An override is validated when it is set, but may not fit values that
    /// are known only at the call. This is logged once after each change.
    #[cold]
    fn compute(&self, written: &Policy) -> Option<Policy> {
        match self.what.with_numbers(written) {
            Ok(policy) => Some(policy),
            Err(fault) => {
                if !self.is_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        policy = written.shown_name().text(),
                        %fault,
                        "override does not fit the policy of a call; the declared policy decides"
                    );
                }
                None
            }
        }
    }
}
