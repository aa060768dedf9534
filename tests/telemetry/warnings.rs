//! Lines of the log that an operator reads during and after a failure.

use std::time::Duration;

use harness::{Lines, RedisServer, listen, until};
use ratelimit_runtime::{Limiter, OnStoreError, Policy};

/// An operator looks for one field.
#[tokio::test]
async fn each_line_about_a_failing_server_names_it_in_one_field() {
    const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 100);
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let mut server = RedisServer::start();
    let limiter = Limiter::builder().on_store_error(OnStoreError::Allow);
    let limiter = limiter.connect(&server.url()).await.unwrap();
    let named = format!(" server=\"Redis at {}\"", server.url().split_off(8));
    let told = async |what: &str| {
        until(what, async || {
            let _ = limiter.check(&POLICY, "alice").await;
            let lines = lines.all();
            lines.into_iter().find(|line| line.contains(what))
        })
        .await
    };
    server.kill();
    let open = told("circuit breaker open").await;
    assert!(open.contains(&named), "{open}");
    server.restart();
    let closed = told("circuit breaker closed").await;
    assert!(closed.contains(&named), "{closed}");
    server.kill();
    until("the second outage", async || {
        let _ = limiter.check(&POLICY, "alice").await;
        let is_open = |line: &&String| line.contains("circuit breaker open");
        (lines.all().iter().filter(is_open).count() == 2).then_some(())
    })
    .await;
    drop(limiter);
    let removed = until("the end of the limiter", async || {
        lines.all().into_iter().find(|line| line.contains("store removed"))
    })
    .await;
    assert!(removed.contains(&named), "{removed}");
}
