//! A caller who exceeds a limit is shut out, each time for longer.

use std::time::Duration;

use harness::{RedisServer, exceeded, on_each_store, until, zone_before_noon};
use ratelimit_runtime::{
    CalendarUnit, DecidedBy, Decision, Enforcement, Limiter, Override, Policy, RateLimitError,
    rate_limit,
};
use tokio::time::advance;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// One policy of each kind of state: two units, and longer blocks than any wait.
fn policies() -> [Policy; 6] {
    [
        Policy::sliding_window("block-log", HOUR, 2),
        Policy::sliding_window("block-tiers", HOUR, 2).tier(SECOND, 1),
        Policy::sliding_counter("block-counter", HOUR, 2),
        Policy::fixed_window("block-fixed", HOUR, 2),
        Policy::token_bucket("block-bucket", HOUR, 2),
        Policy::calendar_window("block-calendar", CalendarUnit::Day, 2).zone(zone_before_noon()),
    ]
    .map(|policy| policy.block(&[2 * DAY, 10 * DAY]))
}

fn invalid<T: std::fmt::Debug>(answer: Result<T, RateLimitError>) -> String {
    match answer {
        Err(RateLimitError::InvalidPolicy(error)) => error.fault().to_string(),
        other => panic!("expected an invalid policy, got {other:?}"),
    }
}

