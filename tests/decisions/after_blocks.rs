//! The end of a block: the window alone decides after it, and a call that takes nothing begins none.

use std::{
    future::{Future, poll_fn},
    task::Poll,
    time::Duration,
};

use futures_util::future::join_all;
use harness::{
    Network, Proxy, RedisServer, exceeded, on_each_store, uncached, until, zone_before_noon,
};
use ratelimit_runtime::{CalendarUnit, Decision, Limiter, Override, Plans, Policy};
use tokio::task::JoinSet;

const BLOCK: Duration = Duration::from_millis(300);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// The states of windows: a policy of two units, and one of many, in each.
fn kinds() -> [[Policy; 2]; 5] {
    kinds_of([2, 10_000])
}

fn kinds_of<const N: usize>(thresholds: [u32; N]) -> [[Policy; N]; 5] {
    [
        |most| Policy::sliding_window("after-log", HOUR, most),
        |most| Policy::sliding_counter("after-counter", HOUR, most),
        |most| Policy::fixed_window("after-fixed", HOUR, most),
        |most| Policy::token_bucket("after-bucket", HOUR, most),
        |most| {
            Policy::calendar_window("after-calendar", CalendarUnit::Month, most)
                .zone(zone_before_noon())
        },
    ]
    .map(|kind| thresholds.map(|most| kind(most).block(&[BLOCK])))
}

/// Takes both units, and one more by a call that is blocked.
async fn offend(limiter: &Limiter, policy: &Policy, caller: &str) -> [Decision; 2] {
    let mut taken = Vec::new();
    for _ in 0..2 {
        taken.push(limiter.check(policy, caller).await.unwrap());
    }
    let waits = async || exceeded(limiter.check(policy, caller).await).retry_after();
    // The window has no room for longer than the block lasts.
    for _ in 0..2 {
        assert!(waits().await > 2 * BLOCK, "{policy:?}");
    }
    taken.try_into().unwrap()
}

async fn until_admitted(limiter: &Limiter, policy: &Policy, caller: &str) -> Decision {
    until("the end of the block", async || limiter.check(policy, caller).await.ok()).await
}

