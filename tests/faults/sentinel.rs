//! A limiter follows a primary that Sentinels replace, without a restart.

use std::time::{Duration, Instant};

use harness::{
    DEADLINE, FaultLine, History, Load, NOTICED, Outcome, Promise, RedisServer, Sentinels, Watch,
    free_port, limiter_on, lone_sentinel, unavailable, until, until_decided, url_of_sentinels,
    wait_for, wall_clock,
};
use ratelimit_runtime::{Limiter, OnStoreError, Policy};

const MINUTE: Duration = Duration::from_secs(60);
const POLICY: Policy = Policy::sliding_window("p", MINUTE, 100);
const WIDE: Policy = Policy::sliding_counter("wide", MINUTE, 1_000_000);

/// Half a second until the primary is given up, then a vote and a promotion.
const FAILOVER: Duration = Duration::from_secs(8);

/// Makes the old primary a replica of the new one, as the sentinels do some ten seconds later.
fn demote(sentinels: &Sentinels) {
    let [old, new] = &*sentinels.servers else { panic!("two servers") };
    wait_for("the failover", || is_primary(new).then_some(()));
    let follow = format!("REPLICAOF 127.0.0.1 {}", new.port());
    wait_for("the old primary", || old.try_command::<()>(&follow).ok());
}

/// Returns `true` if the server reports the role of a primary. One that has just been demoted closes the
/// connection.
fn is_primary(server: &RedisServer) -> bool {
    let info = server.try_command::<String>("INFO replication");
    info.is_ok_and(|info| info.contains("role:master"))
}

