//! A cost that a client chooses is never a failure of the service. Zero passes; a cost above every threshold
//! is refused for good.

use std::time::Duration;

use harness::{Lines, admitted, listen, on_each_store};
use ratelimit_runtime::{
    CalendarUnit, Enforcement, Limiter, Override, Policy, RateLimitError, TooLarge, observe,
    rate_limit,
    web::{HeaderSyntax, Refusal},
};

const MINUTE: Duration = Duration::from_secs(60);

/// As the README has it, but for the limiter.
#[rate_limit(
    name = "send-mail",
    tier(period = "1m", threshold = 5),
    tier(period = "1h", threshold = 20),
    tier(period = "1d", threshold = plan.mails),
    key = mailbox,
    cost = u32::try_from(recipients.len()).unwrap_or(u32::MAX),
    limiter = limiter
)]
async fn send_mail(
    limiter: &Limiter,
    mailbox: &str,
    plan: Plan,
    recipients: Vec<String>,
) -> Result<(), RateLimitError> {
    Ok(())
}

struct Plan {
    mails: u32,
}

#[rate_limit(name = "search", threshold = plan, key = user, cost = words, limiter = limiter)]
async fn search(
    limiter: &Limiter,
    user: &str,
    plan: u32,
    words: u32,
) -> Result<(), RateLimitError> {
    Ok(())
}

/// The refusal of a call that can never pass.
fn too_large<T: std::fmt::Debug>(answer: Result<T, RateLimitError>) -> TooLarge {
    match answer {
        Err(RateLimitError::TooLarge(refused)) => refused,
        other => panic!("expected a call that is too large, got {other:?}"),
    }
}

/// Returns the status, and the seconds in `Retry-After`.
fn response<T>(answer: Result<T, RateLimitError>) -> (u16, Option<u64>) {
    match answer {
        Ok(_) => (200, None),
        Err(error) => {
            let refusal = Refusal::from(error);
            let fields = refusal.headers(HeaderSyntax::Both);
            let wait = fields.into_iter().find(|(name, _)| *name == "retry-after");
            (refusal.status(), wait.map(|(_, wait)| wait.parse().unwrap()))
        }
    }
}

