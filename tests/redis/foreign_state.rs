//! Unexpected state, or a server that is not Redis, delays no call: own state is repaired, foreign state is
//! reported.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use harness::{
    DEADLINE, FaultLine, NOTICED, RedisServer, exceeded, limiter_on, unavailable, until_decided,
};
use ratelimit_runtime::{Decision, Limiter, OnStoreError, Policy, RateLimitError};

const MINUTE: Duration = Duration::from_secs(60);
const POLICY: Policy = Policy::sliding_window("p", MINUTE, 3);
const KEY: &str = "ratelimit:sliding_window:p/alice";

#[tokio::test]
async fn a_log_with_impossible_times_is_repaired() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let () = server.command(&format!("ZADD {KEY} +inf a -inf b 1e300 c -5 d 0 e"));
    // Two are in the future, and count as of now; the others are long gone.
    assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), 0);
    exceeded(limiter.check(&POLICY, "alice").await);
    let headers: Vec<String> = server.command(&format!("ZRANGEBYSCORE {KEY} -inf (0"));
    assert!(
        headers.iter().all(|it| ["g", "@60000000", "#60000000"].contains(&&**it)),
        "{headers:?}"
    );
    let units: Vec<(String, f64)> =
        server.command(&format!("ZRANGEBYSCORE {KEY} 0 +inf WITHSCORES"));
    let (seconds, _): (f64, f64) = server.command("TIME");
    let is_recent = |(_, at): &(String, f64)| (at / 1e6 - seconds).abs() < 60.0;
    assert!(units.len() == 3 && units.iter().all(is_recent), "{units:?}");
    let ttl: i64 = server.command(&format!("PTTL {KEY}"));
    assert!((1..=61_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn a_huge_foreign_log_delays_no_call() {
    for (from, name) in [("1", "old"), ("9e15", "future")] {
        let server = RedisServer::start();
        let mut eval = redis::cmd("EVAL");
        let fill = "for i = 1, 300000 do redis.call('ZADD', KEYS[1], tonumber(ARGV[1]) + i, i) end";
        let () = eval.arg(fill).arg(1).arg(KEY).arg(from).query(&mut server.connection()).unwrap();
        let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
        let asked = Instant::now();
        let first = limiter.check(&POLICY, "alice").await;
        let took = asked.elapsed();
        until_decided(&limiter).await;
        let second = limiter.check(&POLICY, "alice").await;
        let members: u32 = server.command(&format!("ZCOUNT {KEY} 0 +inf"));
        let ttl: i64 = server.command(&format!("PTTL {KEY}"));
        let words = |answer: &Result<Decision, RateLimitError>| match answer {
            Ok(decision) => format!("admitted, {} left", decision.remaining()),
            Err(error) => error.to_string(),
        };
        FaultLine::of(&format!("300 000 {name} members without a TTL"))
            .with("first call", words(&first))
            .after("in", took)
            .with("second call", words(&second))
            .with("members left", members)
            .with("TTL in ms", ttl)
            .print();
        assert!(took < DEADLINE + NOTICED, "{took:?}");
        assert!((1..=61_000).contains(&ttl), "{ttl}");
        // None of them is a unit of the last minute.
        assert_eq!(second.unwrap().remaining(), 1);
    }
}

/// Returns the URL of a server with this reply to any input.
fn stranger(reply: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            thread::spawn(move || {
                while client.read(&mut [0; 1024]).is_ok_and(|bytes| bytes > 0) {
                    let _ = client.write_all(reply.as_bytes());
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn a_server_that_is_no_redis_is_an_error_at_once_and_an_outage_later() {
    let http = stranger("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    let chatty = stranger("+OK\r\n");
    for url in [http, chatty] {
        let asked = Instant::now();
        let error = Limiter::connect(&url).await.unwrap_err().to_string();
        assert!(asked.elapsed() < Duration::from_millis(1_500), "{:?}", asked.elapsed());
        assert!(error.contains("cannot connect to Redis at 127.0.0.1:"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        FaultLine::of("no Redis at the address").with("connect error", error).print();
        let builder = Limiter::builder().deadline(DEADLINE).on_store_error(OnStoreError::Deny);
        let limiter = builder.connect_lazy(&url).unwrap();
        for _ in 0..20 {
            let asked = Instant::now();
            unavailable(limiter.check(&POLICY, "alice").await);
            assert!(asked.elapsed() < DEADLINE + NOTICED, "{:?}", asked.elapsed());
        }
    }
}

#[tokio::test]
async fn a_redis_without_resp3_is_named_as_the_reason() {
    let unknown = "-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n";
    let old = stranger(unknown.repeat(3).leak());
    let error = Limiter::connect(&format!("{old}?protocol=resp3")).await.unwrap_err().to_string();
    FaultLine::of("RESP3 asked of an old Redis").with("connect error", &error).print();
    assert!(error.contains("RESP3") || error.contains("HELLO"), "{error}");
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_an_error_at_once() {
    let server = RedisServer::start();
    let error = Limiter::connect(&format!("{}/99", server.url())).await.unwrap_err().to_string();
    FaultLine::of("database 99").with("connect error", &error).print();
    assert!(error.contains("DB index is out of range"), "{error}");
    let limiter = Limiter::connect(&format!("{}/15", server.url())).await.unwrap();
    limiter.check(&POLICY, "alice").await.unwrap();
    assert_eq!(server.keys(), [""; 0]);
}
