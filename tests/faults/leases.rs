//! Units on lease through faults: a fault admits at most their number besides, and none after their end.
//!
//! A library that is preloaded into the server moves its clock, which requires Linux.

use std::{
    thread,
    time::{Duration, Instant},
};

use harness::{
    Clock, FaultLine, RedisServer, Sentinels, call_at_once, heat, until, until_decided, wait_for,
    wall_clock,
};
use ratelimit_runtime::{Algorithm, Enforcement, Limiter, OnStoreError, Policy};

const SECOND: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(600);
const N: u32 = 8_000;
/// Long, so that no pause of a busy machine ends it before it is used.
const LEASE: Duration = Duration::from_secs(8);

fn policies(period: Duration, lease: Duration) -> [Policy; 4] {
    [Policy::sliding_window, Policy::fixed_window, Policy::sliding_counter, Policy::token_bucket]
        .map(|policy| policy("hot", period, N).lease(lease))
}

async fn two(url: &str, on_store_error: OnStoreError) -> (Limiter, Limiter) {
    let limiter = async || {
        let builder = Limiter::builder().deadline(2 * SECOND).deny_cache(0);
        builder.on_store_error(on_store_error).connect(url).await.unwrap()
    };
    (limiter().await, limiter().await)
}

/// Returns the units that Redis has.
async fn left(limiter: &Limiter, policy: &Policy) -> u32 {
    limiter.peek(policy, "alice").cost(0).await.unwrap().remaining()
}

/// Two processes that share a limit, of which one has units on lease.
struct Fleet {
    leasing: Limiter,
    other: Limiter,
    policy: Policy,
    start: Instant,
    /// The time at which the lease is certainly over.
    ends: Instant,
    /// The units that Redis had at the start, and those of them that were used before the fault.
    full: u32,
    used: u32,
    on_lease: u32,
    /// `true` if units come free before a period is over.
    refills: bool,
}

impl Fleet {
    /// Takes a lease of at least half as many units as one may have.
    async fn new(leasing: &Limiter, other: &Limiter, policy: Policy) -> Self {
        let (leasing, other, start) = (leasing.clone(), other.clone(), Instant::now());
        let (refills, full) =
            (policy.algorithm() == Algorithm::TokenBucket, left(&other, &policy).await);
        let used = heat(&leasing, &policy).await;
        let mut fleet =
            Self { leasing, other, policy, start, ends: start, full, used, on_lease: 0, refills };
        // The units of the first lease are few.
        while fleet.on_lease < N / 16 {
            let (answer, is_leased) = call_at_once(&fleet.leasing, &policy).await;
            answer.unwrap();
            fleet.used += 1;
            assert!(fleet.used < N / 2, "leases stay small");
            if !is_leased {
                let left = left(&fleet.other, &policy).await;
                fleet.on_lease = (full + fleet.freed() - left).saturating_sub(fleet.used);
            }
        }
        fleet.ends = Instant::now() + LEASE;
        fleet
    }

    /// Returns the units that have come free since the start, at most.
    fn freed(&self) -> u32 {
        let freed = i64::from(N) * millis(self.start.elapsed()) / millis(PERIOD) + 1;
        if self.refills { freed.try_into().unwrap() } else { 0 }
    }

    /// Takes all units that Redis has. Returns their number.
    async fn exhaust(&self) -> u32 {
        let mut taken = 0;
        loop {
            let cost = left(&self.other, &self.policy).await;
            if cost == 0 {
                return taken;
            }
            let check = self.other.check(&self.policy, "alice").cost(cost);
            taken += if check.await.is_ok() { cost } else { 0 };
        }
    }

    /// Uses half of the units on lease. Returns their number.
    async fn use_half(&self) -> u32 {
        let mut used = 0;
        while used < self.on_lease / 2
            && let (Ok(_), true) = call_at_once(&self.leasing, &self.policy).await
        {
            used += 1;
        }
        used
    }