/// Asserts at most one more threshold for a lost primary.
fn assert_bounded(history: &History, lost: u64) {
    let promise = Promise {
        period: 60_000_000,
        threshold: 100,
        late: 10_000_000,
        losses: vec![lost..=lost],
        ..Promise::default()
    };
    assert_eq!(history.faults(&promise), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_is_replaced_and_followed() {
    let mut sentinels = Sentinels::start();
    let limiter = limiter_on(&sentinels.url(), OnStoreError::Deny).await;
    let watch = Watch::start();
    let load = Load::start(&limiter, POLICY, 16, 8, Duration::from_millis(10));
    until("load", async || (load.admitted() == 800).then_some(())).await;
    let (lost, hurt) = (wall_clock(), Instant::now());
    sentinels.servers[0].kill();
    until("an outage", async || (load.unavailable() > 0).then_some(())).await;
    until_decided(&limiter).await;
    let back = hurt.elapsed();
    let refused = load.refused();
    until("load", async || (load.refused() > refused + 100).then_some(())).await;
    let history = load.stop().await;
    FaultLine::of("sentinel: kill -9 of the primary under 16 tasks")
        .with("callers get", history.answers())
        .after("slowest call", history.slowest())
        .with("calls of 50 ms or more", history.slower_than(Duration::from_millis(50)))
        .after("decided again after", back)
        .print();
    assert!(is_primary(&sentinels.servers[1]));
    assert!(history.slowest() < DEADLINE + NOTICED, "{:?}", history.slowest());
    assert!(back < FAILOVER, "{back:?}\n{}", watch.text());
    assert_bounded(&history, lost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_primary_that_comes_back_as_a_replica_is_not_used() {
    let sentinels = Sentinels::start();
    let limiter = limiter_on(&sentinels.url(), OnStoreError::Deny).await;
    let load = Load::start(&limiter, WIDE, 16, 8, Duration::from_millis(10));
    until("load", async || (load.admitted() > 500).then_some(())).await;
    let hurt = Instant::now();
    sentinels.servers[0].signal("STOP");
    until("an outage", async || (load.unavailable() > 0).then_some(())).await;
    until_decided(&limiter).await;
    let back = hurt.elapsed();
    sentinels.servers[0].signal("CONT");
    demote(&sentinels);
    let (unavailable, admitted) = (load.unavailable(), load.admitted());
    until("load", async || (load.admitted() > admitted + 500).then_some(())).await;
    let later = load.unavailable() - unavailable;
    let history = load.stop().await;
    FaultLine::of("sentinel: kill -STOP of the primary under 16 tasks")
        .with("callers get", history.answers())
        .after("slowest call", history.slowest())
        .with("calls of 50 ms or more", history.slower_than(Duration::from_millis(50)))
        .after("decided again after", back)
        .with("unavailable once it is a replica", later)
        .print();
    assert_eq!(later, 0);
    assert!(history.slowest() < DEADLINE + NOTICED, "{:?}", history.slowest());
    assert!(back < FAILOVER, "{back:?}");
    limiter.check(&POLICY, "alice").await.unwrap();
    assert_eq!(sentinels.servers[1].command::<u32>("EXISTS ratelimit:sliding_window:p/alice"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_is_followed_and_keeps_the_counts() {
    let sentinels = Sentinels::start();
    let limiter = limiter_on(&sentinels.url(), OnStoreError::Deny).await;
    let load = Load::start(&limiter, POLICY, 16, 8, Duration::from_millis(10));
    until("load", async || (load.admitted() == 800).then_some(())).await;
    sentinels.fail_over();
    // Until then the old one decides, and nothing is lost.
    demote(&sentinels);
    let hurt = Instant::now();
    until_decided(&limiter).await;
    let back = hurt.elapsed();
    let refused = load.refused();
    until("load", async || (load.refused() > refused + 100).then_some(())).await;
    let history = load.stop().await;
    FaultLine::of("sentinel: planned failover, primary demoted under 16 tasks")
        .with("callers get", history.answers())
        .after("slowest call", history.slowest())
        .after("decided again after", back)
        .print();
    assert!(history.slowest() < DEADLINE + NOTICED, "{:?}", history.slowest());
    // The failover itself, and the breaker's next probe.
    assert!(back < FAILOVER, "{back:?}");
    // What had been counted was on the replica as well.
    assert_eq!(history.count(|outcome| outcome == Outcome::Admitted), 800);
}

#[tokio::test]
async fn one_sentinel_that_answers_is_enough_to_connect() {
    let mut sentinels = Sentinels::start();
    sentinels.sentinels[0].kill();
    sentinels.sentinels[1].signal("STOP");
    let asked = Instant::now();
    let limiter = limiter_on(&sentinels.url(), OnStoreError::Deny).await;
    let took = asked.elapsed();
    FaultLine::of("sentinel: two of three do not answer").after("connected after", took).print();
    assert!(took < Duration::from_secs(3), "{took:?}");
    limiter.check(&POLICY, "alice").await.unwrap();
    assert_eq!(sentinels.servers[0].command::<u32>("EXISTS ratelimit:sliding_window:p/alice"), 1);
}

#[tokio::test]
async fn sentinels_have_a_login_of_their_own() {
    let sentinels = Sentinels::start();
    let () = sentinels.servers[0].command("ACL SETUSER app on >of-app ~* +@all");
    for sentinel in &sentinels.sentinels {
        let () = sentinel.command("ACL SETUSER asker on >of-asker +@all");
        let () = sentinel.command("ACL SETUSER default resetpass >of-nobody");
    }
    let url = sentinels.url().replace("://", "://app:of-app@");
    let login = |user: &str, password: &str| {
        format!("{url}?sentinel_username={user}&sentinel_password={password}")
    };
    for refused in [url.clone(), login("asker", "of-app"), login("app", "of-app")] {
        let error = Limiter::connect(&refused).await.unwrap_err().to_string();
        assert!(error.contains("`mymaster` through Sentinels at 127.0.0.1:"), "{error}");
        assert!(!error.contains("of-"), "{error}");
    }
    for url in [login("asker", "of-asker"), format!("{url}?sentinel_password=of-nobody")] {
        let limiter = limiter_on(&url, OnStoreError::Deny).await;
        until_decided(&limiter).await;
        let users: String = sentinels.servers[0].command("CLIENT LIST TYPE normal");
        assert!(users.contains("user=app"), "{users}");
    }
}

#[tokio::test]
async fn absent_sentinels_and_an_unknown_primary_are_reported() {
    let nobody = format!("redis+sentinel://127.0.0.1:{}/mymaster", free_port());
    let error = Limiter::connect(&nobody).await.unwrap_err().to_string();
    FaultLine::of("sentinel: nobody there").with("connect error", &error).print();
    assert!(error.contains("`mymaster` through Sentinels at 127.0.0.1:"), "{error}");

    let sentinels = Sentinels::start();
    let url = sentinels.url().replace("mymaster", "another");
    let error = Limiter::connect(&url).await.unwrap_err().to_string();
    FaultLine::of("sentinel: another name").with("connect error", &error).print();
    assert!(error.contains("`another` through Sentinels at 127.0.0.1:"), "{error}");

    let builder = Limiter::builder().deadline(DEADLINE).on_store_error(OnStoreError::Deny);
    let limiter = builder.connect_lazy(&nobody).unwrap();
    let asked = Instant::now();
    unavailable(limiter.check(&POLICY, "alice").await);
    assert!(asked.elapsed() < DEADLINE + NOTICED, "{:?}", asked.elapsed());
}

/// A sentinel learns of the failovers of others by their greetings, every two seconds.
#[tokio::test]
async fn a_sentinel_that_has_missed_a_failover_is_not_believed() {
    let primary = RedisServer::start();
    let stale = free_port();
    let sentinels =
        [lone_sentinel(stale, 4), lone_sentinel(primary.port(), 5), lone_sentinel(stale, 4)];
    for _ in 0..20 {
        Limiter::builder().connect(&url_of_sentinels(&sentinels)).await.unwrap();
    }
}
