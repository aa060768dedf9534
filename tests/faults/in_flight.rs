//! Calls in flight on a Redis that loses its state, its clock or its primary: how many hold a permit stays
//! within the stated bounds, and those that have lost theirs are told.

use std::time::{Duration, Instant};

use harness::{
    Clock, Cluster, DEADLINE, Event, FaultLine, InFlight, Monitor, NOTICED, PermitPromise,
    Recorder, RedisServer, Sentinels, limiter_on, until, wait_for, wall_clock,
};
use ratelimit_runtime::{Decision, Limiter, OnStoreError, Policy, RateLimitError};
use tokio::task::JoinSet;

const TIMEOUT: Duration = Duration::from_millis(600);
const PERMITS: usize = 3;
const BRIEF: Policy = Policy::concurrency_limit("brief", 3).concurrency_timeout(TIMEOUT);
/// The calls of this policy are not renewed within a test.
const LONG: Policy = Policy::concurrency_limit("long", 3);

fn key(name: &str) -> String {
    format!("ratelimit:sliding_window:{name}/0")
}

fn permits(name: &str) -> String {
    format!("ratelimit:sliding_window:{{{}}}:c", key(name))
}

async fn limiters(url: &str) -> [Limiter; 2] {
    [limiter_on(url, OnStoreError::Deny).await, limiter_on(url, OnStoreError::Deny).await]
}

/// Starts tasks that keep asking for permits, and hold them for less than a renewal or for longer than a
/// timeout.
fn load(limiters: &[Limiter; 2], recorder: &Recorder) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for limiter in limiters.iter().cycle().take(8) {
        let (limiter, recorder) = (limiter.clone(), recorder.clone());
        tasks.spawn(async move {
            loop {
                let millis = if fastrand::u8(..3) == 0 { 1_000 } else { 30 };
                let is_free = recorder.run(&limiter, &BRIEF, Duration::from_millis(millis)).await;
                tokio::time::sleep(Duration::from_millis(if is_free { 2 } else { 20 })).await;
            }
        });
    }
    tasks
}

fn count(recorder: &Recorder, event: Event) -> usize {
    recorder.records().records.iter().filter(|it| it.event == event).count()
}

async fn until_more(recorder: &Recorder, event: Event, more: usize) {
    let before = count(recorder, event);
    until("further calls", async || (count(recorder, event) >= before + more).then_some(())).await;
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap()
}

/// Returns the wall clock before and after a change of the server.
fn times_of(change: impl FnOnce()) -> (u64, u64) {
    let from = wall_clock();
    change();
    (from, wall_clock())
}

/// Returns the promise after losses that holders notice at their next renewal, a third of the timeout after
/// the one before.
fn promise(losses: &[(u64, u64)]) -> PermitPromise {
    let noticed = micros(TIMEOUT / 3 + TIMEOUT / 30 + DEADLINE + NOTICED);
    PermitPromise {
        permits: PERMITS,
        late: micros(TIMEOUT + DEADLINE + NOTICED),
        losses: losses.iter().map(|(from, to)| *from..=to + noticed).collect(),
    }
}

fn print(fault: &str, calls: &InFlight) {
    FaultLine::of(fault).with("calls in flight", calls.figures()).print();
}

async fn take_all(limiter: &Limiter, policy: &Policy) -> Vec<Decision> {
    let mut calls = Vec::new();
    for _ in 0..PERMITS {
        calls.push(until("a permit", async || limiter.check(policy, 0).await.ok()).await);
    }
    calls
}

