//! Permits of several processes whose calls all wait: each process gets at least half of its fair share, and a
//! call that does not wait gets none that is claimed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use harness::{RedisServer, patient, until};
use ratelimit_runtime::{Limiter, Policy, RateLimitError};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const MILLI: Duration = Duration::from_millis(1);

fn policy(permits: u32) -> Policy {
    Policy::concurrency_limit("shared", permits)
}

/// Returns the numbers of calls of so many processes, each with 20 tasks whose calls wait, and last for `body`.
async fn shares(processes: usize, permits: u32, body: Duration, lasts: Duration) -> Vec<u32> {
    let server = RedisServer::start();
    let (mut tasks, mut counts) = (JoinSet::new(), Vec::new());
    let ends = Instant::now() + lasts;
    for _ in 0..processes {
        let (limiter, count) = (patient(&server.url()).await, Arc::new(AtomicU32::new(0)));
        for _ in 0..20 {
            let (limiter, count) = (limiter.clone(), Arc::clone(&count));
            tasks.spawn(async move {
                while Instant::now() < ends {
                    let call = limiter.check(&policy(permits), "alice").max_wait(MINUTE).await;
                    sleep(body).await;
                    drop(call.unwrap());
                    count.fetch_add(u32::from(Instant::now() < ends), Ordering::Relaxed);
                }
            });
        }
        counts.push(count);
    }
    sleep(lasts).await;
    tasks.shutdown().await;
    counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

fn assert_fair(shares: &[u32]) {
    let half = shares.iter().sum::<u32>() / u32::try_from(2 * shares.len()).unwrap();
    assert!(shares.iter().all(|share| *share >= half), "{shares:?}");
}

#[tokio::test]
async fn two_processes_share_four_permits() {
    assert_fair(&shares(2, 4, 5 * MILLI, 5 * SECOND).await);
}

#[tokio::test]
async fn three_processes_take_turns_with_one_permit() {
    assert_fair(&shares(3, 1, 5 * MILLI, 12 * SECOND).await);
}

async fn is_busy(limiter: &Limiter) -> bool {
    matches!(limiter.check(&policy(1), "alice").await, Err(RateLimitError::Busy(_)))
}

#[tokio::test]
async fn a_permit_that_is_claimed_is_left_by_calls_that_do_not_wait_until_the_claim_is_void() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    // The claim of a process that is killed then.
    let (now, _): (u64, u64) = server.command("TIME");
    let mut claim = redis::cmd("ZADD");
    claim.arg("ratelimit:sliding_window:{ratelimit:sliding_window:shared/alice}:c");
    claim.arg(format!("-{now}000000")).arg(format!("w7 0 0 {}000000", now + 3));
    claim.exec(&mut server.connection()).unwrap();
    assert!(is_busy(&limiter).await);
    until("a permit", async || (!is_busy(&limiter).await).then_some(())).await;
}
