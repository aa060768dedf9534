//! Calls that wait in line while a clock steps, a server is replaced, or keys are lost: all of them pass, none
//! of them long before its turn, and no more calls than that pass beside one threshold more.

use std::time::{Duration, Instant};

use harness::{
    Clock, FaultLine, Network, Proxy, RedisServer, at_once, exceeded, unavailable, uncached, until,
    wait_for,
};
use ratelimit_runtime::{Limiter, OnStoreError, Policy};
use tokio::task::JoinSet;

const PERIOD: Duration = Duration::from_millis(800);
const MINUTE: Duration = Duration::from_secs(60);
const THRESHOLD: u32 = 4;
/// The calls that wait: those of three periods.
const WAITING: u32 = 3 * THRESHOLD;
/// The most turns that come within the second in which a process notices that they are lost.
const UNNOTICED: u32 = 2 * THRESHOLD;

fn policies() -> [Policy; 4] {
    [
        Policy::sliding_window("p", PERIOD, THRESHOLD),
        Policy::sliding_counter("p", PERIOD, THRESHOLD),
        Policy::fixed_window("p", PERIOD, THRESHOLD),
        Policy::token_bucket("p", PERIOD, THRESHOLD),
    ]
}

/// Admits a threshold, lets three more wait, and hurts them. Then all pass, and so does a newcomer. Beside
/// those whom the policy admits pass at most one threshold, and so many of those that wait.
async fn survives(
    (fault, beside): (&str, u32),
    limiter: &Limiter,
    policy: Policy,
    hurt: impl FnOnce(),
) {
    let start = Instant::now();
    let mut admitted = 0;
    while limiter.check(&policy, "alice").await.is_ok() {
        admitted += 1;
    }
    let mut waiting = JoinSet::new();
    for _ in 0..WAITING {
        let call = limiter.clone();
        waiting.spawn(async move { call.check(&policy, "alice").max_wait(MINUTE).await });
    }
    until("the line", async || {
        let refused = exceeded(limiter.peek(&policy, "alice").await);
        (refused.retry_after() > PERIOD).then_some(())
    })
    .await;
    hurt();
    let (mut newcomers, hurt) = (0, Instant::now());
    while !waiting.is_empty() {
        newcomers += u32::from(limiter.check(&policy, "alice").await.is_ok());
        while let Some(answer) = waiting.try_join_next() {
            answer.unwrap().unwrap();
            admitted += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(hurt.elapsed() < MINUTE / 3, "{} calls still wait", waiting.len());
    }
    let (took, periods) = (hurt.elapsed(), start.elapsed().as_secs_f64() / PERIOD.as_secs_f64());
    until("a newcomer", async || limiter.check(&policy, "alice").await.ok()).await;
    FaultLine::of(&format!("{fault} while calls wait, {:?}", policy.algorithm()))
        .after("the last one passed after", took)
        .after("a newcomer passed after", hurt.elapsed())
        .with("admitted to those who wait and to newcomers", format!("{admitted} and {newcomers}"))
        .with("periods", format!("{periods:.1}"))
        .print();
    assert!(took > PERIOD, "a line of three periods has passed after {took:?}");
    let most = f64::from(THRESHOLD) * (periods + 1.0) + f64::from(THRESHOLD + beside);
    assert!(f64::from(admitted + newcomers) <= most, "{admitted} and {newcomers}, not {most}");
}

/// Returns these cases under each policy.
fn under_each_policy<T: Copy>(cases: impl IntoIterator<Item = T>) -> Vec<(T, Policy)> {
    let of = |case| policies().map(move |policy| (case, policy));
    cases.into_iter().flat_map(of).collect()
}

#[test]
fn a_clock_that_steps_holds_up_nobody_in_line() {
    let cases = [("clock set back an hour", -3_600_000), ("clock set forward an hour", 3_600_000)];
    at_once(under_each_policy(cases), async |((name, step), policy)| {
        let clock = Clock::new();
        let server = clock.server(&[]);
        let limiter = uncached(&server.url()).await;
        survives((name, WAITING), &limiter, policy, || clock.step(&server, step)).await;
    });
}

#[test]
fn a_failover_holds_up_nobody_in_line() {
    let cases = [
        ("failover to a replica whose clock is 30 s behind", -30_000, WAITING),
        ("failover to a replica whose clock is 30 s ahead", 30_000, WAITING),
        ("failover to a server without the last writes", 0, UNNOTICED),
    ];
    at_once(under_each_policy(cases), async |((name, ahead, beside), policy)| {
        let clock = Clock::new();
        clock.set_ahead(ahead);
        let primary = RedisServer::start();
        let other = clock.server(&["--repl-diskless-sync-delay", "0"]);
        let is_replica = ahead != 0;
        if is_replica {
            let () = primary.command("CONFIG SET repl-diskless-sync-delay 0");
            let () = other.command(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
            wait_for("the replica", || {
                let info: String = other.command("INFO replication");
                info.contains("master_link_status:up").then_some(())
            });
        }
        let proxy = Proxy::start(primary.port());
        let limiter = uncached(&proxy.url()).await;
        survives((name, beside), &limiter, policy, || {
            if is_replica {
                let _: i64 = primary.command("WAIT 1 1000");
                let () = other.command("REPLICAOF NO ONE");
            }
            proxy.lead_to(other.port());
            let _: i64 = primary.command("CLIENT KILL TYPE normal");
        })
        .await;
    });
}

#[test]
fn keys_that_are_lost_hold_up_nobody_in_line() {
    at_once(policies(), async |policy| {
        let server = RedisServer::start();
        let limiter = uncached(&server.url()).await;
        survives(("FLUSHALL", UNNOTICED), &limiter, policy, || server.command("FLUSHALL")).await;
    });
}

/// The check of a turn and the question after it share the deadline of a call that waits no longer.
#[tokio::test]
async fn a_server_that_stalls_before_a_turn_costs_a_call_its_wait_and_one_deadline() {
    const WAIT: Duration = Duration::from_millis(2_100);
    const TIMEOUT: Duration = Duration::from_secs(2);
    let policy = Policy::sliding_window("p", Duration::from_secs(2), 1);
    let server = RedisServer::start();
    let builder = Limiter::builder().deadline(TIMEOUT).on_store_error(OnStoreError::Deny);
    let limiter = builder.connect(&server.url()).await.unwrap();
    limiter.check(&policy, "alice").await.unwrap();
    let start = Instant::now();
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.check(&policy, "alice").max_wait(WAIT).await }
    });
    until("the line", async || limiter.peek(&policy, "alice").await.err()).await;
    server.signal("STOP");
    unavailable(waiting.await.unwrap());
    let took = start.elapsed();
    assert!(took < WAIT + TIMEOUT + Duration::from_millis(500), "{took:?}");
}

