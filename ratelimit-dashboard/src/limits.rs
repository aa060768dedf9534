//! The state of all limits, as the page shows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ratelimit_runtime::{
    CandidateStats, Enforcement, Override, OverrideSource, Overrides, Policy, RegisteredPolicy,
    ServerStatus, Tier, UnavailableReason, conflicts, policies, policies_by_hand,
    stats::{self, PolicyStats, TimeWindow, Verdict},
};
use serde::Serialize;

use crate::{Dashboard, acting::Scope, actions::ALL_LIMITS, history::ChangeView, stream};

/// The state of all limits and of their store.
#[derive(Serialize)]
pub(super) struct LimitsView {
    process: String,
    /// The number of the process, which actions carry.
    process_id: &'static str,
    version: Option<String>,
    /// The time from which calls are counted, in milliseconds since 1970.
    started: u64,
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
    /// The start of the outage, in milliseconds since 1970.
    since: Option<u64>,
    failures: u32,
}

/// An override and its source.
#[derive(Serialize)]
struct Attributed {
    /// The limit, that of a plan, or all of them.
    limit: &'static str,
    by: String,
    what: Override,
    /// The scope of actions that end it; none if it is ended where it is written.
    scope: Option<Scope>,
}

impl Attributed {
    fn all(overrides: &Overrides, limit: &'static str) -> impl Iterator<Item = Self> {
        overrides.by_source(limit).into_iter().map(move |(source, what)| Self {
            limit,
            by: source.to_string(),
            what,
            scope: Scope::of(source),
        })
    }
}

#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each a field of the JSON")]
struct LimitView {
    name: &'static str,
    /// The limit of which this is a plan, or the same name.
    limit: &'static str,
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

/// The counts of a limit that are of the present, and no sum of samples.
#[derive(Serialize)]
pub(super) struct CountsView {
    /// The calls of this process that wait in line.
    waiting: u64,
    /// The permits that calls of this process hold.
    held: u64,
    /// The calls that were refused within the last minute, ten minutes and hour.
    refused: [u64; 3],
    /// The calls that were refused since the start, by the reason in words.
    refused_by: Vec<(String, u64)>,
    /// The callers that were refused within the last minute, as far as they are known.
    at_limit: usize,
    candidate: Option<CandidateView>,
}

/// The answers that the candidate of a limit would have given in this process.
#[derive(Serialize)]
struct CandidateView {
    /// In milliseconds since 1970.
    since: u64,
    calls: u64,
    refused: u64,
    newly_refused: u64,
    newly_admitted: u64,
    callers: u64,
    refused_callers: u64,
}

impl From<&CandidateStats> for CandidateView {
    fn from(stats: &CandidateStats) -> Self {
        Self {
            since: millis(stats.since),
            calls: stats.calls,
            refused: stats.refused,
            newly_refused: stats.newly_refused,
            newly_admitted: stats.newly_admitted,
            callers: stats.callers,
            refused_callers: stats.refused_callers,
        }
    }
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
    pub(super) is_dynamic: bool,
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
    /// Returns the limit of this name, or the first plan of it, if there is one.
    pub(super) fn find(name: &str) -> Option<KnownLimit> {
        let limits = limits();
        let mut all = limits.values().flatten();
        let limit = limits.get(name).and_then(|it| it.first());
        let limit = limit.or_else(|| all.find(|it| it.declared().name() == name))?;
        let (shown, policy) = (limit.name(), *limit.declared());
        let name = if shown == name { shown } else { policy.name() };
        let values = limit.policy().copied().or_else(|| {
            let counted = stats::snapshot().into_iter().find(|limit| limit.name() == shown);
            counted.and_then(|limit| limit.policy().copied())
        });
        Some(KnownLimit { name, policy, is_dynamic: limit.policy().is_none(), values })
    }

