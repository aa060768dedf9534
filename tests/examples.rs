//! The examples run as their first lines say, and do what they say.

use std::process::Output;

use harness::{RedisServer, Running, example};

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Asks `say_hi` as a caller: the status, `Retry-After`, the body.
fn say_hi(server: &Running, user: &str) -> (u16, Option<u64>, String) {
    let url = server.first_line().strip_prefix("listening on ").expect("the address");
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = agent.get(format!("{url}/hello/sayHi")).header("x-user", user);
    let mut response = request.call().expect("the server answers");
    let retry_after = response.headers().get("retry-after");
    let retry_after = retry_after.map(|wait| wait.to_str().unwrap().parse().unwrap());
    let status = response.status().as_u16();
    (status, retry_after, response.body_mut().read_to_string().unwrap())
}

#[test]
fn hello_limits_each_caller_of_each_function() {
    let output = lines(&example("hello").output().unwrap());
    assert!(output[0].contains(r#"store: "memory""#), "{}", output[0]);
    for (caller, calls) in ["alice", "bob"].into_iter().zip(output[2..].chunks(6)) {
        assert_eq!(
            calls[..2],
            [
                format!(
                    "{:18} hi, {caller:8} 1 left, more after 30.0s",
                    format!("say_hi({caller:?})")
                ),
                format!(
                    "{:18} hi, {caller:8} 0 left, more after 30.0s",
                    format!("say_hi({caller:?})")
                ),
            ]
        );
        assert!(calls[2].contains("`hello::say_hi` exceeded: at most 2 per 30s, retry after "));
        assert!(calls[3].ends_with("all is well  0 left, more after 60.0s"), "{}", calls[3]);
        assert!(calls[4].contains("`hello::report` exceeded: at most 1 per 60s, retry after "));
    }
}

#[test]
fn hello_goes_on_with_its_counts_through_redis() {
    let server = RedisServer::start();
    let run = || lines(&example("hello").env("RATELIMIT_URL", server.url()).output().unwrap());
    let (first, second) = (run(), run());
    assert!(first[0].contains(r#"store: "redis""#), "{}", first[0]);
    assert_eq!(first.iter().filter(|line| line.contains("exceeded")).count(), 4);
    assert_eq!(second.iter().filter(|line| line.contains("exceeded")).count(), 10);
}

#[test]
fn the_third_request_within_30_seconds_is_a_429_also_after_a_restart() {
    let redis = RedisServer::start();
    let start = || {
        Running::start(example("axum_hello").arg("127.0.0.1:0").env("RATELIMIT_URL", redis.url()))
    };
    let server = start();
    assert_eq!(say_hi(&server, "alice"), (200, None, "hi, alice\n".to_owned()));
    drop(server);

    let server = start();
    assert_eq!(say_hi(&server, "alice").0, 200);
    let (status, retry_after, body) = say_hi(&server, "alice");
    assert_eq!(status, 429);
    assert!(body.starts_with("rate limit `axum_hello::say_hi` exceeded"), "{body}");
    let key = "ratelimit:sliding_window:axum_hello::say_hi/alice";
    let retry_after = retry_after.expect("a refusal says when to come back");
    assert!((1..=30).contains(&retry_after), "{retry_after}");

    assert_eq!(say_hi(&server, "bob").0, 200);
    assert_eq!(redis.keys(), [key, "ratelimit:sliding_window:axum_hello::say_hi/bob"]);
    assert_eq!(redis.command::<String>(&format!("TYPE {key}")), "zset");
    assert_eq!(redis.command::<u32>(&format!("ZCARD {key}")), 2);
    let ttl = redis.command::<i64>(&format!("PTTL {key}"));
    assert!((1..=31_000).contains(&ttl), "{ttl}");
}

#[test]
fn a_wrong_url_is_told_by_its_variable_and_never_with_its_password() {
    let output = example("hello").env("RATELIMIT_URL", "http://me:secret@host/").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("RATELIMIT_URL: unknown scheme `http`"), "{error}");
    assert!(error.contains("redis://") && !error.contains("secret"), "{error}");
}
