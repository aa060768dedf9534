//! Overrides, resets and losses while calls wait on Redis: each call has one place, and nobody is later than
//! promised, also over several processes.

use std::time::Duration;

use harness::{RedisServer, exceeded, patient, uncached, until};
use ratelimit_runtime::{Decision, Limiter, Override, Policy, RateLimitError};
use tokio::{task::JoinHandle, time::sleep};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

type Answer = Result<Decision, RateLimitError>;

/// Returns policies of so many calls in a period.
fn policies(period: Duration, calls: u32) -> [Policy; 3] {
    [
        Policy::sliding_window("line", period, calls),
        Policy::fixed_window("line", period, calls),
        Policy::token_bucket("line", period, calls),
    ]
}

fn arrive(limiter: &Limiter, policy: Policy, max_wait: Duration) -> JoinHandle<Answer> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.check(&policy, "alice").max_wait(max_wait).await })
}

/// Waits until a call at once of so many units is refused for longer than this.
async fn until_refused(server: &RedisServer, policy: &Policy, units: u32, wait: Duration) {
    let reader = uncached(&server.url()).await;
    until("the turns", async || match reader.peek(policy, "alice").cost(units).await {
        Err(RateLimitError::Exceeded(refused)) => (refused.retry_after() > wait).then_some(()),
        _ => None,
    })
    .await;
}

fn set(limiter: &Limiter, what: Override) {
    limiter.overrides().here().set("line", what).unwrap();
}

#[tokio::test]
async fn an_override_while_calls_are_asked_anew_gives_each_one_place() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    for policy in policies(HOUR, 9) {
        limiter.check(&policy, "alice").cost(9).await.unwrap();
        let calls: Vec<_> = (0..4).map(|_| arrive(&limiter, policy, HOUR * 9)).collect();
        // Six of nine units have room after an hour, unless four calls wait.
        until_refused(&server, &policy, 6, HOUR).await;
        limiter.reset(&policy, "alice").await.unwrap();
        // Their questions are out.
        set(&limiter, Override::new().threshold(12));
        for call in calls {
            call.await.unwrap().unwrap();
        }
        limiter.flush().await.unwrap();
        limiter.overrides().here().remove("line");
        let left = uncached(&server.url()).await.peek(&policy, "alice").await.unwrap();
        // But for the unit of the peek.
        assert_eq!(left.remaining(), 4, "{policy:?}");
        limiter.reset(&policy, "alice").await.unwrap();
    }
}

#[tokio::test]
async fn an_override_while_a_lost_line_is_asked_anew_gives_each_call_one_place() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    for policy in policies(HOUR, 9) {
        limiter.check(&policy, "alice").cost(9).await.unwrap();
        let calls: Vec<_> = (0..4).map(|_| arrive(&limiter, policy, HOUR * 9)).collect();
        // Six of nine units have room after an hour, unless four calls wait.
        until_refused(&server, &policy, 6, HOUR).await;
        let () = server.command("FLUSHALL");
        // Some come while the first call asks for its turn, and some while all are asked anew.
        for round in 0..40 {
            set(&limiter, Override::new().threshold(12 + round % 2));
            sleep(SECOND / 20).await;
        }
        for call in calls {
            call.await.unwrap().unwrap();
        }
        limiter.flush().await.unwrap();
        limiter.overrides().here().remove("line");
        let left = uncached(&server.url()).await.peek(&policy, "alice").await.unwrap();
        // But for the unit of the peek.
        assert_eq!(left.remaining(), 4, "{policy:?}");
        limiter.reset(&policy, "alice").await.unwrap();
    }
}

/// Calls of two processes, each with a patience of exactly its turn in a limit of two, which is overridden.
async fn two_lines(
    server: &RedisServer,
    processes: [&Limiter; 2],
    policy: Policy,
    thresholds: &[u32],
) -> Vec<Answer> {
    let period = policy.tiers()[0].period();
    processes[0].check(&policy, "alice").cost(2).await.unwrap();
    let mut calls = Vec::new();
    for number in 0..6_u32 {
        let patience = period * (number / 2 + 1);
        calls.push(arrive(processes[usize::try_from(number % 2).unwrap()], policy, patience));
        let ahead = if number < 2 { Duration::ZERO } else { period * (number / 2 - 1) };
        until_refused(server, &policy, 1, ahead).await;
    }
    for units in thresholds {
        for process in processes {
            set(process, Override::new().threshold(*units));
            sleep(period / 20).await;
        }
    }
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn overrides_refuse_no_call_of_two_processes_that_had_a_turn() {
    let server = RedisServer::start();
    let processes = [uncached(&server.url()).await, uncached(&server.url()).await];
    let [log, window, bucket] = policies(SECOND * 2, 2);
    let lower = [1, 2, 1];
    for (policy, thresholds) in [
        (log, &[3, 2, 4][..]),
        (window, &[3, 2, 4]),
        (bucket, &[3, 2, 4]),
        // Their first turns have room.
        (log, &lower),
        (window, &lower),
    ] {
        for answer in two_lines(&server, [&processes[0], &processes[1]], policy, thresholds).await {
            answer.unwrap();
        }
        for process in &processes {
            process.overrides().here().remove("line");
        }
        processes[0].reset(&policy, "alice").await.unwrap();
    }
}

#[tokio::test]
async fn a_line_under_a_longer_period_gives_its_turns_back_before_it_asks_anew() {
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    for policy in policies(HOUR, 1) {
        limiter.check(&policy, "alice").await.unwrap();
        let calls: Vec<_> = (0..20).map(|_| arrive(&limiter, policy, HOUR * 60)).collect();
        until_refused(&server, &policy, 1, HOUR * 20).await;
        set(&limiter, Override::new().period(HOUR * 2));
        // 20 calls of two hours each, behind the first one.
        until_refused(&server, &policy, 1, HOUR * 30).await;
        sleep(SECOND / 2).await;
        let longer = Override::new().period(HOUR * 2).preview(&policy).unwrap();
        let refused = exceeded(limiter.peek(&longer, "alice").await);
        assert!(refused.retry_after() <= HOUR * 42, "{policy:?}: {:?}", refused.retry_after());
        for call in calls {
            call.abort();
        }
        limiter.overrides().here().remove("line");
        limiter.reset(&policy, "alice").await.unwrap();
    }
}

#[tokio::test]
async fn permits_that_another_process_frees_at_once_are_all_taken_at_once() {
    let server = RedisServer::start();
    let (one, other) = (patient(&server.url()).await, patient(&server.url()).await);
    let policy = Policy::concurrency_limit("ten", 10);
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(one.check(&policy, "alice").await.unwrap());
    }
    let calls: Vec<_> = (0..10).map(|_| arrive(&other, policy, SECOND * 6)).collect();
    sleep(SECOND / 10).await;
    drop(held);
    let mut held = Vec::new();
    for call in calls {
        held.push(call.await.unwrap().unwrap());
    }
    assert!(held.iter().all(Decision::has_permit));
}