    /// Calls until the lease has ended and come back. Returns the units of Redis, and those of the lease.
    async fn outlast(&self) -> (u32, u32) {
        let (mut of_redis, mut of_lease) = (0, 0);
        loop {
            let is_last = Instant::now() > self.ends + SECOND;
            match call_at_once(&self.leasing, &self.policy).await {
                (Ok(_), true) => of_lease += 1,
                (Ok(_), false) => of_redis += 1,
                (Err(_), _) => {}
            }
            if is_last {
                // The next lease has what is left of this one.
                self.leasing.flush().await.unwrap();
                return (of_redis + self.exhaust().await, of_lease);
            }
            of_redis += self.exhaust().await;
            tokio::time::sleep(SECOND / 50).await;
        }
    }
}

/// Returns fleets of two processes on one store, one for each policy.
async fn fleets(url: &str, on_store_error: OnStoreError) -> Vec<Fleet> {
    let (leasing, other) = two(url, on_store_error).await;
    let mut fleets = Vec::new();
    for policy in policies(PERIOD, LEASE) {
        fleets.push(Fleet::new(&leasing, &other, policy).await);
    }
    fleets
}

/// After a fault: takes what Redis has, uses a part of each lease, and lets the rest of it come back. All
/// units since the start are at most those of one threshold and those `besides`, given the units that were
/// used of the lease.
async fn assert_bounded(fault: &str, fleets: &[Fleet], besides: fn(&Fleet, u32) -> u32) {
    let mut taken = Vec::new();
    for fleet in fleets {
        taken.push((fleet.exhaust().await, fleet.use_half().await));
    }
    for (fleet, (of_redis, of_lease)) in fleets.iter().zip(taken) {
        assert!(of_lease > 0, "{fault}: the lease was over, {:?}", fleet.policy);
        let later = fleet.outlast().await;
        let (of_redis, of_lease) = (of_redis + later.0, of_lease + later.1);
        FaultLine::of(&format!("lease, {fault}, {:?}", fleet.policy.algorithm()))
            .with("used before, on lease", format!("{}, {}", fleet.used, fleet.on_lease))
            .with("then admitted by Redis, by the lease", format!("{of_redis}, {of_lease}"))
            .print();
        let most = fleet.full + besides(fleet, of_lease) + fleet.freed();
        let admitted = fleet.used + of_redis + of_lease;
        assert!(admitted <= most, "{fault}: {admitted} of {most}, {:?}", fleet.policy);
    }
}

/// Units that Redis no longer counts, and that are admitted once more: those used before the fault, and of the
/// lease. What the process gives back is nobody else's.
fn lost(fleet: &Fleet, of_lease: u32) -> u32 {
    fleet.used + of_lease
}

fn millis(time: Duration) -> i64 {
    time.as_millis().try_into().unwrap()
}

/// Returns a server with a clock that tells a time early in a period, and by how much it is ahead.
fn early() -> (RedisServer, Clock, i64) {
    let clock = Clock::new();
    let period = millis(PERIOD);
    let ahead = period + 5_000 - i64::try_from(wall_clock() / 1_000).unwrap() % period;
    clock.set_ahead(ahead);
    (clock.server(&[]), clock, ahead)
}

#[tokio::test]
async fn a_flushed_store_admits_what_it_has_lost_once_more() {
    let (server, ..) = early();
    let fleets = fleets(&server.url(), OnStoreError::Deny).await;
    let () = server.command("FLUSHALL");
    assert_bounded("FLUSHALL", &fleets, lost).await;
}

#[tokio::test]
async fn a_reset_by_another_process_leaves_units_on_lease_until_their_end() {
    let (server, ..) = early();
    let fleets = fleets(&server.url(), OnStoreError::Deny).await;
    for fleet in &fleets {
        fleet.other.reset(&fleet.policy, "alice").await.unwrap();
    }
    assert_bounded("reset by another process", &fleets, lost).await;
}

#[tokio::test]
async fn lost_scripts_admit_nothing_besides() {
    let (server, ..) = early();
    let fleets = fleets(&server.url(), OnStoreError::Deny).await;
    let () = server.command("SCRIPT FLUSH");
    assert_bounded("SCRIPT FLUSH", &fleets, |_, _| 0).await;
}

// To its store, a process on a machine that was suspended is one that stood still while the store's clock
// went on.
#[tokio::test]
async fn a_clock_set_forward_leaves_units_on_lease_until_their_end() {
    let (server, clock, ahead) = early();
    let fleets = fleets(&server.url(), OnStoreError::Deny).await;
    clock.step(&server, ahead + 3_600_000);
    assert_bounded("clock set forward by an hour", &fleets, lost).await;
}

