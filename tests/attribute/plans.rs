//! `plan`: each call is decided by the plan of its caller, over one history.
#![deny(warnings, clippy::all, clippy::pedantic, unused, unused_qualifications)]

use std::{fmt, time::Duration};

use harness::{Lines, exceeded, listen, on_each_store};
use ratelimit_runtime::{
    Decision, Enforcement, Limiter, Override, Plans, Policy, RateLimitError,
    limits::{policies, policies_of, published_limits},
    observe,
    overrides::Place,
    rate_limit, stats,
    web::{HeaderSyntax, Refusal},
};
use tonic_types::StatusExt;

const HOUR: Duration = Duration::from_secs(3_600);
const SEVEN: Policy = Policy::sliding_window("seven", HOUR, 7);
const API: Plans =
    Plans::new("plans-api", "free", Policy::sliding_window("free", HOUR, 2)).plan("pro", SEVEN);
static BUSY: Plans = Plans::new("plans-busy", "one", Policy::concurrency_limit("", 1));

#[derive(Clone, Copy)]
enum Plan {
    Free,
    Pro,
    Gold,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In several pieces.
        let pieces = match self {
            Self::Free => ["f", "ree"],
            Self::Pro => ["pro", ""],
            Self::Gold => ["go", "ld"],
        };
        pieces.iter().try_for_each(|piece| f.write_str(piece))
    }
}

#[rate_limit(policy = API, plan = plan, key = user, limiter = limiter)]
async fn call(limiter: &Limiter, plan: Plan, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(policy = API, plan = plan, key = user, limiter = limiter, decision = quota)]
async fn see(limiter: &Limiter, plan: String, user: &str) -> Result<Decision, RateLimitError> {
    drop(plan);
    Ok(quota)
}

#[rate_limit(policy = BUSY, plan = "one", limiter = limiter)]
async fn hold(limiter: &Limiter) -> Result<bool, RateLimitError> {
    Ok(BUSY.of("one").name() == "plans-busy" && limiter.is_in_memory())
}

