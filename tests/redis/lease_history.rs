//! Histories of units on lease: several limiters at random demand, of which some end. No real window has more
//! units than the threshold.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use harness::{
    Call, History, Outcome, Promise, RedisServer, call_at_once, heat, patient, wall_clock,
};
use ratelimit_runtime::{Limiter, Policy, RateLimitError};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(200);
const MICROS: u64 = 200_000;
const LEASE: Duration = Duration::from_millis(20);
const THRESHOLD: usize = 400;

/// Calls at random times until the end, and records the answers. The demand changes, and some units are
/// given back.
async fn call(limiter: Limiter, policy: Policy, ends: Instant, calls: Arc<Mutex<Vec<Call>>>) {
    let mut pause = Duration::ZERO;
    while Instant::now() < ends {
        if fastrand::u32(..50) == 0 {
            pause = Duration::from_micros(fastrand::u64(..8_000));
        }
        let cost = [1, 1, 1, 2, 5][fastrand::usize(..5)];
        let asked = wall_clock();
        let answer = limiter.check(&policy, "hot").cost(cost).await;
        let answered = wall_clock();
        let outcome = match answer {
            Ok(decision) => {
                if fastrand::u32(..20) == 0 {
                    // The units were not used.
                    limiter.refund(&decision).await.unwrap();
                    continue;
                }
                Outcome::Admitted
            }
            Err(RateLimitError::Exceeded(_)) => Outcome::Refused,
            Err(error) => panic!("{error}"),
        };
        let (cost, settled) = (usize::try_from(cost).unwrap(), None);
        let call = Call { caller: 0, asked, answered, outcome, cost, settled };
        calls.lock().unwrap().push(call);
        sleep(pause).await;
    }
}

/// Runs a process with tasks that call until the end. A shorter one ends in the middle of a lease.
fn process(
    url: String,
    policy: Policy,
    lasts: Duration,
    calls: Arc<Mutex<Vec<Call>>>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let limiter = patient(&url).await;
            let ends = Instant::now() + lasts;
            let tasks: Vec<_> = (0..4)
                .map(|_| tokio::spawn(call(limiter.clone(), policy, ends + SECOND, calls.clone())))
                .collect();
            tokio::time::sleep_until(ends).await;
            drop(tasks);
        });
        runtime.shutdown_background();
    })
}

/// Returns the calls of four processes, of which two end early and one starts late, and what `watch` returns
/// every millisecond meanwhile.
fn history<T: Send + 'static>(
    policy: Policy,
    watch: impl Fn(&RedisServer) -> T + Send + 'static,
) -> (Vec<Call>, Vec<T>) {
    let server = RedisServer::start();
    let (url, calls) = (server.url(), Arc::default());
    let is_over = Arc::new(AtomicBool::new(false));
    let watcher = {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            let mut seen = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                seen.push(watch(&server));
                thread::sleep(Duration::from_millis(1));
            }
            seen
        })
    };
    let start = |lasts| process(url.clone(), policy, lasts, Arc::clone(&calls));
    let first = [3 * SECOND, 2 * SECOND, SECOND].map(start);
    thread::sleep(SECOND);
    let late = start(2 * SECOND);
    first.into_iter().chain([late]).for_each(|process| process.join().unwrap());
    is_over.store(true, Ordering::Relaxed);
    let seen = watcher.join().unwrap();
    let calls = std::mem::take(&mut *calls.lock().unwrap());
    (calls, seen)
}

/// Returns the admitted calls by the times of their answers.
fn admitted(calls: &[Call]) -> Vec<Call> {
    let mut admitted = calls.to_vec();
    admitted.retain(|call| call.outcome == Outcome::Admitted);
    admitted.sort_by_key(|call| call.answered);
    assert!(admitted.len() > 100, "{}", admitted.len());
    admitted
}

/// Returns the units that were certainly used in this time.
fn used(admitted: &[Call], from: u64, to: u64) -> usize {
    let within = admitted.iter().filter(|call| call.asked >= from && call.answered < to);
    within.map(|call| call.cost).sum()
}

#[test]
fn no_window_of_a_sliding_window_has_more_than_the_threshold() {
    let policy = Policy::sliding_window("hot", PERIOD, 400).lease(LEASE);
    let (calls, _) = history(policy, |_| ());
    let promise = Promise { period: MICROS, threshold: THRESHOLD, ..Promise::default() };
    admitted(&calls);
    let units = calls.iter().flat_map(|call| vec![Call { cost: 1, ..*call }; call.cost]);
    assert_eq!(History::new(units.collect()).overfull_windows(&promise), Vec::<String>::new());
}

