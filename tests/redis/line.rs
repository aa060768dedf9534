//! The line of several processes on one Redis: first come, first served, by two commands for each call.

use std::time::Duration;

use harness::{Lines, RedisServer, exceeded, limiter_on, unavailable, until};
use ratelimit_runtime::{Decision, Limiter, OnStoreError, Policy, RateLimitError};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Returns policies of so many calls in a period.
fn policies(period: Duration, calls: u32) -> [Policy; 3] {
    [
        Policy::sliding_window("line", period, calls).weighted(),
        Policy::fixed_window("line", period, calls),
        Policy::token_bucket("line", period, calls),
    ]
}

type Answer = Result<Decision, RateLimitError>;

/// A limiter whose calls Redis decides however busy the machine is.
async fn patient(server: &RedisServer) -> Limiter {
    let builder = Limiter::builder().deadline(10 * SECOND).on_store_error(OnStoreError::Deny);
    builder.connect(&server.url()).await.unwrap()
}

fn arrive(limiter: &Limiter, policy: Policy) -> JoinHandle<Answer> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.check(&policy, "alice").max_wait(HOUR * 99).await })
}

/// Waits until Redis has this many turns and charges, of which one passes in an hour.
async fn until_charged(server: &RedisServer, policy: &Policy, charges: u128) {
    let builder = Limiter::builder().deadline(10 * SECOND).deny_cache(0);
    let reader = builder.connect(&server.url()).await.unwrap();
    until("the charges", async || {
        let found = match reader.peek(policy, "alice").await {
            Ok(_) => 0,
            refused => exceeded(refused).retry_after().as_nanos().div_ceil(HOUR.as_nanos()),
        };
        (found == charges).then_some(())
    })
    .await;
}

/// Takes the hour's unit, and starts calls that wait.
async fn waiting<const N: usize>(
    server: &RedisServer,
    limiters: [&Limiter; N],
    policy: Policy,
) -> (Decision, [JoinHandle<Answer>; N]) {
    let first = limiters[0].check(&policy, "alice").await.unwrap();
    let mut calls = Vec::new();
    for (charges, limiter) in (2..).zip(limiters) {
        calls.push(arrive(limiter, policy));
        until_charged(server, &policy, charges).await;
    }
    (first, calls.try_into().unwrap())
}

async fn soon(call: JoinHandle<Answer>) -> Answer {
    timeout(20 * SECOND, call).await.expect("the change reaches the call").unwrap()
}

#[tokio::test]
async fn calls_of_two_processes_pass_in_the_order_of_their_arrival() {
    let events = Lines::default();
    let _listening = tracing::subscriber::set_default(events.clone());
    let server = RedisServer::start();
    let (one, other) = (patient(&server).await, patient(&server).await);
    let mut waiting = 0;
    for policy in policies(SECOND / 4, 1) {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        one.check(&policy, "alice").await.unwrap();
        for number in 0..7 {
            let limiter = if number % 3 == 0 { one.clone() } else { other.clone() };
            let sender = sender.clone();
            tokio::spawn(async move {
                limiter.check(&policy, "alice").max_wait(HOUR).await.unwrap();
                sender.send(number).unwrap();
            });
            waiting += 1;
            until("its turn", async || {
                let found = events.all();
                let waits = found.iter().filter(|it| it.contains("call waits")).count();
                (waits == waiting).then_some(())
            })
            .await;
        }
        for number in 0..7 {
            assert_eq!(receiver.recv().await, Some(number), "{policy:?}");
        }
    }
}

#[tokio::test]
async fn a_waiting_call_takes_at_most_two_commands() {
    let server = RedisServer::start();
    let limiter = patient(&server).await;
    let counter = Policy::sliding_counter("line", SECOND / 4, 4);
    for policy in policies(SECOND / 4, 4).into_iter().chain([counter]) {
        limiter.check(&policy, "alice").await.unwrap();
        let before = server.calls();
        let calls: Vec<_> = (0..40).map(|_| arrive(&limiter, policy)).collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        let after = server.calls();
        let commands = after["evalsha"] - before["evalsha"];
        assert!((40..=80).contains(&commands), "{commands} under {policy:?}");
    }
}

#[tokio::test]
async fn a_reset_by_any_process_reaches_the_line() {
    let server = RedisServer::start();
    let (one, other) = (patient(&server).await, patient(&server).await);
    for policy in policies(HOUR, 1) {
        for resetting in [&one, &other] {
            let (_, [first, second]) = waiting(&server, [&one, &one], policy).await;
            resetting.reset(&policy, "alice").await.unwrap();
            assert!(soon(first).await.unwrap().waited() > Duration::ZERO);
            // It has the turn after the first one now.
            until_charged(&server, &policy, 2).await;
            second.abort();
            until_charged(&server, &policy, 1).await;
            one.reset(&policy, "alice").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_refund_by_any_process_brings_the_line_nearer() {
    let server = RedisServer::start();
    let (one, other) = (patient(&server).await, patient(&server).await);
    for policy in policies(HOUR, 1) {
        for waits in [&one, &other] {
            let (first, [second, third]) = waiting(&server, [&one, waits], policy).await;
            one.refund(&first).await.unwrap();
            let second = soon(second).await.unwrap();
            // Posted, and so not awaited.
            second.settle(0);
            let third = soon(third).await.unwrap();
            one.refund(&third).await.unwrap();
            until_charged(&server, &policy, 0).await;
        }
    }
}

#[tokio::test]
async fn calls_that_are_dropped_at_any_time_leave_no_turn_behind() {
    let server = RedisServer::start();
    let limiter = patient(&server).await;
    for policy in policies(HOUR, 1) {
        limiter.check(&policy, "alice").await.unwrap();
        for _ in 0..60 {
            let call = arrive(&limiter, policy);
            sleep(Duration::from_micros(fastrand::u64(..2_000))).await;
            call.abort();
        }
        until_charged(&server, &policy, 1).await;
    }
    limiter.flush().await.unwrap();
}

#[tokio::test]
async fn a_line_whose_redis_is_lost_gets_the_answers_of_new_calls() {
    let mut server = RedisServer::start();
    let local = limiter_on(&server.url(), OnStoreError::Local).await;
    let deny = limiter_on(&server.url(), OnStoreError::Deny).await;
    let policy = Policy::sliding_window("line", 3 * SECOND, 1).weighted();
    local.check(&policy, "alice").await.unwrap();
    let calls = [arrive(&local, policy), arrive(&deny, policy)];
    sleep(SECOND).await;
    server.kill();
    let start = Instant::now();
    let [local, deny] = calls.map(soon);
    assert!(local.await.unwrap().is_counted());
    unavailable(deny.await);
    assert!(start.elapsed() > SECOND, "their turns have not come");
}

#[tokio::test]
async fn a_permit_that_another_process_frees_goes_to_a_call_that_waits() {
    let server = RedisServer::start();
    let (one, other) = (patient(&server).await, patient(&server).await);
    let policy = Policy::concurrency_limit("one", 1);
    let held = one.check(&policy, "alice").await.unwrap();
    let waits = arrive(&other, policy);
    sleep(SECOND / 10).await;
    drop(held);
    assert!(soon(waits).await.unwrap().is_held());
}
