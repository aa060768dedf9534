//! The state of all limits, as the page shows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use ratelimit_runtime::{
    Enforcement, MAX_TIERS, Override, Overrides, Policy, ServerStatus, Tier, UnavailableReason,
    fleet::process_name,
    limits::{RegisteredPolicy, conflicts, policies, policies_by_hand},
    overrides::{CandidateStats, OverrideSource},
    stats::{self, PolicyStats, TimeWindow, Verdict},
};
use serde_json::{Value, json};

use crate::{
    ActionError, Dashboard,
    samples::{PROCESS, millis},
    scope::{ALL_LIMITS, Scope, target},
};

/// The shares of the callers by which the page turns a limit on step by step, in percent.
const STEPS: [u8; 5] = [1, 5, 10, 25, 100];

/// A limit that a request names.
pub(super) struct KnownLimit {
    pub(super) name: &'static str,
    /// The policy with its algorithm; values that come with each call are 0.
    pub(super) policy: Policy,
    pub(super) is_dynamic: bool,
    /// The policy, or that of a recent call if values come with each call.
    pub(super) values: Option<Policy>,
}

/// Returns all limits: those of functions, and those that were checked by hand and are no
/// function's.
fn limits() -> BTreeMap<&'static str, Vec<RegisteredPolicy>> {
    let mut limits = BTreeMap::<&str, Vec<RegisteredPolicy>>::new();
    for limit in policies() {
        limits.entry(limit.name()).or_default().push(limit);
    }
    for limit in policies_by_hand() {
        limits.entry(limit.name()).or_insert_with(|| vec![limit]);
    }
    limits
}

/// The policies of a limit under overrides; none if its values come with each call.
#[derive(Default)]
struct InEffect {
    /// Without regard to a factor.
    unscaled: Option<Policy>,
    now: Option<Policy>,
    /// The reason why an override changes nothing.
    fault: Option<String>,
}

impl Dashboard {
    /// Returns the limit of this name, or the first plan of it.
    pub(super) fn find(name: &str) -> Result<KnownLimit, ActionError> {
        let limits = limits();
        let mut all = limits.values().flatten();
        let limit = limits.get(name).and_then(|it| it.first());
        let limit = limit.or_else(|| all.find(|it| it.declared().name() == name));
        let limit = limit.ok_or_else(|| ActionError::not_found("there is no such limit"))?;
        let (shown, policy) = (limit.name(), *limit.declared());
        let name = if shown == name { shown } else { policy.name() };
        let values = limit.policy().copied().or_else(|| {
            let counted = stats::snapshot().into_iter().find(|limit| limit.name() == shown);
            counted.and_then(|limit| limit.policy().copied())
        });
        Ok(KnownLimit { name, policy, is_dynamic: limit.policy().is_none(), values })
    }

    /// Returns the state of all limits and of their store, as the page shows it. Times are in
    /// milliseconds since 1970.
    pub(super) fn view(&self) -> Value {
        let limiter = &self.limiter;
        let overrides = limiter.overrides();
        let conflicts: BTreeSet<_> = conflicts().iter().map(|(limit, _)| limit.name()).collect();
        let limits = limits();
        let limits =
            limits.iter().filter_map(|(name, limits)| self.limit(limits, conflicts.contains(name)));
        let server = |server: ServerStatus| {
            json!({
                "name": server.name(),
                "failure": server.failure().map(|reason| reason.to_string()),
                "advice": server.failure().map(UnavailableReason::advice),
                // The start of the outage.
                "since": server.since().map(millis),
                "failures": server.failures(),
            })
        };
        let target = target(overrides);
        json!({
            "process": process_name(),
            // The number of the process, which actions carry.
            "process_id": *PROCESS,
            "version": limiter.version(),
            // The time from which calls are counted.
            "started": millis(self.started),
            "servers": limiter.servers().into_iter().map(server).collect::<Value>(),
            "store": if limiter.is_in_memory() { "memory" } else { "redis" },
            // The source where actions take effect.
            "target": target.to_string(),
            "is_fleet": target == OverrideSource::Redis,
            // `true` if this process follows the overrides on Redis.
            "follows_fleet": overrides.follows_redis(),
            // The reason why actions take effect in this process although it follows a fleet.
            "fleet_failure": overrides.redis_failure().map(|reason| reason.to_string()),
            // The overrides that change no limit.
            "problems": overrides.problems().iter().map(ToString::to_string).collect::<Value>(),
            // The global enforcement.
            "enforcement": in_sources(overrides, ALL_LIMITS).find_map(enforcing).map(attributed),
            // The overrides of all limits together, also those to come.
            "of_all": in_sources(overrides, ALL_LIMITS).map(attributed).collect::<Value>(),
            // The last changes, the latest first.
            "changes": self.changes(),
            "limits": limits.collect::<Value>(),
        })
    }

