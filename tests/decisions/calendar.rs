//! Windows of the calendar, as callers see them.

use std::time::Duration;

use harness::{Clock, RedisServer, uncached, until};
use jiff::{ToSpan, ZonedDateTime};
use ratelimit_runtime::{
    CalendarUnit, Limiter, Override, Plans, Policy, RateLimitError,
    overrides::OverrideProblem,
    rate_limit,
    replay::{Recorded, Replay},
    testing,
};

const DAY: Duration = Duration::from_secs(86_400);
const DAILY: Policy = Policy::calendar_window("daily", CalendarUnit::Day, 10);
const MONTHLY: Policy =
    Policy::calendar_window("bill", CalendarUnit::Month, 10).zone("Europe/Berlin");

/// Returns the time until the next month in Berlin.
fn until_next_month() -> Duration {
    let now = ZonedDateTime::now().in_tz("Europe/Berlin").unwrap();
    let next = now.first_of_month().unwrap().checked_add(1.month()).unwrap();
    let next = next.start_of_day().unwrap();
    Duration::try_from(next.timestamp() - now.timestamp()).unwrap()
}

fn assert_ends_with_month(reset_after: Duration) {
    let left = until_next_month();
    assert!(reset_after.abs_diff(left) < Duration::from_secs(60), "{reset_after:?}, not {left:?}");
}

#[tokio::test]
async fn a_quota_is_back_when_the_month_ends_in_both_stores() {
    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), harness::patient(&server.url()).await] {
        let first = limiter.check(&MONTHLY, "alice").cost(7).await.unwrap();
        assert_eq!(first.remaining(), 3);
        assert_ends_with_month(first.reset_after());
        let refused = limiter.check(&MONTHLY, "alice").cost(4).await;
        let Err(RateLimitError::Exceeded(refused)) = refused else { panic!("{refused:?}") };
        assert_ends_with_month(refused.retry_after());
        limiter.refund(&first).await.unwrap();
        let second = limiter.check(&MONTHLY, "alice").cost(4).await.unwrap();
        assert_eq!(second.remaining(), 6);
        limiter.settle(&second, 12).await.unwrap();
        assert!(limiter.check(&MONTHLY, "alice").await.is_err());
        assert_eq!(limiter.peek(&MONTHLY, "bob").cost(0).await.unwrap().remaining(), 10);
    }
}

/// The window is that of the server's time: a client sends those before and after its own as well.
#[tokio::test]
async fn the_server_s_clock_decides() {
    let clock = Clock::new();
    let server = clock.server(&[]);
    let limiter = uncached(&server.url()).await;
    for days in [0, 1, -1, 0] {
        clock.step(&server, days * 86_400_000);
        let peek = limiter.peek(&DAILY, "alice").cost(0).await.unwrap();
        assert_eq!(peek.remaining(), 10, "{days}");
        let taken = limiter.check(&DAILY, "alice").cost(10).await.unwrap();
        assert!(taken.reset_after() <= DAY);
        assert!(limiter.check(&DAILY, "alice").await.is_err());
        limiter.reset(&DAILY, "alice").await.unwrap();
    }
    clock.step(&server, 5 * 86_400_000);
    let error = limiter.check(&DAILY, "alice").await.unwrap_err();
    assert!(matches!(error, RateLimitError::Unavailable(_)), "{error:?}");
}

fn at(time: &str) -> Duration {
    let time: jiff::Timestamp = time.parse().unwrap();
    Duration::try_from(time.duration_since(jiff::Timestamp::UNIX_EPOCH)).unwrap()
}

#[test]
fn units_are_given_back_to_their_own_window_only() {
    let mut replay = Replay::new(&DAILY).unwrap();
    let mut take = |time, cost, settled: Option<(&str, u32)>| {
        let call = Recorded::new(at(time), "alice", cost);
        replay.decide(match settled {
            Some((time, units)) => call.settled(at(time), units),
            None => call,
        })
    };
    take("2026-03-01T23:00:00Z", 6, Some(("2026-03-01T23:30:00Z", 2))).unwrap();
    take("2026-03-01T23:10:00Z", 1, Some(("2026-03-02T00:30:00Z", 0))).unwrap();
    take("2026-03-01T23:20:00Z", 1, Some(("2026-03-02T00:40:00Z", 4))).unwrap();
    assert_eq!(take("2026-03-01T23:31:00Z", 1, None).unwrap().remaining(), 5);
    assert_eq!(take("2026-03-02T00:00:00Z", 1, None).unwrap().remaining(), 9);
    // Nothing is given back to the next day, and what exceeds a charge counts there.
    assert_eq!(take("2026-03-02T00:31:00Z", 1, None).unwrap().remaining(), 8);
    assert_eq!(take("2026-03-02T00:41:00Z", 1, None).unwrap().remaining(), 4);
    // A debt opens the window of a day without a call.
    take("2026-03-02T00:42:00Z", 1, Some(("2026-03-05T12:00:00Z", 9))).unwrap();
    let next = take("2026-03-05T13:00:00Z", 1, None).unwrap();
    assert_eq!((next.remaining(), next.reset_after()), (1, Duration::from_secs(11 * 3_600)));
}

