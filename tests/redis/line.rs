//! The line of several processes on one Redis: first come, first served, by two commands for each call.

use std::time::Duration;

use harness::{RedisServer, limiter_on, unavailable, until};
use ratelimit_runtime::{Decision, Limiter, OnStoreError, Policy, RateLimitError};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const ONE_AN_HOUR: Policy = Policy::sliding_window("rare", HOUR, 1).weighted();
const RARE_KEY: &str = "ratelimit:weighted_window:rare/alice";

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

/// Waits until Redis has this many turns and charges.
async fn until_charged(server: &RedisServer, charges: usize) {
    until("the charges", async || {
        let found: usize = server.command(&format!("ZCOUNT {RARE_KEY} 0 +inf"));
        (found == charges).then_some(())
    })
    .await;
}

/// Takes the hour's unit, and starts calls that wait.
async fn waiting<const N: usize>(
    server: &RedisServer,
    limiters: [&Limiter; N],
) -> (Decision, [JoinHandle<Answer>; N]) {
    let first = limiters[0].check(&ONE_AN_HOUR, "alice").await.unwrap();
    let mut calls = Vec::new();
    for limiter in limiters {
        calls.push(arrive(limiter, ONE_AN_HOUR));
        until_charged(server, calls.len() + 1).await;
    }
    (first, calls.try_into().unwrap())
}

async fn soon(call: JoinHandle<Answer>) -> Answer {
    timeout(20 * SECOND, call).await.expect("the change reaches the call").unwrap()
}

#[tokio::test]
async fn calls_of_two_processes_pass_in_the_order_of_their_arrival() {
    let server = RedisServer::start();
    let (one, other) = (patient(&server).await, patient(&server).await);
    let policy = Policy::sliding_window("line", SECOND / 4, 1).weighted();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..8 {
        let limiter = if number % 3 == 0 { one.clone() } else { other.clone() };
        let sender = sender.clone();
        tokio::spawn(async move {
            limiter.check(&policy, "alice").max_wait(HOUR).await.unwrap();
            sender.send(number).unwrap();
        });
        until("its turn", async || {
            let found: i32 = server.command("ZCARD ratelimit:weighted_window:line/alice");
            (found > 0).then_some(())
        })
        .await;
        sleep(SECOND / 50).await;
    }
    for number in 0..8 {
        assert_eq!(receiver.recv().await, Some(number));
    }
}

#[tokio::test]
async fn a_waiting_call_takes_at_most_two_commands() {
    let server = RedisServer::start();
    let limiter = patient(&server).await;
    let policy = Policy::sliding_window("line", SECOND / 4, 4).weighted();
    limiter.check(&policy, "alice").await.unwrap();
    let before = server.calls();
    let calls: Vec<_> = (0..40).map(|_| arrive(&limiter, policy)).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let after = server.calls();
    let commands = after["evalsha"] - before["evalsha"];
    assert!((40..=80).contains(&commands), "{commands}");
}

#[tokio::test]
async fn a_reset_by_any_process_reaches_the_line() {
    let server = RedisServer::start();
    let (one, other) = (patient(&server).await, patient(&server).await);
    for resetting in [&one, &other] {
        let (_, [first, second]) = waiting(&server, [&one, &one]).await;
        resetting.reset(&ONE_AN_HOUR, "alice").await.unwrap();
        assert!(soon(first).await.unwrap().waited() > Duration::ZERO);
        // It has the turn after the first one now.
        until_charged(&server, 2).await;
        second.abort();
        until_charged(&server, 1).await;
        one.reset(&ONE_AN_HOUR, "alice").await.unwrap();
    }
}

#[tokio::test]
async fn a_refund_by_any_process_brings_the_line_nearer() {
    let server = RedisServer::start();
    let (one, other) = (patient(&server).await, patient(&server).await);
    for waits in [&one, &other] {
        let (first, [second, third]) = waiting(&server, [&one, waits]).await;
        one.refund(&first).await.unwrap();
        let second = soon(second).await.unwrap();
        // Posted, and so not awaited.
        second.settle(0);
        let third = soon(third).await.unwrap();
        one.refund(&third).await.unwrap();
        until_charged(&server, 0).await;
    }
}

#[tokio::test]
async fn calls_that_are_dropped_at_any_time_leave_no_turn_behind() {
    let server = RedisServer::start();
    let limiter = patient(&server).await;
    limiter.check(&ONE_AN_HOUR, "alice").await.unwrap();
    for _ in 0..60 {
        let call = arrive(&limiter, ONE_AN_HOUR);
        sleep(Duration::from_micros(fastrand::u64(..2_000))).await;
        call.abort();
    }
    until_charged(&server, 1).await;
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
