//! A slot of a Redis Cluster that moves to another node costs no call, and counts none twice.

use std::time::{Duration, Instant};

use harness::{
    Cluster, DEADLINE, FaultLine, Load, NOTICED, RedisServer, limiter_on, unavailable, uncached,
    until,
};
use ratelimit_runtime::{OnStoreError, Policy, UnavailableReason};

use crate::cluster::{LOG, log_key};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_under_load_cost_no_call_and_no_count() {
    const MOVING: u32 = 8;
    let cluster = Cluster::without_replicas();
    let limiter = uncached(&cluster.url()).await;
    let load = Load::start(&limiter, LOG, 16, MOVING, Duration::from_millis(3));
    until("load", async || (load.admitted() > 200).then_some(())).await;
    let mut moves = 0;
    // Once around for every caller: to the next primary, to the one after, and home.
    for step in 0..3 {
        for caller in 0..MOVING {
            let (slot, home) = (cluster.slot(&log_key(caller)), cluster.home(&log_key(caller)));
            let (from, to) = ((home + step) % 3, (home + step + 1) % 3);
            cluster.migrate(slot, from, to, || {
                let seen = load.admitted();
                harness::wait_for("calls", || (load.admitted() >= seen + 10).then_some(()));
            });
            moves += 1;
        }
    }
    let history = load.stop().await;
    let units = |caller| -> usize {
        let node = &cluster.nodes[cluster.home(&log_key(caller))];
        node.command(&format!("ZCOUNT {} 0 +inf", log_key(caller)))
    };
    let counted: usize = (0..MOVING).map(units).sum();
    FaultLine::of("cluster: 24 slots moved under 16 tasks")
        .with("moves", moves)
        .assert_all_counted(&history, counted);
}

/// The nodes answer `TRYAGAIN` to a command of several keys, of which each has some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_several_keys_waits_until_their_slot_has_moved() {
    const BOTH: Policy = Policy::sliding_window("both", MINUTE, 100).concurrency(9);
    let cluster = Cluster::without_replicas();
    let patient = uncached(&cluster.url()).await;
    let hasty = limiter_on(&cluster.url(), OnStoreError::Deny).await;
    let key = "ratelimit:sliding_window:both/alice";
    let (slot, home) = (cluster.slot(key), cluster.home(key));
    let other = (home + 1) % 3;
    // While it has its permit, both keys are there.
    let first = patient.check(&BOTH, "alice").await.unwrap();
    cluster.begin_to_migrate(slot, home, other);
    let port = cluster.nodes[other].public_port();
    let moved: String =
        cluster.nodes[home].command(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
    assert_eq!(moved, "OK");

    let asked = Instant::now();
    let reason = unavailable(hasty.check(&BOTH, "alice").await);
    let given_up = asked.elapsed();
    let expected = [UnavailableReason::NotReady, UnavailableReason::DeadlineExceeded];
    assert!(expected.contains(&reason), "{reason:?}");
    let tried_again = || {
        let errors: String = cluster.nodes[home].command("INFO errorstats");
        let count = errors.lines().find_map(|line| line.strip_prefix("errorstat_TRYAGAIN:count="));
        count.map_or(0, |count| count.trim().parse::<u32>().expect("a number"))
    };
    let before = tried_again();
    assert!(before > 0);
    // The node is not blamed for the slot.
    let servers = hasty.servers();
    assert!(servers.iter().all(|it| it.failure().is_none()), "{servers:?}");

    let call = tokio::spawn(async move { patient.check(&BOTH, "alice").await });
    harness::wait_for("some attempts", || (tried_again() > before + 2).then_some(()));
    assert!(!call.is_finished());
    cluster.migrate(slot, home, other, || ());
    let moved = Instant::now();
    let second = call.await.unwrap().unwrap();
    assert_eq!((first.remaining(), second.remaining()), (99, 98));
    FaultLine::of("cluster: the keys of a call are on two nodes")
        .with("callers get", format!("{reason:?}"))
        .after("given up after", given_up)
        .after("decided, if there is time, when the slot has moved, after", moved.elapsed())
        .print();
    let counted: usize = cluster.nodes[other].command(&format!("ZCOUNT {key} 0 +inf"));
    assert_eq!(counted, 2);
}

/// The first call that waits makes a line of the counts. A node that gives the slot away has no room for a new key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_call_in_line_loses_no_count_while_its_slot_moves() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let cluster = Cluster::without_replicas();
    let limiter = uncached(&cluster.url()).await;
    let policies = [
        Policy::fixed_window("fixed", HOUR, 5),
        Policy::sliding_counter("counter", HOUR, 5),
        Policy::token_bucket("tokens", HOUR, 5),
    ];
    for policy in policies {
        limiter.check(&policy, "alice").cost(5).await.unwrap();
        let key = cluster.nodes.iter().flat_map(RedisServer::keys);
        let key = key.into_iter().find(|key| key.contains(policy.name())).expect("a key");
        let (slot, home) = (cluster.slot(&key), cluster.home(&key));
        let other = (home + 1) % 3;
        cluster.begin_to_migrate(slot, home, other);
        let of_call = limiter.clone();
        let waits = tokio::spawn(async move {
            of_call.check(&policy, "alice").max_wait(2 * HOUR).await.map(drop)
        });
        let is_asked = || {
            let errors: String = cluster.nodes[home].command("INFO errorstats");
            errors.contains("errorstat_TRYAGAIN") || errors.contains("errorstat_ASK")
        };
        harness::wait_for("a question", || is_asked().then_some(()));
        assert!(!waits.is_finished(), "{}", policy.name());
        // It is the state that is moved, and the turn is in it then.
        cluster.migrate(slot, home, other, || ());
        let is_in_line = || {
            let kind: String = cluster.nodes[other].command(&format!("TYPE {key}"));
            kind == "zset"
        };
        harness::wait_for("a turn", || is_in_line().then_some(()));
        assert_eq!(limiter.peek(&policy, "alice").cost(0).await.unwrap().remaining(), 0);
        waits.abort();
        cluster.nodes.iter().for_each(|node| node.command("CONFIG RESETSTAT"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_redirect_a_call_in_a_circle_have_time_to_agree() {
    let cluster = Cluster::without_replicas();
    let patient = uncached(&cluster.url()).await;
    let hasty = limiter_on(&cluster.url(), OnStoreError::Deny).await;
    let (slot, home) = (cluster.slot(&log_key(0)), cluster.home(&log_key(0)));
    let other = (home + 1) % 3;
    // Each of the two names the other as the owner.
    cluster.set_owner(home, slot, other);

    let asked = Instant::now();
    let reason = unavailable(hasty.check(&LOG, 0).await);
    let given_up = asked.elapsed();
    // The latter, if a node took long.
    let expected = [UnavailableReason::NotReady, UnavailableReason::DeadlineExceeded];
    assert!(expected.contains(&reason), "{reason:?}");
    assert!(given_up < DEADLINE + NOTICED, "{given_up:?}");

    let call = tokio::spawn(async move { patient.check(&LOG, 0).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!call.is_finished());
    let agreed = Instant::now();
    cluster.set_owner(other, slot, other);
    call.await.unwrap().unwrap();
    FaultLine::of("cluster: two nodes that send a call to each other")
        .with("callers get", format!("{reason:?}"))
        .after("given up after", given_up)
        .after("decided, if there is time, when they agree, after", agreed.elapsed())
        .print();
    let counted: usize = cluster.nodes[other].command(&format!("ZCOUNT {} 0 +inf", log_key(0)));
    assert_eq!(counted, 1);
}
