//! The callers that a limit refuses most are known, in bounded memory.

use std::time::Duration;

use harness::{RedisServer, listen, ran_in_own_process};
use ratelimit_runtime::{
    Caller, Enforcement, Limiter, Override, Policy, RateLimitError, caller, rate_limit,
    stats::{self, TimeWindow, Verdict},
    usage::RefusedCaller,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns names and numbers of calls.
fn named(refused: &[RefusedCaller]) -> Vec<(&str, u64)> {
    refused.iter().map(|it| (it.name().unwrap_or_default(), it.calls())).collect()
}

#[tokio::test]
async fn refused_busy_denied_and_too_large_calls_count_for_their_caller() {
    const NAME: &str = "refused: each";

    #[rate_limit(name = "refused: each", threshold = 1, key = user, limiter = limiter)]
    async fn annotated(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
        Ok(())
    }

    let limiter = Limiter::builder().show_callers().in_memory();
    for _ in 0..4 {
        let _ = annotated(&limiter, "alice").await;
    }
    let policy = Policy::sliding_window(NAME, MINUTE, 1).concurrency(1);
    let _held = limiter.check(&policy, "bob").await.unwrap();
    limiter.check(&policy, "bob").await.unwrap_err();
    limiter.check(&policy, &caller!("acme", 42)).cost(2).await.unwrap_err();
    limiter.overrides().here().set((NAME, "dora"), Override::new().deny()).unwrap();
    limiter.check(&policy, "dora").await.unwrap_err();
    // These are refused by nobody.
    limiter.peek(&policy, "alice").await.unwrap_err();
    limiter.overrides().here().set("*", Enforcement::DryRun).unwrap();
    limiter.check(&policy, "alice").await.unwrap();
    limiter.overrides().here().set("*", Enforcement::Off).unwrap();
    limiter.check(&policy, "alice").await.unwrap();
    let refused = limiter.refused_callers(NAME, TimeWindow::Minute);
    assert_eq!(named(&refused), [("alice", 3), ("acme/42", 1), ("bob", 1), ("dora", 1)]);
    assert_eq!(refused[1].caller(), Some(&caller!("acme", 42)));
    assert!(limiter.refused_callers("refused: nobody", TimeWindow::Hour).is_empty());
}

/// More threads than have counts of their own.
#[test]
fn the_counts_of_all_threads_add_up() {
    const NAME: &str = "refused: by threads";
    const THREADS: u64 = 20;
    let policy = Policy::fixed_window(NAME, MINUTE, 1);
    let limiter = Limiter::builder().show_callers().in_memory();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // One after the other: refusals at the same moment may be missing.
    for thread in 0..THREADS {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let own = Caller::from(thread);
                for (caller, cost) in [(&own, 1), (&own, 1), (&Caller::from("alice"), 1), (&own, 2)]
                {
                    let _ =
                        runtime.block_on(limiter.check(&policy, caller).cost(cost).into_future());
                }
            });
        });
    }
    let counts = stats::snapshot().into_iter().find(|limit| limit.name() == NAME).unwrap();
    let calls = [Verdict::Admitted, Verdict::Refused, Verdict::TooLarge].map(|it| counts.total(it));
    assert_eq!(calls, [THREADS + 1, 2 * THREADS - 1, THREADS]);
    assert_eq!(counts.units(Verdict::TooLarge), 2 * THREADS);
    assert_eq!(counts.refused_within(TimeWindow::Hour), 3 * THREADS - 1);
    let refused = limiter.refused_callers(NAME, TimeWindow::Minute);
    assert_eq!(named(&refused)[0], ("alice", THREADS - 1));
    assert_eq!(refused.iter().map(RefusedCaller::calls).sum::<u64>(), 3 * THREADS - 1);
}

#[tokio::test]
async fn callers_have_no_name_unless_the_builder_says_so() {
    let policy = Policy::fixed_window("refused: named", MINUTE, 0);
    let hidden = Limiter::in_memory();
    hidden.check(&policy, "alice").await.unwrap_err();
    let of =
        |limiter: &Limiter| limiter.refused_callers("refused: named", TimeWindow::Hour)[0].clone();
    assert_eq!((of(&hidden).name(), of(&hidden).caller(), of(&hidden).calls()), (None, None, 1));
    let digest = Limiter::builder().caller_digest("secret").in_memory();
    let name = of(&digest).name().unwrap().to_owned();
    assert_eq!((name.len(), of(&digest).caller()), (16, None));
    // The digest is the one of events.
    let lines = harness::Lines::default();
    let _listening = listen(lines.clone());
    digest.check(&policy, "alice").await.unwrap_err();
    assert!(lines.all().iter().any(|line| line.contains(&name)), "{name}");
    let shown = Limiter::builder().caller_digest("secret").show_callers().in_memory();
    assert_eq!(of(&shown).name(), Some("alice"));
    assert_eq!(of(&shown).caller(), Some(&Caller::from("alice")));
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_callers_hides_none_that_is_refused_often() {
    // No other test reads the counts meanwhile, during which calls are not sampled.
    if ran_in_own_process("refused::a_flood_of_callers_hides_none_that_is_refused_often") {
        return;
    }
    let limiter = Limiter::builder().show_callers().in_memory();
    let policy = Policy::fixed_window("refused: flood", MINUTE * 600, 0);
    let mut rng = fastrand::Rng::with_seed(5);
    for minute in 0..3 {
        for number in 0..20_000_u32 {
            // Half of the calls are those of ten callers, the others come once.
            let caller = if number % 2 == 0 {
                Caller::from("heavy").and(rng.u32(..10))
            } else {
                Caller::from("light").and(minute).and(number)
            };
            limiter.check(&policy, caller).await.unwrap_err();
        }
        tokio::time::advance(MINUTE).await;
    }
    let refused = limiter.refused_callers("refused: flood", TimeWindow::Hour);
    assert!(refused.len() <= 64 + 16 * 60, "{}", refused.len());
    // Each takes the place of a caller that has the fewest of 64 counts, which add up to 20 000 a minute.
    let most_wrong = 3 * 20_000 / 64;
    assert!(refused.iter().all(|one| one.at_most_wrong() <= most_wrong), "{refused:?}");
    for one in &refused[..10] {
        assert!(one.name().unwrap().starts_with("heavy/"), "{one:?}");
        let (calls, wrong) = (one.calls(), one.at_most_wrong());
        assert!(calls >= 2_500 && calls - wrong <= 3_500, "{one:?}");
    }
}

#[tokio::test]
async fn refusals_that_this_process_repeats_for_redis_count_too() {
    let server = RedisServer::start();
    let limiter = Limiter::builder().show_callers().connect(&server.url()).await.unwrap();
    let policy = Policy::sliding_window("refused: on redis", MINUTE, 1);
    for _ in 0..6 {
        let _ = limiter.check(&policy, "alice").await;
    }
    let refused = limiter.refused_callers("refused: on redis", TimeWindow::TenMinutes);
    assert_eq!(named(&refused), [("alice", 5)]);
}