#[tokio::test]
async fn any_number_of_recipients_is_answered_and_none_is_a_failure_of_the_service() {
    on_each_store(async |limiter| {
        for (recipients, expected) in [(0, 200), (1, 200), (5, 200), (6, 422), (1_000, 422)] {
            let (mailbox, recipients) = (recipients.to_string(), vec![String::new(); recipients]);
            let plan = Plan { mails: 100 };
            let answer = response(send_mail(limiter, &mailbox, plan, recipients).await);
            assert_eq!(answer, (expected, None), "{mailbox}");
        }
        for (plan, words, expected) in
            [(2, 0, 200), (2, 2, 200), (2, 3, 422), (2, u32::MAX, 422), (0, 1, 422), (0, 0, 200)]
        {
            let user = format!("{plan} {words}");
            let answer = response(search(limiter, &user, plan, words).await);
            assert_eq!(answer, (expected, None), "{user}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_of_cost_zero_takes_nothing_and_returns_the_remaining_units() {
    on_each_store(async |limiter| {
        for policy in [
            Policy::sliding_window("log", MINUTE, 2),
            Policy::sliding_counter("counter", MINUTE, 2),
            Policy::fixed_window("window", MINUTE, 2),
            Policy::token_bucket("bucket", MINUTE, 2),
            Policy::sliding_window("penalty", MINUTE, 2).count_rejected(),
        ] {
            for left in [2, 2] {
                let nothing = limiter.check(&policy, "alice").cost(0).await.unwrap();
                assert_eq!(nothing.remaining(), left, "{policy:?}");
                // There is nothing to refund.
                limiter.refund(&nothing).await.unwrap();
            }
            assert_eq!(admitted(async || limiter.check(&policy, "alice").await.map(drop)).await, 2);
            assert_eq!(limiter.check(&policy, "alice").cost(0).await.unwrap().remaining(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_that_is_too_large_names_the_number_that_is_too_small() {
    let limiter = Limiter::in_memory();
    let refused = too_large(search(&limiter, "alice", 2, 3).await);
    assert_eq!(
        (refused.policy(), refused.cost(), refused.threshold(), refused.period()),
        ("search", 3, 2, MINUTE)
    );
    let fault = refused.fault().to_string();
    assert_eq!(fault, "`cost` is 3, which can never pass a threshold of 2");
    assert_eq!(
        refused.to_string(),
        "rate limit `search` never admits 3 units at once: at most 2 per 60s"
    );
    let nothing = too_large(search(&limiter, "alice", 0, 3).await);
    assert_eq!(nothing.to_string(), "rate limit `search` admits nothing: its threshold is 0");
    let bucket = Policy::token_bucket("bucket", MINUTE, 9).burst(4);
    let refused = too_large(limiter.check(&bucket, "alice").cost(5).await);
    assert_eq!(
        refused.to_string(),
        "rate limit `bucket` never admits 5 units at once: its burst is 4"
    );
    let refused = too_large(limiter.peek(&bucket.burst(0), "alice").await);
    assert_eq!(refused.to_string(), "rate limit `bucket` admits nothing: its burst is 0");
    assert_eq!(limiter.peek(&bucket.burst(0), "alice").cost(0).await.unwrap().remaining(), 0);
    // Of several tiers, the one with the smallest threshold; a violated rule is reported first.
    let tiers = Policy::sliding_window("tiers", MINUTE, 5).tier(MINUTE * 60, 20);
    assert_eq!(too_large(limiter.check(&tiers, "alice").cost(30).await).threshold(), 5);
    let wrong = tiers.burst(3);
    let refused = limiter.check(&wrong, "alice").cost(30).await;
    assert!(matches!(refused, Err(RateLimitError::InvalidPolicy(_))), "{refused:?}");
}

#[tokio::test]
async fn the_kill_switch_and_a_dry_run_let_any_cost_pass() {
    on_each_store(async |limiter| {
        for enforcement in [Enforcement::Off, Enforcement::DryRun] {
            limiter.overrides().here().set("*", enforcement).unwrap();
            search(limiter, "alice", 2, 3).await.unwrap();
            search(limiter, "alice", 0, 1).await.unwrap();
        }
        limiter.overrides().here().remove("*");
        assert_eq!(too_large(search(limiter, "alice", 2, 3).await).threshold(), 2);
    })
    .await;
}

#[tokio::test]
async fn observers_and_subscribers_see_a_call_that_is_too_large() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let limiter = Limiter::builder().caller_digest("secret").in_memory();
    let (answer, seen) = observe(search(&limiter, "secret-name", 2, 3)).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(too_large(seen[0].clone()), too_large(answer));
    let lines = lines.all();
    let events: Vec<_> = lines.iter().filter(|line| line.contains("too_large")).collect();
    assert_eq!(events.len(), 1, "{lines:?}");
    for part in [
        "DEBUG message=rate limit not decided policy=\"search\" algorithm=\"sliding_window\" caller=\"",
        "outcome=\"too_large\" reason=rate limit `search` never admits 3 units at once: at most 2 per",
        "decided_by=\"limiter\"",
    ] {
        assert!(events[0].contains(part), "{part}: {}", events[0]);
    }
    assert!(!events[0].contains("secret-name"), "{}", events[0]);
}

#[tokio::test]
async fn a_lowered_limit_decides_also_for_calls_that_no_longer_fit_it() {
    let tokens = Policy::token_bucket("tokens", MINUTE * 60, 2_000_000);
    on_each_store(async |limiter| {
        limiter.check(&tokens, "alice").cost(100_000).await.unwrap();
        limiter.overrides().here().set("tokens", Override::new().threshold(1_000)).unwrap();
        let refused = too_large(limiter.check(&tokens, "alice").cost(100_000).await);
        assert_eq!((refused.threshold(), refused.cost()), (1_000, 100_000));
        assert!(limiter.check(&tokens, "bob").cost(1_000).await.is_ok());
        limiter.overrides().here().remove("tokens");
        limiter.check(&tokens, "carol").cost(100_000).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_call_takes_as_much_as_the_threshold_and_no_more() {
    on_each_store(async |limiter| {
        for make in [
            Policy::sliding_window,
            Policy::sliding_counter,
            Policy::fixed_window,
            Policy::token_bucket,
        ] {
            let policy = make("large", MINUTE, 100_000);
            let refused = too_large(limiter.check(&policy, "alice").cost(100_001).await);
            assert!(
                refused.fault().to_string().starts_with("`cost` is 100001, which can never pass")
            );
            assert_eq!(
                too_large(limiter.peek(&policy, "alice").cost(100_001).await).cost(),
                100_001
            );
            limiter.check(&policy, "alice").cost(100_000).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn messages_name_long_periods_by_days_or_by_the_calendar() {
    let limiter = Limiter::in_memory();
    let day = Policy::fixed_window("mail", Duration::from_secs(86_400), 10);
    let month = Policy::calendar_window("bill", CalendarUnit::Month, 10);
    for (policy, period) in [(day, "1 day"), (month, "month")] {
        let refused = too_large(limiter.check(&policy, "alice").cost(11).await);
        let text = format!("never admits 11 units at once: at most 10 per {period}");
        assert!(refused.to_string().ends_with(&text), "{refused}");
        limiter.check(&policy, "alice").cost(10).await.unwrap();
        let refused = limiter.check(&policy, "alice").await.unwrap_err().to_string();
        let text = format!("exceeded: at most 10 per {period}, retry after ");
        assert!(refused.contains(&text), "{refused}");
    }
}
