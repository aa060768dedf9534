//! The first of several budgets that admits a call pays for it: one decision, one settle, one count.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use harness::{Lines, RedisServer, exceeded, listen, on_each_store};
use ratelimit_runtime::{
    Check, Decision, Enforcement, Limiter, OnStoreError, Override, Policy, RateLimitError, observe,
    stats::{self, Verdict},
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3_600);
const PLAN: Policy = Policy::sliding_window("first-plan", MINUTE, 2);
const CREDITS: Policy = Policy::fixed_window("first-credits", LONGEST, 3);

fn budgets<'a>(limiter: &'a Limiter, caller: &'a str, cost: u32) -> [Check<'a>; 2] {
    [&PLAN, &CREDITS].map(|policy| limiter.check(policy, caller).cost(cost))
}

async fn pay(limiter: &Limiter, caller: &str, cost: u32) -> Result<Decision, RateLimitError> {
    limiter.check_first(budgets(limiter, caller, cost)).await
}

async fn left(limiter: &Limiter, caller: &str) -> [u32; 2] {
    let mut left = [0; 2];
    for (left, policy) in left.iter_mut().zip([&PLAN, &CREDITS]) {
        *left = limiter.peek(policy, caller).cost(0).await.unwrap().remaining();
    }
    left
}

#[tokio::test]
async fn the_next_budget_pays_once_the_first_one_refuses() {
    on_each_store(async |limiter| {
        let mut paid = Vec::new();
        for _ in 0..5 {
            paid.push(pay(limiter, "alice", 1).await.unwrap());
        }
        let by: Vec<_> = paid.iter().map(Decision::policy).collect();
        assert_eq!(by[..2], ["first-plan"; 2]);
        assert_eq!(by[2..], ["first-credits"; 3]);
        assert_eq!(left(limiter, "alice").await, [0, 0]);
        // A refund goes to the budget that paid, by each way once.
        limiter.refund(&paid[4]).await.unwrap();
        limiter.refund(&paid[4]).await.unwrap();
        paid[4].settle(1);
        assert_eq!(left(limiter, "alice").await, [0, 1]);
        limiter.settle(&paid[0], 0).await.unwrap();
        assert_eq!(left(limiter, "alice").await, [1, 1]);
        // One budget pays for a whole call.
        assert_eq!(exceeded(pay(limiter, "alice", 2).await).policy(), "first-plan");
        assert_eq!(left(limiter, "alice").await, [1, 1]);
    })
    .await;
}

#[tokio::test]
async fn a_refusal_is_that_of_the_budget_with_room_the_soonest() {
    on_each_store(async |limiter| {
        let day = Policy::sliding_window("first-day", 24 * HOUR, 1);
        let never = Policy::sliding_window("first-never", MINUTE, 0);
        let checks = || [&day, &never, &PLAN].map(|it| limiter.check(it, "alice").cost(1));
        for paid_by in ["first-day", "first-plan", "first-plan"] {
            assert_eq!(limiter.check_first(checks()).await.unwrap().policy(), paid_by);
        }
        let refused = exceeded(limiter.check_first(checks()).await);
        assert_eq!(refused.policy(), "first-plan");
        assert!(refused.retry_after() <= MINUTE);
        // More than any of them ever admits.
        let too_large = limiter.check_first([limiter.check(&PLAN, "bob").cost(3)]).await;
        assert!(matches!(too_large, Err(RateLimitError::TooLarge(_))), "{too_large:?}");
        let credits = pay(limiter, "bob", 3).await.unwrap();
        assert_eq!(credits.policy(), "first-credits");
    })
    .await;
}

fn counts(policy: &Policy) -> Vec<(Verdict, u64)> {
    let counted = stats::snapshot().into_iter().find(|it| it.name() == policy.name());
    let counts = |it: stats::PolicyStats| {
        let all = Verdict::ALL.iter().map(|verdict| (*verdict, it.total(*verdict)));
        all.filter(|(_, calls)| *calls > 0).collect()
    };
    counted.map_or_else(Vec::new, counts)
}

#[tokio::test]
async fn a_call_is_one_event_one_count_and_one_answer_to_observers() {
    const FIRST: Policy = Policy::fixed_window("once-plan", MINUTE, 1);
    const SECOND: Policy = Policy::fixed_window("once-credits", HOUR, 1);
    for store in ["memory", "redis"] {
        let (redis, lines) = (RedisServer::start(), Lines::default());
        let limiter = match store {
            "memory" => Limiter::builder().show_callers().in_memory(),
            _ => Limiter::builder().show_callers().connect(&redis.url()).await.unwrap(),
        };
        let before = [counts(&FIRST), counts(&SECOND)];
        let call = async || {
            let checks = [&FIRST, &SECOND].map(|policy| limiter.check(policy, "alice"));
            let (answer, observed) = observe(limiter.check_first(checks)).await;
            assert_eq!(observed.len(), 1, "{observed:?}");
            answer.map(|decision| decision.policy()).map_err(|error| error.policy())
        };
        let listening = listen(lines.clone());
        let answers = [call().await, call().await, call().await];
        drop(listening);
        assert_eq!(answers, [Ok("once-plan"), Ok("once-credits"), Err("once-plan")]);
        let decided = |line: &String| line.contains("rate limit decided");
        assert_eq!(lines.all().into_iter().filter(decided).count(), 3, "{:?}", lines.all());
        let calls = |after: Vec<(Verdict, u64)>, before: &[(Verdict, u64)]| {
            let of = |verdict| before.iter().find(|it| it.0 == verdict).map_or(0, |it| it.1);
            let new = after.into_iter().map(|(verdict, calls)| (verdict, calls - of(verdict)));
            new.filter(|(_, calls)| *calls > 0).collect::<Vec<_>>()
        };
        let once = [(Verdict::Admitted, 1), (Verdict::Refused, 1)];
        assert_eq!(calls(counts(&FIRST), &before[0]), once, "{store}");
        assert_eq!(calls(counts(&SECOND), &before[1]), once[..1], "{store}");
        let refused =
            |policy: &Policy| limiter.refused_callers(policy.name(), stats::TimeWindow::Minute);
        assert_eq!((refused(&FIRST).len(), refused(&SECOND).len()), (1, 0), "{store}");
    }
}

