//! Permits of several processes whose calls all wait: each process gets at least half of its fair share, the place
//! of one that dies lapses, and a call that does not wait gets no permit that is claimed.

use std::{
    io::{BufRead, BufReader, Write},
    ops::RangeInclusive,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use harness::{RedisServer, patient, uncached, until};
use ratelimit_runtime::{Decision, Limiter, Policy, RateLimitError};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The permits of the caller.
const PERMITS: &str = "ratelimit:sliding_window:{ratelimit:sliding_window:shared/alice}:c";

fn policy(permits: u32) -> Policy {
    Policy::concurrency_limit("shared", permits)
}

/// Processes of 20 tasks each, whose calls wait for permits and last for 5 ms.
struct Sharers {
    processes: Vec<Child>,
    /// The number of the process of each admitted call.
    admitted: Receiver<usize>,
}

impl Sharers {
    fn start(server: &RedisServer, processes: usize, permits: u32, timeout: Duration) -> Self {
        let (sender, admitted) = channel();
        let start = |number: usize| {
            let mut process = Command::new(env!("CARGO_BIN_EXE_sharer"))
                .args([&server.url(), &permits.to_string(), &timeout.as_millis().to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("the program starts");
            let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
            lines.next().expect("it is connected").unwrap();
            let sender = sender.clone();
            thread::spawn(move || lines.map_while(Result::ok).all(|_| sender.send(number).is_ok()));
            process
        };
        let mut processes: Vec<_> = (0..processes).map(start).collect();
        for process in &mut processes {
            process.stdin.take().unwrap().write_all(b"\n").unwrap();
        }
        let sharers = Self { processes, admitted };
        // Until all have begun.
        let mut calls = vec![0; sharers.processes.len()];
        while calls.contains(&0) {
            calls[sharers.admitted.recv().unwrap()] += 1;
        }
        sharers
    }

    /// Returns the numbers of calls of each process among the next admitted ones.
    fn shares(&self, calls: usize) -> Vec<usize> {
        let mut shares = vec![0; self.processes.len()];
        for number in self.admitted.iter().take(calls) {
            shares[number] += 1;
        }
        shares
    }

    fn kill(&mut self, number: usize) {
        self.processes[number].kill().unwrap();
        self.processes[number].wait().unwrap();
    }
}

impl Drop for Sharers {
    fn drop(&mut self) {
        (0..self.processes.len()).for_each(|number| self.kill(number));
    }
}

fn assert_fair(shares: &[usize]) {
    let half = shares.iter().sum::<usize>() / (2 * shares.len());
    assert!(shares.iter().all(|share| *share >= half), "{shares:?}");
}

#[test]
fn two_processes_share_four_permits() {
    let server = RedisServer::start();
    let sharers = Sharers::start(&server, 2, 4, MINUTE);
    assert_fair(&sharers.shares(1_000));
}

#[test]
fn eight_processes_take_turns_with_one_permit_by_few_commands() {
    let server = RedisServer::start();
    let sharers = Sharers::start(&server, 8, 1, MINUTE);
    let before = server.calls();
    let calls = sharers.shares(800);
    let after = server.calls();
    assert_fair(&calls);
    let commands = after["evalsha"] - before["evalsha"];
    println!("800 calls of eight processes: {calls:?}, {commands} scripts");
    // Each takes a permit, and mostly the next one asks in vain.
    assert!(commands < 4 * 800, "{commands}");
}

#[tokio::test]
async fn the_places_of_processes_that_are_killed_lapse() {
    let server = RedisServer::start();
    let mut sharers = Sharers::start(&server, 4, 1, SECOND);
    sharers.kill(0);
    sharers.kill(1);
    // Those of their calls that are still to be read.
    while sharers.shares(100)[..2] != [0, 0] {}
    let calls = sharers.shares(400);
    assert_fair(&calls[2..]);
    wait_for_claims(&server, 0..=2).await;
}

#[tokio::test]
async fn permits_that_are_free_are_all_taken_by_calls_that_ask_one_after_the_other() {
    let server = RedisServer::start();
    let (one, other) = (patient(&server.url()).await, patient(&server.url()).await);
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(one.check(&policy(10), "alice").await.unwrap());
    }
    let call = || {
        let limiter = other.clone();
        tokio::spawn(async move {
            limiter.check(&policy(10), "alice").max_wait(MINUTE).await.expect("a permit")
        })
    };
    let calls: Vec<_> = (0..10).map(|_| call()).collect();
    // The first one has asked in vain.
    wait_for_claims(&server, 1..=1).await;
    drop(held);
    one.flush().await.unwrap();
    let before = server.calls()["evalsha"];
    let mut held = Vec::new();
    for call in calls {
        held.push(call.await.unwrap());
    }
    assert!(held.iter().all(Decision::has_permit));
    // None asks in vain, but for one that was under way.
    let asked = server.calls()["evalsha"] - before;
    assert!(asked <= 11, "{asked} commands for 10 permits");
}

/// Waits until so many processes have a claim.
async fn wait_for_claims(server: &RedisServer, number: RangeInclusive<u32>) {
    until("the claims", async || {
        number.contains(&server.command(&format!("ZCOUNT {PERMITS} -inf (0"))).then_some(())
    })
    .await;
}

async fn is_busy(limiter: &Limiter) -> bool {
    matches!(limiter.check(&policy(1), "alice").await, Err(RateLimitError::Busy(_)))
}

/// Adds the claim of a process that is killed then, which holds so many permits, for 3 s.
fn plant_claim(server: &RedisServer, process: u32, held: u32) {
    let (now, _): (u64, u64) = server.command("TIME");
    let mut claim = redis::cmd("ZADD");
    claim.arg(PERMITS).arg(format!("-{now}000000"));
    claim.arg(format!("w{process} {held} 0 {}000000", now + 3));
    claim.exec(&mut server.connection()).unwrap();
}

#[tokio::test]
async fn a_permit_that_is_claimed_is_left_by_calls_that_do_not_wait_until_the_claim_is_void() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    plant_claim(&server, 7, 0);
    assert!(is_busy(&limiter).await);
    until("a permit", async || (!is_busy(&limiter).await).then_some(())).await;
}

#[tokio::test]
async fn a_renewal_of_a_permit_that_is_gone_leaves_the_claims_of_others() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let held = limiter.check(&policy(1).concurrency_timeout(SECOND), "alice").await.unwrap();
    plant_claim(&server, 7, 0);
    let () = server.command(&format!("ZREMRANGEBYSCORE {PERMITS} (0 +inf"));
    let count = |range| server.command::<u32>(&format!("ZCOUNT {PERMITS} {range}"));
    until("the renewal", async || (count("(0 +inf") == 1).then_some(())).await;
    assert_eq!(count("-inf (0"), 1);
    assert!(held.has_permit());
}

#[tokio::test]
async fn the_claims_of_a_hundred_processes_take_no_permit() {
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    // All of them have one already.
    (0..100).for_each(|process| plant_claim(&server, process, 1));
    let call = limiter.check(&policy(1), "alice").max_wait(MINUTE).await;
    let waited = call.unwrap().waited();
    assert!(waited.is_zero(), "{waited:?}");
}
