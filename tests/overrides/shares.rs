//! A limit is on for a share of its callers, who are the same in every process, and a dry run for all others.

use std::{collections::BTreeSet, time::Duration};

use harness::RedisServer;
use ratelimit_runtime::{
    Enforcement, Limiter, OnStoreError, Override, Policy,
    overrides::Place,
    stats::{self, Verdict},
};

use crate::sources::Follower;

const HOUR: Duration = Duration::from_secs(3_600);
const POLICY: Policy = Policy::fixed_window("shared out", HOUR, 1);

/// Returns the callers up to 2 000 for whom the limit is on.
async fn enforced(limiter: &Limiter) -> BTreeSet<u32> {
    let mut callers = BTreeSet::new();
    for caller in 0..2_000 {
        let usage = limiter.usage(&POLICY, caller).await.unwrap();
        if usage.enforcement() == Enforcement::On {
            callers.insert(caller);
        }
    }
    callers
}

#[tokio::test]
async fn the_callers_of_a_share_stay_in_it_while_it_grows() {
    let limiter = Limiter::in_memory();
    let mut before = BTreeSet::new();
    for percent in [1, 5, 10, 25, 50, 100] {
        for place in [Place::all(), POLICY.name().into()] {
            let here = limiter.overrides().here();
            here.set(place.clone(), Override::new().enforce(percent)).unwrap();
            let callers = enforced(&limiter).await;
            assert!(callers.is_superset(&before), "{percent} %");
            // Of 2 000 callers, with a standard deviation of 22 at most.
            let expected = 20.0 * f64::from(percent);
            let found = f64::from(u32::try_from(callers.len()).unwrap());
            assert!((found - expected).abs() < 90.0, "{percent} %: {found}");
            here.remove(place);
            before = callers;
        }
    }
    assert_eq!(before.len(), 2_000);
}

