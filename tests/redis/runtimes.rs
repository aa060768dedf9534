//! Background work of a limiter goes on whatever the program's runtimes do: one that blocks, one that ends, and
//! threads without any.

use std::{sync::mpsc, thread, time::Duration};

use harness::{RedisServer, heat, limiter_on, patient, uncached, until, until_decided, wait_for};
use ratelimit_runtime::{Decision, Limiter, OnStoreError, Policy, RateLimitError};
use tokio::runtime::{Builder, Runtime};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const WINDOW: Policy = Policy::sliding_window("window", HOUR, 100_000);
/// Not renewed during a test.
const UPLOAD: Policy = Policy::concurrency_limit("upload", 2).concurrency_timeout(HOUR);
const UPLOADS: &str = "ratelimit:sliding_window:{ratelimit:sliding_window:upload/alice}:c";

/// Returns a runtime that runs while nothing blocks on it.
fn running() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A thread that a task blocks, until this is dropped.
struct Blocked {
    release: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Blocked {
    /// Runs the work on a runtime of one thread, and blocks that as soon as the work is done.
    fn after<T: Send + 'static>(work: impl AsyncFnOnce() -> T + Send + 'static) -> (T, Self) {
        let (done, output) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            one_thread().block_on(async {
                done.send(work().await).unwrap();
                let _ = released.recv();
            });
        });
        let output = output.recv().expect("the work is done");
        (output, Self { release: Some(release), thread: Some(thread) })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        drop(self.release.take());
        self.thread.take().map(thread::JoinHandle::join);
    }
}

async fn take(limiter: &Limiter, policy: &Policy) -> Decision {
    limiter.check(policy, "alice").await.unwrap()
}