#[tokio::test]
async fn only_a_limit_that_is_reached_passes_a_call_on() {
    on_each_store(async |limiter| {
        let here = limiter.overrides().here();
        let until = SystemTime::now() + MINUTE;
        here.set(("first-plan", "mallory"), Override::new().deny().until(until)).unwrap();
        let denied = pay(limiter, "mallory", 1).await;
        assert!(matches!(denied, Err(RateLimitError::Denied(_))), "{denied:?}");
        let wrong = Policy::sliding_window("first-wrong", Duration::ZERO, 1);
        let checks = [&wrong, &CREDITS].map(|policy| limiter.check(policy, "alice"));
        let invalid = limiter.check_first(checks).await;
        assert!(matches!(invalid, Err(RateLimitError::InvalidPolicy(_))), "{invalid:?}");
        assert_eq!(left(limiter, "alice").await[1], 3);
        // A dry run admits.
        here.set("first-plan", Enforcement::DryRun).unwrap();
        for is_dry_run in [false, false, true, true] {
            let paid = pay(limiter, "dora", 1).await.unwrap();
            assert_eq!((paid.policy(), paid.is_dry_run()), ("first-plan", is_dry_run));
        }
        here.remove("first-plan");
        // A call that may wait waits before it is passed on.
        let short = Policy::sliding_window("first-short", Duration::from_millis(50), 1);
        let long = Policy::sliding_window("first-long", MINUTE, 1);
        let in_line = async |policy| {
            let wait = limiter.check(policy, "alice").max_wait(Duration::from_millis(500));
            limiter.check_first([wait, limiter.check(&CREDITS, "alice")]).await.unwrap()
        };
        assert_eq!(in_line(&short).await.policy(), "first-short");
        let waited = in_line(&short).await;
        assert_eq!(waited.policy(), "first-short");
        assert!(waited.waited() > Duration::ZERO);
        assert_eq!(in_line(&long).await.policy(), "first-long");
        assert_eq!(in_line(&long).await.policy(), "first-credits");
        // A permit goes with the decision.
        let flight = Policy::concurrency_limit("first-flight", 1);
        let held = limiter.check_first([limiter.check(&flight, "alice")]).await.unwrap();
        assert!(held.has_permit());
        let next = [limiter.check(&flight, "alice"), limiter.check(&CREDITS, "bob")];
        assert_eq!(limiter.check_first(next).await.unwrap().policy(), "first-credits");
        let busy = limiter.check_first([limiter.check(&flight, "alice")]).await;
        assert!(matches!(busy, Err(RateLimitError::Busy(_))), "{busy:?}");
    })
    .await;
}

#[tokio::test]
async fn an_outage_is_not_paid_for_by_the_next_budget() {
    let builder = Limiter::builder().prefix("away:").on_store_error(OnStoreError::Deny);
    let limiter = builder.connect_lazy("redis://127.0.0.1:1").unwrap();
    let local = limiter.check(&CREDITS, "alice").on_store_error(OnStoreError::Local);
    let answer = limiter.check_first([limiter.check(&PLAN, "alice"), local]).await;
    assert!(matches!(answer, Err(RateLimitError::Unavailable(_))), "{answer:?}");
}

#[tokio::test]
async fn two_processes_spend_both_budgets_to_the_last_unit_and_no_further() {
    const PLAN: Policy = Policy::sliding_window("race-plan", HOUR, 50);
    const CREDITS: Policy = Policy::fixed_window("race-credits", HOUR, 30);
    let server = RedisServer::start();
    let builder = || Limiter::builder().deadline(Duration::from_secs(30)).prefix("race:");
    let mut processes = Vec::new();
    for _ in 0..2 {
        processes.push(builder().connect(&server.url()).await.unwrap());
    }
    for process in [&processes[..], &[Limiter::in_memory()]] {
        let calls = (0..200).map(async |number| {
            let limiter = &process[number % process.len()];
            let checks = [&PLAN, &CREDITS].map(|policy| limiter.check(policy, "alice"));
            limiter.check_first(checks).await
        });
        let answers = join_all(calls).await;
        let paid_by = |policy: &Policy| {
            let paid = answers.iter().flatten().filter(|it| it.policy() == policy.name());
            paid.count()
        };
        assert_eq!((paid_by(&PLAN), paid_by(&CREDITS)), (50, 30));
        let refused = answers.iter().filter(|it| matches!(it, Err(RateLimitError::Exceeded(_))));
        assert_eq!(refused.count(), 120);
    }
}

#[tokio::test]
async fn enforcement_does_not_change_the_answer_to_a_peek() {
    on_each_store(async |limiter| {
        limiter.check(&PLAN, "alice").cost(2).await.unwrap();
        limiter.overrides().here().set(PLAN.name(), Enforcement::DryRun).unwrap();
        for cost in [1, 3] {
            let budgets = [&PLAN, &CREDITS].map(|it| limiter.peek(it, "alice").cost(cost));
            assert_eq!(limiter.check_first(budgets).await.unwrap().policy(), CREDITS.name());
            let alone = limiter.check_first([limiter.peek(&PLAN, "alice").cost(cost)]).await;
            assert_eq!(alone.unwrap_err().policy(), PLAN.name());
        }
    })
    .await;
}