#[test]
fn the_share_has_the_same_callers_in_every_process() {
    let server = RedisServer::start();
    let mut fleet = [Follower::of_callers(&server), Follower::of_callers(&server)];
    let all = (0..200).map(|caller| caller.to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!(fleet.each_mut().map(Follower::next), [&*all, &all]);
    let mut before = String::new();
    for percent in [5, 25] {
        let share = format!(r#"HSET ratelimit:overrides shared {{"enforce":"{percent}%"}}"#);
        let _: u64 = server.command(&share);
        let [one, other] = fleet.each_mut().map(Follower::next);
        assert_eq!(one, other);
        assert!((2..100).contains(&one.split(' ').count()), "{one}");
        let is_kept = |caller: &str| one.split(' ').any(|it| it == caller);
        assert!(before.split_whitespace().all(is_kept), "{before}: {one}");
        before = one;
    }
    let _: u64 = server.command("DEL ratelimit:overrides");
    assert_eq!(fleet.each_mut().map(Follower::next), [&*all, &all]);
}

#[tokio::test]
async fn refused_calls_of_the_share_and_dry_runs_of_the_others_are_counted_apart() {
    const COUNTED: Policy = Policy::fixed_window("counted apart", HOUR, 1);
    let limiter = Limiter::in_memory();
    limiter.overrides().here().set(COUNTED.name(), Override::new().enforce(25)).unwrap();
    let mut refused = 0;
    for caller in 0..200 {
        limiter.check(&COUNTED, caller).await.unwrap();
        refused += u64::from(limiter.check(&COUNTED, caller).await.is_err());
    }
    let counts = stats::snapshot().into_iter().find(|it| it.name() == COUNTED.name()).unwrap();
    assert!((20..90).contains(&refused), "{refused}");
    assert_eq!(counts.total(Verdict::Refused), refused);
    assert_eq!(counts.total(Verdict::WouldHaveRefused), 200 - refused);
    // Those of the share are no dry run.
    let left_out = [25, 100].map(|percent| counts.would_have_refused_for(percent));
    assert_eq!(left_out, [0, 200 - refused]);
}

#[tokio::test]
async fn the_nearest_share_decides_and_that_of_all_limits_bounds_it() {
    let limiter = Limiter::in_memory();
    let here = limiter.overrides().here();
    here.set(POLICY.name(), Override::new().enforce(25)).unwrap();
    let quarter = enforced(&limiter).await;
    let (within, without) =
        (*quarter.first().unwrap(), (0..2_000).find(|it| !quarter.contains(it)));
    here.set((POLICY.name(), within), Enforcement::Off).unwrap();
    here.set((POLICY.name(), without.unwrap()), Override::new().enforce(100)).unwrap();
    let usage = async |caller| limiter.usage(&POLICY, caller).await.unwrap().enforcement();
    assert_eq!(usage(within).await, Enforcement::Off);
    assert_eq!(usage(without.unwrap()).await, Enforcement::On);
    here.remove((POLICY.name(), within));
    here.remove((POLICY.name(), without.unwrap()));
    here.set(Place::all(), Override::new().enforce(5)).unwrap();
    assert_eq!(limiter.overrides().enforcement().unwrap().0, Enforcement::DryRun);
    let bounded = enforced(&limiter).await;
    assert!(bounded.len() < quarter.len() && bounded.is_subset(&quarter));
}

#[test]
fn a_share_out_of_range_is_an_error_that_names_it() {
    let limiter = Limiter::in_memory();
    let refused =
        |what: Override| limiter.overrides().here().set("greet", what).unwrap_err().to_string();
    for percent in [0, 101, 255] {
        let message = format!("`enforce` must be a share of 1% to 100%, not {percent}%");
        let error = refused(Override::new().enforce(percent));
        assert!(error.ends_with(&message), "{error}");
    }
    for share in ["0%", "101%", "10", "ten%", "-1%", "+10%", "010%", "10 %", "1.5%"] {
        let error = format!(r#"{{"enforce": "{share}"}}"#).parse::<Override>().unwrap_err();
        let message =
            format!("`enforce` must be a share of 1% to 100%, such as \"10%\", not \"{share}\"");
        assert!(error.to_string().contains(&message), "{error}");
    }
    let both = Override::new().enforce(10).enforcement(Enforcement::On);
    assert!(refused(both).contains("`enforce` is an enforcement; give it or `enforcement`"));
    let what: Override = r#"{"enforce": "10%"}"#.parse().unwrap();
    assert_eq!(
        (what.to_string(), what),
        (r#"{"enforce":"10%"}"#.into(), Override::new().enforce(10))
    );
}

#[test]
fn an_answer_that_is_none_is_an_error_that_names_it_in_a_document() {
    for (written, what) in [
        ("local", OnStoreError::Local),
        ("deny", OnStoreError::Deny),
        ("allow", OnStoreError::Allow),
        ("local(20)", OnStoreError::local::<20>()),
    ] {
        let text = format!(r#"{{"on_store_error":"{written}"}}"#);
        let parsed: Override = text.parse().unwrap();
        assert_eq!((parsed.to_string(), parsed.on_store_error), (text, Some(what)));
    }
    for wrong in [
        "local(0)",
        "local(101)",
        "local(+20)",
        "local(020)",
        "local(20%)",
        "local 20",
        "deny(20)",
        "Local",
        "",
    ] {
        let text = format!(r#"{{"on_store_error": "{wrong}"}}"#);
        let error = text.parse::<Override>().unwrap_err().to_string();
        assert!(error.contains("`on_store_error` must be `local`, `deny`, `allow`"), "{error}");
        assert!(error.contains(&format!("such as `local(20)`, not \"{wrong}\"")), "{error}");
    }
    let here = Limiter::in_memory();
    let denied = Override::new().deny().on_store_error(OnStoreError::Deny);
    let error = here.overrides().here().set(("greet", "alice"), denied).unwrap_err();
    assert!(error.to_string().contains("`deny` takes nothing but"), "{error}");
}
