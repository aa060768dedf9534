//! The usage of an annotated function's limit is shown to its customer, without its policy a second time.

use std::time::Duration;

use harness::{listen, on_each_store};
use ratelimit_runtime::{
    CalendarUnit, Limiter, Override, Policy, RateLimitError, Tier, caller,
    limits::{RegisteredPolicy, conflicts, policies_of},
    rate_limit,
    usage::UsageError,
};

type Done = Result<(), RateLimitError>;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[rate_limit(name = "used_mail", tier(period = "1m", threshold = 3), tier(period = "1h", threshold = 5), key = user, limiter = limiter)]
async fn mail(limiter: &Limiter, user: &str) -> Done {
    Ok(())
}

#[rate_limit(name = "used_rows", tier(period = "1m", threshold = 30), tier(period = "1h", threshold = 50), key = user, cost = rows, limiter = limiter)]
async fn rows(limiter: &Limiter, user: &str, rows: u32) -> Done {
    Ok(())
}

#[rate_limit(name = "used_counter", algorithm = sliding_counter, tier(period = "1m", threshold = 3), tier(period = "1h", threshold = 5), key = user, limiter = limiter)]
async fn counter(limiter: &Limiter, user: &str) -> Done {
    Ok(())
}

#[rate_limit(name = "used_fixed", algorithm = fixed_window, tier(period = "1m", threshold = 3), tier(period = "1h", threshold = 5), key = user, limiter = limiter)]
async fn fixed(limiter: &Limiter, user: &str) -> Done {
    Ok(())
}

#[rate_limit(name = "used_bucket", algorithm = token_bucket, period = "1h", threshold = 3, burst = 5, key = user, limiter = limiter)]
async fn bucket(limiter: &Limiter, user: &str) -> Done {
    Ok(())
}

/// Returns the used and the left units of each tier.
async fn usage(limiter: &Limiter, name: &str) -> Vec<(u32, u32)> {
    let usage = limiter.usage(name, "alice").await.unwrap();
    usage.tiers().iter().map(|tier| (tier.used(), tier.remaining())).collect()
}

#[tokio::test]
async fn every_tier_of_each_algorithm_is_shown_as_it_is_counted() {
    on_each_store(async |limiter| {
        assert_eq!(usage(limiter, "used_mail").await, [(0, 3), (0, 5)]);
        for _ in 0..2 {
            mail(limiter, "alice").await.unwrap();
            rows(limiter, "alice", 10).await.unwrap();
            counter(limiter, "alice").await.unwrap();
            fixed(limiter, "alice").await.unwrap();
            bucket(limiter, "alice").await.unwrap();
        }
        assert_eq!(usage(limiter, "used_mail").await, [(2, 1), (2, 3)]);
        assert_eq!(usage(limiter, "used_rows").await, [(20, 10), (20, 30)]);
        assert_eq!(usage(limiter, "used_counter").await, [(2, 1), (2, 3)]);
        assert_eq!(usage(limiter, "used_fixed").await, [(2, 1), (2, 3)]);
        assert_eq!(usage(limiter, "used_bucket").await, [(2, 3)]);
        // Nothing was taken, and nothing was changed: one more of each is admitted.
        mail(limiter, "alice").await.unwrap();
        mail(limiter, "alice").await.unwrap_err();
        assert_eq!(usage(limiter, "used_mail").await, [(3, 0), (3, 2)]);
        let shown = limiter.usage("used_mail", "alice").await.unwrap();
        let periods: Vec<_> =
            shown.tiers().iter().map(|tier| (tier.period(), tier.quota())).collect();
        assert_eq!(periods, [(MINUTE, 3), (HOUR, 5)]);
        assert!(shown.tiers().iter().all(|tier| tier.reset_after() <= tier.period()));
        assert!(shown.tiers()[1].reset_after() > MINUTE);

        // Raised by an operator.
        let raised = Override::new().tier(MINUTE, 10).tier(HOUR, 20);
        limiter.overrides().here().set("used_mail", raised).unwrap();
        assert_eq!(usage(limiter, "used_mail").await, [(3, 7), (3, 17)]);
    })
    .await;
}

