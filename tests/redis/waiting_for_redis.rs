//! A call that may wait also waits for Redis: an outage within its `max_wait` decides nothing, and no call is
//! charged twice.

use std::time::{Duration, Instant};

use harness::{DEADLINE, RedisServer, limiter_on, unavailable, until};
use ratelimit_runtime::{
    DecidedBy, Decision, Enforcement, Limiter, OnStoreError, Policy, RateLimitError,
};
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

type Answer = Result<Decision, RateLimitError>;

fn policies(period: Duration, calls: u32) -> [Policy; 4] {
    [
        Policy::sliding_window("p", period, calls),
        Policy::sliding_counter("p", period, calls),
        Policy::fixed_window("p", period, calls),
        Policy::token_bucket("p", period, calls),
    ]
}

fn arrive(limiter: &Limiter, policy: Policy, max_wait: Duration) -> JoinHandle<Answer> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.check(&policy, "all").max_wait(max_wait).await })
}

async fn admitted(calls: Vec<JoinHandle<Answer>>) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for call in calls {
        decisions.push(call.await.unwrap().unwrap());
    }
    decisions
}

async fn processes(server: &RedisServer) -> Vec<Limiter> {
    let mut processes = Vec::new();
    for _ in 0..4 {
        let limiter = limiter_on(&server.url(), OnStoreError::Local).await;
        limiter.check(&policies(MINUTE, 10)[0], "warm").await.unwrap();
        processes.push(limiter);
    }
    processes
}

fn all_by_redis(decisions: &[Decision]) -> bool {
    decisions.iter().all(|decision| decision.decided_by() == DecidedBy::Store)
}

#[tokio::test]
async fn a_pause_of_redis_lets_no_waiting_call_pass_beside_it() {
    let server = RedisServer::start();
    let processes = processes(&server).await;
    for policy in policies(SECOND, 10) {
        let mut calls = Vec::new();
        for paused in [false, true] {
            if paused {
                let () = server.command("CLIENT PAUSE 250 ALL");
            }
            let of_each = |limiter| (0..4).map(move |_| arrive(limiter, policy, MINUTE));
            calls.extend(processes.iter().flat_map(of_each));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(all_by_redis(&admitted(calls).await), "{policy:?}");
    }
}

#[tokio::test]
async fn a_stalled_redis_charges_no_waiting_call_twice() {
    let server = RedisServer::start();
    let processes = processes(&server).await;
    for policy in policies(999 * MINUTE, 1_000) {
        server.signal("STOP");
        let of_each = |limiter| (0..10).map(move |_| arrive(limiter, policy, MINUTE));
        let calls = processes.iter().flat_map(of_each).collect();
        tokio::time::sleep(7 * DEADLINE).await;
        server.signal("CONT");
        let decisions = admitted(calls).await;
        assert!(all_by_redis(&decisions), "{policy:?}");
        let left = until("an answer", async || {
            let peek = processes[0].peek(&policy, "all").cost(0);
            peek.on_store_error(OnStoreError::Deny).await.ok()
        });
        assert_eq!(left.await.remaining(), 1_000 - 40, "{policy:?}");
    }
}

#[tokio::test]
async fn a_waiting_call_outlasts_a_stopped_redis_also_under_deny() {
    let mut server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    server.kill();
    let policy = policies(MINUTE, 1_000)[0];
    let calls: Vec<_> = (0..20).map(|_| arrive(&limiter, policy, MINUTE)).collect();
    until("an outage", async || limiter.servers()[0].failure()).await;
    server.restart();
    assert!(all_by_redis(&admitted(calls).await));
    // Those that found the breaker closed, and one probe at a time.
    let scripts = server.calls()["evalsha"];
    assert!(scripts <= 20 + 1, "{scripts} scripts for 20 calls");
}

#[tokio::test]
async fn a_call_whose_wait_ends_without_redis_gets_the_chosen_answer() {
    let mut server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    server.kill();
    let [policy, ..] = policies(MINUTE, 1);
    let wait = 3 * DEADLINE;
    for (chosen, expected) in
        [(OnStoreError::Local, DecidedBy::Fallback), (OnStoreError::Allow, DecidedBy::Nobody)]
    {
        let start = Instant::now();
        let call = limiter.check(&policy, "all").max_wait(wait).on_store_error(chosen).await;
        let decision = call.unwrap();
        assert_eq!(decision.decided_by(), expected);
        assert!(start.elapsed() >= wait && decision.waited() >= wait, "{decision:?}");
    }
    let start = Instant::now();
    unavailable(limiter.check(&policy, "all").max_wait(wait).await);
    assert!(start.elapsed() >= wait);
    // A call that does not wait has its answer as before.
    let start = Instant::now();
    unavailable(limiter.check(&policy, "all").await);
    assert!(start.elapsed() < wait);
}

#[tokio::test]
async fn an_override_reaches_a_call_that_waits_for_redis() {
    let mut server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    server.kill();
    let call = arrive(&limiter, policies(MINUTE, 1)[0], 99 * MINUTE);
    until("an outage", async || limiter.servers()[0].failure()).await;
    limiter.overrides().here().set("*", Enforcement::Off).unwrap();
    let passed = tokio::time::timeout(MINUTE / 2, call).await.expect("the override reaches it");
    assert_eq!(passed.unwrap().unwrap().decided_by(), DecidedBy::Nobody);
}

#[tokio::test]
async fn a_dropped_call_asks_redis_no_more() {
    let mut server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    server.kill();
    let policy = policies(MINUTE, 1_000)[3];
    let calls: Vec<_> = (0..9).map(|_| arrive(&limiter, policy, 99 * MINUTE)).collect();
    until("an outage", async || limiter.servers()[0].failure()).await;
    calls.iter().for_each(JoinHandle::abort);
    for call in calls {
        call.await.unwrap_err();
    }
    server.restart();
    let left = until("an answer", async || limiter.peek(&policy, "all").cost(0).await.ok()).await;
    assert_eq!(left.remaining(), 1_000);
}

#[tokio::test]
async fn a_call_ends_with_its_wait_and_one_deadline() {
    let server = RedisServer::start();
    for (on_store_error, denies) in [(OnStoreError::Deny, true), (OnStoreError::Local, false)] {
        let builder = Limiter::builder().deadline(2 * SECOND).on_store_error(on_store_error);
        let limiter = builder.connect(&server.url()).await.unwrap();
        limiter.check(&policies(MINUTE, 10)[3], "all").await.unwrap();
        server.signal("STOP");
        let start = Instant::now();
        let answer = arrive(&limiter, policies(MINUTE, 10)[3], SECOND / 2).await.unwrap();
        server.signal("CONT");
        // Another attempt after its wait would take until 4 s.
        assert!(start.elapsed() < 7 * SECOND / 2, "{:?}", start.elapsed());
        assert_eq!(answer.is_err(), denies, "{answer:?}");
    }
}
