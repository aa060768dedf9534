//! The plan under which a call was decided.

use super::Decision;
use crate::policy::plans;

impl Decision {
    /// Returns the name of the plan, if the policy is one of [`Plans`](crate::Plans).
    #[must_use]
    pub fn plan(&self) -> Option<&'static str> {
        plans::plan(self.policy(), self.flags)
    }

    /// Returns the name by which clients and operators know the policy: `api@pro` for a plan.
    pub(crate) fn shown_name(&self) -> &'static str {
        plans::shown(self.policy(), self.flags)
    }
}
