//! The names of plans, of all limits of the process that have some.

use std::{collections::BTreeSet, fmt};

use arc_swap::ArcSwap;
use once_cell::sync::Lazy;
use parking_lot::Mutex;

use super::Plans;
use crate::policy::{Flags, PolicyName};

/// The unknown plans that are logged.
const LOGGED: usize = 64;

static LIMITS: Lazy<ArcSwap<Vec<PlanNames>>> = Lazy::new(ArcSwap::default);

/// The names of the plans of one limit.
#[derive(Clone)]
struct PlanNames {
    limit: &'static str,
    /// The name of each plan, and the one that it has as a limit: `api@pro`.
    plans: Vec<(&'static str, PolicyName)>,
}

impl PlanNames {
    fn new(plans: &Plans) -> Self {
        let leaked = |plan: &str| PolicyName::new(format!("{}@{plan}", plans.name()).leak());
        let names = plans.all().iter().map(|(name, _)| (*name, leaked(name)));
        Self { limit: plans.name(), plans: names.collect() }
    }
}

/// Makes the names of the plans known. Of several plans of one limit, they are those of the first.
pub(super) fn register(plans: &Plans) {
    if !LIMITS.load().iter().any(|known| known.limit == plans.name()) {
        register_first(plans);
    }
}

#[cold]
fn register_first(plans: &Plans) {
    LIMITS.rcu(|limits| {
        let mut limits = Vec::clone(limits);
        if !limits.iter().any(|known| known.limit == plans.name()) {
            limits.push(PlanNames::new(plans));
        }
        limits
    });
}

/// Returns the name of a plan, and the one that it has as a limit.
#[inline]
pub(super) fn find(limit: &str, flags: Flags) -> Option<(&'static str, PolicyName)> {
    flags.plan().and_then(|plan| find_plan(limit, plan))
}

#[cold]
fn find_plan(limit: &str, plan: usize) -> Option<(&'static str, PolicyName)> {
    let limits = LIMITS.load();
    limits.iter().find(|known| known.limit == limit)?.plans.get(plan).copied()
}

/// Returns the names of all plans as limits.
pub(crate) fn labels() -> Vec<&'static str> {
    let limits = LIMITS.load();
    limits.iter().flat_map(|known| &known.plans).map(|(_, label)| label.text()).collect()
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
        let default = plans.all()[0].0;
        tracing::warn!(policy = plans.name(), %plan, default, "unknown plan, the default one decides");
    }
}