#[test]
fn no_window_of_a_fixed_window_has_more_than_the_threshold() {
    let policy = Policy::fixed_window("hot", PERIOD, 400).lease(LEASE);
    let (calls, mut starts) = history(policy, |server| {
        let state: Option<String> = server.command("GET ratelimit:fixed_window:hot/hot");
        state.map(|state| state.split(' ').nth(4).unwrap().parse::<u64>().unwrap())
    });
    let admitted = admitted(&calls);
    starts.dedup();
    assert!(starts.len() > 5, "{starts:?}");
    for start in starts.into_iter().flatten() {
        let used = used(&admitted, start, start + MICROS);
        assert!(used <= THRESHOLD, "{used} in the window from {start}");
    }
}

#[test]
fn a_sliding_counter_admits_each_use_at_its_time() {
    let policy = Policy::sliding_counter("hot", PERIOD, 400).lease(LEASE);
    let (calls, _) = history(policy, |_| ());
    let admitted = admitted(&calls);
    for call in &admitted {
        let start = call.asked - call.asked % MICROS;
        if call.answered >= start + MICROS {
            continue;
        }
        // Those that were certainly used before, and the least weight of the earlier window.
        let previous = used(&admitted, start - MICROS, start);
        let current = used(&admitted, start, call.asked);
        let left = usize::try_from(start + MICROS - call.answered).unwrap();
        let weight = previous * left / usize::try_from(MICROS).unwrap() + current + call.cost;
        assert!(weight <= THRESHOLD, "{weight} of {call:?}");
    }
}

#[test]
fn a_token_bucket_has_no_more_than_its_burst_and_what_is_refilled() {
    for burst in [60, 400] {
        let policy = Policy::token_bucket("hot", PERIOD, 400).burst(burst).lease(LEASE);
        let (calls, _) = history(policy, |_| ());
        let admitted = admitted(&calls);
        for (index, first) in admitted.iter().enumerate() {
            let mut used = 0;
            for call in &admitted[index..] {
                used += if call.asked >= first.asked { call.cost as u64 } else { 0 };
                let refilled = (call.answered - first.asked) * 400 / MICROS + 1;
                assert!(used <= u64::from(burst) + refilled, "{used} from {first:?} to {call:?}");
            }
        }
    }
}

/// One function of the limit has the lease, and another one has none.
#[tokio::test]
async fn a_bucket_with_a_lease_in_one_function_alone_has_no_more_than_its_burst() {
    const PERIOD: Duration = Duration::from_secs(12);
    const DIRECT: Policy = Policy::token_bucket("hot", PERIOD, 400);
    const LEASED: Policy = DIRECT.lease(SECOND);
    let server = RedisServer::start();
    let (leased, direct) = (patient(&server.url()).await, patient(&server.url()).await);
    let mut rounds = 0..20;
    let on_lease = loop {
        rounds.next().expect("units stay on lease");
        heat(&leased, &LEASED).await;
        // The bucket fills up while calls keep units on lease.
        let (mut left, mut full) = (0, 0);
        while full < 3 {
            call_at_once(&leased, &LEASED).await.0.unwrap();
            let now = direct.peek(&DIRECT, "alice").cost(0).await.unwrap().remaining();
            full = if now <= left { full + 1 } else { 0 };
            left = now.max(left);
            sleep(SECOND / 10).await;
        }
        // All of it is taken at once, by both.
        let start = Instant::now();
        let mut used = 0;
        let mut cost = left - 2;
        while direct.check(&DIRECT, "alice").cost(cost).await.is_ok() {
            used += cost;
            cost = 1;
        }
        let mut on_lease = 0;
        while let (Ok(_), true) = call_at_once(&leased, &LEASED).await {
            on_lease += 1;
        }
        let refilled = start.elapsed().as_secs_f64() * 400.0 / PERIOD.as_secs_f64();
        let most = 400.0 + refilled + 1.0;
        assert!(f64::from(used + on_lease) <= most, "{used} and {on_lease} of {most}");
        // On a busy machine the lease may have ended before.
        if f64::from(on_lease) > refilled + 2.0 {
            break on_lease;
        }
    };
    assert!(on_lease > 2, "{on_lease}");
}
