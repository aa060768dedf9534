//! Dropped, aborted and excess calls, and runtimes that end under calls, leave nothing behind: nothing hangs,
//! and no call is counted twice.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::mpsc,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use harness::{
    DEADLINE, FaultLine, Network, Proxy, RedisServer, limiter_on, uncached, until, until_decided,
};
use ratelimit_runtime::{Limiter, OnStoreError, Policy, RateLimitError};
use tokio::runtime::{Builder, Handle};

const MINUTE: Duration = Duration::from_secs(60);
const LOG: Policy = Policy::sliding_window("log", MINUTE, 100_000);
const KEY: &str = "ratelimit:sliding_window:log/alice";

fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Runs the future until it has been pending this often, and then drops it.
async fn drop_after<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut pending = 0;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if pending == polls => Poll::Ready(None),
        Poll::Pending => {
            pending += 1;
            Poll::Pending
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_dropped_at_any_await_is_counted_once_or_not_at_all() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let limiter = uncached(&proxy.url()).await;
    limiter.check(&LOG, "alice").await.unwrap();
    let (tasks, mut finished, mut dropped) = (alive_tasks(), 1_u32, 0_u32);
    for round in 0..600 {
        match round % 100 {
            // Also during a reconnect, with and without a known script.
            0 => proxy.set(Network::ResetsAfter(random.usize(..100))),
            30 => server.command("SCRIPT FLUSH"),
            60 => proxy.set(Network::InBytes),
            _ => {}
        }
        let call = limiter.check(&LOG, "alice").into_future();
        match drop_after(call, random.usize(..4)).await {
            Some(answer) => {
                answer.unwrap();
                finished += 1;
            }
            None => dropped += 1,
        }
    }
    proxy.heal();
    until_decided(&limiter).await;
    let units: u32 = server.command(&format!("ZCOUNT {KEY} 0 +inf"));
    FaultLine::of("600 calls dropped at a random await")
        .with("finished", finished)
        .with("dropped", dropped)
        .with("counted", units)
        .print();
    assert!(dropped > 100, "{dropped}");
    assert!(finished <= units && units <= finished + dropped, "{units}");
    // A dropped call may have left its reply to a task.
    until("the end of the tasks", async || (alive_tasks() <= tasks).then_some(())).await;
    assert!(server.clients() <= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_tasks_leave_nothing_behind() {
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    limiter.check(&LOG, "warm").await.unwrap();
    let tasks = alive_tasks();
    for _ in 0..10 {
        let callers: Vec<_> = (0..100)
            .map(|caller| {
                let limiter = limiter.clone();
                tokio::spawn(async move { while limiter.check(&LOG, caller).await.is_ok() {} })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
        for caller in &callers {
            caller.abort();
        }
        for caller in callers {
            assert!(caller.await.unwrap_err().is_cancelled());
        }
    }
    limiter.check(&LOG, "after").await.unwrap();
    until("the end of the tasks", async || (alive_tasks() <= tasks).then_some(())).await;
    assert_eq!(server.clients(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_at_once_are_all_decided_on_one_connection() {
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    limiter.check(&LOG, "alice").await.unwrap();
    let tasks = alive_tasks();
    let start = Instant::now();
    let calls: Vec<_> = (0..10_000)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check(&LOG, "alice").await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    FaultLine::of("10 000 calls at once, patient")
        .after("all decided after", start.elapsed())
        .print();
    assert_eq!(server.command::<u32>(&format!("ZCOUNT {KEY} 0 +inf")), 10_001);
    until("the end of the tasks", async || (alive_tasks() <= tasks).then_some(())).await;
    assert_eq!(server.clients(), 1);
}

/// Runs ten thousand tasks at once, and returns how long they took, and their outputs.
async fn ten_thousand<T, F>(task: impl Fn() -> F) -> (Duration, Vec<T>)
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = Instant::now();
    let tasks: Vec<_> = (0..10_000).map(|_| tokio::spawn(task())).collect();
    let mut outputs = Vec::new();
    for task in tasks {
        outputs.push(task.await.unwrap());
    }
    (start.elapsed(), outputs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_to_a_stalled_server_are_all_answered_in_time() {
    let server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    limiter.check(&LOG, "alice").await.unwrap();
    let tasks = alive_tasks();
    // What it takes to start and to end so many tasks at the moment.
    let (control, _) = ten_thousand(|| tokio::time::sleep(DEADLINE)).await;
    server.signal("STOP");
    let (answered, answers) = ten_thousand(|| {
        let limiter = limiter.clone();
        async move { limiter.check(&LOG, "alice").await }
    })
    .await;
    for answer in answers {
        assert!(matches!(answer, Err(RateLimitError::Unavailable(_))), "nobody can decide");
    }
    server.signal("CONT");
    until_decided(&limiter).await;
    let units: u32 = server.command(&format!("ZCOUNT {KEY} 0 +inf"));
    FaultLine::of("10 000 calls at once to a stopped server")
        .after("all answered after", answered)
        .after("as many sleepers", control)
        .with("counted later", units - 1)
        .print();
    let tasks_alone = control.saturating_sub(DEADLINE);
    let bound = DEADLINE + Duration::from_millis(900).max(10 * tasks_alone);
    assert!(answered < bound, "{answered:?}, of sleepers {control:?}");
    assert!(units <= 10_001, "{units}");
    // A connection that was made meanwhile is carried elsewhere, if this runtime did not run.
    until("the end of the tasks", async || (alive_tasks() <= tasks).then_some(())).await;
    until("the end of old connections", async || (server.clients() == 1).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limiter_that_is_dropped_closes_its_connection_and_ends_its_task() {
    let server = RedisServer::start();
    let tasks = alive_tasks();
    let limiter = uncached(&server.url()).await;
    let clone = limiter.clone();
    limiter.check(&LOG, "alice").await.unwrap();
    drop(limiter);
    clone.check(&LOG, "alice").await.unwrap();
    assert_eq!(server.clients(), 1);
    drop(clone);
    until("the end of the connection", async || (server.clients() == 0).then_some(())).await;
    until("the end of the tasks", async || (alive_tasks() <= tasks).then_some(())).await;
    // Also one that never found its server.
    let nobody = format!("redis://127.0.0.1:{}", harness::free_port());
    let lazy = Limiter::builder().connect_lazy(&nobody).unwrap();
    drop(lazy);
    until("the end of the tasks", async || (alive_tasks() <= tasks).then_some(())).await;
}

#[test]
fn a_runtime_ends_with_calls_under_way() {
    for stalled in [true, false] {
        let server = RedisServer::start();
        let (sender, receiver) = mpsc::channel();
        let url = server.url();
        let ended = thread::spawn(move || {
            let runtime =
                Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let limiter = runtime.block_on(uncached(&url));
            for caller in 0..100 {
                let limiter = limiter.clone();
                runtime.spawn(async move { while limiter.check(&LOG, caller).await.is_ok() {} });
            }
            // Under way from here on.
            runtime.block_on(limiter.check(&LOG, "alice").into_future()).unwrap();
            sender.send(()).unwrap();
            thread::sleep(Duration::from_millis(50));
            let end = Instant::now();
            drop(runtime);
            let took = end.elapsed();
            // Outside of any runtime, and after its own.
            drop(limiter);
            took
        });
        receiver.recv().unwrap();
        if stalled {
            server.signal("STOP");
        }
        let took = ended.join().expect("no panic");
        server.signal("CONT");
        FaultLine::of(if stalled {
            "runtime ends, server stopped"
        } else {
            "runtime ends under load"
        })
        .after("ended after", took)
        .print();
        assert!(took < Duration::from_secs(1), "{took:?}");
        harness::wait_for("the end of the connection", || (server.clients() == 0).then_some(()));
    }
}

#[test]
fn a_limiter_that_outlives_its_runtime_is_decided_by_redis() {
    let server = RedisServer::start();
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let limiter = first.block_on(uncached(&server.url()));
    first.block_on(limiter.check(&LOG, "alice").into_future()).unwrap();
    drop(first);
    let decision = runtime().block_on(limiter.check(&LOG, "alice").into_future()).unwrap();
    assert_eq!(decision.remaining(), 99_998);
}