fn is_busy(answer: &Result<Decision, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::Busy(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_flushed_database_as_many_again_hold_permits_until_the_next_renewals() {
    let server = RedisServer::start();
    let monitor = Monitor::start(&server);
    let (limiters, recorder) = (limiters(&server.url()).await, Recorder::default());
    let mut tasks = load(&limiters, &recorder);
    let mut losses = Vec::new();
    until("lost permits", async || {
        until_more(&recorder, Event::Ended, 10).await;
        losses.push(times_of(|| server.command("FLUSHALL")));
        // Until every holder has asked anew.
        tokio::time::sleep(TIMEOUT * 2).await;
        (losses.len() > 2 && count(&recorder, Event::Lost) > 0).then_some(())
    })
    .await;
    tasks.shutdown().await;
    let calls = InFlight::recorded(&[recorder.records()]);
    print("FLUSHALL under calls in flight", &calls);
    assert_eq!(calls.faults(&promise(&losses)), [""; 0]);
    assert_eq!(monitor.replay(&permits("brief"), PERMITS).faults, [""; 0]);
    assert!(calls.figures().without_permit > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_step_of_the_clock_forward_lets_more_calls_hold_permits() {
    let clock = Clock::new();
    let server = clock.server(&[]);
    let monitor = Monitor::start(&server);
    let (limiters, recorder) = (limiters(&server.url()).await, Recorder::default());
    let mut tasks = load(&limiters, &recorder);
    let mut losses = Vec::new();
    until("lost permits", async || {
        until_more(&recorder, Event::Ended, 10).await;
        losses.push(times_of(|| clock.step(&server, 600_000)));
        tokio::time::sleep(TIMEOUT * 2).await;
        clock.step(&server, -3_600_000);
        until_more(&recorder, Event::Ended, 10).await;
        // Forward again, by an hour.
        losses.push(times_of(|| clock.step(&server, 0)));
        tokio::time::sleep(TIMEOUT * 2).await;
        (count(&recorder, Event::Lost) > 0).then_some(())
    })
    .await;
    tasks.shutdown().await;
    let calls = InFlight::recorded(&[recorder.records()]);
    print("clock set forward and back under calls in flight", &calls);
    assert_eq!(calls.too_many_held(&promise(&losses)), [""; 0]);
    assert_eq!(monitor.replay(&permits("brief"), PERMITS).faults, [""; 0]);
    let ttl: i64 = server.command(&format!("PTTL {}", permits("brief")));
    assert!(ttl <= 1_600, "{ttl}");
}

#[tokio::test]
async fn a_clock_set_forward_is_told_to_holders_and_one_set_back_frees_the_permits_of_the_dead() {
    let clock = Clock::new();
    let server = clock.server(&[]);
    let [limiter, other] = limiters(&server.url()).await;
    let calls = take_all(&limiter, &BRIEF).await;
    clock.step(&server, 600_000);
    let more = take_all(&other, &BRIEF).await;
    until("the loss", async || (!calls.iter().any(Decision::has_permit)).then_some(())).await;
    assert!(more.iter().all(Decision::has_permit));
    assert!(is_busy(&limiter.check(&BRIEF, 0).await));
    drop(more);
    until("places again", async || calls.iter().all(Decision::has_permit).then_some(())).await;
    // Set back, the clock gives nobody a place beside them, unless this process stood still and renewed nothing.
    until("two timeouts in which this process ran", async || {
        clock.step(&server, -3_600_000);
        let (start, mut last) = (Instant::now(), Instant::now());
        while start.elapsed() < TIMEOUT * 2 {
            let answer = other.check(&BRIEF, 0).await;
            let stood_still = last.elapsed() > TIMEOUT / 3;
            if stood_still {
                drop(answer);
                clock.step(&server, 0);
                until("places again", async || {
                    calls.iter().all(Decision::has_permit).then_some(())
                })
                .await;
                return None;
            }
            assert!(is_busy(&answer));
            last = Instant::now();
            tokio::time::sleep(TIMEOUT / 60).await;
        }
        calls.iter().all(Decision::has_permit).then_some(())
    })
    .await;
    drop(calls);
    // Permits of a process that died before the clock was set back end after a timeout nevertheless.
    clock.step(&server, 0);
    let (now, _): (u64, u64) = server.command("TIME");
    until("the released permits", async || {
        (server.command::<u32>(&format!("ZCARD {}", permits("brief"))) == 0).then_some(())
    })
    .await;
    for id in 0..PERMITS {
        let dead = format!("ZADD {} {} {id}", permits("brief"), (now + 1) * 1_000_000);
        let _: i64 = server.command(&dead);
    }
    clock.step(&server, -3_600_000);
    assert!(is_busy(&other.check(&BRIEF, 0).await));
    let start = Instant::now();
    until("a permit of the dead", async || other.check(&BRIEF, 0).await.ok()).await;
    assert!(start.elapsed() < TIMEOUT + NOTICED, "{:?}", start.elapsed());
}

/// Kills a primary under calls in flight, some of them with permits that outlast the failover.
async fn fails_over(fault: &str, url: &str, [long, brief]: &[Policy; 2], kill: impl FnOnce()) {
    let (limiters, recorder) = (limiters(url).await, Recorder::default());
    let [limiter, other] = &limiters;
    let (held, ends) = (take_all(limiter, long).await, take_all(limiter, brief).await);
    let mut tasks = load(&limiters, &recorder);
    until_more(&recorder, Event::Ended, 20).await;
    let from = wall_clock();
    kill();
    // Nobody renews them, and those of longer bodies neither.
    until("the loss", async || (!ends.iter().any(Decision::has_permit)).then_some(())).await;
    until("the failover", async || {
        let answer = other.check(long, 0).await;
        assert!(answer.is_err(), "a permit beside those that are held");
        is_busy(&answer).then_some(())
    })
    .await;
    let to = wall_clock();
    assert!(held.iter().all(Decision::has_permit));
    until("places again", async || ends.iter().all(Decision::has_permit).then_some(())).await;
    until_more(&recorder, Event::Ended, 20).await;
    tasks.shutdown().await;
    let calls = InFlight::recorded(&[recorder.records()]);
    print(fault, &calls);
    assert_eq!(calls.too_many_held(&promise(&[(from, to)])), [""; 0]);
    drop(held);
    until("a released permit", async || other.check(long, 0).await.ok()).await;
}

/// Waits until the replica has what the primary has.
fn until_replicated(primary: &RedisServer) {
    wait_for("the replica", || (primary.command::<i64>("WAIT 1 1000") == 1).then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_sentinels_keeps_the_permits_and_ends_those_that_expire_meanwhile() {
    let mut sentinels = Sentinels::start();
    let url = sentinels.url();
    let kill = || {
        until_replicated(&sentinels.servers[0]);
        sentinels.servers[0].kill();
    };
    let policies = [LONG, BRIEF.named("brief again")];
    fails_over("sentinel: kill -9 of the primary under calls in flight", &url, &policies, kill)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_of_a_cluster_keeps_the_permits_and_ends_those_that_expire_meanwhile() {
    let mut cluster = Cluster::start();
    let (url, home) = (cluster.url(), cluster.home(&key("brief")));
    // All on one node.
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];
    let mut names = names.into_iter().filter(|name| cluster.home(&key(name)) == home);
    let policies = [LONG, BRIEF].map(|policy| policy.named(names.next().expect("names enough")));
    let kill = || {
        until_replicated(&cluster.nodes[home]);
        cluster.nodes[home].kill();
    };
    fails_over("cluster: kill -9 of a primary under calls in flight", &url, &policies, kill).await;
}