#[rate_limit(name = "used_upload", period = "1h", threshold = 5, concurrency = 2, key = user, limiter = limiter)]
async fn upload(limiter: &Limiter, user: &str, inside: impl AsyncFnOnce()) -> Done {
    inside().await;
    Ok(())
}

#[tokio::test]
async fn calls_in_flight_are_shown_beside_the_windows() {
    on_each_store(async |limiter| {
        let inside = async || {
            let usage = limiter.usage("used_upload", "alice").await.unwrap();
            assert_eq!((usage.tiers()[0].used(), usage.tiers()[0].remaining()), (1, 4));
            let in_flight = usage.concurrency().unwrap();
            assert_eq!((in_flight.used(), in_flight.remaining(), in_flight.quota()), (1, 1, 2));
        };
        upload(limiter, "alice", inside).await.unwrap();
    })
    .await;
}

#[rate_limit(name = "used_login", period = "1m", threshold = 2, key = address, limiter = limiter, block = "1h")]
async fn login(limiter: &Limiter, address: &str) -> Done {
    Ok(())
}

#[tokio::test]
async fn a_block_is_shown_with_its_end_until_it_ends() {
    on_each_store(async |limiter| {
        let shown = async || limiter.usage("used_login", "alice").await.unwrap();
        assert_eq!(shown().await.blocked_for(), None);
        for _ in 0..2 {
            login(limiter, "alice").await.unwrap();
        }
        assert_eq!(shown().await.blocked_for(), None);
        login(limiter, "alice").await.unwrap_err();
        let blocked = shown().await.blocked_for().unwrap();
        assert!(blocked <= HOUR && blocked + MINUTE > HOUR, "{blocked:?}");
        // The windows are shown as ever.
        assert_eq!(usage(limiter, "used_login").await, [(2, 0)]);
        let limits = policies_of(&login);
        limiter.reset(limits[0].declared(), "alice").await.unwrap();
        assert_eq!(shown().await.blocked_for(), None);
    })
    .await;
}

struct Search<T>(T);

impl<T: Sync> Search<T> {
    #[rate_limit(name = "used_search", period = "1h", threshold = searches, key = (user, page), limiter = limiter)]
    async fn search(&self, limiter: &Limiter, user: u64, page: u32, searches: u32) -> Done {
        let _ = &self.0;
        Ok(())
    }
}

trait Report {
    #[rate_limit(name = "used_report", period = "1h", threshold = 5, key = user, limiter = limiter)]
    async fn report(&self, limiter: &Limiter, user: u64) -> Done {
        Ok(())
    }
}

impl Report for Search<()> {}

#[tokio::test]
async fn values_that_come_with_a_call_are_passed_and_not_guessed() {
    let limiter = Limiter::in_memory();
    Search(()).search(&limiter, 42, 1, 100).await.unwrap();
    let refused = limiter.usage("used_search", 42).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the values of rate limit `used_search` come with each call, by searches; pass them by \
         `RegisteredPolicy::with_tiers`"
    );
    let limits = policies_of(&Search::<u8>::search);
    assert_eq!(limits.len(), 1);
    let plan = limits[0].with_tiers(&[Tier::new(HOUR, 100)]);
    let usage = limiter.usage(&plan, &caller!(42, 1)).await.unwrap();
    assert_eq!((usage.tiers()[0].used(), usage.tiers()[0].remaining()), (1, 99));
    assert!(matches!(limiter.usage(&limits[0], 42).await, Err(UsageError::Dynamic { .. })));
    limiter.overrides().here().set("used_search", Override::new().tier(HOUR, 7)).unwrap();
    let usage = limiter.usage("used_search", &caller!(42, 1)).await.unwrap();
    assert_eq!(usage.tiers()[0].remaining(), 6);

    // Those of the caller alone.
    limiter.overrides().here().remove("used_search");
    let raised = Override::new().tier(HOUR, 9);
    limiter.overrides().here().set(("used_search", &caller!(42, 1)), raised).unwrap();
    let usage = limiter.usage("used_search", &caller!(42, 1)).await.unwrap();
    assert_eq!(usage.tiers()[0].remaining(), 8);
    let other = limiter.usage("used_search", &caller!(42, 2)).await;
    assert!(matches!(other, Err(UsageError::Dynamic { .. })));
    limiter.overrides().here().set(("*", &caller!(42, 1)), Override::new().deny()).unwrap();
    limiter.overrides().here().remove(("used_search", &caller!(42, 1)));
    let denied = limiter.usage("used_search", &caller!(42, 1)).await;
    assert!(matches!(denied, Err(UsageError::Failed(RateLimitError::Denied(_)))), "{denied:?}");

    let unknown = limiter.usage("used_serach", 42).await.unwrap_err().to_string();
    assert_eq!(
        unknown,
        "no annotated function has a limit named `used_serach`; `used_search` is one"
    );
    let plans = limiter.usage("plans-api", 42).await.unwrap_err().to_string();
    assert_eq!(
        plans,
        "rate limit `plans-api` has plans with other numbers; name one of `plans-api@free`, \
         `plans-api@pro`"
    );

    Search(()).report(&limiter, 7).await.unwrap();
    assert_eq!(limiter.usage("used_report", 7).await.unwrap().tiers()[0].used(), 1);
}

