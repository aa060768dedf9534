//! An override takes effect at once, keeps the callers' history, and is applied as a whole or not at all.

use std::time::Duration;

use harness::{admitted, exceeded, on_each_store};
use ratelimit_runtime::{
    Enforcement, Limiter, Override, Policy, RateLimitError, overrides::OverrideSource, rate_limit,
};

const MINUTE: Duration = Duration::from_secs(60);

#[rate_limit(name = "reply", period = 60, threshold = 2, key = user, limiter = limiter)]
async fn reply(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "dry", period = 60, threshold = 1, key = user, limiter = limiter, dry_run)]
async fn dry(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(
    name = "mail",
    tier(period = "1m", threshold = 1),
    tier(period = "1h", threshold = 5),
    key = user,
    limiter = limiter
)]
async fn mail(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "export", period = 60, threshold = 10, cost = 5, key = user, limiter = limiter)]
async fn export(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn other_numbers_apply_from_the_next_call_until_they_are_removed() {
    on_each_store(async |limiter| {
        let overrides = limiter.overrides();
        assert_eq!(admitted(async || reply(limiter, "alice").await).await, 2);
        overrides.here().set("reply", Override::new().threshold(5)).unwrap();
        // The two calls of before count.
        assert_eq!(admitted(async || reply(limiter, "alice").await).await, 3);
        assert_eq!(exceeded(reply(limiter, "alice").await).threshold(), 5);
        overrides.here().set("reply", Override::new().threshold(1).period(MINUTE * 60)).unwrap();
        let refused = exceeded(reply(limiter, "alice").await);
        assert_eq!((refused.threshold(), refused.period()), (1, MINUTE * 60));
        assert!(refused.retry_after() > MINUTE * 59, "{:?}", refused.retry_after());
        overrides.here().remove("reply");
        assert_eq!(exceeded(reply(limiter, "alice").await).threshold(), 2);
        assert_eq!(admitted(async || reply(limiter, "bob").await).await, 2);
    })
    .await;
}

#[tokio::test]
async fn each_algorithm_keeps_its_counts() {
    let constructors = [
        Policy::sliding_window,
        Policy::sliding_counter,
        Policy::fixed_window,
        Policy::token_bucket,
    ];
    on_each_store(async |limiter| {
        for policy in constructors.map(|new| new("by hand", MINUTE * 60, 4)) {
            let algorithm = policy.algorithm();
            let check = async || limiter.check(&policy, "alice").await.map(drop);
            assert_eq!(admitted(check).await, 4, "{algorithm:?}");
            limiter.overrides().here().set("by hand", Override::new().threshold(6)).unwrap();
            // A larger bucket is not fuller.
            let expected =
                if policy == Policy::token_bucket("by hand", MINUTE * 60, 4) { 0 } else { 2 };
            assert_eq!(admitted(check).await, expected, "{algorithm:?}");
            limiter.overrides().here().set("by hand", Override::new().threshold(3)).unwrap();
            assert_eq!(admitted(check).await, 0, "{algorithm:?}");
            limiter.overrides().here().remove("by hand");
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_is_left_to_a_caller_above_a_lowered_limit() {
    let constructors = [
        Policy::sliding_window,
        Policy::sliding_counter,
        Policy::fixed_window,
        Policy::token_bucket,
    ];
    on_each_store(async |limiter| {
        for policy in constructors.map(|new| new("lowered", MINUTE * 60, 9)) {
            let algorithm = policy.algorithm();
            limiter.check(&policy, "alice").cost(7).await.unwrap();
            limiter.overrides().here().set("lowered", Override::new().threshold(3)).unwrap();
            let left = limiter.peek(&policy, "alice").cost(0).await.map(|left| left.remaining());
            // A bucket has two tokens, which it keeps.
            let expected =
                if policy == Policy::token_bucket("lowered", MINUTE * 60, 9) { 2 } else { 0 };
            assert_eq!(left, Ok(expected), "{algorithm:?}");
            limiter.overrides().here().remove("lowered");
        }
    })
    .await;
}

#[tokio::test]
async fn a_burst_is_the_new_size_of_a_bucket() {
    let policy = Policy::token_bucket("bucket", MINUTE * 60, 4);
    on_each_store(async |limiter| {
        limiter.overrides().here().set("bucket", Override::new().burst(2)).unwrap();
        let check = async || limiter.check(&policy, "alice").await.map(drop);
        assert_eq!(admitted(check).await, 2);
    })
    .await;
}

#[tokio::test]
async fn tiers_are_replaced_together() {
    on_each_store(async |limiter| {
        let tiers = Override::new().tier(MINUTE, 3).tier(MINUTE * 60, 4).tier(MINUTE * 120, 7);
        limiter.overrides().here().set("mail", tiers).unwrap();
        assert_eq!(admitted(async || mail(limiter, "alice").await).await, 3);
        limiter.overrides().here().set("mail", Override::new().tier(MINUTE, 5)).unwrap();
        assert_eq!(admitted(async || mail(limiter, "alice").await).await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_limit_is_run_dry_switched_off_and_on_again() {
    on_each_store(async |limiter| {
        let overrides = limiter.overrides();
        let enforce = |name: &str, enforcement| {
            overrides.here().set(name, Override::new().enforcement(enforcement)).unwrap();
        };
        let key_is_counted = async |limiter: &Limiter| {
            let policy = Policy::sliding_window("reply", MINUTE, 2);
            limiter.peek(&policy, "alice").cost(0).await.unwrap().remaining()
        };
        enforce("reply", Enforcement::Off);
        assert_eq!(admitted(async || reply(limiter, "alice").await).await, 10);
        overrides.here().remove("reply");
        assert_eq!(key_is_counted(limiter).await, 2);
        enforce("reply", Enforcement::DryRun);
        assert_eq!(admitted(async || reply(limiter, "alice").await).await, 10);
        assert_eq!(key_is_counted(limiter).await, 0);
        enforce("reply", Enforcement::On);
        assert_eq!(admitted(async || reply(limiter, "alice").await).await, 0);

        // What is written as a dry run is enforced.
        assert_eq!(admitted(async || dry(limiter, "alice").await).await, 10);
        enforce("dry", Enforcement::On);
        assert_eq!(admitted(async || dry(limiter, "alice").await).await, 0);
    })
    .await;
}

#[tokio::test]
async fn the_kill_switch_lets_everything_pass_and_enforces_no_declared_dry_run() {
    on_each_store(async |limiter| {
        let policy = Policy::sliding_window("by hand", MINUTE, 1);
        let overrides = limiter.overrides();
        overrides.here().set("reply", Override::new().enforcement(Enforcement::On)).unwrap();
        overrides.here().set("*", Enforcement::Off).unwrap();
        assert_eq!(overrides.enforcement(), Some((Enforcement::Off, OverrideSource::Program)));
        assert_eq!(admitted(async || reply(limiter, "alice").await).await, 10);
        let by_hand = async || limiter.check(&policy, "alice").await.map(drop);
        assert_eq!(admitted(by_hand).await, 10);

        overrides.here().set("*", Enforcement::DryRun).unwrap();
        assert_eq!(admitted(async || reply(limiter, "alice").await).await, 10);
        assert_eq!(admitted(by_hand).await, 10);

        overrides.here().set("*", Enforcement::On).unwrap();
        assert_eq!(admitted(async || reply(limiter, "alice").await).await, 0);
        assert_eq!(admitted(by_hand).await, 0);
        assert_eq!(admitted(async || dry(limiter, "alice").await).await, 10);
        overrides.here().remove("*");
        assert_eq!(overrides.enforcement(), None);
        assert_eq!(admitted(async || reply(limiter, "bob").await).await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_returns_the_remaining_units_and_its_refusal_refunds_nothing() {
    let limiter = Limiter::in_memory();
    let policy = Policy::sliding_window("by hand", MINUTE, 1);
    limiter
        .overrides()
        .here()
        .set("by hand", Override::new().enforcement(Enforcement::DryRun))
        .unwrap();
    let admitted = limiter.check(&policy, "alice").await.unwrap();
    let passed = limiter.check(&policy, "alice").await.unwrap();
    assert_eq!((passed.remaining(), passed.threshold()), (0, 1));
    assert!(passed.replenish_after() > MINUTE / 2);
    limiter.refund(&passed).await.unwrap();
    assert_eq!(limiter.peek(&policy, "alice").cost(0).await.unwrap().remaining(), 0);
    limiter.refund(&admitted).await.unwrap();
    assert_eq!(limiter.peek(&policy, "alice").cost(0).await.unwrap().remaining(), 1);
}

#[tokio::test]
async fn an_override_to_an_invalid_limit_is_refused_and_the_old_one_stays() {
    let limiter = Limiter::in_memory();
    let overrides = limiter.overrides();
    overrides.here().set("reply", Override::new().threshold(1)).unwrap();
    for (name, wrong, message) in [
        ("reply", Override::new().threshold(0), "`threshold` must be at least 1"),
        (
            "reply",
            Override::new().threshold(1_000_000_001),
            "`threshold` must be at most 1000000000, but is 1000000001",
        ),
        (
            "reply",
            Override::new().period(Duration::from_micros(999)),
            "`period` must be at least 1 ms, but is 999 µs",
        ),
        (
            "reply",
            Override::new().burst(3),
            "`burst` is the size of a `token_bucket`; a `sliding_window` has none",
        ),
        (
            "mail",
            Override::new().threshold(3),
            "the limit has 2 tiers; give all of them as `tiers`",
        ),
        (
            "mail",
            Override::new().threshold(3).tier(MINUTE, 2),
            "`tiers` replace `period` and `threshold`; give one",
        ),
        (
            "mail",
            Override::new().tier(MINUTE, 2).tier(MINUTE, 2),
            "this tier is given twice; remove one of them",
        ),
        (
            "export",
            Override::new().threshold(4),
            "`cost` is 5, which can never pass a threshold of 4",
        ),
        ("by hand", Override::new().threshold(0), "`threshold` must be at least 1"),
    ] {
        let error = overrides.here().set(name, wrong).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("invalid override of rate limit `{name}`: {message}")
        );
        assert_eq!(error.limit(), Some(name));
    }
    assert_eq!(admitted(async || reply(&limiter, "alice").await).await, 1);
    let held: Vec<_> = overrides.list().into_iter().collect();
    assert_eq!(held, [("reply".to_owned(), Override::new().threshold(1))]);
    assert_eq!(overrides.source("reply"), Some(OverrideSource::Program));
    assert_eq!(overrides.source("mail"), None);
    assert_eq!(admitted(async || export(&limiter, "alice").await).await, 2);
}

#[test]
fn overrides_that_are_set_at_once_all_apply() {
    let limiter = Limiter::in_memory();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let overrides = limiter.overrides();
            scope.spawn(move || {
                for limit in 0..50 {
                    let name = format!("limit-{thread}-{limit}");
                    overrides.here().set(&name, Override::new().threshold(1)).unwrap();
                }
            });
        }
    });
    assert_eq!(limiter.overrides().list().len(), 400);
}

#[tokio::test]
async fn an_override_is_read_by_limit_and_by_source() {
    let limiter = Limiter::in_memory();
    let overrides = limiter.overrides();
    let mut changed = overrides.changed();
    assert_eq!(overrides.get("reply"), None);
    overrides.here().set("reply", Override::new().threshold(5)).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[limits]\nreply = \"dry_run\"").unwrap();
    overrides.follow_file(file.path()).unwrap();

    let (low, high) =
        (Override::new().threshold(5), Override::new().enforcement(Enforcement::DryRun));
    let sources = [(OverrideSource::File, high), (OverrideSource::Program, low)];
    assert_eq!(overrides.by_source("reply"), sources);
    let merged = overrides.get("reply").unwrap();
    assert_eq!((merged.threshold, merged.enforcement), (Some(5), Some(Enforcement::DryRun)));
    assert_eq!(overrides.list()["reply"], merged);

    assert!(changed.has_changed().unwrap());
    assert_eq!(*changed.borrow_and_update(), 2);
    overrides.here().set("reply", Override::new().threshold(5)).unwrap();
    assert!(!changed.has_changed().unwrap(), "the same override is no change");
    // A clone is the same handle.
    overrides.clone().here().remove("reply");
    assert_eq!(*changed.borrow_and_update(), 3);
    assert_eq!(overrides.get("reply").unwrap().threshold, None);
}

#[tokio::test]
async fn a_preview_is_the_policy_that_calls_will_have() {
    let limiter = Limiter::in_memory();
    for what in [
        Override::new(),
        Override::new().threshold(7),
        Override::new().period(2 * MINUTE).enforcement(Enforcement::Off),
        Override::new().tier(MINUTE, 1).tier(60 * MINUTE, 30),
    ] {
        let policy = Policy::sliding_window("previewed", MINUTE, 2);
        let preview = what.preview(&policy).unwrap();
        limiter.overrides().here().set("previewed", what.enforcement(Enforcement::On)).unwrap();
        let decision = limiter.peek(&policy, "alice").cost(0).await.unwrap();
        assert_eq!(decision.remaining(), preview.tiers()[0].threshold());
        assert_eq!(decision.period(), preview.tiers()[0].period());
    }
    let policy = Policy::sliding_window("previewed", MINUTE, 2);
    for (wrong, why) in [
        (Override::new().burst(2), "`burst`"),
        (Override::new().threshold(0), "`threshold`"),
        (Override::new().threshold(1).tier(MINUTE, 2), "`tiers`"),
    ] {
        let error = wrong.preview(&policy).unwrap_err();
        assert_eq!(error.limit(), Some("previewed"));
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[rate_limit(name = "bulk", threshold = 10_000, cost = 1_000, key = user, limiter = limiter)]
async fn bulk(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "typed", threshold = 10, cost = 5u32, key = user, limiter = limiter)]
async fn typed(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn a_cost_is_known_however_its_number_is_written() {
    let limiter = Limiter::in_memory();
    let refused = |name: &str, threshold| {
        let refused = limiter.overrides().here().set(name, Override::new().threshold(threshold));
        refused.unwrap_err().to_string()
    };
    for (name, threshold, cost) in [("bulk", 500, 1_000), ("typed", 4, 5)] {
        let why = refused(name, threshold);
        let rule = format!("`cost` is {cost}, which can never pass a threshold of {threshold}");
        assert!(why.contains(&rule), "{why}");
    }
    bulk(&limiter, "alice").await.unwrap();
    typed(&limiter, "alice").await.unwrap();
}
