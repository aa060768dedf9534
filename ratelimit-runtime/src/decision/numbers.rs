//! Decisions and the numbers of their outcomes.

use super::Decision;
use crate::{
    policy::Policy,
    request::{Mark, Op, Outcome, Request},
};

impl Decision {
    /// Marks the decision of a call that passes only because of a dry run.
    pub(crate) fn of_dry_run(self) -> Self {
        Self { is_dry_run: true, ..self }
    }

    /// Builds the decision of a call that is not checked.
    pub(crate) fn of_skipped(policy: &Policy) -> Self {
        let request = Request::new(policy, Op::Peek, 0);
        Self::new(policy, Outcome::unlimited(request))
    }

    /// Returns the numbers of the call, under a policy of one tier.
    pub(crate) fn outcome(&self) -> Outcome {
        let Self { remaining, replenish_after, reset_after, decided_by, kind, .. } = *self;
        let admitted = Outcome::admitted(remaining, replenish_after, reset_after, Mark::NONE);
        Outcome { decided_by, kind, ..admitted }
    }
}
