//! What an operator who listens at debug sees of a decision: the policy and the outcome, and no one.

use std::time::Duration;

use harness::{Lines, RedisServer};
use ratelimit_runtime::{Limiter, OnStoreError, Policy, RateLimitError, rate_limit};

/// Those of decisions so far, without the time they took.
fn decisions(lines: &Lines) -> Vec<String> {
    let lines = lines.all();
    let decided = lines.iter().filter(|line| line.contains("decided"));
    decided.map(|line| line.split(" elapsed=").next().unwrap().to_owned()).collect()
}

#[rate_limit(name = "greet", period = 60, threshold = 1, key = user, limiter = limiter)]
async fn greet(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "rehearsed", period = 60, threshold = 1, key = user, limiter = limiter, dry_run)]
async fn rehearsed(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_decision_in_memory_is_one_event() {
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.clone());
    let limiter = Limiter::in_memory();
    greet(&limiter, "secret-name").await.unwrap();
    greet(&limiter, "secret-name").await.unwrap_err();
    rehearsed(&limiter, "secret-name").await.unwrap();
    rehearsed(&limiter, "secret-name").await.unwrap();
    limiter
        .check(&Policy::token_bucket("by-hand", Duration::from_secs(1), 3), "secret-name")
        .await
        .unwrap();
    let event = |policy: &str, algorithm: &str, outcome: &str, remaining: u32, wait: &str| {
        format!(
            "DEBUG message=rate limit decided policy=\"{policy}\" algorithm=\"{algorithm}\" tier=0 \
             outcome=\"{outcome}\" remaining={remaining} wait={wait} source=\"store\""
        )
    };
    assert_eq!(
        decisions(&lines),
        [
            event("greet", "sliding_window", "admitted", 0, "60s"),
            event("greet", "sliding_window", "refused", 0, "60s"),
            event("rehearsed", "sliding_window", "admitted", 0, "60s"),
            event("rehearsed", "sliding_window", "would_have_refused", 0, "60s"),
            event("by-hand", "token_bucket", "admitted", 2, "333.334ms"),
        ]
    );
    assert!(!lines.all().iter().any(|line| line.contains("secret-name")));
}

#[tokio::test]
async fn callers_are_told_apart_by_a_digest_where_that_is_asked_for() {
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.clone());
    let with_secret = |secret: &str| Limiter::builder().caller_digest(secret).in_memory();
    let (limiter, same, other) =
        (with_secret("secret"), with_secret("secret"), with_secret("another"));
    for (limiter, user) in
        [(&limiter, "alice"), (&same, "alice"), (&limiter, "bob"), (&other, "alice")]
    {
        greet(limiter, user).await.unwrap();
    }
    let digests: Vec<_> = decisions(&lines)
        .iter()
        .map(|line| line.split_once(" caller=\"").unwrap().1.split('"').next().unwrap().to_owned())
        .collect();
    // printf '\0\0\0\0\0\0\0\6secret/alice' | sha256sum | head -c 16
    assert_eq!(digests[0], "e36e33ff45a5a1cf");
    assert_eq!(digests[1], digests[0]);
    assert_ne!(digests[2], digests[0]);
    assert_ne!(digests[3], digests[0]);
    assert!(!format!("{:?}", Limiter::builder().caller_digest("secret")).contains("secret"));
}

#[tokio::test]
async fn who_decided_is_told() {
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.clone());
    let mut server = RedisServer::start();
    let local = server.limiter().await;
    greet(&local, "alice").await.unwrap();
    greet(&local, "alice").await.unwrap_err();
    greet(&local, "alice").await.unwrap_err();
    let denying = Limiter::builder().on_store_error(OnStoreError::Deny);
    let denying = denying.connect(&server.url()).await.unwrap();
    let allowing = Limiter::builder().on_store_error(OnStoreError::Allow);
    let allowing = allowing.connect(&server.url()).await.unwrap();
    server.kill();
    greet(&local, "bob").await.unwrap();
    greet(&denying, "bob").await.unwrap_err();
    greet(&allowing, "bob").await.unwrap();
    let told: Vec<_> = decisions(&lines)
        .iter()
        .map(|line| {
            let word = |name: &str| {
                let value = line.split_once(&format!(" {name}=\"")).unwrap().1;
                value.split('"').next().unwrap().to_owned()
            };
            (word("outcome"), word("source"))
        })
        .collect();
    let expected = [
        ("admitted", "store"),
        ("refused", "store"),
        ("refused", "refusals"),
        ("admitted", "fallback"),
        ("unavailable", "nobody"),
        ("admitted", "nobody"),
    ];
    assert_eq!(told, expected.map(|(outcome, source)| (outcome.to_owned(), source.to_owned())));
}
