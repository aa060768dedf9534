//! A limiter that cannot connect reports the reason, the place and the fix, and never a password.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use harness::{RedisServer, free_port, ran_in_own_process};
use ratelimit_runtime::{AlreadyInstalled, Limiter, Policy, install};

const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 1);

async fn refused(url: &str) -> String {
    let error = Limiter::connect(url).await.expect_err("the URL cannot be used");
    assert_eq!(error.to_string(), format!("{error:?}"));
    error.to_string()
}

#[tokio::test]
async fn a_malformed_url_names_the_schemes() {
    for url in ["", "localhost", "redis://me:secret@", "redis://me:secret@host:port/", "memory://x"]
    {
        let error = refused(url).await;
        assert!(error.starts_with("rate limit store URL: malformed URL ("), "{error}");
        assert!(error.contains("memory://, redis://, rediss://"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn an_unknown_scheme_is_named() {
    let error = refused("https://me:secret@host").await;
    assert_eq!(
        error,
        "rate limit store URL: unknown scheme `https`; \
         the schemes are memory://, redis://, rediss://, unix://, redis+cluster:// or \
         redis+sentinel://"
    );
}

#[tokio::test]
async fn an_absent_server_is_reported_at_once_with_address_and_cause() {
    let port = free_port();
    let error = refused(&format!("redis://me:secret@127.0.0.1:{port}")).await;
    assert!(
        error.starts_with(&format!(
            "rate limit store URL: cannot connect to Redis at 127.0.0.1:{port}: Connection refused"
        )),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_silent_server_is_given_up_within_a_second() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = Instant::now();
    let error = refused(&format!("redis://{}", silent.local_addr().unwrap())).await;
    let took = start.elapsed();
    assert!(took < Duration::from_millis(1_500), "{took:?}");
    assert!(error.contains("no answer within 1s") || error.contains("timed out"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_reported_without_it() {
    let server = RedisServer::start();
    let () = server.command("CONFIG SET requirepass right");
    let error = refused(&server.url().replace("redis://", "redis://:wrong@")).await;
    assert!(error.contains("cannot connect to Redis at 127.0.0.1:"), "{error}");
    assert!(!error.contains("wrong"), "{error}");
}

#[tokio::test]
async fn every_way_to_name_a_store_works() {
    let server = RedisServer::start();
    for url in [String::from("memory://"), server.url(), server.unix_url()] {
        let limiter = Limiter::connect(&url).await.expect(&url);
        assert!(limiter.check(&POLICY, &url).await.is_ok(), "{url}");
        assert!(limiter.check(&POLICY, &url).await.is_err(), "{url}");
    }
}

#[tokio::test]
async fn a_limiter_is_installed_once() {
    if ran_in_own_process("connect::a_limiter_is_installed_once") {
        return;
    }
    assert_eq!(install(Limiter::in_memory()), Ok(()));
    assert_eq!(install(Limiter::in_memory()), Err(AlreadyInstalled));
}
