//! Random calls of every kind on a Redis that stands still again and again. In the end it has counted what the callers were
//! told, and nothing of calls that were refused because it did not answer.
//!
//! `RATELIMIT_LATE_SECONDS=60` runs longer than the 8 seconds of an ordinary test run.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use fastrand::Rng;
use futures_util::future::join_all;
use harness::{DEADLINE, RedisServer, limiter_on, uncached, until};
use ratelimit_runtime::{
    Decision, Enforcement, Limiter, OnStoreError, Override, Policy, RateLimitError,
    UnavailableReason, usage::TierUsage,
};

/// No units come back by themselves within a test.
const YEAR: Duration = Duration::from_secs(300 * 86_400);
const MOST: u32 = 10_000;
const CALLERS: u32 = 3;
const TASKS: usize = 12;

const LIMITS: [Policy; 13] = [
    Policy::sliding_window("window", YEAR, MOST),
    Policy::sliding_counter("counter", YEAR, MOST),
    Policy::fixed_window("fixed", YEAR, MOST),
    Policy::token_bucket("bucket", YEAR, MOST),
    Policy::sliding_window("window permits", YEAR, MOST).concurrency(500),
    Policy::sliding_counter("counter permits", YEAR, MOST).concurrency(500),
    Policy::fixed_window("fixed permits", YEAR, MOST).concurrency(500),
    Policy::token_bucket("bucket permits", YEAR, MOST).concurrency(500),
    Policy::sliding_window("tight", YEAR, 3),
    Policy::fixed_window("overridden", YEAR, MOST),
    Policy::sliding_counter("tried", YEAR, MOST),
    Policy::fixed_window("dry", YEAR, MOST),
    Policy::sliding_window("leased", YEAR, MOST).lease(Duration::from_millis(20)),
];

/// The units that each caller has been told of, under each limit.
type Told = Arc<Mutex<HashMap<(&'static str, u32), u32>>>;

#[derive(Clone)]
struct Caller {
    limiter: Limiter,
    told: Told,
    ends: Instant,
}

impl Caller {
    fn tell(&self, policy: &'static str, caller: u32, units: u32) {
        *self.told.lock().unwrap().entry((policy, caller)).or_default() += units;
    }

    /// Uses an admitted call for a moment. It may take other units then.
    async fn run(&self, decision: &Decision, caller: u32, rng: &mut Rng) {
        if !decision.is_counted() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(..30))).await;
        let mut units = decision.cost();
        if rng.bool() {
            units = rng.u32(..4);
            decision.settle(units);
        }
        self.tell(decision.policy(), caller, units);
    }

    async fn call(&self, rng: &mut Rng) {
        let caller = rng.u32(..CALLERS);
        let first = rng.usize(..LIMITS.len());
        let second = (first + rng.usize(1..LIMITS.len())) % LIMITS.len();
        let cost = rng.u32(1..4);
        let check = |limit: usize| self.limiter.check(&LIMITS[limit], caller).cost(cost);
        let answer = match rng.u8(..6) {
            0 => self.limiter.check_all([check(first), check(second)]).await.map(Vec::from),
            1 => self.limiter.check_first([check(first), check(second)]).await.map(|it| vec![it]),
            2 => {
                let max_wait = Duration::from_millis(rng.u64(1..500));
                check(first).max_wait(max_wait).await.map(|it| vec![it])
            }
            _ => check(first).await.map(|it| vec![it]),
        };
        for decision in answer.into_iter().flatten() {
            self.run(&decision, caller, rng).await;
        }
    }

    async fn call_until_the_end(self, mut rng: Rng) {
        while Instant::now() < self.ends {
            self.call(&mut rng).await;
            tokio::time::sleep(Duration::from_millis(rng.u64(..20))).await;
        }
    }

    /// Resets a caller whose calls were refused and may be counted yet, and calls once more.
    async fn start_anew(&self, caller: u32) {
        for limit in &LIMITS[..8] {
            until("a reset", async || self.limiter.reset(limit, caller).await.ok()).await;
            let decision =
                until("a decision", async || self.limiter.check(limit, caller).await.ok());
            self.tell(decision.await.policy(), caller, 1);
        }
    }
}

fn is_late<T>(answer: &Result<T, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::Unavailable(it)) if it.reason() == UnavailableReason::DeadlineExceeded)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redis_has_counted_is_what_callers_were_told() {
    let seconds = std::env::var("RATELIMIT_LATE_SECONDS").map_or(8, |it| it.parse().unwrap());
    let seed =
        std::env::var("RATELIMIT_LATE_SEED").map_or(fastrand::u64(..), |it| it.parse().unwrap());
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    let here = |what: Override, name: &str| limiter.overrides().here().set(name, what).unwrap();
    here(Override::new().enforcement(Enforcement::DryRun), "dry");
    limiter.overrides().candidate("tried", Override::new().threshold(50)).unwrap();
    let ends = Instant::now() + Duration::from_secs(seconds);
    let caller = Caller { limiter: limiter.clone(), told: Told::default(), ends };
    let tasks: Vec<_> =
        (0..TASKS).map(|_| tokio::spawn(caller.clone().call_until_the_end(rng.fork()))).collect();
    let (mut stalls, mut late) = (0, 0);
    while Instant::now() < ends {
        tokio::time::sleep(Duration::from_millis(rng.u64(200..900))).await;
        let is_overridden = rng.bool();
        if is_overridden {
            here(Override::new().threshold(MOST / 2), "overridden");
        }
        stalls += 1;
        server.signal("STOP");
        let fresh = CALLERS + stalls;
        let calls = join_all(LIMITS[..8].iter().map(|it| limiter.check(it, fresh).into_future()));
        let stall = Duration::from_millis(rng.u64(150..400));
        let (answers, ()) = tokio::join!(calls, tokio::time::sleep(stall));
        late += answers.iter().filter(|answer| is_late(answer)).count();
        drop(answers);
        if is_overridden {
            limiter.overrides().here().remove("overridden");
        }
        server.signal("CONT");
        caller.start_anew(fresh).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    until("the end of what was late", async || limiter.flush().await.ok()).await;

    let other = uncached(&server.url()).await;
    let told = caller.told.lock().unwrap().clone();
    for limit in &LIMITS {
        for caller in 0..=CALLERS + stalls {
            let told = told.get(&(limit.name(), caller)).copied().unwrap_or_default();
            let usage = other.usage(limit, caller).await.unwrap();
            let counted = usage.tiers()[0].used();
            let case = || format!("{} {caller}: told {told}, counted {counted}", limit.name());
            match limit.name() {
                // Units on lease whose grant was late are not given back, and dry calls pass.
                "leased" | "dry" => assert!(counted >= told, "{}", case()),
                // Units above the cost count beyond the threshold.
                _ => assert_eq!(counted, told.min(limit.tiers()[0].threshold()), "{}", case()),
            }
            assert_eq!(usage.concurrency().map_or(0, TierUsage::used), 0, "{}", case());
            if limit.name() == "tight" && told < 3 {
                // The refusal that the process remembers is lifted.
                limiter.check(limit, caller).await.unwrap();
            }
        }
    }
    println!("{stalls} stalls, {late} of the calls within them were late, deadline {DEADLINE:?}");
    assert!(late > 4, "{late}");
}