/// Both stores go on with the last window of a unit.
#[tokio::test]
async fn a_zone_or_unit_changed_on_a_live_key_keeps_what_was_counted() {
    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), uncached(&server.url()).await] {
        let of = |unit, zone| Policy::calendar_window("changed", unit, 10).zone(zone);
        let berlin = of(CalendarUnit::Month, "Europe/Berlin");
        limiter.check(&berlin, "alice").cost(4).await.unwrap();
        // Its month ends with that of Berlin, also on the last day of one.
        let other = of(CalendarUnit::Month, "Europe/Paris");
        let after = limiter.check(&other, "alice").await.unwrap();
        let day = of(CalendarUnit::Day, "UTC");
        let today = limiter.check(&day, "alice").await.unwrap();
        assert_eq!((after.remaining(), today.remaining()), (5, 4));
        // A count that is no part of the call's policy follows.
        assert_eq!(limiter.check(&berlin, "alice").await.unwrap().remaining(), 3);
        assert_eq!(limiter.check(&day, "alice").await.unwrap().remaining(), 2);
    }
}

#[tokio::test]
async fn what_needs_windows_of_a_length_is_refused() {
    let limiter = Limiter::in_memory();
    let fault = async |policy: &Policy| {
        let Err(RateLimitError::InvalidPolicy(invalid)) = limiter.check(policy, "a").await else {
            panic!("{policy:?} is valid")
        };
        invalid.fault().to_string()
    };
    for (policy, part) in [
        (MONTHLY.zone("Europe/Bern"), "the time zone `Europe/Bern` is in no database"),
        (MONTHLY.tier(DAY, 1), "one tier"),
        (MONTHLY.count_rejected(), "`count_rejected` does not go with"),
        (MONTHLY.lease(Duration::from_secs(60)), "`lease` does not go with"),
        (MONTHLY.burst(3), "`burst`"),
        (Policy::fixed_window("fixed", DAY, 1).zone("UTC"), "`zone` is the time zone of"),
        (
            Policy::new("odd", ratelimit_runtime::Algorithm::CalendarWindow, 2 * DAY, 1),
            "`\"month\"`",
        ),
    ] {
        let fault = fault(&policy).await;
        assert!(fault.contains(part), "{fault}");
    }
    let waits = limiter.check(&MONTHLY, "a").max_wait(DAY).await.unwrap_err();
    assert!(waits.to_string().contains("`max_wait` does not go with"), "{waits}");
    let named = limiter.check(&MONTHLY, "a").request_id("1").await.unwrap_err();
    assert!(named.to_string().contains("a request id needs a `sliding_window`"), "{named}");
}