/// The first call of the line has learnt its new turn, and the answer that has the turns behind it is lost.
#[tokio::test]
async fn a_line_whose_turns_behind_a_pause_are_lost_on_their_way_does_not_run_through_it() {
    const PERIOD: Duration = Duration::from_secs(3);
    const PACE: Policy = Policy::sliding_window("pace", PERIOD, 1);
    const PAUSE: Duration = Duration::from_secs(8);
    /// The start of a command that asks for turns: its script's first three arguments.
    const TURNS: &str = "$1\r\n5\r\n$1\r\n0\r\n$1\r\n0\r\n";
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let other = uncached(&server.url()).await;
    let builder = Limiter::builder().deadline(Duration::from_millis(500));
    let limiter = builder.on_store_error(OnStoreError::Deny).connect(&proxy.url()).await.unwrap();
    other.check(&PACE, "all").await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        let call = limiter.clone();
        waiting.spawn(async move {
            call.check(&PACE, "all").max_wait(MINUTE).await.unwrap();
            Instant::now()
        });
    }
    until("the line", async || {
        let refused = exceeded(other.peek(&PACE, "all").await);
        (refused.retry_after() > 2 * PERIOD).then_some(())
    })
    .await;
    let connections = proxy.accepted();
    proxy.set(Network::LosesFrom(TURNS));
    let paused = Instant::now();
    other.pause(&PACE, "all", PAUSE).await.unwrap();
    until("the loss", async || (proxy.accepted() > connections).then_some(())).await;
    proxy.heal();
    let mut ends = waiting.join_all().await;
    ends.sort();
    let waits: Vec<_> = ends.iter().map(|at| at.saturating_duration_since(paused)).collect();
    assert!(waits[0] >= PAUSE && waits[1] >= PAUSE + PERIOD, "{waits:?}");
}
