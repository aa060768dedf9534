//! The event of a decision has the policy and the outcome, and no caller.

use std::time::Duration;

use futures_util::future::join_all;
use harness::{Lines, Network, Proxy, RedisServer, listen, patient, until};
use ratelimit_runtime::{
    DecidedBy, Limiter, OnStoreError, Plans, Policy, RateLimitError, rate_limit,
};

/// Returns the decision events so far, without their times.
fn decisions(lines: &Lines) -> Vec<String> {
    let lines = lines.all();
    let decided = lines.iter().filter(|line| line.contains("decided"));
    decided.map(|line| line.split(" elapsed=").next().unwrap().to_owned()).collect()
}

#[rate_limit(name = "greet", period = 60, threshold = 1, key = user, limiter = limiter)]
async fn greet(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "dry", period = 60, threshold = 1, key = user, limiter = limiter, dry_run)]
async fn dry(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_decision_in_memory_is_one_event() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let limiter = Limiter::in_memory();
    greet(&limiter, "secret-name").await.unwrap();
    greet(&limiter, "secret-name").await.unwrap_err();
    dry(&limiter, "secret-name").await.unwrap();
    dry(&limiter, "secret-name").await.unwrap();
    limiter
        .check(&Policy::token_bucket("by-hand", Duration::from_secs(1), 3), "secret-name")
        .await
        .unwrap();
    let event = |policy: &str, algorithm: &str, outcome: &str, remaining: u32, wait: &str| {
        format!(
            "DEBUG message=rate limit decided policy=\"{policy}\" algorithm=\"{algorithm}\" tier=0 \
             outcome=\"{outcome}\" remaining={remaining} wait={wait} decided_by=\"store\""
        )
    };
    assert_eq!(
        decisions(&lines),
        [
            event("greet", "sliding_window", "admitted", 0, "60s"),
            event("greet", "sliding_window", "refused", 0, "60s"),
            event("dry", "sliding_window", "admitted", 0, "60s"),
            event("dry", "sliding_window", "would_have_refused", 0, "60s"),
            event("by-hand", "token_bucket", "admitted", 2, "333.334ms"),
        ]
    );
    assert!(!lines.all().iter().any(|line| line.contains("secret-name")));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_is_an_event_and_its_decision_tells_how_long_it_has_waited() {
    const LINE: Policy = Policy::sliding_window("line", Duration::from_secs(60), 1);
    const FLIGHT: Policy = Policy::concurrency_limit("flight", 1);
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let limiter = Limiter::in_memory();
    let wait = |policy| limiter.check(policy, "alice").max_wait(Duration::from_secs(90));
    for _ in 0..2 {
        wait(&LINE).await.unwrap();
    }
    let held = wait(&FLIGHT).await.unwrap();
    let free = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(held);
    };
    let (waited, ()) = tokio::join!(wait(&FLIGHT).into_future(), free);
    waited.unwrap();
    // It would wait for too long, and does not wait at all.
    let late = limiter.check(&LINE, "alice").max_wait(Duration::from_secs(58));
    late.await.unwrap_err();
    let words = |line: &String| {
        let words = line.split(' ').filter(|word| {
            ["policy=", "wait=", "waited=", "outcome="].iter().any(|it| word.starts_with(it))
        });
        words.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        lines.all().iter().map(words).collect::<Vec<_>>(),
        [
            r#"policy="line" outcome="admitted" wait=60s"#,
            r#"policy="line" wait=60s"#,
            r#"policy="line" outcome="admitted" wait=60s waited=60s"#,
            r#"policy="flight" outcome="admitted" wait=0ns"#,
            r#"policy="flight""#,
            r#"policy="flight" outcome="admitted" wait=0ns waited=1s"#,
            r#"policy="line" outcome="refused" wait=59s"#,
        ]
    );
    assert!(lines.all()[1].contains("rate limit call waits"));
}

