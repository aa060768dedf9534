//! A log near its bound of 100 000 entries: calls join the newest entry, or are refused until an
//! entry leaves. Never more is admitted than the threshold.

use std::time::Duration;

use harness::{RedisServer, exceeded, uncached, until};
use ratelimit_runtime::{Decision, Limiter, Override, Policy};

const KEY: &str = "ratelimit:sliding_window:crowded/alice";
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// A part in which calls join is two hours long.
const CROWDED: Policy = Policy::sliding_window("crowded", DAY.saturating_mul(366), 200_000);

/// Appends entries of one unit as the script writes them, to the log of a first call; the oldest is as old as
/// told, in microseconds.
const FILL: &str = "
    local time, entries = redis.call('TIME'), {}
    local oldest = time[1] * 1000000 + time[2] - ARGV[2]
    for i = 1, ARGV[1] do
        entries[#entries + 1] = string.format('%.0f', oldest + i)
        entries[#entries + 1] = string.format('%.0f%08d', 10000000000 + 4 * i, 1)
        if #entries == 2000 or i == tonumber(ARGV[1]) then
            redis.call('ZADD', KEYS[1], unpack(entries))
            entries = {}
        end
    end
    redis.call('ZINCRBY', KEYS[1], -ARGV[1], '#' .. ARGV[3])";

fn fill(server: &RedisServer, policy: &Policy, entries: u32, age: Duration) {
    let mut fill = redis::cmd("EVAL");
    let period = policy.tiers()[0].period().as_micros().to_string();
    let age = age.as_micros().to_string();
    let fill = fill.arg(FILL).arg(1).arg(KEY).arg(entries).arg(age).arg(period);
    let () = fill.query(&mut server.connection()).unwrap();
}

fn entries(server: &RedisServer) -> u32 {
    server.command(&format!("ZCOUNT {KEY} 1 +inf"))
}

/// Returns the units of all entries, by their members.
fn units(server: &RedisServer) -> u64 {
    let members: Vec<String> = server.command(&format!("ZRANGEBYSCORE {KEY} 1 +inf"));
    members.iter().map(|it| it[it.len() - 8..].parse::<u64>().unwrap()).sum()
}

async fn take(limiter: &Limiter, units: u32) -> Decision {
    limiter.check(&CROWDED, "alice").cost(units).await.unwrap()
}

async fn left(limiter: &Limiter) -> u32 {
    limiter.peek(&CROWDED, "alice").cost(0).await.unwrap().remaining()
}

#[tokio::test]
async fn calls_join_the_newest_entry_and_their_units_count() {
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    let first = take(&limiter, 3).await;
    fill(&server, &CROWDED, 89_998, SECOND);
    assert_eq!((entries(&server), left(&limiter).await), (89_999, 200_000 - 90_001));
    let last = take(&limiter, 2).await;
    assert_eq!((entries(&server), last.remaining()), (90_000, 200_000 - 90_003));
    let mut taken = 90_003;
    let mut joined = Vec::new();
    for units in 1..=40 {
        let call = take(&limiter, units).await;
        taken += units;
        assert_eq!(call.remaining(), 200_000 - taken);
        joined.push(call);
    }
    // A part of the period may end meanwhile.
    assert!((90_001..=90_002).contains(&entries(&server)), "{}", entries(&server));
    // A joined call takes more later, and gives nothing back.
    limiter.settle(&joined[4], 0).await.unwrap();
    assert_eq!(left(&limiter).await, 200_000 - taken);
    limiter.settle(&joined[9], 16).await.unwrap();
    limiter.settle(&joined[9], 30).await.unwrap();
    taken += 6;
    assert_eq!(left(&limiter).await, 200_000 - taken);
    // Calls with an entry of their own are settled as ever.
    limiter.settle(&last, 1).await.unwrap();
    limiter.settle(&first, 0).await.unwrap();
    taken -= 4;
    assert_eq!(left(&limiter).await, 200_000 - taken);
    assert_eq!(units(&server), u64::from(taken));
}

#[tokio::test]
async fn joined_calls_admit_no_more_than_the_threshold() {
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    take(&limiter, 1).await;
    fill(&server, &CROWDED, 94_999, SECOND);
    let smaller = Override::new().threshold(95_100);
    limiter.overrides().here().set("crowded", smaller).unwrap();
    let mut admitted = 95_000;
    for round in 0..60 {
        let units = 1 + round % 7;
        match limiter.check(&CROWDED, "alice").cost(units).await {
            Ok(call) => {
                admitted += units;
                assert_eq!(call.remaining(), 95_100 - admitted);
            }
            refused => {
                let refused = exceeded(refused);
                assert!(admitted + units > 95_100, "{admitted} and {units}");
                assert_eq!(refused.remaining(), 95_100 - admitted);
            }
        }
    }
    assert_eq!(admitted, 95_100);
    assert_eq!(units(&server), 95_100);
    assert!(entries(&server) <= 95_002);
}

#[tokio::test]
async fn a_full_log_refuses_until_its_oldest_entry_leaves() {
    let policy = Policy::sliding_window("crowded", DAY, 1_000_000);
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    // Named calls never join.
    let job = |id: u32| limiter.check(&policy, "alice").cost(5).request_id(id);
    job(1).await.unwrap();
    fill(&server, &policy, 99_998, 86_392 * SECOND);
    let last = job(2).await.unwrap();
    assert_eq!((entries(&server), last.remaining()), (100_000, 1_000_000 - 100_008));
    for refused in [job(3).await, limiter.check(&policy, "alice").await] {
        let refused = exceeded(refused);
        assert_eq!(refused.remaining(), 0);
        assert!((SECOND / 100..8 * SECOND).contains(&refused.retry_after()), "{refused:?}");
    }
    // A repeated call is no new entry.
    job(1).await.unwrap();
    assert_eq!((entries(&server), units(&server)), (100_000, 100_008));
    let next = until("the oldest entry leaves", async || job(3).await.ok()).await;
    assert!(next.remaining() > 1_000_000 - 100_013);
    assert!(entries(&server) < 100_000);
}

#[tokio::test]
async fn a_full_log_refuses_until_no_policy_counts_its_oldest_entry() {
    let daily = Policy::sliding_window("crowded", DAY, 1_000_000);
    let minutely = Policy::sliding_window("crowded", 60 * SECOND, 1_000_000);
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    limiter.check(&daily, "alice").cost(5).request_id(1).await.unwrap();
    fill(&server, &daily, 99_999, DAY / 24);
    let refused = exceeded(limiter.check(&minutely, "alice").cost(5).request_id(2).await);
    // The longer one counts until its last call is longer ago than its period.
    assert!(refused.retry_after().abs_diff(DAY) < 20 * SECOND, "{refused:?}");
    // An override has shortened the period: the entries count again when it is removed.
    limiter.overrides().here().set("crowded", Override::new().period(60 * SECOND)).unwrap();
    let refused = exceeded(limiter.check(&daily, "alice").cost(5).request_id(2).await);
    assert!(refused.retry_after().abs_diff(DAY * 23 / 24) < 20 * SECOND, "{refused:?}");
}