fn held(server: &RedisServer) -> u32 {
    server.command(&format!("ZCARD {UPLOADS}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_blocked_thread_keeps_no_release_or_settle_back() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let its = limiter.clone();
    let ((), _blocked) = Blocked::after(async move || {
        // Posted on its runtime, which does nothing more.
        drop(take(&its, &UPLOAD).await);
    });
    until("its release", async || (held(&server) == 0).then_some(())).await;
    drop(take(&limiter, &UPLOAD).await);
    until("another release", async || (held(&server) == 0).then_some(())).await;
    take(&limiter, &WINDOW).await.settle(0);
    until("a settle", async || {
        let left = limiter.peek(&WINDOW, "alice").cost(0).await.unwrap().remaining();
        (left == 100_000).then_some(())
    })
    .await;
    limiter.flush().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn permits_are_renewed_while_the_thread_of_the_first_one_is_blocked() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    // Renewed each 200 ms.
    let brief = UPLOAD.concurrency_timeout(Duration::from_millis(600));
    let its = limiter.clone();
    let (first, _blocked) = Blocked::after(async move || take(&its, &brief).await);
    let second = take(&limiter, &brief).await;
    // Some timeouts long.
    let renewals = server.calls()["evalsha"] + 12;
    until("renewals", async || (server.calls()["evalsha"] >= renewals).then_some(())).await;
    assert!(first.has_permit() && second.has_permit());
    let third = limiter.check(&brief, "alice").await;
    assert!(matches!(third, Err(RateLimitError::Busy(_))), "{third:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn leases_are_exchanged_while_the_thread_that_heated_their_key_is_blocked() {
    let server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    let leased = WINDOW.named("leased").lease(SECOND);
    let its = limiter.clone();
    let (_, _blocked) = Blocked::after(async move || heat(&its, &leased).await);
    // Beyond what the first leases were for.
    for call in 0..2_000 {
        let answer = limiter.check(&leased, "alice").await;
        assert!(answer.is_ok(), "call {call}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_line_moves_while_the_thread_that_reset_it_is_blocked() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let single = Policy::token_bucket("single", HOUR, 1);
    take(&limiter, &single).await;
    let waiting = limiter.clone();
    let call =
        tokio::spawn(async move { waiting.check(&single, "alice").max_wait(2 * HOUR).await });
    until("its charge", async || {
        let peeked = limiter.peek(&single, "alice").await;
        let Err(RateLimitError::Exceeded(peeked)) = peeked else { return None };
        (peeked.retry_after() > HOUR).then_some(())
    })
    .await;
    let its = limiter.clone();
    // The call is asked anew by the runtime of the reset, which does nothing more.
    let ((), _blocked) = Blocked::after(async move || its.reset(&single, "alice").await.unwrap());
    let passed = tokio::time::timeout(20 * SECOND, call).await.expect("the reset reaches the call");
    passed.unwrap().unwrap();
}

/// The permits of one key, a call that waits for one first on a thread that is blocked, and one that waits
/// behind it.
async fn waits_behind_a_blocked_one(
    limiter: &Limiter,
    policy: Policy,
) -> (Blocked, tokio::task::JoinHandle<Decision>) {
    let waits = move |limiter: Limiter| async move {
        limiter.check(&policy, "alice").max_wait(HOUR).await.expect("a permit")
    };
    let its = limiter.clone();
    let ((), blocked) = Blocked::after(async move || {
        let first = tokio::spawn(waits(its));
        // It has arrived, and has asked in vain.
        tokio::time::sleep(SECOND / 5).await;
        assert!(!first.is_finished());
    });
    let second = tokio::spawn(waits(limiter.clone()));
    tokio::time::sleep(SECOND / 5).await;
    assert!(!second.is_finished());
    (blocked, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn permits_reach_calls_behind_one_whose_thread_is_blocked() {
    let server = RedisServer::start();
    let other = patient(&server.url()).await;
    for limiter in [Limiter::in_memory(), patient(&server.url()).await] {
        // Freed by this process, and by another one.
        let owners = [&limiter, if limiter.is_in_memory() { &limiter } else { &other }];
        for (owner, policy) in owners.into_iter().zip([UPLOAD, UPLOAD.named("video")]) {
            let held = [take(owner, &policy).await, take(owner, &policy).await];
            let (_blocked, second) = waits_behind_a_blocked_one(&limiter, policy).await;
            drop(held);
            let second = tokio::time::timeout(20 * SECOND, second).await;
            assert!(second.expect("the second permit").unwrap().has_permit());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_are_decided_while_the_thread_that_made_the_limiter_is_blocked() {
    let server = RedisServer::start();
    let url = server.url();
    let (limiter, _blocked) =
        Blocked::after(async move || limiter_on(&url, OnStoreError::Deny).await);
    // The first ones show that its connection is carried no more.
    until_decided(&limiter).await;
    for _ in 0..10 {
        take(&limiter, &WINDOW).await;
    }
    drop(take(&limiter, &UPLOAD).await);
    until("the release", async || (held(&server) == 0).then_some(())).await;
}

#[test]
fn a_decision_is_dropped_and_settled_on_a_thread_without_a_runtime() {
    let server = RedisServer::start();
    let main = running();
    let limiter = main.block_on(patient(&server.url()));
    let permit = main.block_on(take(&limiter, &UPLOAD));
    let charge = main.block_on(take(&limiter, &WINDOW));
    thread::spawn(move || {
        drop(permit);
        charge.settle(0);
    })
    .join()
    .unwrap();
    wait_for("the release", || (held(&server) == 0).then_some(()));
    wait_for("the settle", || {
        let left = main
            .block_on(limiter.peek(&WINDOW, "alice").cost(0).into_future())
            .unwrap()
            .remaining();
        (left == 100_000).then_some(())
    });
    main.block_on(limiter.flush()).unwrap();
}

#[test]
fn a_limiter_serves_one_runtime_after_the_other() {
    let server = RedisServer::start();
    let limiter = one_thread().block_on(uncached(&server.url()));
    for calls in 1..=5_u32 {
        let runtime = one_thread();
        let call = runtime.block_on(take(&limiter, &WINDOW));
        assert_eq!(call.remaining(), 100_000 - calls);
        // Posted on a runtime that ends before anything is sent.
        runtime.block_on(async { drop(take(&limiter, &UPLOAD).await) });
        drop(runtime);
        wait_for("the release", || (held(&server) == 0).then_some(()));
    }
    assert_eq!(server.clients(), 1);
}

#[test]
fn the_end_of_the_runtime_that_made_the_limiter_disturbs_no_call() {
    let server = RedisServer::start();
    let (first, second) = (running(), running());
    let limiter = first.block_on(uncached(&server.url()));
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let limiter = limiter.clone();
            second.spawn(async move {
                for _ in 0..200 {
                    take(&limiter, &WINDOW).await;
                }
            })
        })
        .collect();
    second.block_on(take(&limiter, &WINDOW));
    drop(first);
    for call in calls {
        second.block_on(call).unwrap();
    }
    second.block_on(until_decided(&limiter));
    let left =
        second.block_on(limiter.peek(&WINDOW, "alice").cost(0).into_future()).unwrap().remaining();
    assert_eq!(left, 100_000 - 1_601);
}
