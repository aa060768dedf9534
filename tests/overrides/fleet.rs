//! A limiter that `connect` or `from_env` builds follows the overrides on its Redis: the kill switch needs
//! nothing in the program, and a Redis that loses them does not end it.

use std::time::{Duration, Instant};

use harness::{Cluster, NOTICED, RedisServer, Sentinels, Watch, unavailable, until};
use ratelimit_runtime::{
    Enforcement, Limiter, OnStoreError, Override, Policy, RateLimitError, UnavailableReason,
    overrides::{OverrideProblem, OverrideSource},
    rate_limit, stats,
};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const POLICY: Policy = Policy::sliding_window("followed", MINUTE, 5);
const KILLED: Option<(Enforcement, OverrideSource)> =
    Some((Enforcement::Off, OverrideSource::Redis));

#[rate_limit(name = "checkout", period = 60, threshold = 5)]
#[expect(dead_code, reason = "to be in the program is enough")]
async fn checkout() -> Result<(), RateLimitError> {
    Ok(())
}

async fn connected(url: &str) -> Limiter {
    let builder = Limiter::builder().deadline(10 * SECOND).on_store_error(OnStoreError::Deny);
    builder.connect(url).await.unwrap()
}

async fn until_enforced(
    limiter: &Limiter,
    expected: Option<(Enforcement, OverrideSource)>,
) -> Duration {
    let start = Instant::now();
    until("the enforcement", async || {
        (limiter.overrides().enforcement() == expected).then_some(())
    })
    .await;
    start.elapsed()
}

/// Returns the problems of a limiter, as the page shows them.
fn problems(limiter: &Limiter) -> Vec<String> {
    limiter.overrides().problems().iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn the_kill_switch_works_for_each_way_to_connect() {
    let (server, cluster, sentinels) = (RedisServer::start(), Cluster::start(), Sentinels::start());
    let node = &cluster.nodes[cluster.home("ratelimit:overrides")];
    let primary = format!("redis://127.0.0.1:{}", sentinels.primary_port(0));
    let primary = redis::Client::open(primary).unwrap();
    let write = |command: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        let of_primary = primary.get_connection().unwrap();
        for mut connection in [server.connection(), node.connection(), of_primary] {
            let () = redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap();
        }
    };
    let lazy = Limiter::builder().deadline(10 * SECOND).connect_lazy(&server.url()).unwrap();
    let limiters = [
        connected(&server.url()).await,
        lazy,
        connected(&cluster.url()).await,
        connected(&sentinels.url()).await,
    ];
    let deaf = Limiter::builder().deadline(10 * SECOND).follow_overrides(false);
    let deaf = deaf.connect(&server.url()).await.unwrap();
    write("HSET ratelimit:overrides * off");
    for limiter in &limiters {
        assert!(limiter.overrides().follows_redis());
        until_enforced(limiter, KILLED).await;
        for _ in 0..10 {
            limiter.check(&POLICY, "alice").await.unwrap();
        }
    }
    // A process that starts later refuses no call, not even the first.
    let late = connected(&server.url()).await;
    assert_eq!(late.overrides().enforcement(), KILLED);
    write("HDEL ratelimit:overrides *");
    for limiter in limiters.iter().chain([&late]) {
        until_enforced(limiter, None).await;
    }
    assert!(!deaf.overrides().follows_redis());
    assert_eq!(deaf.overrides().enforcement(), None);
}

#[tokio::test]
async fn a_fleet_without_overrides_costs_two_or_three_short_commands_a_second() {
    let server = RedisServer::start();
    let limiter = connected(&server.url()).await;
    let read = || server.calls().get("hlen").copied().unwrap_or(0);
    let (before, start) = (read(), Instant::now());
    until("five polls", async || (read() >= before + 5).then_some(())).await;
    assert!(start.elapsed() >= 4 * Duration::from_millis(400), "{:?}", start.elapsed());
    assert!(!server.calls().contains_key("hgetall"));
    assert_eq!(server.clients(), 1, "no second connection for an empty hash");
    drop(limiter);
}

#[tokio::test]
async fn entries_that_change_no_limit_are_reported_until_they_do() {
    let watch = Watch::start();
    let server = RedisServer::start();
    let limiter = connected(&server.url()).await;
    let () = server.command("HSET ratelimit:overrides chekout off checkout {\"threshold\":0}");
    until("both", async || (problems(&limiter).len() == 2).then_some(())).await;
    assert_eq!(
        problems(&limiter),
        [
            "rejected: ratelimit:overrides: invalid override of rate limit `checkout`: `threshold` must be \
             at least 1",
            "the overrides on Redis: no limit is named `chekout`; `checkout` is",
        ]
    );
    assert!(stats::override_problems() >= 2);
    assert_eq!(watch.count("no limit is named `chekout`; `checkout` is"), 1, "{}", watch.text());

    // A limit that is checked by hand is known from then on.
    let () = server.command("HSET ratelimit:overrides checkout off unheard_of off");
    let () = server.command("HDEL ratelimit:overrides chekout");
    let unknown = "the overrides on Redis: no limit is named `unheard_of`";
    until("one", async || (problems(&limiter).len() == 1).then_some(())).await;
    assert_eq!(problems(&limiter), [unknown]);
    let by_hand = Policy::fixed_window("unheard_of", MINUTE, 1);
    limiter.check(&by_hand, "alice").await.unwrap();
    assert_eq!(limiter.overrides().problems(), []);
    assert_eq!(watch.count("`unheard_of`"), 1, "{}", watch.text());
}

