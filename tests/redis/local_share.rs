//! While Redis is away, each process admits a share of a limit, wherever the share is written.

use std::time::Duration;

use harness::{RedisServer, until_decided};
use ratelimit_runtime::{
    DecidedBy, Limiter, LocalShare, OnStoreError, Override, Policy, RateLimitError,
    overrides::Place, rate_limit, stats,
};

const MINUTE: Duration = Duration::from_secs(60);
const TWENTY: OnStoreError = OnStoreError::local::<20>();
/// A fifth of it is rounded up to 2.
const PLAIN: Policy = Policy::sliding_window("plain", MINUTE, 7);
const SHARED: Policy = Policy::sliding_window("shared", MINUTE, 7).on_store_error(TWENTY);

/// Returns a limiter whose Redis is away: nothing listens on this port.
fn away(on_store_error: OnStoreError) -> Limiter {
    let builder = Limiter::builder().prefix("away:").on_store_error(on_store_error);
    builder.connect_lazy("redis://127.0.0.1:1").unwrap()
}

/// Returns the number of calls that are admitted.
async fn admitted(limiter: &Limiter, policy: &Policy, caller: &str) -> u32 {
    all_admitted(async || limiter.check(policy, caller).await.map(drop)).await
}

/// Calls until one is refused. Returns the number of calls before it.
async fn all_admitted(call: impl AsyncFn() -> Result<(), RateLimitError>) -> u32 {
    let mut admitted = 0;
    while admitted < 1_000 && call().await.is_ok() {
        admitted += 1;
    }
    admitted
}

