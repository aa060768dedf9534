//! A limiter stays exact under load while its Redis is disturbed: all answers and all recorded units are
//! checked against the promise.

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use harness::{
    FaultLine, History, Load, Log, Promise, RedisServer, limiter_on, until_decided, wall_clock,
};
use ratelimit_runtime::{OnStoreError, Policy};

const PERIOD: Duration = Duration::from_millis(500);
const THRESHOLD: u32 = 20;
const POLICY: Policy = Policy::sliding_window("p", PERIOD, THRESHOLD);
const CALLERS: u32 = 4;
const DISTURBED: Duration = Duration::from_secs(5);

fn promise(late: Duration, losses: Vec<RangeInclusive<u64>>) -> Promise {
    Promise {
        period: PERIOD.as_micros().try_into().unwrap(),
        threshold: THRESHOLD as usize,
        late: late.as_micros().try_into().unwrap(),
        losses,
        ..Promise::default()
    }
}

/// The load of this test, until `disturb` has returned.
async fn disturbed(
    fault: &str,
    server: &mut RedisServer,
    mut disturb: impl AsyncFnMut(&mut RedisServer, &mut fastrand::Rng),
) -> History {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    // Each caller makes several times as many calls as its limit admits.
    let load = Load::start(&limiter, POLICY, 16, CALLERS, Duration::from_millis(8));
    let end = Instant::now() + DISTURBED;
    while Instant::now() < end {
        disturb(server, &mut random).await;
    }
    until_decided(&limiter).await;
    let history = load.stop().await;
    FaultLine::of(fault)
        .with("callers get", history.answers())
        .after("slowest call", history.slowest())
        .print();
    history
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalls_flushed_scripts_and_closed_connections_cost_no_exactness() {
    let mut server = RedisServer::start();
    let mut log = Log::default();
    let stall = Duration::from_millis(250);
    let fault = "kill -STOP, SCRIPT FLUSH, CLIENT KILL at random for 5 s under 16 tasks";
    let history = disturbed(fault, &mut server, async |server, random| {
        match random.u32(..4) {
            0 => {
                server.signal("STOP");
                tokio::time::sleep(stall.mul_f64(random.f64())).await;
                server.signal("CONT");
            }
            1 => server.command("SCRIPT FLUSH"),
            2 => {
                let _: i64 = server.command("CLIENT KILL TYPE normal");
            }
            _ => {}
        }
        log.read(server, "p", CALLERS);
        // Often enough to see every unit before it leaves.
        tokio::time::sleep(PERIOD.mul_f64(random.f64() / 4.0)).await;
        log.read(server, "p", CALLERS);
    })
    .await;
    log.read(&server, "p", CALLERS);
    let promise = promise(2 * stall, Vec::new());
    assert_eq!(history.faults(&promise), [""; 0]);
    assert_eq!(history.faults_in(&log, &promise), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_costs_one_threshold_at_the_most() {
    let mut server = RedisServer::start();
    let mut losses = Vec::new();
    let fault = "kill -9 and restart again and again for 5 s under 16 tasks";
    let history = disturbed(fault, &mut server, async |server, random| {
        tokio::time::sleep(Duration::from_millis(random.u64(300..900))).await;
        let from = wall_clock();
        server.kill();
        losses.push(from..=wall_clock());
        tokio::time::sleep(Duration::from_millis(random.u64(..300))).await;
        server.restart();
    })
    .await;
    assert!(losses.len() >= 3);
    assert_eq!(history.faults(&promise(Duration::ZERO, losses)), [""; 0]);
}
