//! Calls of one moment share a write, and nothing else: each fails or is decided, and is counted, on its own.

use std::{collections::HashSet, time::Duration};

use harness::{
    Cluster, FaultLine, Network, Proxy, RedisServer, unavailable, uncached, until_decided,
};
use ratelimit_runtime::{Decision, Limiter, Policy, RateLimitError, UnavailableReason};

const MINUTE: Duration = Duration::from_secs(60);
const CALLS: u32 = 64;
const ROUNDS: u32 = 30;

/// Makes one call of each caller, all at once.
async fn at_once(
    limiter: &Limiter,
    policy: Policy,
    callers: impl Iterator<Item = u32>,
) -> Vec<Result<Decision, RateLimitError>> {
    let call = |caller| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check(&policy, caller).await })
    };
    let tasks: Vec<_> = callers.map(call).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_redis_answers_with_an_error_fails_alone() {
    const POLICY: Policy = Policy::sliding_counter("p", MINUTE, ROUNDS);
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    for caller in (0..CALLS).step_by(7) {
        let _: u32 = server.command(&format!("RPUSH ratelimit:sliding_counter:p/{caller} foreign"));
    }
    for round in 1..=ROUNDS {
        let answers = at_once(&limiter, POLICY, 0..CALLS).await;
        for (caller, answer) in (0..CALLS).zip(answers) {
            if caller % 7 == 0 {
                assert_eq!(unavailable(answer), UnavailableReason::WrongType);
            } else {
                assert_eq!(answer.unwrap().remaining(), ROUNDS - round);
            }
        }
    }
}

/// Makes calls of one caller through a connection that is reset in the middle of their replies. Returns the
/// decisions, and the number of calls that failed.
async fn broken(server: &RedisServer, policy: Policy) -> (Vec<Decision>, u32) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let proxy = Proxy::start(server.port());
    let limiter = uncached(&proxy.url()).await;
    // The script is known from here on.
    let mut decisions = vec![limiter.check(&policy, 0_u32).await.unwrap()];
    let mut lost = 0;
    for _ in 0..ROUNDS {
        until_decided(&limiter).await;
        // A reply has some forty bytes.
        proxy.set(Network::ResetsAfter(random.usize(..CALLS as usize * 40)));
        for answer in at_once(&limiter, policy, (0..CALLS).map(|_| 0)).await {
            match answer {
                Ok(decision) => decisions.push(decision),
                error => {
                    assert_eq!(unavailable(error), UnavailableReason::Disconnected);
                    lost += 1;
                }
            }
        }
        proxy.heal();
    }
    (decisions, lost)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_among_many_calls_counts_none_twice() {
    const WIDE: u32 = 1_000_000;
    let counts_none_twice = async |policy: Policy| {
        let server = RedisServer::start();
        let (decisions, lost) = broken(&server, policy).await;
        let limiter = uncached(&server.url()).await;
        let units = WIDE - limiter.peek(&policy, 0_u32).cost(0).await.unwrap().remaining();
        let decided = u32::try_from(decisions.len()).unwrap();
        FaultLine::of("30 resets among 64 calls at once, each counted at most once")
            .with("decided", decided)
            .with("lost", lost)
            .with("counted", units)
            .print();
        assert!(lost > 0);
        assert!(decided <= units && units <= decided + lost, "{decided}, {lost} lost: {units}");
        let left: HashSet<_> = decisions.iter().map(Decision::remaining).collect();
        assert_eq!(left.len(), decisions.len(), "two calls were given the same unit");
    };
    let day = Duration::from_secs(86_400);
    tokio::join!(
        counts_none_twice(Policy::fixed_window("window", day, WIDE)),
        counts_none_twice(Policy::sliding_counter("counter", day, WIDE)),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_among_many_calls_of_a_log_loses_none() {
    let server = RedisServer::start();
    let (decisions, lost) = broken(&server, Policy::sliding_window("log", MINUTE, 100_000)).await;
    let units: u32 = server.command("ZCOUNT ratelimit:sliding_window:log/0 0 +inf");
    FaultLine::of("30 resets among 64 calls at once, sliding window")
        .with("decided", decisions.len())
        .with("lost", lost)
        .with("counted", units)
        .print();
    assert_eq!((lost, units), (0, 1 + CALLS * ROUNDS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_once_on_a_cluster_go_to_their_own_nodes() {
    const POLICY: Policy = Policy::fixed_window("p", Duration::from_secs(86_400), ROUNDS);
    let cluster = Cluster::without_replicas();
    let limiter = uncached(&cluster.url()).await;
    for round in 1..=ROUNDS {
        for answer in at_once(&limiter, POLICY, 0..3 * CALLS).await {
            assert_eq!(answer.unwrap().remaining(), ROUNDS - round);
        }
    }
    let mut keys = 0;
    for node in &cluster.nodes {
        let on_node: u32 = node.command("DBSIZE");
        assert!(on_node > CALLS / 2, "{on_node}");
        keys += on_node;
        let errors: String = node.command("INFO errorstats");
        assert!(!errors.contains("MOVED"), "{errors}");
    }
    assert_eq!(keys, 3 * CALLS);
}