#[tokio::test]
async fn who_changes_the_plan_keeps_the_history() {
    on_each_store(async |limiter| {
        let threshold = async |plan| exceeded(call(limiter, plan, "alice").await).threshold();
        for _ in 0..2 {
            call(limiter, Plan::Free, "alice").await.unwrap();
        }
        assert_eq!(threshold(Plan::Free).await, 2);
        for left in (0..5).rev() {
            let quota = see(limiter, "pro".to_owned(), "alice").await.unwrap();
            assert_eq!((quota.remaining(), quota.plan()), (left, Some("pro")));
        }
        assert_eq!(threshold(Plan::Pro).await, 7);
        assert_eq!(threshold(Plan::Free).await, 2);
        // An unknown plan is the default one; by hand it is the same history.
        call(limiter, Plan::Gold, "bob").await.unwrap();
        limiter.check(API.of("free"), "bob").await.unwrap();
        assert_eq!(exceeded(limiter.check(API.of("fre"), "bob").await).plan(), Some("free"));
        assert!(limiter.check(API.of(Plan::Pro), "bob").await.is_ok());
        hold(limiter).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn plans_at_random_are_decided_like_a_plain_log_of_calls() {
    let thresholds = [("free", 2_usize), ("pro", 7), ("none", 2)];
    for seed in 0..20 {
        let (limiter, mut rng) = (Limiter::in_memory(), fastrand::Rng::with_seed(seed));
        let mut taken = 0;
        for _ in 0..100 {
            let (plan, threshold) = thresholds[rng.usize(..3)];
            let (override_of, enforcement) = (rng.bool(), Enforcement::On);
            if rng.u8(..10) == 0 {
                limiter.reset(API.of(plan), "alice").await.unwrap();
                taken = 0;
            }
            let raised = Override::new().threshold(9).enforcement(enforcement);
            if override_of {
                limiter.overrides().here().set("plans-api@pro", raised).unwrap();
            } else {
                limiter.overrides().here().remove("plans-api@pro");
            }
            let threshold = if override_of && plan == "pro" { 9 } else { threshold };
            let answer = limiter.check(API.of(plan), "alice").await;
            assert_eq!(answer.is_ok(), taken < threshold, "{seed} {plan} {taken} {answer:?}");
            taken += usize::from(answer.is_ok());
        }
    }
}

#[tokio::test]
async fn a_plan_is_overridden_before_its_limit_and_after_its_caller() {
    let limiter = Limiter::in_memory();
    let overrides = limiter.overrides();
    let threshold = async |plan: &str, user: &str| {
        limiter.peek(API.of(plan), user).cost(0).await.unwrap().threshold()
    };
    let set = |name: &str, to| overrides.here().set(name, Override::new().threshold(to)).unwrap();
    let rows = [
        // Overridden: the caller, its plan, the plan of the limit, the limit; expected: pro, free.
        ([false, false, false, false], [7, 2]),
        ([false, false, false, true], [30, 30]),
        ([false, false, true, false], [20, 2]),
        ([false, false, true, true], [20, 30]),
        ([false, true, true, true], [10, 30]),
        ([true, false, true, true], [5, 5]),
        ([true, true, false, true], [10, 5]),
        ([true, true, true, true], [10, 5]),
    ];
    for ([caller, of_plan, plan, limit], expected) in rows {
        let raised = |to| Override::new().threshold(to);
        overrides.here().remove(("plans-api", "alice"));
        overrides.here().remove(("plans-api@pro", "alice"));
        overrides.here().remove("plans-api@pro");
        overrides.here().remove("plans-api");
        if caller {
            overrides.here().set(("plans-api", "alice"), raised(5)).unwrap();
        }
        if of_plan {
            overrides.here().set(("plans-api@pro", "alice"), raised(10)).unwrap();
        }
        if plan {
            set("plans-api@pro", 20);
        }
        if limit {
            set("plans-api", 30);
        }
        let seen = [threshold("pro", "alice").await, threshold("free", "alice").await];
        assert_eq!(seen, expected, "{caller} {of_plan} {plan} {limit}");
        let bob = threshold("pro", "bob").await;
        assert_eq!(
            bob,
            if plan {
                20
            } else if limit {
                30
            } else {
                7
            }
        );
    }
    overrides.here().remove("plans-api");
    overrides.here().set("plans-api@pro", Override::new().enforcement(Enforcement::Off)).unwrap();
    overrides.here().set("plans-api@gold", Override::new().enforcement(Enforcement::Off)).unwrap();
    for _ in 0..9 {
        call(&limiter, Plan::Pro, "carol").await.unwrap();
    }
    assert_eq!(threshold("free", "carol").await, 2);
    let problems: Vec<_> = overrides.problems().iter().map(ToString::to_string).collect();
    assert!(problems[0].contains("no limit is named `plans-api@gold`"), "{problems:?}");
    assert_eq!(problems.len(), 1);
    let invalid = overrides.here().set("plans-api@pro", Override::new().burst(1)).unwrap_err();
    assert_eq!(invalid.limit(), Some("plans-api@pro"));
}

#[tokio::test]
async fn header_fields_events_and_stats_name_the_plan() {
    let lines = Lines::default();
    let _guard = listen(lines.clone());
    let limiter = Limiter::in_memory();
    let calls = async |plan| {
        let (_, seen) = observe(call(&limiter, plan, "dora")).await;
        seen
    };
    let seen = calls(Plan::Pro).await;
    assert_eq!(seen[0].as_ref().unwrap().policy(), "plans-api");
    let fields = HeaderSyntax::Draft11.headers(&seen);
    assert_eq!(fields[0].1, r#""plans-api@pro";q=7;w=3600"#);
    calls(Plan::Free).await;
    let seen = calls(Plan::Free).await;
    let refused = seen[0].clone().unwrap_err();
    assert_eq!(HeaderSyntax::Draft11.headers(&seen)[0].1, r#""plans-api@free";q=2;w=3600"#);
    assert!(Refusal::from(refused).problem().contains(r#"["plans-api@free"]"#));
    let events = lines.all();
    let of = |policy: &str| events.iter().filter(|line| line.contains(policy)).count();
    assert_eq!((of("policy=\"plans-api@pro\""), of("policy=\"plans-api@free\"")), (1, 2));
    let stats = stats::snapshot();
    for plan in ["plans-api@pro", "plans-api@free"] {
        assert!(stats.iter().any(|limit| limit.name() == plan));
    }
    // Each unknown name is logged once.
    for _ in 0..2 {
        let _ = API.of("platinum");
    }
    let unknown = |line: &&String| line.contains("unknown plan") && line.contains("platinum");
    assert_eq!(lines.all().iter().filter(unknown).count(), 1);
}

#[tokio::test]
async fn refusals_warnings_and_dry_runs_name_the_plan() {
    let lines = Lines::default();
    let _guard = listen(lines.clone());
    let limiter = Limiter::in_memory();
    let pro = || limiter.check(API.of("pro"), "frida");
    let too_large = pro().cost(8).await.unwrap_err();
    assert_eq!(too_large.policy(), "plans-api");
    assert!(too_large.to_string().contains("`plans-api@pro` never admits 8"), "{too_large}");
    let problem = Refusal::from(too_large).problem();
    assert!(problem.contains(r#"["plans-api@pro"]"#), "{problem}");
    pro().cost(7).warn_at(80).await.unwrap();
    let warned = |line: &&String| line.contains("limit nearly used up");
    let warned = lines.all().iter().find(warned).cloned().unwrap();
    assert!(warned.contains("policy=\"plans-api@pro\""), "{warned}");
    let exceeded = pro().await.unwrap_err();
    let _held = limiter.check(BUSY.of("one"), "frida").await.unwrap();
    let busy = limiter.check(BUSY.of("one"), "frida").await.unwrap_err();
    for (error, subject) in [(exceeded, "plans-api@pro"), (busy, "plans-busy@one")] {
        assert!(error.to_string().starts_with(&format!("rate limit `{subject}` ")), "{error}");
        let details = tonic::Status::from(error).get_error_details();
        let failure = details.quota_failure().unwrap();
        assert_eq!(failure.violations[0].subject, subject);
    }
    let dry_run = Override::new().enforcement(Enforcement::DryRun);
    limiter.overrides().here().set("plans-api@pro", dry_run).unwrap();
    pro().await.unwrap();
    let events = lines.all();
    let is_notice = |line: &&String| line.contains("dry run: calls would have been refused");
    let dry_run = events.iter().find(is_notice).unwrap();
    assert!(dry_run.contains("policy=\"plans-api@pro\""), "{dry_run}");
}

#[tokio::test]
async fn plans_of_two_places_under_one_name_are_told_apart() {
    const FEW: Plans = Plans::new("plans-twice", "free", SEVEN).plan("pro", SEVEN);
    const MANY: Plans =
        Plans::new("plans-twice", "free", SEVEN).plan("team", SEVEN).plan("pro", SEVEN);
    let limiter = Limiter::in_memory();
    let overrides = limiter.overrides();
    let seen = async |policy: &Policy| {
        let decision = limiter.peek(policy, "alice").cost(0).await.unwrap();
        (decision.plan(), decision.threshold())
    };
    assert_eq!(seen(FEW.of("pro")).await, (Some("pro"), 7));
    overrides.here().set("plans-twice@pro", Override::new().threshold(20)).unwrap();
    overrides.here().set("plans-twice@team", Override::new().threshold(9)).unwrap();
    assert_eq!(seen(MANY.of("team")).await, (Some("team"), 9));
    assert_eq!(seen(MANY.of("pro")).await, (Some("pro"), 20));
    assert_eq!(seen(FEW.of("pro")).await, (Some("pro"), 20));
    assert_eq!(seen(MANY.of("free")).await, (Some("free"), 7));
    assert_eq!(overrides.problems(), []);
}

#[tokio::test]
async fn plans_are_overridden_before_the_first_is_chosen_by_its_name() {
    const FIRST: Plans = Plans::new("plans-first", "free", SEVEN).plan("pro", SEVEN);
    const ALL: Plans = Plans::new("plans-all", "free", SEVEN).plan("pro", SEVEN);
    let limiter = Limiter::in_memory();
    for name in ["plans-first@free", "plans-all@pro"] {
        limiter.overrides().here().set(name, Override::new().threshold(9)).unwrap();
    }
    for policy in [FIRST.default_policy(), &ALL.all()[1].1] {
        assert_eq!(limiter.check(policy, "alice").await.unwrap().threshold(), 9);
    }
}

#[tokio::test]
async fn each_plan_is_listed_as_a_limit() {
    let limits = policies_of(&call);
    let names: Vec<_> = limits.iter().map(ToString::to_string).collect();
    let expected = [
        "plans-api@free: sliding_window, 2 per 3600s, key (user)",
        "plans-api@pro: sliding_window, 7 per 3600s, key (user)",
    ];
    assert_eq!(names, expected);
    assert!(policies().iter().any(|limit| limit.name() == "plans-api@pro"));
    let published = published_limits();
    let pro = published.iter().find(|limit| limit.name == "plans-api@pro").unwrap();
    assert_eq!(pro.tiers[0].threshold, Some(7));
    let limiter = Limiter::in_memory();
    call(&limiter, Plan::Free, "eve").await.unwrap();
    let usage = limiter.usage("plans-api@pro", "eve").await.unwrap();
    assert_eq!((usage.tiers()[0].used(), usage.tiers()[0].quota()), (1, 7));
}

#[tokio::test]
async fn plans_of_equal_numbers_keep_their_names_under_an_override_of_their_limit() {
    const EQUAL: Plans = Plans::new("plans-equal", "trial", SEVEN).plan("pro", SEVEN);
    let limiter = Limiter::in_memory();
    let here = limiter.overrides().here();
    for place in [Place::from("plans-equal"), Place::caller("plans-equal", "alice")] {
        here.set(place.clone(), Override::new().threshold(9)).unwrap();
        for plan in ["trial", "pro"] {
            let seen = limiter.peek(EQUAL.of(plan), "alice").cost(0).await.unwrap();
            assert_eq!((seen.plan(), seen.threshold()), (Some(plan), 9));
        }
        here.remove(place);
    }
}