#[tokio::test]
async fn an_override_changes_the_threshold_alone() {
    let limiter = Limiter::in_memory();
    limiter.check(&MONTHLY, "alice").cost(10).await.unwrap();
    limiter.overrides().here().set("bill", Override::new().threshold(12)).unwrap();
    let more = limiter.check(&MONTHLY, "alice").await.unwrap();
    assert_eq!(more.remaining(), 1);
    assert_ends_with_month(more.reset_after());
    assert!(Override::new().threshold(5).preview(&MONTHLY).is_ok());
    for wrong in [Override::new().period(DAY), Override::new().tier(7 * DAY, 3)] {
        assert!(wrong.preview(&MONTHLY).is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn another_period_is_an_error_that_names_it_in_every_source() {
    const BY_HAND: Policy = Policy::calendar_window("by-hand", CalendarUnit::Day, 10);
    let (server, limiter) = (RedisServer::start(), Limiter::in_memory());
    let on_redis = server.limiter().await;
    let text = "`period` does not go with a `calendar_window`";
    let weekly = Override::new().period(7 * DAY);
    // Nothing is known of it before its first check.
    limiter.overrides().here().set("by-hand", weekly.clone()).unwrap();
    limiter.check(&BY_HAND, "alice").await.unwrap();
    let problems = limiter.overrides().problems();
    let [OverrideProblem::Rejected { error, .. }] = &problems[..] else { panic!("{problems:?}") };
    assert!(error.to_string().contains(text), "{error}");
    limiter.overrides().here().remove("by-hand");
    assert!(limiter.overrides().problems().is_empty());

    let tiers = Override::new().tier(3_600 * DAY / 86_400, 3);
    for what in [weekly.clone(), tiers, weekly.clone().threshold(3)] {
        let overrides = limiter.overrides();
        for wrong in [
            overrides.here().set("by-hand", what.clone()),
            overrides.here().set(("by-hand", "alice"), what.clone()),
            overrides.here().set("by-hand", Override::new().candidate(what.clone())),
        ] {
            assert!(wrong.unwrap_err().to_string().contains(text), "{what:?}");
        }
    }
    assert_eq!(limiter.overrides().list().len(), 0);
    limiter.overrides().here().set("by-hand", Override::new().threshold(20)).unwrap();

    // Nothing of such a file applies.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[limits]\nby-hand = { period = \"7d\" }\nother = \"off\"\n")
        .unwrap();
    let wrong = limiter.overrides().follow_file(file.path()).unwrap_err();
    assert_eq!(wrong.limit(), Some("by-hand"));
    let path = file.path().display().to_string();
    let wrong = wrong.to_string();
    assert!(wrong.contains(text) && wrong.contains(&path) && wrong.contains("by-hand"), "{wrong}");
    assert_eq!(limiter.overrides().list().len(), 1);
    assert_eq!(limiter.check(&BY_HAND, "alice").await.unwrap().period(), DAY);

    // The hash keeps the field, and it changes nothing.
    let () = server.command(r#"HSET ratelimit:overrides by-hand {"period":604800}"#);
    let rejected = until("the field", async || {
        let problems = on_redis.overrides().problems();
        problems.into_iter().find_map(|it| match it {
            OverrideProblem::Rejected { error, .. } => Some(error.to_string()),
            _ => None,
        })
    });
    let rejected = rejected.await;
    assert!(rejected.contains("by-hand") && rejected.contains(text), "{rejected}");
    assert_eq!(on_redis.check(&BY_HAND, "alice").await.unwrap().threshold(), 10);
}

#[rate_limit(
    algorithm = calendar_window,
    period = "day",
    zone = "Europe/Berlin",
    threshold = quota,
    key = user
)]
async fn export(user: &str, quota: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(algorithm = calendar_window, period = "week", zone = "Mars/Olympus")]
async fn on_mars() -> Result<(), RateLimitError> {
    Ok(())
}

/// A day of 23 hours.
#[tokio::test(start_paused = true)]
async fn an_attribute_counts_the_days_of_its_zone() {
    testing::isolated(async {
        testing::at("2026-03-28T23:00:00Z");
        export("alice", 2).await.unwrap();
        tokio::time::advance(Duration::from_secs(22 * 3_600)).await;
        export("alice", 2).await.unwrap();
        let Err(RateLimitError::Exceeded(refused)) = export("alice", 2).await else { panic!() };
        assert_eq!(refused.retry_after(), Duration::from_secs(3_600));
        tokio::time::advance(Duration::from_secs(3_600)).await;
        export("alice", 2).await.unwrap();
    })
    .await;
}

#[rate_limit(algorithm = calendar_window, period = "month", threshold = 2, key = user)]
async fn bill(user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_window_ends_with_its_month_also_once_the_clock_is_set() {
    testing::isolated(async {
        testing::at("2026-03-10T00:00:00Z");
        bill("alice").await.unwrap();
        bill("alice").await.unwrap();
        for (time, days) in [
            ("2026-03-25T00:00:00Z", 7),
            ("2026-03-08T00:00:00Z", 24),
            ("2026-03-30T00:00:00Z", 2),
            ("2026-03-12T00:00:00Z", 20),
        ] {
            testing::at(time);
            let Err(RateLimitError::Exceeded(refused)) = bill("alice").await else { panic!() };
            assert_eq!(refused.retry_after(), days * DAY, "at {time}");
        }
        // Where it would have ended at first, and just before its end.
        for seconds in [10 * 86_400, 10 * 86_400 - 1] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            bill("alice").await.unwrap_err();
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        bill("alice").await.unwrap();
        bill("alice").await.unwrap();
        // Nothing of it is left in a later month.
        for (time, left) in
            [("2026-05-01T00:00:00Z", 2), ("2026-05-31T23:00:00Z", 0), ("2026-06-20T00:00:00Z", 2)]
        {
            testing::at(time);
            for call in 0..3 {
                assert_eq!(bill("alice").await.is_ok(), call < left, "at {time}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_unknown_zone_is_named() {
    let error = on_mars().await.unwrap_err();
    assert!(error.to_string().contains("`Mars/Olympus` is in no database"), "{error}");
}

const PLANS: Plans = Plans::new("plans", "day", Policy::calendar_window("", CalendarUnit::Day, 10))
    .plan("month", Policy::calendar_window("", CalendarUnit::Month, 100));

/// Takes units of both plans. Returns those that are left of the day.
async fn left_of_day(limiter: &Limiter, day: u32, month: u32) -> u32 {
    limiter.check(PLANS.of("month"), "alice").cost(month).await.unwrap();
    limiter.check(PLANS.of("day"), "alice").cost(day).await.unwrap();
    let usage = limiter.usage(PLANS.of("day"), "alice").await.unwrap();
    usage.tiers()[0].remaining()
}

#[tokio::test(start_paused = true)]
async fn a_day_has_the_units_of_a_plan_of_months() {
    let limiter = Limiter::in_memory();
    let month = async |units| {
        limiter.check(PLANS.of("month"), "alice").cost(units).await.unwrap();
    };
    testing::isolated_with(limiter.clone(), async {
        testing::at("2026-03-10T12:00:00Z");
        assert_eq!(left_of_day(&limiter, 1, 3).await, 6);
        tokio::time::advance(Duration::from_secs(12 * 3_600 - 1)).await;
        assert_eq!(left_of_day(&limiter, 1, 1).await, 4);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(left_of_day(&limiter, 1, 1).await, 8);
        tokio::time::advance(DAY / 2).await;
        assert_eq!(left_of_day(&limiter, 1, 3).await, 4);
        tokio::time::advance(10 * DAY).await;
        assert_eq!(left_of_day(&limiter, 1, 5).await, 4);
        // Only the plan of months is used for some days.
        for (hours, units) in [(24, 2), (47, 3), (24, 4), (1, 1)] {
            tokio::time::advance(Duration::from_secs(hours * 3_600)).await;
            month(units).await;
        }
        assert_eq!(left_of_day(&limiter, 1, 1).await, 3);
    })
    .await;
}

#[tokio::test]
async fn a_day_on_redis_has_the_units_of_a_plan_of_months() {
    let clock = Clock::new();
    let server = clock.server(&[]);
    let limiter = uncached(&server.url()).await;
    // Two days of one month.
    let today = ZonedDateTime::now().in_tz("UTC").unwrap();
    let first = if today.date() == today.date().last_of_month() { -1 } else { 0 };
    clock.step(&server, first * 86_400_000);
    assert_eq!(left_of_day(&limiter, 1, 3).await, 6);
    clock.step(&server, (first + 1) * 86_400_000);
    limiter.check(PLANS.of("month"), "alice").cost(4).await.unwrap();
    assert_eq!(left_of_day(&limiter, 1, 1).await, 4);
}

/// The day starts at another hour of UTC once summer time is over, and lasts an hour longer.
#[tokio::test(start_paused = true)]
async fn a_day_has_the_units_of_a_plan_of_months_as_summer_time_ends() {
    const LONDON: Plans = Plans::new(
        "london",
        "day",
        Policy::calendar_window("", CalendarUnit::Day, 100).zone("Europe/London"),
    )
    .plan("month", Policy::calendar_window("", CalendarUnit::Month, 100).zone("Europe/London"));
    let limiter = Limiter::in_memory();
    let take = async |plan, units| {
        limiter.check(LONDON.of(plan), "alice").cost(units).await.unwrap().remaining()
    };
    testing::isolated_with(limiter.clone(), async {
        testing::at("2026-10-25T12:00:00Z");
        take("month", 1).await;
        assert_eq!(take("day", 1).await, 98);
        tokio::time::advance(DAY).await;
        take("month", 20).await;
        assert_eq!(take("day", 1).await, 79);
    })
    .await;
}

/// A month has no nominal end at which the next one could start.
#[tokio::test(start_paused = true)]
async fn a_plan_of_months_starts_a_month_itself() {
    let limiter = Limiter::in_memory();
    testing::isolated_with(limiter.clone(), async {
        testing::at("2026-01-28T12:00:00Z");
        assert_eq!(left_of_day(&limiter, 1, 3).await, 6);
        for units in [9, 8] {
            tokio::time::advance(15 * DAY).await;
            limiter.check(PLANS.of("day"), "alice").cost(units).await.unwrap();
        }
        tokio::time::advance(4 * DAY).await;
        let decision = limiter.check(PLANS.of("month"), "alice").await.unwrap();
        assert_eq!(decision.remaining(), 99);
    })
    .await;
}