    pub(super) fn view(&self) -> LimitsView {
        let limiter = &self.limiter;
        let overrides = limiter.overrides();
        let conflicts: BTreeSet<_> = conflicts().iter().map(|(limit, _)| limit.name()).collect();
        let limits = limits();
        let limits =
            limits.iter().filter_map(|(name, limits)| self.limit(limits, conflicts.contains(name)));
        let server = |server: ServerStatus| ServerView {
            name: server.name().to_owned(),
            failure: server.failure().map(|reason| reason.to_string()),
            advice: server.failure().map(UnavailableReason::advice),
            since: server.since().map(millis),
            failures: server.failures(),
        };
        let target = target(overrides);
        LimitsView {
            process: stats::process_name(),
            process_id: &stream::PROCESS,
            version: limiter.version().map(str::to_owned),
            started: millis(self.started),
            servers: limiter.servers().into_iter().map(server).collect(),
            store: if limiter.is_in_memory() { "memory" } else { "redis" },
            target: target.to_string(),
            is_fleet: target == OverrideSource::Redis,
            follows_fleet: overrides.follows_redis(),
            fleet_failure: overrides.redis_failure().map(|reason| reason.to_string()),
            problems: overrides.problems().iter().map(ToString::to_string).collect(),
            enforcement: Attributed::all(overrides, ALL_LIMITS).next(),
            changes: self.changes(),
            limits: limits.collect(),
        }
    }

    /// Returns the counts of all limits that were called.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, CountsView> {
        let (limits, candidates) = (limits(), self.limiter.overrides().candidates());
        let view = |counts: PolicyStats| {
            let name = counts.name();
            let first = limits.get(name).and_then(|limits| limits.first());
            // That of a plan, else that of its limit.
            let names = [Some(name), first.map(|first| first.declared().name())];
            let of = |name| candidates.iter().find(|candidate| candidate.limit == name);
            let candidate = names.into_iter().flatten().find_map(of);
            let now = first.and_then(|first| self.effective(first).0);
            let view = CountsView {
                waiting: counts.waiting(),
                held: counts.permits_held(),
                refused: refused_within(&counts),
                refused_by: refused_by(&counts, now.as_ref()),
                at_limit: self.limiter.refused_callers(name, TimeWindow::Minute).len(),
                candidate: candidate.map(CandidateView::from),
            };
            (name, view)
        };
        stats::snapshot().into_iter().map(view).collect()
    }

    /// Returns the policy under the override of a plan or of its limit, and the reason why an override changes
    /// nothing. Numbers of several overrides are not mixed.
    fn effective(&self, limit: &RegisteredPolicy) -> (Option<Policy>, Option<String>) {
        let overrides = self.limiter.overrides();
        let Some(written) = limit.policy() else { return (None, None) };
        let names = [limit.name(), limit.declared().name()];
        let what = names.into_iter().filter_map(|name| overrides.get(name)).find(has_numbers);
        match what.unwrap_or_default().preview(written) {
            Ok(policy) => (Some(policy), None),
            Err(error) => (Some(*written), Some(error.to_string())),
        }
    }

    fn limit(&self, limits: &[RegisteredPolicy], is_in_conflict: bool) -> Option<LimitView> {
        let overrides = self.limiter.overrides();
        let first = limits.first()?;
        let (name, policy) = (first.name(), first.declared());
        let written = first.policy().copied();
        let (now, fault) = self.effective(first);
        let own: Vec<_> = Attributed::all(overrides, name)
            .chain(Attributed::all(overrides, policy.name()).filter(|it| it.limit != name))
            .collect();
        let (enforcement, enforced_by) =
            effective_enforcement(overrides.enforcement(), &own, first.is_dry_run());
        let functions = limits.iter().filter(|limit| !limit.is_by_hand());
        Some(LimitView {
            name,
            limit: policy.name(),
            algorithm: policy.algorithm().as_str(),
            dynamic: first.dynamic_args(),
            cost: first.cost(),
            key: (!first.is_by_hand()).then(|| first.key()),
            places: functions.map(|it| format!("{}:{}", it.file(), it.line())).collect(),
            is_in_conflict,
            counts_rejected: policy.counts_rejected(),
            is_weighted: policy.is_weighted(),
            shares_one_bucket: first.shares_one_bucket(),
            written: written.as_ref().map(PolicyView::new),
            now: now.as_ref().map(PolicyView::new),
            fault,
            enforcement,
            enforced_by,
            overrides: own,
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
    overrides: &[Attributed],
    is_dry_run: bool,
) -> (Enforcement, String) {
    let own = overrides.iter().find_map(|it| Some((it.what.enforcement?, it.by.clone())));
    let (enforcement, by) = match own {
        Some(own) => own,
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

fn has_numbers(what: &Override) -> bool {
    let numbers = [what.threshold, what.burst, what.concurrency];
    what.period.is_some() || !what.tiers.is_empty() || numbers.iter().any(Option::is_some)
}

/// Returns a time in milliseconds since 1970.
pub(super) fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