#[rate_limit(name = "stacked_wide", period = "1h", threshold = 50, key = user, limiter = limiter)]
#[rate_limit(name = "stacked_narrow", period = "1m", threshold = 5, key = user, limiter = limiter)]
async fn stacked(limiter: &Limiter, user: u64) -> Done {
    Ok(())
}

#[tokio::test]
async fn a_function_has_all_of_its_limits() {
    let limiter = Limiter::in_memory();
    stacked(&limiter, 1).await.unwrap();
    let limits = policies_of(&stacked);
    assert_eq!(
        limits.iter().map(RegisteredPolicy::name).collect::<Vec<_>>(),
        ["stacked_wide", "stacked_narrow"]
    );
    for limit in &limits {
        assert_eq!(limiter.usage(limit, 1).await.unwrap().tiers()[0].used(), 1);
    }
    assert!(policies_of(&usage).is_empty());
}

#[tokio::test]
async fn a_policy_by_hand_that_counts_elsewhere_is_a_conflict() {
    /// The function has an exact log.
    const ROWS: Policy = Policy::sliding_counter("used_rows", MINUTE, 30).tier(HOUR, 50);
    let of_rows = || {
        let mut pairs = conflicts();
        pairs.retain(|(first, _)| first.name() == "used_rows");
        pairs
    };
    let lines = harness::Lines::default();
    let _listening = listen(lines.clone());
    let limiter = Limiter::in_memory();
    // Plans of other numbers are no conflict.
    let other_numbers = Policy::sliding_window("used_rows", MINUTE, 7);
    limiter.peek(&other_numbers, "alice").await.unwrap();
    assert!(of_rows().is_empty());
    limiter.peek(&ROWS, "alice").await.unwrap();
    let pairs = of_rows();
    assert_eq!(pairs.len(), 1);
    let (declared, by_hand) = &pairs[0];
    assert!(!declared.is_by_hand() && by_hand.is_by_hand());
    assert_eq!(
        by_hand.to_string(),
        "used_rows: sliding_counter, 30 per 60s, 50 per 3600s, checked by hand"
    );
    let logged = lines.all().join("\n");
    assert!(
        logged.contains("WARN message=two limits of one name differ in history or time zone"),
        "{logged}"
    );
}

#[tokio::test]
async fn a_policy_by_hand_in_another_time_zone_is_a_conflict() {
    let bill = |zone| Policy::calendar_window("used_bill", CalendarUnit::Month, 9).zone(zone);
    let lines = harness::Lines::default();
    let _listening = listen(lines.clone());
    let limiter = Limiter::in_memory();
    let utc = Policy::calendar_window("used_bill", CalendarUnit::Day, 9);
    for policy in [utc, bill("UTC"), bill("Europe/Berlin"), bill("Europe/Berlin")] {
        limiter.check(&policy, "alice").await.unwrap();
    }
    let mut logged = lines.all();
    logged.retain(|line| line.starts_with("WARN") && line.contains("used_bill"));
    assert_eq!(
        logged,
        ["WARN message=two limits of one name differ in history or time zone \
          first=used_bill: calendar_window, 9 per day, checked by hand \
          second=used_bill: calendar_window, 9 per month (Europe/Berlin), checked by hand"]
    );
}
