//! The state of all limits, as the page shows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ratelimit_runtime::{
    Enforcement, Override, OverrideSource, Overrides, Policy, RegisteredPolicy, ServerStatus, Tier,
    UnavailableReason, conflicts, policies, policies_by_hand,
    stats::{self, PolicyStats, TimeWindow, Verdict},
};
use serde::Serialize;

use crate::{
    Dashboard,
    acting::Scope,
    history::{self, ChangeView},
};

/// The state of all limits and of their store.
#[derive(Serialize)]
pub(super) struct LimitsView {
    process: String,
    servers: Vec<ServerView>,
    /// `memory` or `redis`.
    store: &'static str,
    /// The source where actions take effect.
    target: String,
    is_fleet: bool,
    /// `true` if this process follows the overrides on Redis.
    follows_fleet: bool,
    /// The reason why actions take effect in this process although it follows a fleet.
    fleet_failure: Option<String>,
    /// The overrides that change no limit.
    problems: Vec<String>,
    /// The global enforcement.
    enforcement: Option<Attributed>,
    /// The last changes, the latest first.
    changes: Vec<ChangeView>,
    limits: Vec<LimitView>,
}

#[derive(Serialize)]
struct ServerView {
    name: String,
    failure: Option<String>,
    advice: Option<&'static str>,
}

/// An override and its source.
#[derive(Serialize)]
struct Attributed {
    by: String,
    what: Override,
    /// `true` if an operator can end it on the page.
    can_end: bool,
}

impl Attributed {
    fn new((source, what): (OverrideSource, Override)) -> Self {
        Self { by: source.to_string(), what, can_end: Scope::of(source).is_some() }
    }
}

#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each a field of the JSON")]
struct LimitView {
    name: &'static str,
    algorithm: &'static str,
    /// The expressions of dynamic values, as written.
    dynamic: &'static [&'static str],
    cost: &'static str,
    /// None if no function is registered.
    key: Option<&'static [&'static str]>,
    places: Vec<String>,
    /// `true` if functions of this name have different limits.
    is_in_conflict: bool,
    counts_rejected: bool,
    /// `true` if the log of a caller has one entry for each call, with its units.
    is_weighted: bool,
    /// The calls of this process that wait in line.
    waiting: u64,
    /// The permits that calls of this process hold.
    held: u64,
    /// The calls that were refused within the last minute, ten minutes and hour.
    refused: [u64; 3],
    /// The calls that were refused since the start, by the reason in words.
    refused_by: Vec<(String, u64)>,
    /// `true` once a call of this process came without a caller.
    shares_one_bucket: bool,
    written: Option<PolicyView>,
    now: Option<PolicyView>,
    /// The reason why the override does not change the values.
    fault: Option<String>,
    enforcement: Enforcement,
    enforced_by: String,
    overrides: Vec<Attributed>,
}

#[derive(Serialize)]
struct PolicyView {
    tiers: Vec<TierView>,
    burst: Option<u32>,
    /// The calls of one caller that may be in flight at one time.
    concurrency: Option<u32>,
    /// The time for which a process takes units ahead, in milliseconds.
    lease: Option<f64>,
}

#[derive(Serialize)]
struct TierView {
    /// In milliseconds, with fractions.
    period: f64,
    threshold: u32,
}

impl PolicyView {
    fn new(policy: &Policy) -> Self {
        let millis = |length: Duration| length.as_secs_f64() * 1e3;
        let tier =
            |tier: &Tier| TierView { period: millis(tier.period()), threshold: tier.threshold() };
        Self {
            tiers: policy.tiers().iter().map(tier).collect(),
            burst: policy.burst_size(),
            concurrency: policy.max_concurrency(),
            lease: policy.lease_length().map(millis),
        }
    }
}

/// A limit that a request names.
pub(super) struct KnownLimit {
    pub(super) name: &'static str,
    /// The policy with its algorithm; values that come with each call are 0.
    pub(super) policy: Policy,
    /// The policy, or that of a recent call if values come with each call.
    pub(super) values: Option<Policy>,
}

/// Returns the source where actions take effect: the fleet's, as long as this process can read it.
pub(super) fn target(overrides: &Overrides) -> OverrideSource {
    if overrides.follows_redis() && overrides.redis_failure().is_none() {
        OverrideSource::Redis
    } else {
        OverrideSource::Operator
    }
}

/// Returns all limits: those of functions, and those that were checked by hand and are no function's.
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

impl Dashboard {
    /// Returns the limit of this name, if there is one.
    pub(super) fn find(name: &str) -> Option<KnownLimit> {
        let limits = limits();
        let limit = limits.get(name)?.first()?;
        let (name, policy) = (limit.name(), *limit.declared());
        let values = limit.policy().copied().or_else(|| {
            let counted = stats::snapshot().into_iter().find(|limit| limit.name() == name);
            counted.and_then(|limit| limit.policy().copied())
        });
        Some(KnownLimit { name, policy, values })
    }

