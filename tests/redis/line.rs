//! The line of several processes on one Redis: first come, first served, by two commands for each call.

use std::{iter::from_fn, time::Duration};

use harness::{
    Lateness, Lines, RedisServer, exceeded, limiter_on, listen, patient, ran_in_own_process,
    unavailable, uncached, until,
};
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
        Policy::sliding_window("line", period, calls),
        Policy::fixed_window("line", period, calls),
        Policy::token_bucket("line", period, calls),
    ]
}

type Answer = Result<Decision, RateLimitError>;

fn arrive(limiter: &Limiter, policy: Policy) -> JoinHandle<Answer> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.check(&policy, "alice").max_wait(HOUR * 99).await })
}

/// Waits until Redis has this many turns and charges, of which one passes in an hour.
async fn until_charged(server: &RedisServer, policy: &Policy, charges: u128) {
    let reader = uncached(&server.url()).await;
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
    // Another test may reach the event at the moment at which this one starts to listen, and disable it.
    if ran_in_own_process("line::calls_of_two_processes_pass_in_the_order_of_their_arrival") {
        return;
    }
    let (events, lateness) = (Lines::default(), Lateness::watch());
    let _listening = listen(events.clone());
    let server = RedisServer::start();
    let processes = [patient(&server.url()).await, patient(&server.url()).await];
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let (period, mut calls, mut passed) = (SECOND / 4, 0, Vec::new());
    for policy in policies(period, 1) {
        processes[0].check(&policy, "alice").await.unwrap();
        for process in [0, 1, 1, 0, 1, 1, 0] {
            let (limiter, sender, number) = (processes[process].clone(), sender.clone(), calls);
            tokio::spawn(async move {
                let decision = limiter.check(&policy, "alice").max_wait(HOUR).await.unwrap();
                sender.send((number, process, decision.waited())).unwrap();
            });
            calls += 1;
            until("its turn", async || {
                passed.extend(from_fn(|| receiver.try_recv().ok()));
                let waits = events.all().iter().filter(|it| it.contains("call waits")).count();
                let at_once = passed.iter().filter(|(.., waited)| waited.is_zero()).count();
                (waits + at_once == calls).then_some(())
            })
            .await;
        }
        while passed.len() < calls {
            passed.push(receiver.recv().await.unwrap());
        }
    }
    for process in 0..2 {
        let its = passed.iter().filter(|call| call.1 == process);
        assert!(its.is_sorted_by_key(|call| call.0), "{passed:?}");
    }
    // A process that is woken late passes its calls after their turns.
    let late = lateness.worst();
    let is_sorted = passed.is_sorted_by_key(|call| call.0);
    assert!(is_sorted || late > period / 2, "at most {late:?} late: {passed:?}");
}

#[tokio::test]
async fn a_waiting_call_takes_at_most_two_commands() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
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
    let (one, other) = (patient(&server.url()).await, patient(&server.url()).await);
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
    let (one, other) = (patient(&server.url()).await, patient(&server.url()).await);
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
    let limiter = patient(&server.url()).await;
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
async fn the_key_of_a_line_that_all_have_left_expires() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    for policy in policies(HOUR, 1) {
        let (first, [call]) = waiting(&server, [&limiter], policy).await;
        call.abort();
        until_charged(&server, &policy, 1).await;
        limiter.refund(&first).await.unwrap();
        for key in server.keys() {
            assert!(server.command::<i64>(&format!("PTTL {key}")) >= 0, "{key} stays");
        }
    }
}

#[tokio::test]
async fn a_line_whose_redis_is_lost_gets_the_answers_of_new_calls() {
    let mut server = RedisServer::start();
    let local = limiter_on(&server.url(), OnStoreError::Local).await;
    let deny = limiter_on(&server.url(), OnStoreError::Deny).await;
    let policy = Policy::sliding_window("line", 3 * SECOND, 1);
    local.check(&policy, "alice").await.unwrap();
    let calls = [local, deny].map(|limiter| {
        tokio::spawn(async move { limiter.check(&policy, "alice").max_wait(7 * SECOND).await })
    });
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
    let (one, other) = (patient(&server.url()).await, patient(&server.url()).await);
    let policy = Policy::concurrency_limit("one", 1);
    let held = one.check(&policy, "alice").await.unwrap();
    let waits = arrive(&other, policy);
    sleep(SECOND / 10).await;
    drop(held);
    assert!(soon(waits).await.unwrap().has_permit());
}
