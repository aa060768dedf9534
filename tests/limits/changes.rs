//! A change of a limit is stricter, looser, or neither.

use ratelimit_runtime::limits::{
    ChangeKind::{self, Changed, Gone, Looser, New, Stricter},
    LimitList,
};

fn list(text: &str) -> LimitList {
    let Ok(list) = text.parse();
    list
}

/// Returns the kinds of changes from the one text to the other, with the limits' names.
fn changes(before: &str, after: &str) -> Vec<(ChangeKind, String)> {
    let changes = list(after).changes_since(&list(before));
    changes.iter().map(|change| (change.kind(), change.name().to_owned())).collect()
}

/// Asserts that a change of properties of one limit is of this kind, and the reverse one of the other.
fn assert_kind(before: &[&str], after: &[&str], kind: ChangeKind) {
    let limit = |properties: &[&str]| {
        let lines = [&["algorithm: sliding_window"], properties, &["key: account"]].concat();
        format!("login\n    {}\n", lines.join("\n    "))
    };
    let (before, after) = (limit(before), limit(after));
    let reverse = match kind {
        Stricter => Looser,
        Looser => Stricter,
        kind => kind,
    };
    assert_eq!(changes(&before, &after), [(kind, "login".to_owned())], "{before}{after}");
    assert_eq!(changes(&after, &before), [(reverse, "login".to_owned())], "{after}{before}");
    assert!(changes(&after, &after).is_empty());
}

#[test]
fn a_lower_threshold_and_a_longer_period_are_stricter() {
    assert_kind(&["tier: 5 per 60s"], &["tier: 4 per 60s"], Stricter);
    assert_kind(&["tier: 5 per 60s"], &["tier: 5 per 3600s"], Stricter);
    assert_kind(&["tier: 5 per 1500ms"], &["tier: 5 per 2s"], Stricter);
    assert_kind(&["tier: 5 per 60s"], &["tier: 300 per 3600s"], Changed);
    assert_kind(&["tier: 5 per 60s"], &["tier: plan.calls per 60s"], Changed);
}

#[test]
fn arguments_beside_the_policy_are_under_review() {
    let without = [];
    assert_kind(&without, &["leave: 20%"], Stricter);
    assert_kind(&["leave: 20%"], &["leave: 30%"], Stricter);
    assert_kind(&without, &["skip: user.is_internal"], Looser);
    assert_kind(&["skip: user.is_internal"], &["skip: true"], Changed);
    assert_kind(&["on_store_error: deny"], &["on_store_error: allow"], Looser);
    assert_kind(&["on_store_error: local"], &["on_store_error: deny"], Stricter);
    // The limiter's own setting is not in the text.
    assert_kind(&["on_store_error: local"], &["on_store_error: local(20)"], Stricter);
    assert_kind(&["on_store_error: local(20)"], &["on_store_error: local(30)"], Looser);
    assert_kind(&["on_store_error: deny"], &["on_store_error: local(1)"], Looser);
    assert_kind(&without, &["on_store_error: allow"], Changed);
    for line in ["max_wait: 2s", "warn_at: 80%", "request_id: job.id"] {
        assert_kind(&without, &[line], Changed);
    }
}

#[test]
fn a_further_tier_is_stricter() {
    let one = ["tier: 5 per 60s"];
    assert_kind(&one, &["tier: 5 per 60s", "tier: 50 per 3600s"], Stricter);
    assert_kind(&one, &["tier: 4 per 60s", "tier: 50 per 3600s"], Stricter);
    assert_kind(&one, &["tier: 6 per 60s", "tier: 50 per 3600s"], Changed);
    // The order of tiers changes no decision.
    assert_kind(
        &["tier: 5 per 60s", "tier: 50 per 3600s"],
        &["tier: 40 per 3600s", "tier: 5 per 60s"],
        Stricter,
    );
    assert_kind(
        &["tier: 5 per 60s", "tier: 50 per 3600s"],
        &["tier: 4 per 60s", "tier: 60 per 3600s"],
        Changed,
    );
    assert_kind(
        &["tier: plan.calls per 60s"],
        &["tier: plan.calls per 60s", "tier: 50 per 3600s"],
        Stricter,
    );
}

#[test]
fn each_property_has_its_direction() {
    assert_kind(&["concurrency: 5"], &["concurrency: 4"], Stricter);
    assert_kind(&[], &["concurrency: 4"], Stricter);
    assert_kind(&["burst: 5"], &["burst: 4"], Stricter);
    assert_kind(&["cost: 2"], &["cost: 3"], Stricter);
    assert_kind(&[], &["cost: 3"], Stricter);
    assert_kind(&[], &["count_rejected: yes"], Stricter);
    assert_kind(&[], &["dry_run: yes"], Looser);
    for (before, after) in [
        ("key: account", "key: address"),
        ("lease: 20ms", "lease: 10ms"),
        ("quota_unit: tokens", "quota_unit: rows"),
        ("cost: 2", "cost: rows"),
        ("concurrency: 5", "concurrency: plan.calls"),
        ("burst: 5", "burst: plan.burst"),
    ] {
        assert_kind(&[before], &[after], Changed);
    }
    assert_kind(&[], &["burst: 4"], Changed);
    // Two changes of one direction have it too.
    assert_kind(&["tier: 5 per 60s", "cost: 1"], &["tier: 4 per 60s", "cost: 2"], Stricter);
    assert_kind(&["tier: 5 per 60s", "cost: 2"], &["tier: 4 per 60s", "cost: 1"], Changed);
}

#[test]
fn limits_are_new_and_gone() {
    let (login, search) = ("login\n    tier: 5 per 60s\n", "search\n    tier: 9 per 60s\n");
    let both = format!("{search}\n{login}");
    assert_eq!(changes(login, &both), [(New, "search".to_owned())]);
    assert_eq!(changes(&both, search), [(Gone, "login".to_owned())]);
    assert_eq!(changes(login, search), [(Gone, "login".to_owned()), (New, "search".to_owned())]);
    assert_eq!(changes("", &both).len(), 2);
    // Several limits of one name: one is another.
    let other = login.replace('5', "6");
    let third = login.replace('5', "7");
    let twice = |one: &str, other: &str| format!("{one}{other}");
    assert_eq!(
        changes(&twice(login, &other), &twice(login, &third)),
        [(Looser, "login".to_owned())]
    );
    assert_eq!(changes(&twice(login, &other), login), [(Gone, "login".to_owned())]);
}
