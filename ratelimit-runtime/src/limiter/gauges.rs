//! The metrics that are read from the counts and overrides of the process, not at each call.

use std::collections::BTreeMap;

use metrics::{Gauge, counter, gauge};
use parking_lot::Mutex;
use ratelimit_core::MAX_TIERS;

use super::Limiter;
use crate::{
    caller::Caller,
    overrides::Enforcement,
    policy::Policy,
    registry::{RegisteredPolicy, policies, policies_by_hand},
    stats::{self, PolicyStats, Verdict},
    telemetry,
};

/// The number of tiers that each limit has had at most.
static SHOWN_TIERS: Mutex<BTreeMap<&str, usize>> = Mutex::new(BTreeMap::new());

impl Limiter {
    /// Sets the metrics of limits that change without a call: `ratelimit_limit`,
    /// `ratelimit_enforcement`, `ratelimit_used_share`, `ratelimit_local_share`,
    /// `ratelimit_permits_held`, `ratelimit_units_total` and `ratelimit_refused_total`.
    ///
    /// Call it before each scrape. The page [`guide::operating`](crate::guide::operating#metrics)
    /// describes them. With the feature `metrics`.
    ///
    /// ```
    /// # fn render() -> String { String::new() }
    /// fn scrape() -> String {
    ///     ratelimit_runtime::limiter().record_limits();
    ///     render()
    /// }
    /// # scrape();
    /// ```
    pub fn record_limits(&self) {
        telemetry::describe_metrics();
        let counted = stats::snapshot();
        let (mut limits, mut by_hand) = (policies(), policies_by_hand());
        // Whoever checks the limit of a function by hand, such as a page of usage, does not know of
        // its dry run.
        by_hand.retain(|it| limits.iter().all(|limit| limit.name() != it.name()));
        limits.append(&mut by_hand);
        for limit in &limits {
            let effective = self.record_limit(limit);
            if let Some(counts) = counted.iter().find(|counts| counts.name() == limit.name()) {
                record_counts(counts, &effective);
            }
        }
    }

    /// Records the numbers and the enforcement of a limit under the current overrides, and returns
    /// its policy.
    fn record_limit(&self, limit: &RegisteredPolicy) -> Policy {
        let (name, shared) = (limit.name(), Caller::shared());
        let declared = if limit.is_dry_run() { Enforcement::DryRun } else { Enforcement::On };
        let effective = self.overrides().effective(limit.declared(), &shared, declared);
        // The metric is 2 for on, and 0 for off: the variants are in the other order.
        let enforcement = Enforcement::Off as u8 - effective.enforcement as u8;
        gauge!("ratelimit_enforcement", "policy" => name).set(enforcement);
        let policy = *effective.whole();
        for (index, tier) in policy.tiers().iter().enumerate().filter(|(_, it)| it.threshold() > 0)
        {
            tier_gauge(name, index).set(tier.threshold());
        }
        // An override may have had more tiers. The recorder is called without the lock: it may come
        // back.
        let tiers = policy.tiers().len();
        let shown =
            *SHOWN_TIERS.lock().entry(name).and_modify(|it| *it = tiers.max(*it)).or_insert(tiers);
        (tiers..shown).for_each(|index| tier_gauge(name, index).set(f64::NAN));
        if let Some(calls) = policy.get_concurrency().filter(|calls| *calls > 0) {
            gauge!("ratelimit_limit", "policy" => name, "tier" => "in_flight").set(calls);
        }
        policy
    }
}

/// Returns the gauge of a tier. Its index names it, because an override may change its period.
fn tier_gauge(name: &'static str, index: usize) -> Gauge {
    gauge!("ratelimit_limit", "policy" => name, "tier" => index.to_string())
}

fn record_counts(counts: &PolicyStats, policy: &Policy) {
    let name = counts.name();
    gauge!("ratelimit_used_share", "policy" => name).set(counts.max_used_share());
    if let Some(percent) = counts.local_share() {
        gauge!("ratelimit_local_share", "policy" => name).set(f64::from(percent) / 100.0);
    }
    if policy.get_concurrency().is_some() {
        #[expect(clippy::cast_precision_loss, reason = "so many calls are not in flight")]
        let held = counts.permits_held() as f64;
        gauge!("ratelimit_permits_held", "policy" => name).set(held);
    }
    for verdict in Verdict::ALL.iter().filter(|verdict| counts.total(**verdict) > 0) {
        counter!("ratelimit_units_total", "policy" => name, "outcome" => verdict.as_str())
            .absolute(counts.units(*verdict));
    }
    let by_tier = (0..MAX_TIERS).map(|index| (index.to_string(), counts.refused_by_tier(index)));
    let in_flight = ("in_flight".to_owned(), counts.total(Verdict::Busy));
    for (tier, calls) in by_tier.chain([in_flight]).filter(|(_, calls)| *calls > 0) {
        counter!("ratelimit_refused_total", "policy" => name, "tier" => tier).absolute(calls);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::foreign_recorder::with_foreign_recorder;

    #[tokio::test]
    async fn a_recorder_is_called_without_a_lock() {
        const POLICY: Policy =
            Policy::fixed_window("gauges", Duration::from_secs(60), 3).concurrency(2);
        let limiter = Limiter::in_memory();
        limiter.check(&POLICY, "alice").await.unwrap();
        let is_it = |limit: &RegisteredPolicy| limit.name() == "gauges";
        assert!(policies_by_hand().iter().any(is_it));
        let is_free = || assert!(SHOWN_TIERS.try_lock().is_some(), "locked");
        with_foreign_recorder(is_free, || limiter.record_limits());
    }
}
