//! The content of each kind of key on Redis, by which two builds that run side by side understand each other.
//!
//! Another layout under the same kind text would be misread by the older build: it takes another text in
//! `StateKind::as_str`, or another suffix, and its row here.

use std::{collections::BTreeMap, time::Duration};

use harness::{RedisServer, exceeded, patient, until, wall_clock};
use ratelimit_runtime::{CalendarUnit, Limiter, Policy};

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

/// Returns the content of each key.
fn contents(server: &RedisServer) -> BTreeMap<String, String> {
    let pairs = |pairs: Vec<(String, String)>| {
        let shaped =
            pairs.iter().map(|(name, value)| format!("{}={}", shapes(name), shapes(value)));
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

async fn raw(server: &RedisServer, limiter: &Limiter) {
    let policies = [
        Policy::sliding_window("p", MINUTE, 3),
        Policy::sliding_counter("p", MINUTE, 3),
        Policy::fixed_window("p", MINUTE, 3),
        Policy::token_bucket("p", MINUTE, 3),
        Policy::sliding_window("p", MINUTE, 30).weighted(),
        Policy::calendar_window("p", CalendarUnit::Month, 3),
    ];
    for policy in &policies {
        limiter.check(policy, "alice").await.unwrap();
        limiter.check(policy, "alice").await.unwrap();
    }
    for (key, text) in contents(server) {
        println!("{key} -> {text}");
    }
    println!("--- raw");
    for key in server.keys() {
        let t: String = server.command(&format!("TYPE {key}"));
        if t == "string" {
            println!("{key} {}", server.command::<String>(&format!("GET {key}")));
        } else {
            println!(
                "{key} {:?}",
                server.command::<Vec<(String, String)>>(&format!("ZRANGE {key} 0 -1 WITHSCORES"))
            );
        }
    }
}

#[tokio::test]
async fn print() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    raw(&server, &limiter).await;
}