#[tokio::test]
async fn the_default_prefix_on_redis_is_a_warning_and_a_prefix_of_ones_own_is_none() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let redis = RedisServer::start();
    let warnings = || lines.all().iter().filter(|line| line.contains("default key prefix")).count();
    let _own = Limiter::builder().prefix("shop:").connect(&redis.url()).await.unwrap();
    let _meant = Limiter::builder().prefix("ratelimit:").connect(&redis.url()).await.unwrap();
    let _nobody_shares = Limiter::in_memory();
    assert_eq!(warnings(), 0);
    let _default = Limiter::connect(&redis.url()).await.unwrap();
    tracing::callsite::rebuild_interest_cache();
    let _again = Limiter::connect(&redis.url()).await.unwrap();
    assert!((1..=2).contains(&warnings()), "{:?}", lines.all());
}

#[tokio::test]
async fn a_lease_of_few_units_is_one_warning_for_each_limit_on_redis() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let redis = RedisServer::start();
    let lease = |name, threshold| {
        let second = Duration::from_secs(1);
        Policy::sliding_window(name, second, threshold).lease(second / 50)
    };
    let warned = |name: &str| {
        let lines = lines.all();
        let of_it = lines.iter().filter(|line| line.contains(&format!("policy=\"{name}\"")));
        of_it.filter(|line| line.contains("lease is for higher thresholds")).count()
    };
    let limiter = Limiter::connect(&redis.url()).await.unwrap();
    let memory = Limiter::in_memory();
    for _ in 0..3 {
        limiter.check(&lease("few", 450), "alice").await.unwrap();
        limiter.check(&lease("enough", 500), "alice").await.unwrap();
        memory.check(&lease("here", 10), "alice").await.unwrap();
    }
    assert_eq!([warned("few"), warned("enough"), warned("here")], [1, 0, 0], "{:?}", lines.all());
}

#[tokio::test]
async fn a_lease_shorter_than_three_round_trips_is_one_warning_for_each_limit() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port());
    let far = Network::Slow { latency: Duration::from_millis(15), jitter: Duration::ZERO };
    proxy.set(far);
    let limiter = patient(&proxy.url()).await;
    // A round trip is 30 ms at least.
    let lease = |name| {
        Policy::sliding_window(name, Duration::from_secs(1), 10_000)
            .lease(Duration::from_millis(80))
    };
    let short = ["far", "farther"].map(lease);
    let warned = |name: &str| {
        let lines = lines.all();
        let of_it = lines.iter().filter(|line| line.contains(&format!("policy=\"{name}\"")));
        of_it.filter(|line| line.contains("WARN") && line.contains("round trip")).count()
    };
    for (policy, others) in [(&short[0], 0), (&short[1], 1)] {
        // Also by the key of another caller, whose task is another.
        for caller in ["alice", "bob"] {
            // Of several leases.
            let mut on_lease = 0;
            until("decisions by leases", async || {
                for decision in
                    join_all((0..8).map(|_| limiter.check(policy, caller).into_future())).await
                {
                    on_lease += u32::from(decision.unwrap().decided_by() == DecidedBy::Lease);
                }
                (warned(policy.name()) == 1 && on_lease > 40).then_some(())
            })
            .await;
        }
        assert_eq!(warned("far") + warned("farther"), others + 1, "{:?}", lines.all());
    }
}

#[tokio::test]
async fn callers_are_distinguished_by_a_digest_on_request() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
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
async fn an_event_names_the_part_that_decided() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
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
    let outcomes: Vec<_> = decisions(&lines)
        .iter()
        .map(|line| {
            let word = |name: &str| {
                let value = line.split_once(&format!(" {name}=\"")).unwrap().1;
                value.split('"').next().unwrap().to_owned()
            };
            (word("outcome"), word("decided_by"))
        })
        .collect();
    let expected = [
        ("admitted", "store"),
        ("refused", "store"),
        ("refused", "deny_cache"),
        ("admitted", "fallback"),
        ("unavailable", "none"),
        ("admitted", "none"),
    ];
    assert_eq!(outcomes, expected.map(|(outcome, source)| (outcome.to_owned(), source.to_owned())));
}