#[tokio::test]
async fn after_a_block_a_call_is_admitted_if_the_window_has_room() {
    for [policy, _] in kinds() {
        on_each_store(async |limiter| {
            for decision in offend(limiter, &policy, "alice").await {
                limiter.refund(&decision).await.unwrap();
            }
            let refused = exceeded(limiter.check(&policy, "alice").await);
            assert!(refused.retry_after() <= BLOCK, "{policy:?}: {refused}");
            until_admitted(limiter, &policy, "alice").await;
            limiter.check(&policy, "alice").await.unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn after_a_block_a_raised_threshold_is_in_force() {
    for [policy, _] in kinds() {
        on_each_store(async |limiter| {
            offend(limiter, &policy, "alice").await;
            let more = Override::new().threshold(10_000);
            limiter.overrides().here().set((policy.name(), "alice"), more).unwrap();
            exceeded(limiter.check(&policy, "alice").await);
            for _ in 0..3 {
                until_admitted(limiter, &policy, "alice").await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn after_a_block_an_upgraded_plan_is_in_force() {
    for [free, pro] in kinds() {
        let plans = Plans::new("after-plans", "free", free).plan("pro", pro);
        on_each_store(async |limiter| {
            offend(limiter, plans.of("free"), "alice").await;
            exceeded(limiter.check(plans.of("pro"), "alice").await);
            for _ in 0..3 {
                until_admitted(limiter, plans.of("pro"), "alice").await;
            }
        })
        .await;
    }
}

/// Without a block the refusal would be remembered for an hour.
#[tokio::test]
async fn a_remembered_refusal_ends_with_its_block() {
    let server = RedisServer::start();
    let builder = || Limiter::builder().deny_cache_ttl(HOUR).deadline(MINUTE);
    let one = builder().connect(&server.url()).await.unwrap();
    let other = builder().connect(&server.url()).await.unwrap();
    for [policy, _] in kinds() {
        let taken = offend(&one, &policy, "alice").await;
        let refused = exceeded(other.check(&policy, "alice").cost(2).await);
        assert!(refused.retry_after() > 2 * BLOCK, "{policy:?}");
        for decision in &taken {
            one.refund(decision).await.unwrap();
        }
        until_admitted(&other, &policy, "alice").await;
    }
}

/// A call that follows the advice of a refusal is admitted. So each cost has a wait of its own, also without Redis.
#[tokio::test]
async fn the_wait_in_a_block_is_that_of_the_cost() {
    let policy = Policy::token_bucket("after-costs", HOUR, 60).block(&[MINUTE]);
    on_each_store(async |limiter| {
        limiter.check(&policy, "alice").cost(60).await.unwrap();
        exceeded(limiter.check(&policy, "alice").cost(30).await);
        for (cost, minutes) in [(30, 30), (1, 1), (10, 10), (60, 60), (10, 10), (30, 30)] {
            let wait = exceeded(limiter.check(&policy, "alice").cost(cost).await).retry_after();
            assert!(wait <= minutes * MINUTE && wait + MINUTE / 2 > minutes * MINUTE, "{cost}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_that_the_window_refuses_after_a_block_is_the_next_offence() {
    let policy = Policy::sliding_window("after-again", HOUR, 1).block(&[BLOCK, DAY]);
    on_each_store(async |limiter| {
        limiter.check(&policy, "alice").await.unwrap();
        exceeded(limiter.check(&policy, "alice").await);
        until("the second block", async || {
            let refused = exceeded(limiter.check(&policy, "alice").await);
            (refused.retry_after() > HOUR).then_some(())
        })
        .await;
    })
    .await;
}

const USER: Policy = Policy::sliding_window("after-user", HOUR, 2).block(&[DAY]);
const TENANT: Policy = Policy::fixed_window("after-tenant", HOUR, 1).block(&[DAY]);

#[tokio::test]
async fn calls_that_another_limit_refuses_are_no_offence_of_the_first() {
    on_each_store(async |limiter| {
        limiter.check(&TENANT, "acme").await.unwrap();
        let checks = || [limiter.check(&USER, "alice"), limiter.check(&TENANT, "acme")];
        for refused in join_all((0..6).map(|_| limiter.check_all(checks()))).await {
            exceeded(refused);
        }
        for _ in 0..2 {
            limiter.check(&USER, "alice").await.unwrap();
        }
        exceeded(limiter.check_all(checks()).await);
        limiter.reset(&TENANT, "acme").await.unwrap();
        // What is taken in the end is an offence as ever.
        assert_eq!(exceeded(limiter.check_all(checks()).await).policy(), USER.name());
        assert!(exceeded(limiter.check(&USER, "alice").await).retry_after() > HOUR);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_that_another_limit_refuses_are_no_offence_in_any_thread() {
    const FULL: Policy = Policy::fixed_window("after-threads", HOUR, 1);
    let limiter = Limiter::in_memory();
    limiter.check(&FULL, "acme").await.unwrap();
    let mut threads = JoinSet::new();
    for _ in 0..4 {
        let limiter = limiter.clone();
        threads.spawn(async move {
            for _ in 0..20_000 {
                let checks = [limiter.check(&USER, "alice"), limiter.check(&FULL, "acme")];
                limiter.check_all(checks).await.unwrap_err();
            }
        });
    }
    threads.join_all().await;
    limiter.check(&USER, "alice").await.unwrap();
}

/// Returns a limiter that learns of each answer late, and one that does not.
async fn late_and_early(server: &RedisServer, proxy: &Proxy) -> [Limiter; 2] {
    let late = uncached(&proxy.url()).await;
    proxy.set(LATE);
    [late, uncached(&server.url()).await]
}

const LATE: Network = Network::Slow { latency: Duration::from_millis(100), jitter: Duration::ZERO };

/// Asks the first policy for units, and the tenant's for one. Both calls are dropped when Redis has decided the second
/// one, and `between` is over.
async fn drop_half_way(
    [late, early]: &[Limiter; 2],
    policy: &Policy,
    cost: u32,
    between: impl AsyncFnOnce(),
) {
    let tenant = TENANT.named(policy.name());
    let checks = [late.check(policy, "alice").cost(cost), late.check(&tenant, "acme")];
    let mut both = Box::pin(late.check_all(checks));
    until("the second charge", async || {
        let is_ready = poll_fn(|context| Poll::Ready(both.as_mut().poll(context))).await.is_ready();
        assert!(!is_ready, "the answer is late");
        early.peek(&tenant, "acme").cost(0).await.unwrap().remaining().eq(&0).then_some(())
    })
    .await;
    between().await;
}

#[tokio::test]
async fn a_dropped_call_is_no_offence_of_others() {
    let (server, one) = (RedisServer::start(), USER.block(&[2 * DAY]));
    let proxy = Proxy::start(server.port());
    let limiters = late_and_early(&server, &proxy).await;
    let early = &limiters[1];
    let offend = async || {
        assert!(exceeded(early.check(&one, "alice").await).retry_after() > DAY);
    };
    drop_half_way(&limiters, &one, 2, offend).await;
    until_admitted(early, &one, "alice").await;
}

/// A call that lacks two units is an offence, if one of them is given back.
#[tokio::test]
async fn what_is_given_back_lifts_a_block_only_if_its_call_lacked_no_more() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let limiters = late_and_early(&server, &proxy).await;
    let [late, early] = &limiters;
    for [policy] in kinds_of([4]) {
        for (cost, is_lifted) in [(2, true), (3, false)] {
            let policy = policy.block(&[DAY]).named(if is_lifted { "lifted" } else { "kept" });
            early.check(&policy, "alice").cost(2).await.unwrap();
            let exceed = async || {
                exceeded(early.check(&policy, "alice").cost(cost).await);
            };
            drop_half_way(&limiters, &policy, 1, exceed).await;
            late.flush().await.unwrap();
            let usage = early.usage(&policy, "alice").await.unwrap();
            assert_eq!(usage.tiers()[0].used(), 2, "{policy:?}");
            assert_eq!(usage.blocked_for().is_none(), is_lifted, "{policy:?}");
            early.reset(&TENANT.named(policy.name()), "acme").await.unwrap();
        }
    }
}

/// The reply to the first attempt is lost. What is sent again comes after a real offence.
#[tokio::test]
async fn what_is_given_back_twice_lifts_no_later_block() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let limiters = late_and_early(&server, &proxy).await;
    let [late, early] = &limiters;
    for [policy, _] in kinds() {
        // Both scripts are known from here on: no reply is needed for that.
        early.check(&policy.block(&[]), "warm").await.unwrap();
        let policy = policy.block(&[DAY]);
        drop_half_way(&limiters, &policy, 2, async || proxy.set(Network::LosesReplies)).await;
        until("what is given back", async || {
            let left = early.peek(&policy, "alice").cost(0).await.unwrap().remaining();
            (left == 2).then_some(())
        })
        .await;
        offend(early, &policy, "alice").await;
        proxy.set(Network::Resets);
        until("what is sent again", async || late.flush().await.ok()).await;
        proxy.set(LATE);
        let blocked = early.usage(&policy, "alice").await.unwrap().blocked_for();
        assert!(blocked > Some(HOUR), "{policy:?}");
    }
}

#[tokio::test]
async fn a_reset_under_any_plan_ends_a_block() {
    let minute = Policy::fixed_window("free", MINUTE, 1);
    let plans = Plans::new("after-reset", "free", minute.block(&[DAY])).plan("pro", minute);
    on_each_store(async |limiter| {
        for plan in ["pro", "free"] {
            limiter.check(plans.of("free"), "alice").await.unwrap();
            assert!(exceeded(limiter.check(plans.of("free"), "alice").await).retry_after() > HOUR);
            limiter.reset(plans.of(plan), "alice").await.unwrap();
        }
        limiter.check(plans.of("free"), "alice").await.unwrap();
    })
    .await;
}
