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

    /// Returns the numbers of the call, which this policy has decided.
    pub(crate) fn outcome(&self, policy: &Policy) -> Outcome {
        // Tiers have periods of their own.
        let tier = (0..).zip(policy.tiers()).find(|(_, tier)| tier.micros() == self.period);
        let tier = tier.map_or(0, |(index, _)| index);
        let Self { remaining, replenish_after, reset_after, decided_by, kind, .. } = *self;
        let admitted = Outcome::admitted(remaining, replenish_after, reset_after, Mark::NONE);
        Outcome { tier, decided_by, kind, ..admitted }
    }
}