#[tokio::test]
async fn a_policy_that_breaks_a_rule_is_an_event_a_call_and_an_error_once() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let limiter = Limiter::in_memory();
    for policy in [
        Policy::sliding_window("wrong", Duration::ZERO, 1),
        Policy::sliding_window("wrong too", Duration::from_secs(60), 1_000_000_001),
    ] {
        for _ in 0..3 {
            limiter.check(&policy, "secret-name").await.unwrap_err();
        }
    }
    let event = "DEBUG message=rate limit not decided policy=\"wrong\" algorithm=\"sliding_window\" \
                 outcome=\"invalid_policy\" reason=invalid rate limit policy `wrong`: `period` must be \
                 at least 1 ms, but is 0 decided_by=\"limiter\"";
    let logged = lines.all();
    assert_eq!(decisions(&lines).iter().filter(|line| *line == event).count(), 3, "{logged:?}");
    let errors: Vec<_> = logged.iter().filter(|line| line.starts_with("ERROR")).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors[0].contains("policy=\"wrong\" rule=`period` must be at least 1 ms"),
        "{errors:?}"
    );
    assert!(errors[1].contains("policy=\"wrong too\" rule=`threshold` must be"), "{errors:?}");
    assert!(!logged.iter().any(|line| line.contains("secret-name")));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_is_logged_once_a_minute_with_the_calls_since() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let limiter = Limiter::in_memory();
    let logged = || -> Vec<String> {
        let lines = lines.all().into_iter().filter(|line| line.contains("dry run"));
        lines.map(|line| line.split(" latest=").next().unwrap().to_owned()).collect()
    };
    let line = |policy: &str, calls: u32| {
        let message = "INFO message=dry run: calls would have been refused";
        format!("{message} policy=\"{policy}\" calls={calls}")
    };
    for _ in 0..1_000 {
        dry(&limiter, "alice").await.unwrap();
    }
    assert_eq!(logged(), [line("dry", 1)]);
    tokio::time::advance(Duration::from_secs(59)).await;
    dry(&limiter, "alice").await.unwrap();
    assert_eq!(logged().len(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    // Admitted again, and then refused for the thousandth time since.
    dry(&limiter, "alice").await.unwrap();
    assert_eq!(logged().len(), 1);
    dry(&limiter, "alice").await.unwrap();
    assert_eq!(logged(), [line("dry", 1), line("dry", 1_000)]);
    // Another limit is another line.
    limiter.overrides().here().set("*", ratelimit_runtime::Enforcement::DryRun).unwrap();
    for _ in 0..3 {
        greet(&limiter, "alice").await.unwrap();
    }
    assert_eq!(logged()[2..], [line("greet", 1)]);
}

#[tokio::test]
async fn a_caller_who_has_used_most_of_a_limit_is_one_event_that_names_the_plan() {
    const HOUR: Duration = Duration::from_secs(3_600);
    const API: Plans = Plans::new("nearly-used", "free", Policy::fixed_window("free", HOUR, 2))
        .plan("pro", Policy::fixed_window("pro", HOUR, 10));
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let limiter = Limiter::in_memory();
    let events = || lines.all().into_iter().filter(|it| it.contains("nearly used up"));
    let call = async || limiter.check(API.of("pro"), "secret-name").cost(8).warn_at(80).await;
    call().await.unwrap();
    limiter.check(API.of("pro"), "secret-name").warn_at(80).await.unwrap();
    let event = "INFO message=limit nearly used up policy=\"nearly-used@pro\" percent=80 remaining=2 quota=10";
    assert_eq!(events().collect::<Vec<_>>(), [event]);
    // A reset forgets the warning too, although no function receives it.
    limiter.reset(API.of("pro"), "secret-name").await.unwrap();
    call().await.unwrap();
    assert_eq!(events().count(), 2);
}
