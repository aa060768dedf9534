//! The content of each kind of key on Redis, by which two builds that run side by side understand each other.
//!
//! Another layout under the same kind text would be misread by the older build: it takes another text in
//! `StateKind::as_str`, or another suffix, and its row here.

use std::{collections::BTreeMap, time::Duration};

use harness::{RedisServer, exceeded, patient, until};
use ratelimit_runtime::{CalendarUnit, Policy};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// Numbers from here on are no units, counts or lengths of these policies.
const LARGE: f64 = 1e12;

/// Returns the number with `T` in place of a time, in microseconds, and `#` in place of an id.
fn shape(number: &str) -> String {
    let Ok(value) = number.parse::<f64>() else { return number.to_owned() };
    if value.abs() < LARGE {
        return number.to_owned();
    }
    let now = std::time::UNIX_EPOCH.elapsed().expect("a time").as_secs_f64() * 1e6;
    let sign = if value < 0.0 { "-" } else { "" };
    // The longest window is a month.
    let is_time = (value.abs() - now).abs() < 40.0 * 86_400e6;
    format!("{sign}{}", if is_time { "T" } else { "#" })
}

/// Returns the words of a text, each as its shape; a letter may stand before a number.
fn shapes(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.strip_prefix(char::is_alphabetic) {
        Some(rest) if !rest.is_empty() => format!("{}{}", &word[..1], shape(rest)),
        _ => shape(word),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the name of a member or a field: `#` for an id. A number after a letter is none.
fn name_shape(name: &str) -> String {
    if name.bytes().all(|byte| byte.is_ascii_digit()) { "#".to_owned() } else { shapes(name) }
}

/// Returns the keys, without their prefix, with their content.
fn golden(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
    rows.iter().map(|(key, content)| (format!("ratelimit:{key}"), (*content).to_owned())).collect()
}

/// Returns the content of each key.
fn contents(server: &RedisServer) -> BTreeMap<String, String> {
    let pairs = |pairs: Vec<(String, String)>| {
        let shaped =
            pairs.iter().map(|(name, value)| format!("{}={}", name_shape(name), shapes(value)));
        shaped.collect::<Vec<_>>().join(", ")
    };
    let content = |key: &String| match &*server.command::<String>(&format!("TYPE {key}")) {
        "string" => shapes(&server.command::<String>(&format!("GET {key}"))),
        "hash" => format!("hash: {}", pairs(server.command(&format!("HGETALL {key}")))),
        "zset" => {
            format!("zset: {}", pairs(server.command(&format!("ZRANGE {key} 0 -1 WITHSCORES"))))
        }
        other => format!("unknown: {other}"),
    };
    server.keys().into_iter().map(|key| (key.clone(), content(&key))).collect()
}

#[tokio::test]
async fn each_kind_of_state_has_its_layout() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let policies = [
        Policy::sliding_window("p", MINUTE, 3),
        Policy::sliding_counter("p", MINUTE, 3),
        Policy::fixed_window("p", MINUTE, 3),
        Policy::token_bucket("p", MINUTE, 3),
        Policy::calendar_window("p", CalendarUnit::Month, 3),
    ];
    for policy in &policies {
        limiter.check(policy, "alice").await.unwrap();
    }
    // A call of several units makes entries of all.
    for cost in [1, 2] {
        limiter.check(&policies[0], "bob").cost(cost).await.unwrap();
    }
    assert_eq!(
        contents(&server),
        golden(&[
            ("calendar_window2:p/alice", "mT T # 0 T T 1 0 0"),
            ("fixed_window:p/alice", "wT T 60000000 0 T 1"),
            ("sliding_counter:p/alice", "cT T 60000000 0 0 1"),
            ("sliding_window:p/alice", "zset: @=-7864320003, #=T"),
            ("sliding_window:p/bob", "zset: g=-T, @60000000=-T, #60000000=-4, #=T, #=T"),
            ("token_bucket:p/alice", "bT T 20000000 1 60000000 0 40000000"),
        ])
    );
}

/// A count that was added to others knows what it has taken over.
#[tokio::test]
async fn counts_of_changed_numbers_have_their_layout() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    for make in [Policy::sliding_counter, Policy::fixed_window, Policy::token_bucket] {
        for period in [DAY * 30, DAY * 15] {
            limiter.check(&make("p", period, 4), "alice").await.unwrap();
        }
    }
    assert_eq!(
        contents(&server),
        golden(&[
            ("fixed_window:p/alice", "wT T # 0 T 2 # 0 T 2"),
            ("sliding_counter:p/alice", "cT T -# T 0 2 T # 0 0 2"),
            (
                "token_bucket:p/alice",
                "bT T -324000000000 1 # T 648000000000 324000000000 0 0 648000000000 1 # 0 #"
            ),
        ])
    );
}

#[tokio::test]
async fn state_beside_a_key_has_its_layout() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let (in_flight, counted) =
        (Policy::concurrency_limit("c", 2), Policy::fixed_window("s", MINUTE, 9));
    let blocking = Policy::fixed_window("b", MINUTE, 1).block(&[DAY]);
    let permit = limiter.check(&in_flight, "alice").await.unwrap();
    let charged = limiter.check(&counted, "alice").cost(3).await.unwrap();
    limiter.settle(&charged, 1).await.unwrap();
    limiter.check(&blocking, "alice").await.unwrap();
    exceeded(limiter.check(&blocking, "alice").await);
    assert_eq!(
        contents(&server),
        golden(&[
            ("fixed_window:b/alice", "wT T 60000000 0 T 1"),
            ("fixed_window:s/alice", "wT T 60000000 0 T 1"),
            ("fixed_window:{ratelimit:fixed_window:b/alice}:b", "1 T 86400000000 1"),
            ("fixed_window:{ratelimit:fixed_window:s/alice}:s", "zset: #=T"),
            ("sliding_window:{ratelimit:sliding_window:c/alice}:c", "zset: #=T"),
        ])
    );
    drop(permit);
}

#[tokio::test]
async fn processes_that_ask_for_leases_have_their_layout() {
    const KEY: &str = "ratelimit:fixed_window:{ratelimit:fixed_window:l/alice}:l";
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let policy = Policy::fixed_window("l", DAY, 10_000).lease(MINUTE);
    let asking = until("a lease", async || {
        limiter.check(&policy, "alice").await.unwrap();
        contents(&server).remove(KEY)
    });
    let asking = asking.await;
    let numbers = asking.strip_prefix("hash: #=").unwrap_or_else(|| panic!("{asking}"));
    let [demand, asked, units, ends] = numbers.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{asking}")
    };
    assert_eq!([asked, ends], ["T", "T"], "{asking}");
    assert!(demand.parse::<u32>().is_ok() && units.parse::<u32>().is_ok(), "{asking}");
}