#[tokio::test]
async fn a_rejected_file_is_reported_until_it_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.toml");
    std::fs::write(&path, "").unwrap();
    let limiter = Limiter::in_memory();
    limiter.overrides().follow_file(&path).unwrap();
    std::fs::write(&path, "[limits.checkout]\nperid = 3").unwrap();
    let rejected = until("the problem", async || limiter.overrides().problems().pop()).await;
    assert_eq!(rejected.source(), OverrideSource::File);
    assert!(rejected.to_string().contains("unknown field `perid`"), "{rejected}");
    std::fs::write(&path, "").unwrap();
    until("its end", async || limiter.overrides().problems().is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_kill_switch_that_redis_lost_stays_until_the_hash_is_written() {
    let watch = Watch::start();
    let mut server = RedisServer::start();
    let () = server.command("HSET ratelimit:overrides * off checkout dry_run");
    let limiter = connected(&server.url()).await;
    assert_eq!(limiter.overrides().enforcement(), KILLED);
    for _ in 0..2 {
        server.kill();
        server.restart();
        assert!(server.keys().is_empty(), "it keeps nothing");
        let lost = until("the loss", async || {
            let problem = limiter.overrides().problems().pop();
            problem.filter(|it| matches!(it, OverrideProblem::Lost { .. }))
        })
        .await;
        assert!(
            lost.to_string().starts_with("Redis has lost `ratelimit:overrides`; its"),
            "{lost}"
        );
        assert_eq!(limiter.overrides().enforcement(), KILLED);
    }
    assert_eq!(watch.count("overrides on Redis lost"), 1, "{}", watch.text());
    // From the program or the page: the rest is restored with the change.
    limiter.overrides().fleet().remove("checkout").await.unwrap();
    let restored: Vec<String> = server.command("HGETALL ratelimit:overrides");
    assert_eq!(restored, ["*", "off"]);
    until("no problem", async || limiter.overrides().problems().is_empty().then_some(())).await;
    assert_eq!(limiter.overrides().enforcement(), KILLED);

    server.kill();
    server.restart();
    let _ = until("the loss", async || limiter.overrides().problems().pop()).await;
    let () = server.command("HSET ratelimit:overrides * on");
    until_enforced(&limiter, Some((Enforcement::On, OverrideSource::Redis))).await;
    // Emptied by an operator: over the connection on which it was read before.
    let () = server.command("DEL ratelimit:overrides");
    until_enforced(&limiter, None).await;
    assert_eq!(limiter.overrides().problems(), []);
}

#[tokio::test]
async fn the_last_override_that_redis_lost_is_taken_back_by_the_program() {
    let mut server = RedisServer::start();
    let (limiter, other) = (connected(&server.url()).await, connected(&server.url()).await);
    limiter.overrides().fleet().set("checkout", Override::new().threshold(9)).await.unwrap();
    for limiter in [&limiter, &other] {
        let followed = async || limiter.overrides().get("checkout").map(drop);
        until("the override", followed).await;
    }
    server.kill();
    server.restart();
    for limiter in [&limiter, &other] {
        until("the loss", async || {
            let problem = limiter.overrides().problems().pop();
            problem.filter(|it| matches!(it, OverrideProblem::Lost { .. }))
        })
        .await;
    }
    let kept = limiter.overrides().fleet().get("checkout").await.unwrap();
    assert_eq!(kept, Some(Override::new().threshold(9)));
    limiter.overrides().fleet().remove("checkout").await.unwrap();
    for limiter in [&limiter, &other] {
        until("its end", async || limiter.overrides().list().is_empty().then_some(())).await;
    }
}

#[tokio::test]
async fn a_user_who_may_not_read_the_hashes_is_told_once_of_each_and_decides_all_the_same() {
    let watch = Watch::start();
    let server = RedisServer::start();
    let () = server.command("ACL SETUSER limiter on >secret ~* +@all -hlen");
    let url = server.url().replace("redis://", "redis://limiter:secret@");
    let limiter = connected(&url).await;
    let reason = UnavailableReason::NotPermitted;
    assert_eq!(limiter.overrides().redis_failure(), Some(reason));
    let problem = limiter.overrides().problems().pop().unwrap();
    assert!(problem.to_string().contains("cannot be read: the store's user lacks"), "{problem}");
    let start = Instant::now();
    while start.elapsed() < SECOND + NOTICED {
        limiter.check(&POLICY, "alice").cost(0).await.unwrap();
        assert_eq!(limiter.servers()[0].failure(), None);
        tokio::time::sleep(SECOND / 20).await;
    }
    assert_eq!(watch.count("overrides on Redis unreadable"), 2, "{}", watch.text());
    let failed: String = server.command("INFO commandstats");
    let rejected = failed.lines().find(|line| line.starts_with("cmdstat_hlen"));
    assert!(rejected.is_some_and(|line| line.contains("rejected_calls=2,")), "{rejected:?}");
}

#[tokio::test]
async fn a_redis_that_answers_polls_and_refuses_scripts_opens_its_breaker_once() {
    let watch = Watch::start();
    let server = RedisServer::start();
    let () = server.command("ACL SETUSER limiter on >secret ~* +@all -zadd");
    let url = server.url().replace("redis://", "redis://limiter:secret@");
    let limiter = connected(&url).await;
    let start = Instant::now();
    while start.elapsed() < 3 * SECOND {
        assert_eq!(
            unavailable(limiter.check(&POLICY, "alice").await),
            UnavailableReason::NotPermitted
        );
        tokio::time::sleep(SECOND / 50).await;
    }
    assert_eq!(watch.count("circuit breaker open"), 1, "{}", watch.text());
    assert_eq!(limiter.overrides().problems(), []);
}
