//! The names of plans, of all limits of the process that have some.

use std::{collections::BTreeSet, fmt};

use arc_swap::ArcSwap;
use once_cell::sync::Lazy;
use parking_lot::Mutex;

use super::Plans;
use crate::policy::{Flags, PolicyName, flags::PlanId};

/// The unknown plans that are logged.
const LOGGED: usize = 64;

static PLANS: Lazy<ArcSwap<Vec<PlanNames>>> = Lazy::new(ArcSwap::default);

/// The names of a plan.
#[derive(Clone, Copy)]
struct PlanNames {
    id: PlanId,
    limit: &'static str,
    plan: &'static str,
    /// The name of the plan as a limit: `api@pro`.
    label: PolicyName,
}

/// Makes the names of the plans known.
#[cold]
pub(super) fn register(plans: &Plans) {
    PLANS.rcu(|known| {
        let mut known = Vec::clone(known);
        for (plan, policy) in plans.listed() {
            let (limit, Some(id)) = (policy.name(), policy.flags.plan()) else { continue };
            if !known.iter().any(|it| it.id == id && it.limit == limit) {
                let label = PolicyName::new(format!("{limit}@{plan}").leak());
                known.push(PlanNames { id, limit, plan, label });
            }
        }
        known
    });
}

/// Returns the name of a plan, and the one that it has as a limit.
pub(super) fn find(limit: &str, flags: Flags) -> Option<(&'static str, PolicyName)> {
    flags.plan().and_then(|plan| find_plan(limit, plan))
}

#[cold]
fn find_plan(limit: &str, id: PlanId) -> Option<(&'static str, PolicyName)> {
    let known = PLANS.load();
    let found = known.iter().find(|it| it.id == id && it.limit == limit)?;
    Some((found.plan, found.label))
}

/// Returns the names of all plans as limits.
pub(crate) fn labels() -> Vec<&'static str> {
    PLANS.load().iter().map(|it| it.label.text()).collect()
}

/// Logs a plan that a limit does not have, once.
#[cold]
pub(super) fn log_unknown(plans: &Plans, plan: &impl fmt::Display) {
    static UNKNOWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let name = format!("{}@{plan}", plans.name());
    let is_new = {
        let mut unknown = UNKNOWN.lock();
        unknown.len() < LOGGED && unknown.insert(name)
    };
    if is_new {
        let default = plans.listed()[0].0;
        tracing::warn!(policy = plans.name(), %plan, default, "unknown plan, the default one decides");
    }
}