#[tokio::test]
async fn an_offence_blocks_in_every_algorithm_and_a_look_is_none() {
    for policy in policies() {
        on_each_store(async |limiter| {
            let check = async || limiter.check(&policy, "alice").await;
            for _ in 0..2 {
                check().await.unwrap();
                if policy.tiers().len() > 1 {
                    break;
                }
            }
            let peek = exceeded(limiter.peek(&policy, "alice").await);
            assert!(peek.retry_after() <= DAY, "{policy:?} blocks by a peek");
            let offence = exceeded(check().await);
            assert_eq!((offence.retry_after(), offence.remaining()), (2 * DAY, 0), "{policy:?}");
            // The refusals of a block are no offences, whatever they cost.
            for _ in 0..3 {
                let refused = exceeded(check().await);
                assert!(refused.retry_after() <= 2 * DAY, "{policy:?}");
                assert!(refused.retry_after() + MINUTE > 2 * DAY, "{policy:?}");
            }
            let peek = exceeded(limiter.peek(&policy, "alice").await);
            assert!(peek.retry_after() > DAY, "{policy:?}");
            // A call of 0 units is never refused.
            assert_eq!(limiter.peek(&policy, "alice").cost(0).await.unwrap().remaining(), 0);
            limiter.check(&policy, "alice").cost(0).await.unwrap();
            limiter.check(&policy, "bob").await.unwrap();
            limiter.reset(&policy, "alice").await.unwrap();
            // Nothing is left of it, so that the next offence is again the first one.
            while let Ok(decision) = check().await {
                assert_eq!(decision.decided_by(), DecidedBy::Store);
            }
            limiter.reset(&policy, "alice").await.unwrap();
            assert!(check().await.is_ok());
            while check().await.is_ok() {}
            assert!(exceeded(check().await).retry_after() <= 2 * DAY, "{policy:?}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn blocks_grow_and_are_forgiven_after_quiet_times() {
    const LOGIN: Policy = Policy::token_bucket("block-grow", Duration::from_millis(1), 1).block(&[
        Duration::from_secs(120),
        Duration::from_secs(600),
        Duration::from_secs(3_600),
    ]);
    let limiter = Limiter::in_memory();
    let offend = async || {
        limiter.check(&LOGIN, "alice").await.unwrap();
        exceeded(limiter.check(&LOGIN, "alice").await).retry_after()
    };
    for (quiet, expected) in [
        (Duration::ZERO, 2),
        (Duration::ZERO, 10),
        // One step is forgiven, and the offence takes it again.
        (10 * MINUTE, 10),
        (12 * MINUTE, 2),
        (Duration::ZERO, 10),
        (Duration::ZERO, 60),
        // There is none longer.
        (59 * MINUTE, 60),
        (10 * DAY, 2),
    ] {
        advance(quiet).await;
        let block = offend().await;
        assert_eq!(block, expected * MINUTE, "after {quiet:?}");
        advance(block.saturating_sub(Duration::from_micros(1))).await;
        let last = exceeded(limiter.check(&LOGIN, "alice").await);
        assert_eq!(last.retry_after(), Duration::from_micros(1));
        advance(Duration::from_micros(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocked_caller_waits_for_the_window_too() {
    const DAILY: Policy = Policy::fixed_window("block-short", DAY, 1).block(&[SECOND, MINUTE]);
    let limiter = Limiter::in_memory();
    for _ in 0..2 {
        limiter.check(&DAILY, "alice").await.unwrap();
        assert_eq!(exceeded(limiter.check(&DAILY, "alice").await).retry_after(), DAY);
        advance(SECOND / 2).await;
        let refused = exceeded(limiter.check(&DAILY, "alice").await);
        assert_eq!(refused.retry_after(), DAY.saturating_sub(SECOND / 2));
        // Who obeys is admitted, and offends no second time.
        advance(refused.retry_after()).await;
    }
}

#[tokio::test]
async fn only_a_reset_lifts_a_block() {
    const POLICY: Policy = Policy::fixed_window("block-kept", HOUR, 1).block(&[DAY]);
    on_each_store(async |limiter| {
        let check = async || limiter.check(&POLICY, "alice").await;
        let set = |what| limiter.overrides().here().set("block-kept", what).unwrap();
        let admitted: Decision = check().await.unwrap();
        exceeded(check().await);
        limiter.refund(&admitted).await.unwrap();
        assert!(exceeded(check().await).retry_after() > HOUR);
        set(Override::new().threshold(100));
        assert!(exceeded(check().await).retry_after() > HOUR);
        set(Override::new().enforcement(Enforcement::Off));
        check().await.unwrap();
        set(Override::new().enforcement(Enforcement::DryRun));
        assert!(check().await.unwrap().is_dry_run());
        limiter.overrides().here().remove("block-kept");
        assert!(exceeded(check().await).retry_after() > HOUR);
        limiter.reset(&POLICY, "alice").await.unwrap();
        check().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_blocks_without_refusing() {
    const POLICY: Policy = Policy::sliding_window("block-dry", HOUR, 1).block(&[DAY]);
    on_each_store(async |limiter| {
        let dry = Override::new().enforcement(Enforcement::DryRun);
        limiter.overrides().here().set("block-dry", dry).unwrap();
        for _ in 0..3 {
            limiter.check(&POLICY, "alice").await.unwrap();
        }
        limiter.overrides().here().remove("block-dry");
        assert!(exceeded(limiter.check(&POLICY, "alice").await).retry_after() > HOUR);
    })
    .await;
}

#[tokio::test]
async fn a_call_without_a_permit_is_no_offence() {
    const POLICY: Policy =
        Policy::sliding_window("block-flight", HOUR, 2).concurrency(1).block(&[DAY]);
    on_each_store(async |limiter| {
        let held = limiter.check(&POLICY, "alice").await.unwrap();
        for _ in 0..3 {
            let busy = limiter.check(&POLICY, "alice").await.unwrap_err();
            assert!(matches!(busy, RateLimitError::Busy(_)), "{busy}");
        }
        drop(held);
        let held =
            until("a free permit", async || limiter.check(&POLICY, "alice").await.ok()).await;
        // The permit is asked before the window, and the block before the permit.
        assert!(matches!(limiter.check(&POLICY, "alice").await, Err(RateLimitError::Busy(_))));
        drop(held);
        until("an offence", async || match limiter.check(&POLICY, "alice").await {
            Err(RateLimitError::Exceeded(refused)) => Some(refused),
            _ => None,
        })
        .await;
        assert!(exceeded(limiter.check(&POLICY, "alice").await).retry_after() > HOUR);
    })
    .await;
}

#[tokio::test]
async fn a_joint_refusal_is_an_offence_of_the_limit_that_refuses() {
    const USER: Policy = Policy::fixed_window("block-user", HOUR, 2).block(&[DAY]);
    const TENANT: Policy = Policy::fixed_window("block-tenant", HOUR, 1).block(&[WEEK]);
    on_each_store(async |limiter| {
        let checks = || [limiter.check(&USER, "alice"), limiter.check(&TENANT, "acme")];
        limiter.check_all(checks()).await.unwrap();
        for _ in 0..3 {
            let refused = exceeded(limiter.check_all(checks()).await);
            assert_eq!(refused.policy(), "block-tenant");
            assert!(refused.retry_after() > DAY);
        }
        // What the other limit gave was given back.
        assert_eq!(limiter.check(&USER, "alice").await.unwrap().remaining(), 0);
        assert!(exceeded(limiter.check(&USER, "alice").await).retry_after() > HOUR);
    })
    .await;
}

/// Plans of one limit may have a block or not: each call is answered by its own policy, also without Redis.
#[tokio::test]
async fn a_refusal_under_a_policy_with_a_block_and_one_without_it_are_two() {
    for policy in [
        Policy::sliding_window("block-plans", HOUR, 1),
        Policy::sliding_window("block-plans", HOUR, 1),
        Policy::fixed_window("block-plans", HOUR, 1),
    ] {
        on_each_store(async |limiter| {
            let refused_for = async |policy: &Policy| {
                exceeded(limiter.check(policy, "alice").await).retry_after()
            };
            limiter.check(&policy, "alice").await.unwrap();
            assert!(refused_for(&policy).await <= HOUR);
            let blocking = policy.block(&[DAY]);
            assert_eq!(refused_for(&blocking).await, DAY, "{policy:?}: an offence");
            assert!(refused_for(&policy).await <= HOUR, "{policy:?} has no block");
            assert!(refused_for(&blocking).await > HOUR, "{policy:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn what_does_not_go_with_a_block_is_invalid() {
    let limiter = Limiter::in_memory();
    let policy = Policy::sliding_window("block-invalid", HOUR, 10_000).block(&[MINUTE]);
    let check = || limiter.check(&policy, "alice");
    for (fault, argument) in [
        (invalid(check().max_wait(SECOND).await), "max_wait"),
        (invalid(check().request_id(7).await), "request_id"),
        (invalid(check().leave(20).await), "leave"),
        (invalid(limiter.pause(&policy, "alice", SECOND).await), "pause"),
    ] {
        assert!(fault.starts_with(&format!("`block` does not go with `{argument}`: ")), "{fault}");
    }
    let fault = |policy: Policy| policy.validate().unwrap_err().fault().to_string();
    let leased = fault(policy.lease(SECOND));
    assert!(leased.starts_with("`block` needs the store at each call"), "{leased}");
    let shrinking = fault(policy.block(&[MINUTE, SECOND]));
    assert_eq!(shrinking, "each length of `block` must be longer than the one before it");
    for length in [Duration::from_micros(999), 32 * DAY, Duration::MAX] {
        assert!(fault(policy.block(&[length])).starts_with("`block` must be at least 1 ms and"));
    }
    let many = fault(policy.block(&[1, 2, 3, 4, 5].map(|it| it * SECOND)));
    assert_eq!(many, "`block` has at most 4 lengths; remove this one");
    let alone = fault(Policy::concurrency_limit("block-alone", 1).block(&[MINUTE]));
    assert!(alone.starts_with("`block` needs a window"), "{alone}");
    // The lengths take the room of one tier, in any order.
    let tiers =
        |policy: Policy| (2..8).fold(policy, |policy, n| policy.tier(n * n * HOUR, 10_000 + n));
    let seven = tiers(policy);
    assert_eq!((seven.tiers().len(), seven.validate()), (7, Ok(())));
    assert_eq!(seven, tiers(policy.block(&[])).block(&[MINUTE]));
    let most = "at most 8 tiers are decided together, one fewer with a `block`; remove this one";
    let eighth = |policy: Policy| policy.tier(100 * HOUR, 10_100);
    assert_eq!(fault(eighth(seven)), most);
    let eight = eighth(tiers(policy.block(&[])));
    assert_eq!(eight.validate(), Ok(()));
    assert_eq!(fault(eight.block(&[MINUTE])), most);
    assert_eq!(eight.block(&[]), eight);
    assert_eq!(policy.block(&[]).get_block().count(), 0);
    assert!(policy.get_block().eq([MINUTE]));
}

#[tokio::test(start_paused = true)]
async fn an_attribute_blocks_for_one_length_or_several() {
    #[rate_limit(name = "block-attribute", period = "1s", threshold = 1, key = user, limiter = limiter, block = ["2m", "10m"])]
    async fn several(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
        Ok(())
    }
    #[rate_limit(threshold = most, limiter = limiter, algorithm = fixed_window, block = 90)]
    async fn one(limiter: &Limiter, most: u32) -> Result<(), RateLimitError> {
        Ok(())
    }
    let limiter = &Limiter::in_memory();
    for minutes in [2, 10, 10] {
        several(limiter, "alice").await.unwrap();
        assert_eq!(exceeded(several(limiter, "alice").await).retry_after(), minutes * MINUTE);
        advance(minutes * MINUTE).await;
    }
    one(limiter, 1).await.unwrap();
    assert_eq!(exceeded(one(limiter, 1).await).retry_after(), 90 * SECOND);
}

#[tokio::test]
async fn a_block_on_redis_is_one_of_all_processes() {
    const POLICY: Policy = Policy::sliding_window("block-fleet", SECOND, 1).block(&[HOUR, DAY]);
    const BLOCK: &str = "ratelimit:sliding_window:{ratelimit:sliding_window:block-fleet/alice}:b";
    let server = RedisServer::start();
    let [one, other] = [server.limiter().await, server.limiter().await];
    one.check(&POLICY, "alice").await.unwrap();
    assert_eq!(exceeded(one.check(&POLICY, "alice").await).retry_after(), HOUR);
    let refused = exceeded(other.check(&POLICY, "alice").await);
    assert!(refused.retry_after() + MINUTE > HOUR && refused.retry_after() <= HOUR);
    // From then on each process knows it without asking.
    let before = server.calls()["evalsha"];
    exceeded(other.check(&POLICY, "alice").await);
    assert_eq!(server.calls()["evalsha"], before);
    let kept: u64 = server.command(&format!("PTTL {BLOCK}"));
    assert!((7_100_000..7_201_000).contains(&kept), "{kept}: the block, and one length more");
    one.reset(&POLICY, "alice").await.unwrap();
    assert_eq!(server.keys(), Vec::<String>::new());
    one.check(&POLICY, "alice").await.unwrap();
}

#[tokio::test]
async fn the_refusal_of_a_look_on_redis_hides_no_offence() {
    const POLICY: Policy = Policy::fixed_window("block-look", HOUR, 1).block(&[DAY]);
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    limiter.check(&POLICY, "alice").await.unwrap();
    for _ in 0..2 {
        assert!(exceeded(limiter.peek(&POLICY, "alice").await).retry_after() <= HOUR);
    }
    assert_eq!(exceeded(limiter.check(&POLICY, "alice").await).retry_after(), DAY);
}