#[tokio::test]
async fn a_clock_set_back_admits_nothing_besides() {
    let (server, clock, ahead) = early();
    let fleets = fleets(&server.url(), OnStoreError::Deny).await;
    clock.step(&server, ahead - 3_600_000);
    assert_bounded("clock set back by an hour", &fleets, |_, _| 0).await;
}

#[tokio::test]
async fn a_clock_set_back_refuses_for_one_period_and_a_lease_at_the_most() {
    let lease = SECOND / 10;
    for policy in policies(SECOND, lease) {
        let clock = Clock::new();
        let server = clock.server(&[]);
        let (leasing, other) = two(&server.url(), OnStoreError::Deny).await;
        heat(&leasing, &policy).await;
        let rest = left(&other, &policy).await;
        other.check(&policy, "alice").cost(rest).await.unwrap();
        clock.step(&server, -3_600_000);
        let stepped = Instant::now();
        until("an admitted call", async || other.check(&policy, "alice").await.ok()).await;
        let back = stepped.elapsed();
        FaultLine::of(&format!("lease, clock set back an hour, {:?}", policy.algorithm()))
            .after("admitted again after", back)
            .print();
        // A counter's units fade over the window after.
        assert!(back < 2 * SECOND + lease + SECOND / 2, "{back:?}, {policy:?}");
        // The next exchange renews the expiry of those that ask for leases. Whoever is not called has none.
        until("expiries of a second and two windows", async || {
            let _ = leasing.check(&policy, "alice").await;
            let ttls = server.keys().into_iter().map(|key| server.command(&format!("PTTL {key}")));
            (ttls.max().unwrap_or(0_i64) <= 3_200).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn units_on_lease_count_for_a_period_after_their_end_whoever_calls_meanwhile() {
    let (server, clock, ahead) = early();
    let (leasing, other) = two(&server.url(), OnStoreError::Deny).await;
    let [sliding, ..] = policies(PERIOD, LEASE);
    let fleet = Fleet::new(&leasing, &other, sliding).await;
    // Redis decides the rest.
    fleet.exhaust().await;
    // That has left the window, and the units on lease have not.
    clock.step(&server, ahead + millis(PERIOD + 2 * SECOND));
    let counted = N - left(&other, &sliding).await;
    assert!(counted >= fleet.on_lease, "{counted} of {}", fleet.on_lease);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_without_the_last_leases_admits_them_once_more() {
    let mut sentinels = Sentinels::start();
    let url = sentinels.url();
    let (before, _) = two(&url, OnStoreError::Deny).await;
    for policy in policies(PERIOD, LEASE) {
        before.check(&policy, "alice").cost(N / 4).await.unwrap();
    }
    let _: i64 = sentinels.servers[0].command("WAIT 1 1000");
    // The replica has the state of each policy, and learns of no lease.
    sentinels.servers[1].signal("STOP");
    let cut: u32 = sentinels.servers[0].command("CLIENT KILL TYPE replica");
    assert_eq!(cut, 1);
    let mut fleets = fleets(&url, OnStoreError::Deny).await;
    for fleet in &mut fleets {
        // A period may end meanwhile.
        fleet.refills |= fleet.policy.algorithm() == Algorithm::SlidingCounter;
        fleet.used += fleet.exhaust().await;
    }
    sentinels.servers[0].kill();
    sentinels.servers[1].signal("CONT");
    wait_for("a failover", || (sentinels.primary() == 1).then_some(()));
    until_decided(&fleets[0].other).await;
    until_decided(&fleets[0].leasing).await;
    // The replica has the state, and takes back units that it has not counted.
    let lost = |fleet: &Fleet, _| fleet.used + fleet.on_lease;
    assert_bounded("failover without the last writes", &fleets, lost).await;
}

/// Uses half of each lease without a store, and calls again once it is over.
async fn without_store(answer: OnStoreError, besides: u32) {
    let mut server = RedisServer::start();
    let fleets = fleets(&server.url(), answer).await;
    server.kill();
    let mut admitted = [0; 4];
    for (fleet, admitted) in fleets.iter().zip(&mut admitted) {
        *admitted = fleet.use_half().await;
    }
    let ends = fleets.iter().map(|fleet| fleet.ends).max().unwrap();
    // The process stands still with all its tasks.
    thread::sleep(ends.saturating_duration_since(Instant::now()));
    for (fleet, admitted) in fleets.iter().zip(&mut admitted) {
        for _ in 0..2 * N {
            let (answer, _) = call_at_once(&fleet.leasing, &fleet.policy).await;
            *admitted += u32::from(answer.is_ok());
        }
    }
    for (fleet, admitted) in fleets.iter().zip(admitted) {
        FaultLine::of(&format!("lease, kill -9, {answer:?}, {:?}", fleet.policy.algorithm()))
            .with("units on lease", fleet.on_lease)
            .with("admitted", admitted)
            .print();
        let most = fleet.on_lease / 2 + besides + fleet.freed();
        assert!(admitted <= most, "{admitted} of {most}, {:?}", fleet.policy);
        assert!(admitted >= fleet.on_lease / 2 + besides / 2, "{admitted}, {:?}", fleet.policy);
    }
}

#[tokio::test]
async fn a_process_without_its_store_uses_its_units_and_no_more_under_deny() {
    without_store(OnStoreError::Deny, 0).await;
}

#[tokio::test]
async fn a_process_without_its_store_admits_one_threshold_besides_its_units_under_local() {
    without_store(OnStoreError::Local, N).await;
}

/// Lets both processes follow their Redis, sets a field of its overrides until it `is_followed`, and calls
/// `meanwhile`. Then the field is removed.
async fn overridden(
    (server, fleets): (&RedisServer, &mut [Fleet]),
    (field, value): (&str, &str),
    is_followed: impl Fn(&Limiter) -> bool,
    meanwhile: impl AsyncFn(&mut Fleet),
) {
    let both = [fleets[0].leasing.clone(), fleets[0].other.clone()];
    for limiter in &both {
        limiter.overrides().follow_redis().await.unwrap();
    }
    let until_followed = async |followed| {
        until("the override", async || {
            both.iter().all(|it| is_followed(it) == followed).then_some(())
        })
        .await;
    };
    let _: u32 = server.command(&format!("HSET ratelimit:overrides {field} {value}"));
    until_followed(true).await;
    for fleet in fleets {
        meanwhile(fleet).await;
    }
    let _: u32 = server.command(&format!("HDEL ratelimit:overrides {field}"));
    until_followed(false).await;
}

#[tokio::test]
async fn an_override_counts_the_units_on_lease_and_admits_nothing_besides() {
    const LOWERED: u32 = N / 2;
    let (server, ..) = early();
    let mut fleets = fleets(&server.url(), OnStoreError::Deny).await;
    let lowered = format!("{{\"threshold\":{LOWERED}}}");
    let is_followed = |limiter: &Limiter| limiter.overrides().source("hot").is_some();
    overridden((&server, &mut fleets), ("hot", &lowered), is_followed, async |fleet| {
        let taken = fleet.exhaust().await;
        // A bucket of another size has as many tokens as the one before, and no more than it holds.
        let counted = if fleet.refills { 0 } else { fleet.used + fleet.on_lease };
        assert!(counted + taken <= LOWERED + fleet.freed(), "{taken}, {:?}", fleet.policy);
        assert!(!call_at_once(&fleet.leasing, &fleet.policy).await.1, "{:?}", fleet.policy);
        fleet.used += taken;
    })
    .await;
    assert_bounded("an override for a while", &fleets, |_, _| 0).await;
}

#[tokio::test]
async fn the_kill_switch_uses_no_unit_on_lease() {
    let (server, ..) = early();
    let mut fleets = fleets(&server.url(), OnStoreError::Deny).await;
    let is_off = |limiter: &Limiter| {
        limiter.overrides().enforcement().is_some_and(|(it, _)| it == Enforcement::Off)
    };
    overridden((&server, &mut fleets), ("*", "off"), is_off, async |fleet| {
        for _ in 0..2 * fleet.on_lease {
            assert!(call_at_once(&fleet.leasing, &fleet.policy).await.0.is_ok());
        }
    })
    .await;
    for fleet in &fleets {
        assert_eq!(fleet.use_half().await, fleet.on_lease / 2, "{:?}", fleet.policy);
    }
}
