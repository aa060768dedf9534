//! A candidate decides beside its limit and refuses nobody. Its counts are exact, and its cost ends with it.

use std::time::{Duration, SystemTime};

use harness::{RedisServer, on_each_store, until};
use ratelimit_runtime::{
    Caller, Enforcement, Limiter, OnStoreError, Override, Plans, Policy, RateLimitError,
    overrides::CandidateStats, rate_limit,
};

const MINUTE: Duration = Duration::from_secs(60);

#[rate_limit(name = "tried", period = 60, threshold = 3, key = user, limiter = limiter)]
async fn greet(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

pub(crate) fn threshold(threshold: u32) -> Override {
    Override::new().threshold(threshold)
}

/// Returns the counts of the only candidate once it has decided so many calls.
pub(crate) async fn after(limiter: &Limiter, calls: u64) -> CandidateStats {
    until("the candidate's decisions", async || {
        let stats = limiter.overrides().candidates().pop()?;
        (stats.calls >= calls).then_some(stats)
    })
    .await
}

/// Returns the refused, the newly refused and the newly admitted calls of exactly so many.
pub(crate) async fn counts(limiter: &Limiter, calls: u64) -> (u64, u64, u64) {
    let stats = after(limiter, calls).await;
    assert_eq!(stats.calls, calls);
    (stats.refused, stats.newly_refused, stats.newly_admitted)
}

/// Returns the caller as the only candidate counts it.
fn tried(limiter: &Limiter, user: &str) -> Caller {
    let stats = limiter.overrides().candidates().remove(0);
    Caller::from(stats.generation).and(user)
}

/// Returns the units that a caller has left under a limit of this threshold.
async fn left(limiter: &Limiter, name: &'static str, most: u32, user: impl Into<Caller>) -> u32 {
    let policy = Policy::sliding_window(name, MINUTE, most);
    limiter.peek(&policy, user.into()).cost(0).await.unwrap().remaining()
}

#[tokio::test]
async fn a_stricter_candidate_counts_whom_it_would_refuse_and_refuses_nobody() {
    on_each_store(async |limiter| {
        limiter.overrides().candidate("tried", threshold(2)).unwrap();
        let mut admitted = 0;
        for user in ["alice", "alice", "alice", "alice", "alice", "bob"] {
            admitted += u32::from(greet(limiter, user).await.is_ok());
        }
        assert_eq!(admitted, 4);
        // The third call is refused by the candidate alone, the fourth and the fifth by both.
        assert_eq!(counts(limiter, 6).await, (3, 1, 0));
        let stats = after(limiter, 6).await;
        assert_eq!((stats.callers, stats.refused_callers), (2, 1));
        assert_eq!((&*stats.limit, &stats.what), ("tried", &threshold(2)));
        assert!(stats.since <= SystemTime::now());
        assert_eq!(left(limiter, "tried~candidate", 2, tried(limiter, "bob")).await, 1);
        assert_eq!(left(limiter, "tried", 3, "alice").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_looser_candidate_counts_whom_it_would_admit() {
    on_each_store(async |limiter| {
        limiter.overrides().candidate("tried", threshold(4)).unwrap();
        for _ in 0..5 {
            let _ = greet(limiter, "alice").await;
        }
        assert_eq!(counts(limiter, 5).await, (1, 0, 1));
        // A call above the threshold of the limit has room under that of the candidate.
        let dear = Policy::sliding_window("tried", MINUTE, 3);
        assert!(limiter.check(&dear, "bob").cost(4).await.is_err());
        assert_eq!(counts(limiter, 6).await, (1, 0, 2));
        assert!(limiter.check(&dear, "carol").cost(5).await.is_err());
        assert_eq!(counts(limiter, 7).await, (2, 0, 2));
    })
    .await;
}

#[tokio::test]
async fn calls_that_take_nothing_or_are_not_limited_are_not_tried() {
    on_each_store(async |limiter| {
        let (overrides, policy) = (limiter.overrides(), Policy::sliding_window("tried", MINUTE, 3));
        overrides.candidate("tried", threshold(1)).unwrap();
        limiter.peek(&policy, "alice").await.unwrap();
        limiter.check(&policy, "alice").cost(0).await.unwrap();
        overrides.here().set("*", Enforcement::Off).unwrap();
        greet(limiter, "alice").await.unwrap();
        overrides.here().remove("*");
        // A caller with numbers of its own, an exempt one, and one that is shut out.
        overrides.here().set(("tried", "raised"), threshold(9)).unwrap();
        overrides
            .here()
            .set(("tried", "exempt"), Override::new().enforcement(Enforcement::Off))
            .unwrap();
        overrides.here().set(("tried", "mallory"), Override::new().deny()).unwrap();
        greet(limiter, "raised").await.unwrap();
        greet(limiter, "exempt").await.unwrap();
        assert!(greet(limiter, "mallory").await.is_err());
        for user in ["alice", "raised", "exempt", "mallory"] {
            let user = tried(limiter, user);
            assert_eq!(left(limiter, "tried~candidate", 1, user).await, 1);
        }
        // In a dry run both decide.
        overrides.here().set("*", Enforcement::DryRun).unwrap();
        for _ in 0..4 {
            greet(limiter, "alice").await.unwrap();
        }
        assert_eq!(counts(limiter, 4).await, (3, 2, 0));
    })
    .await;
}

#[tokio::test]
async fn the_cost_of_a_candidate_ends_with_it() {
    on_each_store(async |limiter| {
        let overrides = limiter.overrides();
        let three_times = async |user| {
            for _ in 0..3 {
                greet(limiter, user).await.unwrap();
            }
        };
        overrides.here().set("tried", Override::new().enforcement(Enforcement::DryRun)).unwrap();
        overrides.candidate("tried", threshold(2)).unwrap();
        three_times("alice").await;
        assert_eq!(counts(limiter, 3).await, (1, 1, 0));
        let bob = tried(limiter, "bob");
        overrides.end_candidate("tried");
        assert_eq!(overrides.candidates(), []);
        let dry = Override::new().enforcement(Enforcement::DryRun);
        assert_eq!(overrides.get("tried"), Some(dry), "the rest of the override stays");
        three_times("bob").await;
        assert_eq!(left(limiter, "tried~candidate", 2, bob).await, 2);
        // Of an override that was nothing else, nothing is left.
        overrides.here().remove("tried");
        overrides.candidate("tried", threshold(2)).unwrap();
        overrides.end_candidate("tried");
        overrides.end_candidate("never tried");
        assert_eq!(overrides.list().len(), 0);
    })
    .await;
}

#[tokio::test]
async fn no_command_of_a_candidate_is_sent_once_it_has_ended() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    limiter.overrides().candidate("tried", threshold(2)).unwrap();
    greet(&limiter, "alice").await.unwrap();
    after(&limiter, 1).await;
    limiter.overrides().end_candidate("tried");
    let () = redis::cmd("FLUSHALL").query(&mut server.connection()).unwrap();
    greet(&limiter, "alice").await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.connection()).unwrap();
    assert_eq!(keys, ["ratelimit:sliding_window:tried/alice"]);
}

#[tokio::test]
async fn an_applied_candidate_decides_in_place_of_the_former_numbers() {
    on_each_store(async |limiter| {
        let overrides = limiter.overrides();
        overrides.here().set("tried", threshold(5).enforcement(Enforcement::On)).unwrap();
        overrides.candidate("tried", Override::new().tier(MINUTE, 2).tier(60 * MINUTE, 9)).unwrap();
        for _ in 0..3 {
            greet(limiter, "alice").await.unwrap();
        }
        assert_eq!(counts(limiter, 3).await, (1, 1, 0));
        overrides.apply_candidate("tried").unwrap();
        let applied = Override::new().tier(MINUTE, 2).tier(60 * MINUTE, 9);
        assert_eq!(overrides.get("tried"), Some(applied.enforcement(Enforcement::On)));
        assert_eq!(overrides.candidates(), []);
        assert!(greet(limiter, "alice").await.is_err());
        // There is none any more.
        let before = overrides.get("tried");
        overrides.apply_candidate("tried").unwrap();
        assert_eq!(overrides.get("tried"), before);
    })
    .await;
}

#[tokio::test]
async fn counts_go_on_while_the_candidate_stays_and_start_anew_with_another() {
    let limiter = Limiter::in_memory();
    let overrides = limiter.overrides();
    overrides.candidate("tried", threshold(2)).unwrap();
    greet(&limiter, "alice").await.unwrap();
    overrides.here().set("another limit", threshold(9)).unwrap();
    overrides.here().set(("tried", "bob"), threshold(9)).unwrap();
    assert_eq!(counts(&limiter, 1).await, (0, 0, 0));
    overrides.candidate("tried", threshold(1)).unwrap();
    assert_eq!(counts(&limiter, 0).await, (0, 0, 0));
    greet(&limiter, "alice").await.unwrap();
    assert_eq!(counts(&limiter, 1).await, (0, 0, 0));
    // The same one, set again, goes on.
    overrides.candidate("tried", threshold(1)).unwrap();
    greet(&limiter, "alice").await.unwrap();
    assert_eq!(counts(&limiter, 2).await, (1, 1, 0));
}

#[tokio::test]
async fn plans_are_tried_by_their_own_candidate_or_by_that_of_the_limit() {
    const FREE: Policy = Policy::sliding_window("free", MINUTE, 2);
    const PRO: Policy = Policy::sliding_window("pro", MINUTE, 4);
    const PLANS: Plans = Plans::new("tried api", "free", FREE).plan("pro", PRO);
    on_each_store(async |limiter| {
        let overrides = limiter.overrides();
        let twice = async |plan: &str, user: &str| {
            for _ in 0..2 {
                limiter.check(PLANS.of(plan), user).await.unwrap();
            }
        };
        overrides.candidate("tried api", threshold(1)).unwrap();
        twice("free", "alice").await;
        twice("pro", "bob").await;
        assert_eq!(counts(limiter, 4).await, (2, 2, 0));
        // Numbers of a plan come before those of the limit, whichever these are.
        overrides.here().set("tried api@pro", threshold(3)).unwrap();
        twice("pro", "carol").await;
        twice("free", "dave").await;
        assert_eq!(counts(limiter, 6).await, (3, 3, 0));
        overrides.candidate("tried api@pro", threshold(1)).unwrap();
        twice("pro", "erin").await;
        until("the candidate of the plan", async || {
            let stats = overrides.candidates();
            let counts: Vec<_> = stats.iter().map(|it| (&*it.limit, it.calls)).collect();
            (counts == [("tried api", 6), ("tried api@pro", 2)]).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn every_algorithm_and_a_share_that_is_left_are_tried() {
    on_each_store(async |limiter| {
        let overrides = limiter.overrides();
        for policy in [
            Policy::sliding_window("tried window", MINUTE, 10),
            Policy::sliding_window("tried weights", MINUTE, 10),
            Policy::sliding_counter("tried counter", MINUTE, 10),
            Policy::fixed_window("tried fixed", MINUTE, 10),
            Policy::token_bucket("tried bucket", MINUTE, 10),
            Policy::fixed_window("tried permits", MINUTE, 10).concurrency(9),
        ] {
            overrides.candidate(policy.name(), threshold(5)).unwrap();
            for _ in 0..2 {
                limiter.check(&policy, "alice").cost(3).await.unwrap();
            }
            // Of the candidate's units, 3 of 5 are taken, and 3 are to be left of the others.
            limiter.check(&policy, "bob").cost(3).leave(40).await.unwrap();
            limiter.check(&policy, "carol").cost(3).leave(60).await.unwrap();
            assert_eq!(counts(limiter, 4).await, (2, 2, 0), "{policy:?}");
            overrides.end_candidate(policy.name());
        }
    })
    .await;
}

#[tokio::test]
async fn calls_without_a_store_or_without_a_permit_are_not_tried() {
    let policy = Policy::sliding_window("tried", MINUTE, 3);
    let deaf = Limiter::builder().connect_lazy("redis://127.0.0.1:1/").unwrap();
    deaf.overrides().candidate("tried", threshold(2)).unwrap();
    deaf.check(&policy, "alice").on_store_error(OnStoreError::Allow).await.unwrap();
    assert!(deaf.check(&policy, "alice").on_store_error(OnStoreError::Deny).await.is_err());
    assert_eq!(counts(&deaf, 0).await, (0, 0, 0));
    assert_eq!(after(&deaf, 0).await.refused_otherwise, 1);
    // This process decides both by itself.
    deaf.check(&policy, "alice").await.unwrap();
    assert_eq!(counts(&deaf, 1).await, (0, 0, 0));

    let one = Limiter::in_memory();
    let policy = policy.concurrency(1);
    one.overrides().candidate("tried", threshold(2)).unwrap();
    let running = one.check(&policy, "alice").await.unwrap();
    assert!(one.check(&policy, "alice").await.is_err());
    drop(running);
    assert_eq!(counts(&one, 1).await, (0, 0, 0));
    assert_eq!(after(&one, 1).await.refused_otherwise, 1);
}

#[tokio::test]
async fn a_published_candidate_is_tried_and_applied_in_the_whole_fleet() {
    let server = RedisServer::start();
    let connect = async || Limiter::connect(&server.url()).await.unwrap();
    let (first, second) = (connect().await, connect().await);
    let overrides = first.overrides().by("alice");
    let tried = Override::new().candidate(threshold(2));
    overrides.fleet().set("tried", tried.clone()).await.unwrap();
    for limiter in [&first, &second] {
        until("the candidate", async || limiter.overrides().candidates().pop()).await;
    }
    // The callers' counts are those of the fleet, the answers those of each process.
    greet(&first, "alice").await.unwrap();
    after(&first, 1).await;
    greet(&second, "alice").await.unwrap();
    after(&second, 1).await;
    greet(&second, "alice").await.unwrap();
    assert_eq!(counts(&second, 2).await, (1, 1, 0));
    assert_eq!(counts(&first, 1).await, (0, 0, 0));

    let published = overrides.fleet().get("tried").await.unwrap().unwrap();
    let since = published.candidate.as_ref().unwrap().since.unwrap();
    assert!(since <= SystemTime::now());
    assert_eq!(published, Override::new().candidate(threshold(2).since(since)).by("alice"));
    overrides.fleet().set("tried", published.with_candidate_applied()).await.unwrap();
    until("the applied candidate", async || {
        let is_tried = second.overrides().candidates().len();
        (is_tried == 0 && second.overrides().get("tried").unwrap().threshold == Some(2))
            .then_some(())
    })
    .await;
    assert!(greet(&second, "alice").await.is_err());
}

#[tokio::test]
async fn a_candidate_of_a_window_has_its_start_on_redis() {
    let server = RedisServer::start();
    let limiter = Limiter::connect(&server.url()).await.unwrap();
    let fleet = limiter.overrides().fleet();
    let windows = vec![Override::new().threshold(3), Override::new().candidate(threshold(2))];
    fleet.set("tried", windows).await.unwrap();
    let written = fleet.get("tried").await.unwrap().unwrap();
    let tried = written.windows[1].candidate.as_ref().unwrap();
    assert!(tried.since.unwrap() <= SystemTime::now());
}

#[test]
fn a_candidate_is_part_of_the_text_of_an_override() {
    let since = SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_802_400_000_250);
    let what = threshold(50).candidate(threshold(20).period(MINUTE).since(since));
    let text = r#"{"threshold":50,"candidate":{"period":60,"threshold":20,"since":"2026-11-27T18:00:00.00025Z"}}"#;
    assert_eq!(what.to_string(), text);
    assert_eq!(text.parse(), Ok(what));
}

#[tokio::test]
async fn a_candidate_is_of_numbers_that_fit_its_limit() {
    let limiter = Limiter::in_memory();
    let overrides = limiter.overrides();
    let only = "`candidate` takes nothing but `period`, `threshold`, `tiers` and `burst`";
    for (numbers, why) in [
        (Override::new(), only),
        (Override::new().enforcement(Enforcement::Off), only),
        (threshold(5).concurrency(3), only),
        (threshold(5).until(SystemTime::now() + MINUTE), only),
        (threshold(5).candidate(threshold(4)), only),
        (Override::new().burst(5), "`burst` is the size of a `token_bucket`"),
        (threshold(0), "threshold"),
    ] {
        let error = overrides.candidate("tried", numbers).unwrap_err().to_string();
        assert!(error.starts_with("invalid override of rate limit `tried`: "), "{error}");
        assert!(error.contains(why), "{error}");
    }
    let of_all = overrides.candidate("*", threshold(5)).unwrap_err().to_string();
    assert!(of_all.contains("all limits together take only"), "{of_all}");
    let since = overrides.here().set("tried", threshold(5).since(SystemTime::now())).unwrap_err();
    assert!(since.to_string().contains("`since` is for candidates"), "{since}");
    let of_caller = Override::new().candidate(threshold(5));
    let of_caller = overrides.here().set(("tried", "alice"), of_caller).unwrap_err().to_string();
    assert!(of_caller.contains("`candidate` is for limits"), "{of_caller}");
    assert_eq!(overrides.list().len(), 0);
}

#[tokio::test]
async fn a_call_that_is_settled_or_given_back_is_so_under_the_candidate_as_well() {
    let (failures, wide) = (
        Policy::fixed_window("tried failures", MINUTE, 9),
        Policy::fixed_window("wide", MINUTE, 1),
    );
    on_each_store(async |limiter| {
        let overrides = limiter.overrides();
        overrides.candidate("tried failures", threshold(2)).unwrap();
        let until_left = async |user: &str, units: u32| {
            let candidate = Policy::fixed_window("tried failures~candidate", MINUTE, 2);
            until("the units of the candidate", async || {
                let peek = limiter.peek(&candidate, tried(limiter, user)).cost(0).await.unwrap();
                (peek.remaining() == units).then_some(())
            })
            .await;
        };
        // Logins that succeed do not count.
        for _ in 0..3 {
            let decision = limiter.check(&failures, "alice").await.unwrap();
            limiter.refund(&decision).await.unwrap();
            until_left("alice", 2).await;
        }
        // The first settle counts, before or after the candidate has decided.
        let decision = limiter.check(&failures, "bob").cost(2).await.unwrap();
        decision.settle(1);
        decision.clone().settle(0);
        until_left("bob", 1).await;
        // Refused by another limit.
        limiter.check(&wide, "carol").await.unwrap();
        let checks = [limiter.check(&failures, "carol"), limiter.check(&wide, "carol")];
        limiter.check_all(checks).await.unwrap_err();
        until_left("carol", 2).await;
        assert_eq!(counts(limiter, 5).await, (0, 0, 0));
    })
    .await;
}
