use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use super::*;
use crate::policy::{Plans, PolicyName};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns policies of different names.
fn policies(count: usize) -> Vec<Policy> {
    let name = |number| &*format!("limit_{number}").leak();
    (0..count).map(|number| Policy::fixed_window(name(number), MINUTE, 1)).collect()
}

fn threshold(overrides: &Overrides, policy: &Policy) -> u32 {
    overrides.effective(policy, &Caller::shared(), Enforcement::On).policy().tiers()[0].threshold()
}

fn set(overrides: &Overrides, policy: &Policy, threshold: u32) {
    overrides.here().set(policy.name(), Override::new().threshold(threshold)).unwrap();
}

/// Returns two policies whose names have the same bits in the filter.
fn of_equal_bits() -> [Policy; 2] {
    let bits = |policy: &Policy| {
        let mut bits = filter::NameBits::default();
        bits.insert(PolicyName::hash_of(policy.name()));
        bits
    };
    let mut seen = Vec::new();
    for policy in policies(10_000) {
        let bits = bits(&policy);
        if let Some((_, other)) = seen.iter().find(|(seen, _)| *seen == bits) {
            return [*other, policy];
        }
        seen.push((bits, policy));
    }
    panic!("10 000 names that differ")
}

#[test]
fn limits_that_the_filter_cannot_tell_apart_are_overridden_each_for_itself() {
    let (overrides, [first, second]) = (Overrides::none(Shown::default()), of_equal_bits());
    let thresholds = || [&first, &second].map(|policy| threshold(&overrides, policy));
    set(&overrides, &first, 7);
    assert_eq!(thresholds(), [7, 1]);
    set(&overrides, &second, 8);
    assert_eq!(thresholds(), [7, 8]);
    overrides.here().remove(first.name());
    assert_eq!(thresholds(), [1, 8]);
    overrides.here().remove(second.name());
    assert_eq!(thresholds(), [1, 1]);
}

#[test]
fn a_global_enforcement_reaches_every_limit_until_it_is_removed() {
    let (overrides, policies) = (Overrides::none(Shown::default()), policies(2_000));
    let is_dry_run = |policy: &Policy| {
        overrides.effective(policy, &Caller::shared(), Enforcement::On).is_dry_run()
    };
    set(&overrides, &policies[0], 7);
    overrides.here().set("*", Enforcement::DryRun).unwrap();
    assert!(policies.iter().all(is_dry_run));
    overrides.here().remove("*");
    assert!(!policies.iter().any(is_dry_run));
    assert_eq!(threshold(&overrides, &policies[0]), 7);
}

#[test]
fn an_override_applies_to_every_call_that_starts_after_it_was_set() {
    let (overrides, policies, done) =
        (Overrides::none(Shown::default()), policies(300), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for (number, policy) in policies.iter().enumerate() {
                set(&overrides, policy, 7);
                done.store(number + 1, Ordering::Release);
            }
        });
        while done.load(Ordering::Acquire) < policies.len() {
            let done = done.load(Ordering::Acquire);
            if let Some(last) = policies[..done].last() {
                assert_eq!(threshold(&overrides, last), 7);
            }
        }
    });
    assert!(policies.iter().all(|policy| threshold(&overrides, policy) == 7));
}

#[test]
fn changes_of_one_thread_are_not_undone_by_those_of_another() {
    let (overrides, policies) = (Overrides::none(Shown::default()), of_equal_bits());
    thread::scope(|scope| {
        for policy in &policies {
            scope.spawn(|| {
                for number in 2..1_000 {
                    set(&overrides, policy, number);
                    assert_eq!(threshold(&overrides, policy), number);
                    overrides.here().remove(policy.name());
                    assert_eq!(threshold(&overrides, policy), 1);
                }
            });
        }
    });
    let is_empty = |policy: &Policy| !overrides.shared.filter.may_contain(policy.full_name());
    assert!(policies.iter().all(is_empty));
}

#[test]
fn calls_in_flight_are_changed_where_they_are_declared() {
    let upload = Policy::concurrency_limit("upload", 5);
    let both = Policy::sliding_window("both", MINUTE, 5).concurrency(2);
    let nine = Override::new().concurrency(9);
    assert!(nine.has_numbers());
    assert_eq!(nine.preview(&upload), Ok(upload.concurrency(9)));
    assert_eq!(nine.preview(&both), Ok(both.concurrency(9)));
    let windowed = Override::new().tier(MINUTE, 3).concurrency(9);
    assert_eq!(windowed.preview(&upload), Ok(upload.concurrency(9).tier(MINUTE, 3)));
    let error = |what: &Override, policy: &Policy| what.preview(policy).unwrap_err().to_string();
    assert_eq!(
        error(&nine, &Policy::sliding_window("both", MINUTE, 5)),
        "invalid override of rate limit `both`: the limit declares no `concurrency`, and its calls \
         would hold no permit; declare one in the program"
    );
    assert_eq!(
        error(&Override::new().threshold(5), &upload),
        "invalid override of rate limit `upload`: the limit has no window; give `tiers`, or \
         `concurrency` alone"
    );
    let overrides = Overrides::none(Shown::default());
    overrides.here().set("unknown", nine).unwrap();
    assert!(overrides.here().set("unknown", Override::new().concurrency(0)).is_err());
}

