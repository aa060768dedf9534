//! The dashboard and the alerts in `ops` name the metrics that the crate describes, and no others.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Arc, Mutex},
};

use harness::{ROOT, ran_in_own_process};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use ratelimit_runtime::{Limiter, stats::Verdict};

/// The names of described metrics. Of a histogram, an exporter shows its buckets.
#[derive(Clone, Default)]
struct Described(Arc<Mutex<BTreeSet<String>>>);

impl Described {
    fn insert(&self, name: &str) {
        self.0.lock().unwrap().insert(name.to_owned());
    }
}

impl Recorder for Described {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        assert!(!text.is_empty());
        self.insert(name.as_str());
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        assert!(!text.is_empty());
        self.insert(name.as_str());
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        assert!(!text.is_empty());
        self.insert(&format!("{}_bucket", name.as_str()));
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Returns the names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !character.is_alphanumeric() && character != '_');
    let names = words.filter(|word| word.starts_with("ratelimit_"));
    names.filter(|name| *name != "ratelimit_runtime").map(str::to_owned).collect()
}

#[test]
fn the_dashboard_and_the_alerts_name_all_described_metrics_and_no_others() {
    if ran_in_own_process(
        "ops::the_dashboard_and_the_alerts_name_all_described_metrics_and_no_others",
    ) {
        return;
    }
    let described = Described::default();
    metrics::set_global_recorder(described.clone()).unwrap();
    Limiter::in_memory().record_limits();
    let described = described.0.lock().unwrap().clone();
    assert!(described.len() > 15, "{described:?}");
    let read = |file: &str| fs::read_to_string(ROOT.join("ops").join(file)).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&read("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let shown: BTreeSet<_> =
        targets.flat_map(|target| names(target["expr"].as_str().unwrap())).collect();
    assert_eq!(shown, described);
    let alerts = read("alerts.yml");
    let rules = alerts.lines().filter(|line| line.trim_start().starts_with("- alert:")).count();
    let expressions = alerts.lines().filter(|line| line.trim_start().starts_with("expr:")).count();
    assert!(rules >= 9 && rules == expressions, "{rules} rules, {expressions} expressions");
    let watched = names(&alerts);
    assert!(watched.len() > 6 && watched.is_subset(&described), "{watched:?}");
    // A limit that one process alone does not enforce, and every verdict that refuses a call.
    for enforcement in ["== 0", "== 1"] {
        let expr = format!("min by (policy) (ratelimit_enforcement) {enforcement}");
        assert!(alerts.contains(&expr), "{expr}");
    }
    let (_, refuses) = alerts.split_once("RateLimitRefusesMuch").unwrap();
    let (_, outcomes) = refuses.split_once("outcome=~\"").unwrap();
    let outcomes: BTreeSet<_> = outcomes.split('"').next().unwrap().split('|').collect();
    let passes = [Verdict::Admitted, Verdict::Unavailable, Verdict::InvalidPolicy];
    let refusals = Verdict::ALL.iter().filter(|verdict| !passes.contains(verdict));
    assert_eq!(outcomes, refusals.map(|verdict| verdict.as_str()).collect());
    // The guide describes each.
    let guide = read("../ratelimit-runtime/src/guide/operating.md");
    let documented = names(&guide);
    let missing: Vec<_> = described
        .iter()
        .filter(|name| !documented.contains(name.trim_end_matches("_bucket")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