    pub(super) fn view(&self) -> LimitsView {
        let limiter = &self.limiter;
        let overrides = limiter.overrides();
        let conflicts: BTreeSet<_> = conflicts().iter().map(|(limit, _)| limit.name()).collect();
        let counted = stats::snapshot();
        let limits = limits();
        let limits = limits.iter().filter_map(|(name, limits)| {
            let counted = counted.iter().find(|limit| limit.name() == *name);
            self.limit(limits, counted, conflicts.contains(name))
        });
        let server = |server: ServerStatus| ServerView {
            name: server.name().to_owned(),
            failure: server.failure().map(|reason| reason.to_string()),
            advice: server.failure().map(UnavailableReason::advice),
        };
        let target = target(overrides);
        LimitsView {
            process: process(),
            servers: limiter.servers().into_iter().map(server).collect(),
            store: if limiter.is_in_memory() { "memory" } else { "redis" },
            target: target.to_string(),
            is_fleet: target == OverrideSource::Redis,
            follows_fleet: overrides.follows_redis(),
            fleet_failure: overrides.redis_failure().map(|reason| reason.to_string()),
            problems: overrides.problems().iter().map(ToString::to_string).collect(),
            enforcement: overrides.by_source("*").into_iter().next().map(Attributed::new),
            changes: history::changes(overrides),
            limits: limits.collect(),
        }
    }

    fn limit(
        &self,
        limits: &[RegisteredPolicy],
        counted: Option<&PolicyStats>,
        is_in_conflict: bool,
    ) -> Option<LimitView> {
        let overrides = self.limiter.overrides();
        let first = limits.first()?;
        let (name, policy) = (first.name(), first.declared());
        let by_source = overrides.by_source(name);
        let written = first.policy().copied();
        let (now, fault) = match &written {
            Some(written) => match overrides.get(name).unwrap_or_default().preview(written) {
                Ok(policy) => (Some(policy), None),
                Err(error) => (Some(*written), Some(error.to_string())),
            },
            None => (None, None),
        };
        let (enforcement, enforced_by) =
            effective_enforcement(overrides.enforcement(), &by_source, first.is_dry_run());
        let functions = limits.iter().filter(|limit| !limit.is_by_hand());
        Some(LimitView {
            name,
            algorithm: policy.algorithm().as_str(),
            dynamic: first.dynamic_args(),
            cost: first.cost(),
            key: (!first.is_by_hand()).then(|| first.key()),
            places: functions.map(|it| format!("{}:{}", it.file(), it.line())).collect(),
            is_in_conflict,
            counts_rejected: policy.counts_rejected(),
            is_weighted: policy.is_weighted(),
            waiting: counted.map_or(0, PolicyStats::waiting),
            held: counted.map_or(0, PolicyStats::permits_held),
            refused: counted.map_or([0; 3], refused_within),
            refused_by: counted.map_or_else(Vec::new, |it| refused_by(it, now.as_ref())),
            shares_one_bucket: first.shares_one_bucket(),
            written: written.as_ref().map(PolicyView::new),
            now: now.as_ref().map(PolicyView::new),
            fault,
            enforcement,
            enforced_by,
            overrides: by_source.into_iter().map(Attributed::new).collect(),
        })
    }
}

fn refused_within(counts: &PolicyStats) -> [u64; 3] {
    [TimeWindow::Minute, TimeWindow::TenMinutes, TimeWindow::Hour]
        .map(|window| counts.refused_within(window))
}

/// Returns the refused calls by reason, of those that have occurred.
fn refused_by(counts: &PolicyStats, policy: Option<&Policy>) -> Vec<(String, u64)> {
    let tiers = policy.map_or(&[][..], Policy::tiers);
    let windows = (0..tiers.len().max(1)).map(|index| {
        let window = tiers.get(index).map(|tier| format!("{:?} window", tier.period()));
        (window.unwrap_or_else(|| "quota".to_owned()), counts.refused_by_tier(index))
    });
    let others = [
        ("in flight", Verdict::Busy),
        ("shut out", Verdict::Denied),
        ("too large", Verdict::TooLarge),
    ];
    let others = others.map(|(reason, verdict)| (reason.to_owned(), counts.total(verdict)));
    windows.chain(others).filter(|(_, calls)| *calls > 0).collect()
}

/// Returns the enforcement of a limit after the global one, and its source.
fn effective_enforcement(
    global: Option<(Enforcement, OverrideSource)>,
    by_source: &[(OverrideSource, Override)],
    is_dry_run: bool,
) -> (Enforcement, String) {
    let own = by_source.iter().find_map(|(source, it)| Some((it.enforcement?, source)));
    let (enforcement, by) = match own {
        Some((enforcement, source)) => (enforcement, source.to_string()),
        None if is_dry_run => (Enforcement::DryRun, "code".to_owned()),
        None => (Enforcement::On, "code".to_owned()),
    };
    match global {
        Some((global, source)) if global > enforcement => {
            (global, format!("{source}, for all limits"))
        }
        _ => (enforcement, by),
    }
}

/// Returns the name of this process for people. In a container, `HOSTNAME` names its host.
fn process() -> String {
    let id = std::process::id();
    match std::env::var("HOSTNAME") {
        Ok(host) if !host.is_empty() => format!("{host}, process {id}"),
        _ => format!("process {id}"),
    }
}
