//! Lines of the log that an operator reads during and after a failure.

use std::time::Duration;

use harness::{Lines, RedisServer, listen, ran_in_own_process_with, until};
use ratelimit_runtime::{Limiter, OnStoreError, Policy, RateLimitError, rate_limit};

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

/// Each command that cannot be sent is told with its own consequence.
#[tokio::test]
async fn an_unsent_command_is_told_with_what_follows() {
    const SECOND: Duration = Duration::from_secs(1);
    const COUNT: Policy = Policy::fixed_window("count", SECOND, 9);
    const LINE: Policy = Policy::fixed_window("line", Duration::from_secs(3), 1);
    const FLIGHT: Policy = Policy::concurrency_limit("flight", 1).concurrency_timeout(SECOND);
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let mut server = RedisServer::start();
    let (mut limiters, mut decisions) = (Vec::new(), Vec::new());
    for policy in [COUNT, LINE, FLIGHT] {
        // Each tells its own, once a minute.
        let limiter = server.limiter().await;
        decisions.push(limiter.check(&policy, "alice").await.unwrap());
        limiters.push(limiter);
    }
    let waiting = limiters[1].clone();
    let waiting =
        tokio::spawn(
            async move { waiting.check(&LINE, "alice").max_wait(9 * SECOND).await.map(drop) },
        );
    until("the line", async || {
        lines.all().iter().any(|line| line.contains("call waits")).then_some(())
    })
    .await;
    server.kill();
    waiting.abort();
    waiting.await.unwrap_err();
    decisions[0].settle(0);
    drop(decisions);
    for (limiter, (command, follows)) in limiters.iter().zip([
        ("settle", "the call stays charged with what it reserved"),
        ("leave", "the place in the line stays taken until its turn has passed"),
        ("release", "the permit stays held until it expires"),
    ]) {
        until("the end of the command", async || limiter.flush().await.ok()).await;
        let lines = lines.all();
        let of_it = format!("command=\"{command}\"");
        let told: Vec<_> = lines.iter().filter(|line| line.contains(&of_it)).collect();
        assert!(told.len() == 1 && told[0].contains(follows), "{told:?}");
    }
}

#[rate_limit(name = "unread", period = 60, threshold = 9, key = 1)]
async fn unread() -> Result<(), RateLimitError> {
    Ok(())
}

/// A service that forgets to install its limiter counts in each process.
#[tokio::test]
async fn a_url_that_no_limiter_reads_is_one_warning() {
    let test = "warnings::a_url_that_no_limiter_reads_is_one_warning";
    let url = "RATELIMIT_URL";
    if ["", "redis://10.0.0.7"].map(|of| ran_in_own_process_with(test, &[(url, of)])) == [true; 2] {
        return;
    }
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    unread().await.unwrap();
    unread().await.unwrap();
    let told: Vec<_> = lines.all().into_iter().filter(|line| line.contains(url)).collect();
    assert_eq!(told.len(), usize::from(std::env::var(url).unwrap() != ""), "{told:?}");
    let advice = "install(Limiter::from_env().await?)?";
    assert!(told.iter().all(|line| line.contains("WARN") && line.contains(advice)), "{told:?}");
}