    /// Returns the counts of all limits that were called: those of the present, and no sums of
    /// samples.
    pub(super) fn counts(&self) -> Value {
        let (limits, candidates) = (limits(), self.limiter.overrides().candidates());
        let view = |counts: PolicyStats| {
            let name = counts.name();
            let first = limits.get(name).and_then(|limits| limits.first());
            // That of a plan, else that of its limit.
            let names = [Some(name), first.map(|first| first.declared().name())];
            let of = |name| candidates.iter().find(|candidate| candidate.limit == name);
            let candidate = names.into_iter().flatten().find_map(of);
            // Values of a dynamic limit are those of a recent call.
            let now = first.and_then(|first| self.effective(first).now);
            let now = now.or_else(|| counts.policy().copied());
            let view = json!({
                // The calls of this process that wait in line.
                "waiting": counts.waiting(),
                // The permits that calls of this process hold.
                "held": counts.permits_held(),
                // The share in percent under which this process has decided calls without Redis, if
                // it has.
                "local_share": counts.local_share(),
                // The calls that were refused within the last minute, ten minutes and hour.
                "refused": TimeWindow::ALL.iter().map(|it| counts.refused_within(*it)).collect::<Value>(),
                // The calls since the start that each step of a share would have refused in a dry
                // run.
                "steps": STEPS.map(|percent| counts.would_have_refused_for(percent)),
                // The calls that were refused since the start, by the reason in words.
                "refused_by": refused_by(&counts, now.as_ref()),
                // The callers that were refused within the last minute, as far as they are known.
                "at_limit": self.limiter.refused_callers(name, TimeWindow::Minute).len(),
                "candidate": candidate.map(candidate_view),
            });
            (name, view)
        };
        stats::snapshot().into_iter().map(view).collect()
    }

    /// Returns the policies of a plan or of a limit under overrides. Numbers of several overrides
    /// are not mixed.
    fn effective(&self, limit: &RegisteredPolicy) -> InEffect {
        let overrides = self.limiter.overrides();
        let Some(written) = limit.policy() else { return InEffect::default() };
        let names = [limit.name(), limit.declared().name()];
        let names = || names.into_iter().filter_map(|name| overrides.get(name));
        let mut what = names().find(Override::has_numbers).unwrap_or_default();
        what.scale_in_thousandths = None;
        let (unscaled, fault) = applied(&what, written);
        let scale = names().find_map(|what| what.scale_in_thousandths);
        let mut of_scale = Override::new();
        of_scale.scale_in_thousandths = scale.or_else(|| overrides.scale_in_thousandths());
        let (now, fault_of_scale) = applied(&of_scale, &unscaled);
        let fault = fault.or(fault_of_scale);
        InEffect { unscaled: Some(unscaled), now: Some(now), fault }
    }

    fn limit(&self, limits: &[RegisteredPolicy], is_in_conflict: bool) -> Option<Value> {
        let overrides = self.limiter.overrides();
        let first = limits.first()?;
        let (name, policy) = (first.name(), first.declared());
        let InEffect { unscaled, now, fault } = self.effective(first);
        let plan = (name != policy.name()).then(|| in_sources(overrides, name));
        let own: Vec<_> =
            plan.into_iter().flatten().chain(in_sources(overrides, policy.name())).collect();
        let (enforcement, enforced_by) =
            effective_enforcement(overrides.enforcement(), &own, first.is_dry_run());
        let functions = limits.iter().filter(|limit| !limit.is_by_hand());
        let places = functions.map(|it| format!("{}:{}", it.file(), it.line()));
        Some(json!({
            "name": name,
            // The limit of which this is a plan, or the same name.
            "limit": policy.name(),
            "algorithm": policy.algorithm().as_str(),
            // The expressions of dynamic values, as written.
            "dynamic": first.dynamic_args(),
            "cost": first.cost(),
            // None if no function is registered.
            "key": (!first.is_by_hand()).then(|| first.key()),
            "places": places.collect::<Value>(),
            // `true` if functions of this name have different limits.
            "is_in_conflict": is_in_conflict,
            "counts_rejected": policy.counts_rejected(),
            // `true` once a call of this process came without a caller.
            "shares_one_bucket": first.shares_one_bucket(),
            "written": first.policy().map(policy_view),
            "now": now.as_ref().map(policy_view),
            // The same without regard to a factor.
            "unscaled": unscaled.as_ref().map(policy_view),
            // The reason why the override does not change the values.
            "fault": fault,
            "enforcement": enforcement,
            "enforced_by": enforced_by,
            "overrides": own.into_iter().map(attributed).collect::<Value>(),
        }))
    }
}