/// Every assignment of no override, an enforcement and a number to these places, the highest first,
/// in these sources, the highest first. A caller's place has its highest source alone; all others
/// are merged.
fn assert_precedence(policy: &Policy, places: &[(&str, Option<&str>)], sources: &[OverrideSource]) {
    let (overrides, alice) = (Overrides::none(Shown::default()), Caller::from("alice"));
    let slots: Vec<_> = places
        .iter()
        .flat_map(|place| sources.iter().map(move |source| (*place, *source)))
        .collect();
    let what = |slot: usize, case: usize| match case / 3_usize.pow(u32::try_from(slot).unwrap()) % 3
    {
        0 => None,
        1 => Some(Override::new().enforcement(Enforcement::ALL[slot % 3])),
        _ => Some(Override::new().threshold(10 + u32::try_from(slot).unwrap())),
    };
    for case in 0..3_usize.pow(u32::try_from(slots.len()).unwrap()) {
        let set: Vec<_> = (0..slots.len()).map(|slot| what(slot, case)).collect();
        for source in sources {
            let of_source = || slots.iter().zip(&set).filter(|((_, of), _)| of == source);
            overrides.change(*source, |layer| {
                for (((limit, caller), _), what) in of_source() {
                    let (limit, caller) = ((*limit).to_owned(), caller.map(str::to_owned));
                    layer.set(WrittenPlace { caller, limit }, what.clone());
                }
            });
        }
        let mut found = Vec::new();
        for (place, set) in places.iter().zip(set.chunks(sources.len())) {
            let set = set.iter().flatten().take(if place.1.is_some() { 1 } else { sources.len() });
            found.extend(set.filter(|_| place.0 != "*" || place.1.is_some()));
        }
        let enforcement = found.iter().find_map(|it| it.enforcement).unwrap_or(Enforcement::On);
        let mut global = slots.iter().zip(&set).filter(|((place, _), _)| *place == ("*", None));
        let global = global.find_map(|(_, set)| set.as_ref()?.enforcement);
        let enforcement = global.map_or(enforcement, |global| global.max(enforcement));
        let threshold = found.iter().find_map(|it| it.threshold).unwrap_or(1);
        let now = overrides.effective(policy, &alice, Enforcement::On);
        let now = (now.enforcement, now.policy().tiers()[0].threshold());
        assert_eq!(now, (enforcement, threshold), "{slots:?}: {set:?}");
    }
}

#[test]
fn enforcement_and_numbers_are_each_those_of_the_highest_place_that_has_one() {
    const ALICE: Option<&str> = Some("/alice");
    const PLANS: Plans = Plans::new("api", "free", Policy::fixed_window("api", MINUTE, 1));
    let plan = *PLANS.of("free");
    let of_one = [("api", ALICE), ("*", ALICE), ("api", None), ("*", None)];
    let of_plans =
        [("api@free", ALICE), of_one[0], of_one[1], ("api@free", None), of_one[2], of_one[3]];
    let of_two = [OverrideSource::Redis, OverrideSource::Program];
    assert_precedence(&Policy::fixed_window("api", MINUTE, 1), &of_one, &of_two);
    assert_precedence(&plan, &of_plans, &of_two[..1]);
}

#[cfg(feature = "overrides")]
#[test]
fn an_override_begins_by_the_clock_of_redis_and_begins_again_after_that_was_set_back() {
    let (overrides, now) = (Overrides::none(Shown::default()), std::time::SystemTime::now());
    let (policy, from) = (Policy::fixed_window("clocked", MINUTE, 1), now + 60 * MINUTE);
    let plan = [Override::new().threshold(5), Override::new().threshold(9).from(from)];
    for place in [Place::from("clocked"), Place::caller("clocked", "alice")] {
        overrides.here().set(place, plan.clone()).unwrap();
        for (time, expected) in [(now, 5), (from, 9), (now, 5), (from + 60 * MINUTE, 9), (now, 5)] {
            overrides.set_server_time(time);
            for caller in ["alice", "bob"] {
                let now = overrides.effective(&policy, &Caller::from(caller), Enforcement::On);
                assert_eq!(now.policy().tiers()[0].threshold(), expected, "{caller} {time:?}");
            }
        }
    }
}