#[rate_limit(name = "attribute", period = 60, threshold = 7, key = user, on_store_error = local(20), limiter = limiter)]
async fn attribute(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn the_attribute_a_policy_a_check_and_a_limiter_set_a_share_the_nearest_one_first() {
    let limiter = away(OnStoreError::Local);
    assert_eq!(all_admitted(async || attribute(&limiter, "alice").await).await, 2);
    assert_eq!(admitted(&limiter, &PLAIN, "alice").await, 7);
    assert_eq!(admitted(&limiter, &SHARED, "alice").await, 2);
    let check = async || {
        let check = limiter.check(&SHARED, "bob").on_store_error(OnStoreError::local::<50>());
        check.await.map(drop)
    };
    assert_eq!(all_admitted(check).await, 4);
    let limiter = away(OnStoreError::LocalShare(LocalShare::new(100).unwrap()));
    assert_eq!(admitted(&limiter, &PLAIN, "alice").await, 7);
    assert_eq!(admitted(&away(TWENTY), &PLAIN, "alice").await, 2);
    for percent in [0, 101, 255] {
        assert_eq!(LocalShare::new(percent), None);
    }
}

#[tokio::test]
async fn an_override_comes_before_all_the_callers_first() {
    let limiter = away(OnStoreError::Allow);
    let here = limiter.overrides().here();
    let overrides = [
        (Place::all(), "local(50)", [4, 4, 4]),
        (Place::from("shared"), "deny", [4, 0, 0]),
        (Place::from(("shared", "carol")), "local(100)", [4, 0, 7]),
    ];
    for (number, (place, answer, expected)) in overrides.into_iter().enumerate() {
        let what: Override = format!(r#"{{"on_store_error":"{answer}"}}"#).parse().unwrap();
        here.set(place, what).unwrap();
        for caller in ["alice", "carol"] {
            limiter.reset(&SHARED, caller).await.unwrap_err();
        }
        let plain = admitted(&limiter, &PLAIN, &format!("user {number}")).await;
        let of_check = async || {
            let check = limiter.check(&SHARED, "alice").on_store_error(OnStoreError::Allow);
            check.await.map(drop)
        };
        let of_alice = all_admitted(of_check).await;
        assert_eq!([plain, of_alice, admitted(&limiter, &SHARED, "carol").await], expected);
    }
    // Numbers of an override are shared out as well.
    here.set("plain", Override::new().threshold(100).on_store_error(TWENTY)).unwrap();
    assert_eq!(admitted(&limiter, &PLAIN, "dora").await, 20);
}

#[tokio::test]
async fn each_number_is_shared_out_and_a_call_of_more_than_the_share_is_denied() {
    let limiter = away(TWENTY);
    for (policy, expected) in [
        (Policy::sliding_window("a", MINUTE, 1), 1),
        (Policy::sliding_counter("b", MINUTE, 10), 2),
        (Policy::fixed_window("c", MINUTE, 11), 3),
        (Policy::token_bucket("d", MINUTE, 5).burst(20), 4),
        // One a second can no longer refuse, which is no fault while Redis is away.
        (Policy::sliding_window("e", Duration::from_secs(1), 2).tier(MINUTE, 5), 1),
    ] {
        assert_eq!(admitted(&limiter, &policy, "alice").await, expected, "{policy:?}");
    }
    let decision = limiter.check(&PLAIN, "alice").cost(2).await.unwrap();
    assert_eq!(decision.decided_by(), DecidedBy::Fallback);
    assert_eq!((decision.threshold(), decision.quota(), decision.remaining()), (2, 2, 0));
    let Err(RateLimitError::Exceeded(refused)) = limiter.check(&PLAIN, "alice").await else {
        panic!("the share is used up");
    };
    assert_eq!(refused.threshold(), 2);
    limiter.refund(&decision).await.unwrap();
    assert_eq!(limiter.peek(&PLAIN, "alice").cost(0).await.unwrap().remaining(), 2);
    let many = limiter.check(&PLAIN, "bob").cost(3).await;
    assert!(matches!(many, Err(RateLimitError::Unavailable(_))), "{many:?}");
    // A share of what a call may use.
    let left = limiter.check(&Policy::fixed_window("f", MINUTE, 100), "bob").leave(50).await;
    assert_eq!(left.unwrap().remaining(), 9);
    let flight = Policy::concurrency_limit("flight", 10);
    let mut held = Vec::new();
    while let Ok(decision) = limiter.check(&flight, "alice").await {
        held.push(decision);
    }
    assert_eq!(held.len(), 2);
}

#[tokio::test]
async fn in_memory_and_while_redis_decides_the_limit_is_whole() {
    let mut server = RedisServer::start();
    let builder = || Limiter::builder().prefix("whole:").deny_cache(0).on_store_error(TWENTY);
    assert_eq!(admitted(&builder().in_memory(), &SHARED, "alice").await, 7);
    let mut processes = Vec::new();
    for _ in 0..2 {
        let limiter = builder().deadline(Duration::from_secs(2)).connect(&server.url()).await;
        processes.push(limiter.unwrap());
    }
    assert_eq!(admitted(&processes[0], &SHARED, "alice").await, 7);
    server.kill();
    for limiter in &processes {
        assert_eq!(admitted(limiter, &SHARED, "alice").await, 2);
    }
    let share = |name| stats::snapshot().into_iter().find(|it| it.name() == name)?.local_share();
    assert_eq!(share("shared"), Some(20));
    server.restart();
    until_decided(&processes[0]).await;
    assert_eq!(admitted(&processes[0], &SHARED, "alice").await, 7);
}

#[tokio::test]
async fn units_that_were_used_of_a_lease_are_in_the_share() {
    const HOT: Policy = Policy::sliding_window("hot", MINUTE, 800)
        .lease(Duration::from_secs(6))
        .on_store_error(OnStoreError::local::<25>());
    let mut server = RedisServer::start();
    let builder = Limiter::builder().prefix("hot:").deadline(Duration::from_secs(2));
    let limiter = builder.connect(&server.url()).await.unwrap();
    let (mut of_lease, mut alone) = (0, 0);
    while of_lease < 2 {
        let decision = limiter.check(&HOT, "alice").await.unwrap();
        of_lease += u32::from(decision.decided_by() == DecidedBy::Lease);
    }
    server.kill();
    while let Ok(decision) = limiter.check(&HOT, "alice").await {
        match decision.decided_by() {
            DecidedBy::Lease => of_lease += 1,
            DecidedBy::Fallback => alone += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(of_lease + alone, 200, "{of_lease} {alone}");
}

#[tokio::test]
async fn a_call_that_leaves_a_share_leaves_it_of_few_units_too() {
    let limiter = away(TWENTY);
    for policy in [
        Policy::sliding_window("few-log", MINUTE, 10),
        Policy::sliding_counter("few-counter", MINUTE, 10),
        Policy::fixed_window("few-fixed", MINUTE, 10),
        Policy::token_bucket("few-bucket", MINUTE, 10),
        Policy::concurrency_limit("few-flight", 10),
    ] {
        // Two are the process's share, of which a fifth is one.
        let mut held = Vec::new();
        while let Ok(decision) = limiter.check(&policy, "alice").leave(20).await {
            held.push(decision);
        }
        assert_eq!(held.len(), 1, "{policy:?}");
        limiter.check(&policy, "alice").await.unwrap();
        // Of one there is nothing that such a call may use.
        let one = policy.on_store_error(OnStoreError::local::<10>());
        let refused = limiter.check(&one, "bob").leave(20).await;
        assert!(matches!(refused, Err(RateLimitError::Unavailable(_))), "{refused:?}");
        limiter.check(&one, "bob").leave(20).cost(0).await.unwrap();
        limiter.check(&one, "bob").await.unwrap();
    }
}
