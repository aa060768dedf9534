//! The state of all limits, as the page shows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ratelimit_runtime::{
    Enforcement, Override, OverrideSource, Overrides, Policy, RegisteredPolicy, ServerStatus, Tier,
    UnavailableReason, conflicts, policies,
    stats::{self, PolicyStats},
};
use serde::Serialize;

use crate::Dashboard;

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
    /// The reason why actions take effect in this process although it follows a fleet.
    fleet_failure: Option<String>,
    /// The overrides that change no limit.
    problems: Vec<String>,
    /// The global enforcement.
    enforcement: Option<Attributed<Enforcement>>,
    limits: Vec<LimitView>,
}

#[derive(Serialize)]
struct ServerView {
    name: String,
    failure: Option<String>,
    advice: Option<&'static str>,
}

/// A value and its source.
#[derive(Serialize)]
struct Attributed<T> {
    by: String,
    what: T,
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
    /// `true` once a call of this process came without a caller.
    shares_one_bucket: bool,
    written: Option<PolicyView>,
    now: Option<PolicyView>,
    /// The reason why the override does not change the values.
    fault: Option<String>,
    enforcement: Enforcement,
    enforced_by: String,
    overrides: Vec<Attributed<Override>>,
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
            burst: policy.explicit_burst(),
            concurrency: policy.max_in_flight(),
            lease: policy.lease_length().map(millis),
        }
    }
}

/// A limit that a request names.
pub(super) struct KnownLimit {
    pub(super) name: &'static str,
    /// The policy with its algorithm; its values may be unknown.
    pub(super) policy: Option<Policy>,
    /// The policy with the declared values, or those of the latest call.
    pub(super) values: Option<Policy>,
}

/// Returns the source where actions take effect: the fleet's, as long as this process can read it.
pub(super) fn target(overrides: &Overrides) -> OverrideSource {
    if overrides.follows_redis() && overrides.redis_failure().is_none() {
        OverrideSource::Redis
    } else {
        OverrideSource::Program
    }
}

/// Returns the names of all limits that are registered or were called.
fn names() -> BTreeSet<&'static str> {
    let registered = policies().into_iter().map(|limit| limit.name());
    registered.chain(stats::snapshot().iter().map(PolicyStats::name)).collect()
}

impl Dashboard {
    /// Returns the limit of this name, if there is one.
    pub(super) fn find(&self, name: &str) -> Option<KnownLimit> {
        let name = *names().get(name)?;
        let limits = policies();
        let limit = limits.iter().find(|limit| limit.name() == name);
        let values = limit.and_then(RegisteredPolicy::policy).copied();
        let values = values.or_else(|| self.samples.latest_policy(name));
        let declared = limit.map(|limit| *limit.declared());
        Some(KnownLimit { name, policy: declared.or(values), values })
    }

    pub(super) fn view(&self) -> LimitsView {
        let limiter = &self.limiter;
        let overrides = limiter.overrides();
        let mut registered = BTreeMap::<&str, Vec<RegisteredPolicy>>::new();
        for limit in policies() {
            registered.entry(limit.name()).or_default().push(limit);
        }
        let conflicts: BTreeSet<_> = conflicts().iter().map(|(limit, _)| limit.name()).collect();
        let limits = names().into_iter().map(|name| {
            let functions = registered.remove(name).unwrap_or_default();
            self.limit(name, &functions, conflicts.contains(name))
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
            fleet_failure: overrides.redis_failure().map(|reason| reason.to_string()),
            problems: overrides.problems().iter().map(ToString::to_string).collect(),
            enforcement: overrides
                .enforcement()
                .map(|(what, source)| Attributed { by: source.to_string(), what }),
            limits: limits.collect(),
        }
    }

    fn limit(
        &self,
        name: &'static str,
        functions: &[RegisteredPolicy],
        is_in_conflict: bool,
    ) -> LimitView {
        let overrides = self.limiter.overrides();
        let first = functions.first();
        let by_source = overrides.by_source(name);
        let latest = self.samples.latest_policy(name);
        let counted = stats::snapshot().into_iter().find(|limit| limit.name() == name);
        let written = match first {
            Some(limit) => limit.policy().copied(),
            None => self.samples.written_policy(name),
        };
        let (now, fault) = match &written {
            Some(written) => match overrides.get(name).unwrap_or_default().preview(written) {
                Ok(policy) => (Some(policy), None),
                Err(error) => (Some(*written), Some(error.to_string())),
            },
            None => (latest, None),
        };
        let is_dry_run = first.is_some_and(RegisteredPolicy::is_dry_run);
        let (enforcement, enforced_by) =
            effective_enforcement(overrides.enforcement(), &by_source, is_dry_run);
        let policy = first.map(|limit| *limit.declared()).or(latest);
        LimitView {
            name,
            algorithm: policy.map_or("", |policy| policy.algorithm().as_str()),
            dynamic: first.map_or(&[], RegisteredPolicy::dynamic_args),
            cost: first.map_or("", RegisteredPolicy::cost),
            key: first.map(RegisteredPolicy::key),
            places: functions.iter().map(|it| format!("{}:{}", it.file(), it.line())).collect(),
            is_in_conflict,
            counts_rejected: policy.is_some_and(|policy| policy.counts_rejected()),
            is_weighted: policy.is_some_and(|policy| policy.is_weighted()),
            waiting: counted.as_ref().map_or(0, PolicyStats::waiting),
            shares_one_bucket: first.is_some_and(RegisteredPolicy::shares_one_bucket)
                || counted.is_some_and(|limit| limit.shares_one_bucket()),
            written: written.as_ref().map(PolicyView::new),
            now: now.as_ref().map(PolicyView::new),
            fault,
            enforcement,
            enforced_by,
            overrides: by_source
                .into_iter()
                .map(|(source, what)| Attributed { by: source.to_string(), what })
                .collect(),
        }
    }
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
        None if is_dry_run => (Enforcement::DryRun, "the source code".to_owned()),
        None => (Enforcement::On, "the source code".to_owned()),
    };
    match global {
        Some((global, source)) if global > enforcement => {
            (global, format!("{source}, of all limits"))
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
