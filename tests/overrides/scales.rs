//! A factor multiplies the numbers of all limits, unless a limit has its own.

use std::time::Duration;

use harness::{RedisServer, until};
use ratelimit_runtime::{
    CalendarUnit, Enforcement, Limiter, Override, Policy, RateLimitError,
    overrides::{OverrideError, Place},
    rate_limit,
};

use crate::sources::Follower;

const MINUTE: Duration = Duration::from_secs(60);

/// A limit whose double is too large.
#[rate_limit(name = "vast", period = "1m", threshold = 600_000_000)]
#[expect(dead_code, reason = "to be in the program is enough")]
async fn vast() -> Result<(), RateLimitError> {
    Ok(())
}

/// A limit whose half admits no call of its cost.
#[rate_limit(name = "costly", period = "1m", threshold = 5, cost = 4)]
#[expect(dead_code, reason = "to be in the program is enough")]
async fn costly() -> Result<(), RateLimitError> {
    Ok(())
}

async fn policy(limiter: &Limiter, policy: &Policy, caller: &str) -> u32 {
    limiter.peek(policy, caller).cost(0).await.unwrap().threshold()
}

#[test]
fn a_factor_of_all_limits_applies_in_every_process_within_a_second() {
    let server = RedisServer::start();
    let mut fleet = [Follower::of(&server), Follower::of(&server)];
    assert_eq!(fleet.each_mut().map(Follower::next), ["100, as written", "100, as written"]);
    for (command, holds) in [
        (r#"HSET ratelimit:overrides * {"scale":0.5}"#, "50, as written"),
        (r#"HSET ratelimit:overrides * {"scale":0.5,"enforcement":"off"}"#, "50, off"),
        // Numbers are multiplied as well, and a limit may have its own factor.
        (
            r#"HSET ratelimit:overrides * {"scale":2,"enforcement":"off"} shared {"threshold":7}"#,
            "14, off",
        ),
        (r#"HSET ratelimit:overrides shared {"scale":0.004}"#, "1, off"),
        (r#"HSET ratelimit:overrides shared {"scale":1}"#, "100, off"),
        ("DEL ratelimit:overrides", "100, as written"),
    ] {
        let _: u64 = server.command(command);
        for follower in &mut fleet {
            assert_eq!(follower.next(), holds, "{command}");
        }
    }
}

#[tokio::test]
async fn every_number_is_rounded_up_and_no_period_changes() {
    let scaled = |policy: Policy, factor: f64| {
        Override::new().scale(factor).preview(&policy).map_err(|error| error.to_string())
    };
    let tiers = Policy::sliding_window("tiers", MINUTE, 3).tier(60 * MINUTE, 101).concurrency(5);
    let expected = Policy::sliding_window("tiers", MINUTE, 2).tier(60 * MINUTE, 51).concurrency(3);
    assert_eq!(scaled(tiers, 0.5), Ok(expected));
    let bucket = Policy::token_bucket("bucket", MINUTE, 70).burst(7);
    // 0.1 has no exact form in binary, and 7.000000000000001 is not rounded up to 8.
    assert_eq!(scaled(bucket, 0.1), Ok(Policy::token_bucket("bucket", MINUTE, 7).burst(1)));
    let permits = Policy::concurrency_limit("permits", 5);
    assert_eq!(scaled(permits, 2.0), Ok(Policy::concurrency_limit("permits", 10)));
    let month = Policy::calendar_window("month", CalendarUnit::Month, 9);
    let tripled = Policy::calendar_window("month", CalendarUnit::Month, 27);
    assert_eq!(scaled(month, 3.0), Ok(tripled));
    let one = Policy::fixed_window("one", MINUTE, 1);
    assert_eq!(scaled(one, 0.001), Ok(one));
    let most = scaled(Policy::fixed_window("most", MINUTE, u32::MAX), 1_000.0).unwrap();
    assert_eq!(most.tiers()[0].threshold(), u32::MAX);
}

#[tokio::test]
async fn the_nearest_factor_decides() {
    const GREET: Policy = Policy::fixed_window("scaled greet", MINUTE, 10);
    let limiter = Limiter::in_memory();
    let here = limiter.overrides().here();
    let all = [
        (Place::all(), 0.5, 5),
        (GREET.name().into(), 2.0, 20),
        (Place::caller(Place::all(), "alice"), 3.0, 30),
        (Place::caller(GREET.name(), "alice"), 4.0, 40),
    ];
    for (place, factor, expected) in all.clone() {
        here.set(place, Override::new().scale(factor)).unwrap();
        assert_eq!(policy(&limiter, &GREET, "alice").await, expected);
    }
    assert_eq!(policy(&limiter, &GREET, "bob").await, 20);
    // The factor also applies to the numbers of another place.
    here.set((GREET.name(), "bob"), Override::new().threshold(100)).unwrap();
    assert_eq!(policy(&limiter, &GREET, "bob").await, 200);
    for (place, ..) in all {
        here.remove(place);
    }
    assert_eq!(policy(&limiter, &GREET, "alice").await, 10);
    assert_eq!(policy(&limiter, &GREET, "bob").await, 100);
}

#[tokio::test]
async fn calls_count_under_the_factor_and_a_limit_of_another_place_is_not_slowed() {
    const GREET: Policy = Policy::sliding_window("halved", MINUTE, 4);
    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), server.limiter().await] {
        let all = Place::all;
        limiter.overrides().here().set(all(), Override::new().scale(0.5)).unwrap();
        for _ in 0..2 {
            limiter.check(&GREET, "alice").await.unwrap();
        }
        limiter.check(&GREET, "alice").await.unwrap_err();
        limiter.overrides().here().remove(all());
        assert_eq!(limiter.check(&GREET, "alice").await.unwrap().remaining(), 1);
    }
}

#[tokio::test]
async fn a_limit_that_cannot_be_scaled_stays_and_is_a_problem() {
    const VAST: Policy = Policy::sliding_window("vast", MINUTE, 600_000_000);
    let limiter = Limiter::in_memory();
    let here = limiter.overrides().here();
    let problems = || {
        let problems = limiter.overrides().problems();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    here.set(Place::all(), Override::new().scale(2.0)).unwrap();
    assert_eq!(policy(&limiter, &VAST, "anyone").await, 600_000_000);
    let start = "rejected: invalid override of rate limit `vast`: the `scale` of all limits does \
                 not fit: `threshold`";
    assert!(problems()[0].starts_with(start), "{:?}", problems());
    assert_eq!(problems().len(), 1);
    here.set("vast", Override::new().scale(1.0)).unwrap();
    assert!(problems().is_empty());
    here.set(Place::all(), Override::new().scale(0.5)).unwrap();
    assert!(problems()[0].contains("`costly`"), "{:?}", problems());
    // By itself it is an error.
    let error = here.set("vast", Override::new().scale(2.0)).unwrap_err();
    assert!(error.to_string().contains("`vast`: `threshold`"), "{error}");
}

#[test]
fn a_factor_out_of_range_is_an_error_that_names_it() {
    let limiter = Limiter::in_memory();
    for factor in [0.0, -1.0, 0.0001, 0.0009, 1000.0004, 1e6, f64::NAN, f64::INFINITY] {
        for place in [Place::all(), "greet".into(), Place::caller("greet", "alice")] {
            let error = limiter.overrides().here().set(place, Override::new().scale(factor));
            let error: OverrideError = error.unwrap_err();
            assert!(error.to_string().contains("`scale` must be 0.001 to 1000"), "{error}");
        }
        if factor.is_finite() {
            let error = format!("{{\"scale\": {factor}}}").parse::<Override>().unwrap_err();
            let message = format!("`scale` must be 0.001 to 1000, not {factor}");
            assert!(error.to_string().contains(&message), "{error}");
        }
    }
    let denied =
        limiter.overrides().here().set(("*", "mallory"), Override::new().deny().scale(2.0));
    assert!(denied.unwrap_err().to_string().contains("`deny` takes nothing but"));
    let off: Override = r#"{"scale": 1.5}"#.parse().unwrap();
    assert_eq!((off.to_string(), off), (r#"{"scale":1.5}"#.into(), Override::new().scale(1.5)));
}

#[tokio::test]
async fn a_bad_factor_on_redis_is_a_problem_and_the_one_before_stays() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let () = server.command(r#"HSET ratelimit:overrides * {"scale":0.5}"#);
    let scale = || limiter.overrides().scale_in_thousandths();
    until("the factor", async || (scale() == Some(500)).then_some(())).await;
    let () = server.command(r#"HSET ratelimit:overrides * {"scale":0}"#);
    let is_it = |problem: &String| problem.contains("`scale` must be 0.001 to 1000, not 0");
    let problems = || limiter.overrides().problems().into_iter().map(|it| it.to_string());
    until("a problem", async || problems().find(is_it)).await;
    assert_eq!((scale(), limiter.overrides().enforcement()), (Some(500), None));
    let () = server.command("HSET ratelimit:overrides * dry_run");
    let switched = until("the switch", async || limiter.overrides().enforcement()).await;
    assert_eq!((switched.0, scale()), (Enforcement::DryRun, None));
}

#[rate_limit(name = "priced", period = "1m", threshold = 5, cost = 4, key = user, limiter = limiter)]
async fn priced(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn a_limit_whose_cost_would_not_fit_stays() {
    let limiter = Limiter::in_memory();
    let here = limiter.overrides().here();
    here.set(Place::all(), Override::new().scale(0.5)).unwrap();
    let is_problem = || {
        let problems = limiter.overrides().problems();
        problems.iter().any(|problem| problem.to_string().contains("`priced`"))
    };
    assert!(is_problem());
    priced(&limiter, "alice").await.unwrap();
    // Its own override may fit, and is scaled.
    here.set("priced", Override::new().threshold(8)).unwrap();
    priced(&limiter, "alice").await.unwrap_err();
    priced(&limiter, "bob").await.unwrap();
    here.remove(Place::all());
    priced(&limiter, "alice").await.unwrap();
    assert!(!is_problem());
}
