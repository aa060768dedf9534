//! All limits, as the page is told of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Dashboard;
use crate::{
    limiter::Limiter,
    overrides::{Enforcement, Override, OverrideSource, Overrides},
    policy::Policy,
    registry::{self, RegisteredPolicy},
    telemetry::stats::{self, PolicyStats},
};

/// All that is said about the limits and their store.
#[derive(Serialize)]
pub(super) struct View {
    process: String,
    servers: Vec<Server>,
    /// Where counts live.
    store: &'static str,
    /// Where an action has its effect.
    target: String,
    is_fleet: bool,
    /// What all refusals are worth at most.
    enforcement: Option<Said<Enforcement>>,
    limits: Vec<Limit>,
}

#[derive(Serialize)]
struct Server {
    name: String,
    failure: Option<String>,
    advice: Option<&'static str>,
}

/// What a source says.
#[derive(Serialize)]
struct Said<T> {
    by: String,
    what: T,
}

#[derive(Serialize)]
struct Limit {
    name: &'static str,
    algorithm: &'static str,
    /// What calls bring, as written.
    dynamic: &'static [&'static str],
    cost: &'static str,
    /// None where it is not known.
    key: Option<&'static [&'static str]>,
    places: Vec<String>,
    /// Functions of this name have different limits.
    is_in_conflict: bool,
    counts_rejected: bool,
    written: Option<Numbers>,
    now: Option<Numbers>,
    /// Why the override has no effect on the numbers.
    fault: Option<String>,
    enforcement: Enforcement,
    enforced_by: String,
    overrides: Vec<Said<Override>>,
}

#[derive(Serialize)]
struct Numbers {
    tiers: Vec<TierNumbers>,
    burst: Option<u32>,
}

#[derive(Serialize)]
struct TierNumbers {
    /// In milliseconds, with fractions.
    period: f64,
    threshold: u32,
}

impl Numbers {
    fn of(policy: &Policy) -> Self {
        let tier = |tier: &crate::policy::Tier| TierNumbers {
            period: tier.period().as_secs_f64() * 1e3,
            threshold: tier.threshold(),
        };
        Self { tiers: policy.tiers().iter().map(tier).collect(), burst: policy.explicit_burst() }
    }
}

/// Where actions have their effect.
pub(super) fn target(limiter: &Limiter) -> OverrideSource {
    if limiter.overrides().follows_redis() {
        OverrideSource::Redis
    } else {
        OverrideSource::Program
    }
}

/// The names of all limits that are known.
fn names() -> BTreeSet<&'static str> {
    let written = registry::policies().into_iter().map(|limit| limit.name());
    written.chain(stats::snapshot().iter().map(PolicyStats::name)).collect()
}

impl Dashboard {
    /// A limit by this name, and what is known of its policy: the algorithm, and, if calls bring
    /// none of them or have been seen, the numbers.
    pub(super) fn find(&self, name: &str) -> Option<Known> {
        let name = *names().get(name)?;
        let limits = registry::policies();
        let limit = limits.iter().find(|limit| limit.name() == name);
        let numbers = limit.and_then(RegisteredPolicy::policy).copied();
        let numbers = numbers.or_else(|| self.samples.latest_policy(name));
        let declared = limit.map(|limit| *limit.declared());
        Some(Known { name, policy: declared.or(numbers), numbers })
    }

    pub(super) fn view(&self) -> View {
        let limiter = &self.limiter;
        let overrides = limiter.overrides();
        let mut written = BTreeMap::<&str, Vec<RegisteredPolicy>>::new();
        for limit in registry::policies() {
            written.entry(limit.name()).or_default().push(limit);
        }
        let limits = names().into_iter().map(|name| {
            let places = written.remove(name).unwrap_or_default();
            self.limit(name, &places, overrides)
        });
        let server = |server: crate::ServerStatus| Server {
            name: server.name().to_owned(),
            failure: server.failure().map(|reason| reason.to_string()),
            advice: server.failure().map(crate::UnavailableReason::advice),
        };
        let target = target(limiter);
        View {
            process: process(),
            servers: limiter.servers().into_iter().map(server).collect(),
            store: if limiter.is_in_memory() { "memory" } else { "redis" },
            target: target.to_string(),
            is_fleet: target == OverrideSource::Redis,
            enforcement: overrides
                .enforcement()
                .map(|(what, source)| Said { by: source.to_string(), what }),
            limits: limits.collect(),
        }
    }

    fn limit(
        &self,
        name: &'static str,
        places: &[RegisteredPolicy],
        overrides: &Overrides,
    ) -> Limit {
        let first = places.first();
        let said = overrides.by_source(name);
        let all = overrides.get(name).unwrap_or_default();
        let latest = self.samples.latest_policy(name);
        let written = match first {
            Some(limit) => limit.policy().copied(),
            None => self.samples.written_policy(name),
        };
        let (now, fault) = match &written {
            Some(written) => match all.preview(written) {
                Ok(policy) => (Some(policy), None),
                Err(fault) => (Some(*written), Some(fault.to_string())),
            },
            None => (latest, None),
        };
        let is_dry_run = first.is_some_and(RegisteredPolicy::is_dry_run);
        let (enforcement, enforced_by) = enforcement(overrides, &said, is_dry_run);
        let policy = first.map(|limit| *limit.declared()).or(latest);
        Limit {
            name,
            algorithm: policy.map_or("", |policy| policy.algorithm().as_str()),
            dynamic: first.map_or(&[], RegisteredPolicy::dynamic_args),
            cost: first.map_or("", RegisteredPolicy::cost),
            key: first.map(RegisteredPolicy::key),
            places: places.iter().map(|it| format!("{}:{}", it.file(), it.line())).collect(),
            is_in_conflict: places.windows(2).any(|two| two[0].conflicts_with(&two[1])),
            counts_rejected: policy.is_some_and(|policy| policy.counts_rejected()),
            // With an expression in it, no numbers are written.
            written: written.as_ref().map(Numbers::of),
            now: now.as_ref().map(Numbers::of),
            fault,
            enforcement,
            enforced_by,
            overrides: said
                .into_iter()
                .map(|(source, what)| Said { by: source.to_string(), what })
                .collect(),
        }
    }
}

/// A limit that a request names.
pub(super) struct Known {
    pub(super) name: &'static str,
    /// Its algorithm at least.
    pub(super) policy: Option<Policy>,
    /// With its numbers, as they are written or as the latest call brought them.
    pub(super) numbers: Option<Policy>,
}

/// What the refusals of a limit are worth, and who says so.
fn enforcement(
    overrides: &Overrides,
    said: &[(OverrideSource, Override)],
    is_dry_run: bool,
) -> (Enforcement, String) {
    let of_this = said.iter().find_map(|(source, what)| Some((what.enforcement?, source)));
    let (enforcement, by) = match of_this {
        Some((enforcement, source)) => (enforcement, source.to_string()),
        None if is_dry_run => (Enforcement::DryRun, "the source code".to_owned()),
        None => (Enforcement::On, "the source code".to_owned()),
    };
    match overrides.enforcement() {
        Some((most, source)) if most > enforcement => (most, format!("{source}, of all limits")),
        _ => (enforcement, by),
    }
}

/// Which process this is, for people: containers have a name for their host.
fn process() -> String {
    let id = std::process::id();
    match std::env::var("HOSTNAME") {
        Ok(host) if !host.is_empty() => format!("{host}, process {id}"),
        _ => format!("process {id}"),
    }
}