/// Returns the policy after an override; the same one, with the reason, if the override does not
/// fit.
fn applied(what: &Override, policy: &Policy) -> (Policy, Option<String>) {
    match what.preview(policy) {
        Ok(policy) => (policy, None),
        Err(error) => (*policy, Some(error.to_string())),
    }
}

/// An override of a limit, of a plan or of all limits, and its source.
type Attributed = (&'static str, OverrideSource, Override);

fn in_sources(overrides: &Overrides, limit: &'static str) -> impl Iterator<Item = Attributed> {
    overrides.by_source(limit).into_iter().map(move |(source, what)| (limit, source, what))
}

/// Returns the part of an override that is in effect and sets an enforcement.
fn enforcing((limit, source, what): Attributed) -> Option<Attributed> {
    let now = what.at(SystemTime::now())?;
    let sets_enforcement = now.enforcement.is_some() || now.enforce.is_some();
    sets_enforcement.then(|| (limit, source, now.clone()))
}

fn attributed((limit, source, what): Attributed) -> Value {
    json!({
        "limit": limit,
        "by": source.to_string(),
        "what": what,
        // The scope of actions that end it; none if it is ended where it is written.
        "scope": Scope::of(source),
    })
}

/// Returns the answers that the candidate of a limit would have given in this process.
fn candidate_view(stats: &CandidateStats) -> Value {
    json!({
        // In milliseconds since 1970.
        "since": millis(stats.since),
        "calls": stats.calls,
        "refused": stats.refused,
        "newly_refused": stats.newly_refused,
        "newly_admitted": stats.newly_admitted,
        "refused_otherwise": stats.refused_otherwise,
        "callers": stats.callers,
        "refused_callers": stats.refused_callers,
    })
}

/// Returns the values of a policy. Times are in milliseconds, with fractions.
fn policy_view(policy: &Policy) -> Value {
    let millis = |length: Duration| length.as_secs_f64() * 1e3;
    let tier =
        |tier: &Tier| json!({ "period": millis(tier.period()), "threshold": tier.threshold() });
    json!({
        "tiers": policy.tiers().iter().map(tier).collect::<Value>(),
        "burst": policy.get_burst(),
        // The calls of one caller that may be in flight at one time.
        "concurrency": policy.get_concurrency(),
        // The time for which a process takes units ahead.
        "lease": policy.get_lease().map(millis),
    })
}

/// Returns the refused calls by reason, of those that have occurred.
fn refused_by(counts: &PolicyStats, policy: Option<&Policy>) -> Vec<(String, u64)> {
    let tiers = policy.map_or(&[][..], Policy::tiers);
    let windows = tiers.iter().enumerate().map(|(index, tier)| {
        (format!("{:?} window", tier.period()), counts.refused_by_tier(index))
    });
    // An override may have had more of them than there are now.
    let former = (tiers.len()..MAX_TIERS).map(|index| counts.refused_by_tier(index)).sum();
    let former = ("a window of other numbers".to_owned(), former);
    let others = [
        ("in flight", Verdict::Busy),
        ("shut out", Verdict::Denied),
        ("too large", Verdict::TooLarge),
    ];
    let others = others.map(|(reason, verdict)| (reason.to_owned(), counts.total(verdict)));
    windows.chain([former]).chain(others).filter(|(_, calls)| *calls > 0).collect()
}

/// Returns the enforcement of a limit after the global one, and its source.
fn effective_enforcement(
    global: Option<(Enforcement, OverrideSource)>,
    overrides: &[Attributed],
    is_dry_run: bool,
) -> (Enforcement, String) {
    let own = overrides.iter().cloned().find_map(enforcing).map(|(_, by, what)| {
        // Under a share it is on for some callers, and a dry run for the others.
        (what.enforcement.unwrap_or(Enforcement::DryRun), by.to_string())
    });
    let declared = if is_dry_run { Enforcement::DryRun } else { Enforcement::On };
    let (enforcement, by) = own.unwrap_or_else(|| (declared, "code".to_owned()));
    match global {
        Some((global, source)) if global > enforcement => {
            (global, format!("{source}, for all limits"))
        }
        _ => (enforcement, by),
    }
}
