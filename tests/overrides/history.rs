//! Each change of an override is kept with its time, its source and its operator, and ends when it is said to.

use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

use harness::{NOTICED, RedisServer, Watch, exceeded, on_each_store, until};
use ratelimit_runtime::{
    Caller, Enforcement, Limiter, Override, Policy,
    overrides::{OverrideChange, OverrideSource},
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const POLICY: Policy = Policy::sliding_window("of_history", HOUR, 1);

/// A change without its number and time: source, operator, limit, caller, before and after.
type Told = (OverrideSource, Option<String>, String, Option<Caller>, String, String);

fn told(change: &OverrideChange) -> Told {
    let text =
        |what: &Option<Override>| what.as_ref().map_or("none".to_owned(), ToString::to_string);
    let operator = change.operator.as_deref().map(str::to_owned);
    let (before, after) = (text(&change.before), text(&change.after));
    (change.source, operator, change.limit.clone(), change.caller.clone(), before, after)
}

fn expected(
    source: OverrideSource,
    operator: Option<&str>,
    limit: &str,
    caller: Option<Caller>,
    before: &str,
    after: &str,
) -> Told {
    let operator = operator.map(str::to_owned);
    (source, operator, limit.to_owned(), caller, before.to_owned(), after.to_owned())
}

/// The history of a limiter, the earliest change first.
fn history(limiter: &Limiter) -> Vec<Told> {
    limiter.overrides().history().iter().rev().map(told).collect()
}

#[tokio::test]
async fn changes_by_code_and_by_operators_are_kept_with_both_values() {
    let watch = Watch::start();
    let limiter = Limiter::in_memory();
    let (overrides, start) = (limiter.overrides(), SystemTime::now());
    let alice = overrides.by("alice");
    overrides.here().set(POLICY.name(), Override::new().threshold(5)).unwrap();
    alice.here().set(POLICY.name(), Override::new().threshold(7)).unwrap();
    // The same again is no change.
    alice.here().set(POLICY.name(), Override::new().threshold(7)).unwrap();
    overrides.by("").here().set("*", Enforcement::Off).unwrap();
    alice.here().set(("*", Caller::from("acme").and(4)), Override::new().deny()).unwrap();
    alice.here().remove(POLICY.name());
    let (name, none, off) = (POLICY.name(), "none", r#"{"enforcement":"off"}"#);
    let by_alice = r#"{"threshold":7,"by":"alice"}"#;
    let denied = r#"{"deny":true,"by":"alice"}"#;
    let acme = Some(Caller::from("acme").and(4));
    assert_eq!(
        history(&limiter),
        [
            expected(OverrideSource::Program, None, name, None, none, r#"{"threshold":5}"#),
            expected(OverrideSource::Operator, Some("alice"), name, None, none, by_alice),
            expected(OverrideSource::Operator, None, "*", None, none, off),
            expected(OverrideSource::Operator, Some("alice"), "*", acme, none, denied),
            expected(OverrideSource::Operator, Some("alice"), name, None, by_alice, none),
        ]
    );
    let history = overrides.history();
    assert_eq!(history.iter().map(|it| it.number).collect::<Vec<_>>(), [5, 4, 3, 2, 1]);
    assert!(history.iter().all(|it| it.at >= start && it.at <= SystemTime::now()));
    assert!(watch.text().contains("operator=\"alice\""), "{}", watch.text());

    for threshold in 10..200 {
        overrides.here().set(name, Override::new().threshold(threshold)).unwrap();
    }
    let history = overrides.history();
    assert_eq!((history.len(), history[0].number, history[99].number), (100, 195, 96));
    assert_eq!(history[0].after, Some(Override::new().threshold(199)));
}

#[tokio::test]
async fn changes_by_a_file_are_kept_and_rejected_ones_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.toml");
    fs::write(&path, "[limits]\nof_history = { threshold = 7, by = \"bob\" }").unwrap();
    let limiter = Limiter::in_memory();
    limiter.overrides().follow_file(&path).unwrap();
    let rejected = async |text: &str| {
        fs::write(&path, text).unwrap();
        until("the problem", async || limiter.overrides().problems().pop()).await;
    };
    rejected("[limits]\nof_history = { threshold = 0 }").await;
    fs::write(&path, "enforcement = \"dry_run\"").unwrap();
    until("the change", async || limiter.overrides().enforcement()).await;
    let (file, bob) = (OverrideSource::File, r#"{"threshold":7,"by":"bob"}"#);
    assert_eq!(
        history(&limiter),
        [
            expected(file, Some("bob"), POLICY.name(), None, "none", bob),
            expected(file, None, POLICY.name(), None, bob, "none"),
            expected(file, None, "*", None, "none", r#"{"enforcement":"dry_run"}"#),
        ]
    );
}

#[tokio::test]
async fn the_operator_of_a_change_on_redis_is_known_in_every_process() {
    let server = RedisServer::start();
    let (here, there) = (server.limiter().await, server.limiter().await);
    let (alice, name) = (here.overrides().by("alice"), POLICY.name());
    let until_changes = async |count: usize| {
        for limiter in [&here, &there] {
            let kept = async || (limiter.overrides().history().len() == count).then_some(());
            until("the changes", kept).await;
        }
    };
    alice.fleet().set(name, Override::new().threshold(7)).await.unwrap();
    until_changes(1).await;
    alice.fleet().set("*", Enforcement::Off).await.unwrap();
    until_changes(2).await;
    alice.fleet().set((name, "mallory"), Override::new().deny()).await.unwrap();
    until_changes(3).await;
    alice.fleet().remove((name, "mallory")).await.unwrap();
    until_changes(4).await;
    alice.fleet().remove(name).await.unwrap();
    until_changes(5).await;
    let () = server.command("HDEL ratelimit:overrides *");
    until_changes(6).await;

    let (redis, none) = (OverrideSource::Redis, "none");
    let seven = r#"{"threshold":7,"by":"alice"}"#;
    let denied = r#"{"deny":true,"by":"alice"}"#;
    let off = r#"{"enforcement":"off","by":"alice"}"#;
    let mallory = || Some(Caller::from("mallory"));
    // A removed field has no name in it: only the process that has removed it knows whose it was.
    for (limiter, remover) in [(&here, Some("alice")), (&there, None)] {
        assert_eq!(
            history(limiter),
            [
                expected(redis, Some("alice"), name, None, none, seven),
                expected(redis, Some("alice"), "*", None, none, off),
                expected(redis, Some("alice"), name, mallory(), none, denied),
                expected(redis, remover, name, mallory(), denied, none),
                expected(redis, remover, name, None, seven, none),
                expected(redis, None, "*", None, off, none),
            ]
        );
    }
    // A removal that Redis has refused is nobody's later.
    here.overrides().fleet().set(name, Override::new().threshold(7)).await.unwrap();
    until_changes(7).await;
    let () = server.command("ACL SETUSER default -hdel");
    assert!(alice.fleet().remove(name).await.is_err());
    let () = server.command("ACL SETUSER default +hdel");
    here.overrides().fleet().remove(name).await.unwrap();
    until_changes(8).await;
    assert_eq!(here.overrides().history()[0].operator, None);
}

#[tokio::test]
async fn who_removes_nothing_has_not_removed_what_another_removes_later() {
    let server = RedisServer::start();
    let (here, there) = (server.limiter().await, server.limiter().await);
    let (alice, name) = (here.overrides().by("alice"), POLICY.name());
    let changes = async |count: usize| {
        until("the changes", async || (here.overrides().history().len() == count).then_some(()))
            .await;
    };
    alice.fleet().remove(name).await.unwrap();
    alice.fleet().remove((name, "mallory")).await.unwrap();
    there.overrides().fleet().set(name, Override::new().threshold(7)).await.unwrap();
    there.overrides().fleet().set((name, "mallory"), Override::new().deny()).await.unwrap();
    changes(2).await;
    there.overrides().fleet().remove(name).await.unwrap();
    there.overrides().fleet().remove((name, "mallory")).await.unwrap();
    changes(4).await;
    assert!(here.overrides().history().iter().all(|change| change.operator.is_none()));

    // Nor one whose removal another has undone before it was read.
    there.overrides().fleet().set(name, Override::new().threshold(7)).await.unwrap();
    changes(5).await;
    let mut undone = redis::pipe();
    undone.atomic().cmd("HDEL").arg("ratelimit:overrides").arg(name);
    undone.cmd("HSET").arg("ratelimit:overrides").arg(name).arg("off");
    here.overrides().by("alice").fleet().remove(name).await.unwrap();
    let () = undone.query(&mut server.connection()).unwrap();
    until("the change", async || here.overrides().get(name)?.enforcement).await;
    let () = server.command(&format!("HDEL ratelimit:overrides {name}"));
    until("its end", async || here.overrides().get(name).is_none().then_some(())).await;
    assert_eq!(here.overrides().history()[0].operator, None);
}

#[tokio::test]
async fn an_operator_of_a_process_comes_before_redis() {
    let server = RedisServer::start();
    let () = server.command("HSET ratelimit:overrides * on");
    let () = server.command(r#"HSET ratelimit:overrides of_history {"threshold":3}"#);
    let limiter = server.limiter().await;
    let overrides = limiter.overrides();
    overrides.by("alice").here().set("*", Enforcement::DryRun).unwrap();
    let dry_run = (Enforcement::DryRun, OverrideSource::Operator);
    assert_eq!(overrides.enforcement(), Some(dry_run));
    overrides.here().set("*", Enforcement::Off).unwrap();
    assert_eq!(overrides.enforcement(), Some(dry_run));
    overrides.by("bob").here().remove("*");
    assert_eq!(overrides.enforcement(), Some((Enforcement::On, OverrideSource::Redis)));
}

#[tokio::test]
async fn an_override_of_a_limit_and_a_kill_switch_end_by_themselves() {
    on_each_store(async |limiter| {
        let overrides = limiter.overrides().by("alice");
        let end = SystemTime::now() + SECOND;
        overrides.here().set(POLICY.name(), Override::new().threshold(3).until(end)).unwrap();
        let off = Override::new().enforcement(Enforcement::Off).until(end + SECOND);
        overrides.here().set("*", off.clone()).unwrap();
        assert!(overrides.here().set("*", Override::new().threshold(3)).is_err());
        assert_eq!(overrides.by_source("*"), [(OverrideSource::Operator, off.by("alice"))]);
        for _ in 0..5 {
            limiter.check(&POLICY, "alice").await.unwrap();
        }
        let start = Instant::now();
        until("the end of the numbers", async || {
            overrides.get(POLICY.name()).is_none().then_some(())
        })
        .await;
        assert!(start.elapsed() <= SECOND + NOTICED, "{:?}", start.elapsed());
        assert!(SystemTime::now() >= end && overrides.enforcement().is_some());
        until("a refusal", async || limiter.check(&POLICY, "alice").await.err()).await;
        assert_eq!(exceeded(limiter.check(&POLICY, "alice").await).threshold(), 1);
        assert!(SystemTime::now() >= end + SECOND);
        let ended = &overrides.history()[0];
        assert_eq!((ended.at, ended.after.clone()), (end + SECOND, None));
        assert_eq!((ended.operator.clone(), &*ended.limit), (None, "*"));
    })
    .await;
}

#[tokio::test]
async fn an_override_on_redis_ends_in_the_fleet_and_for_processes_that_start_later() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let end = SystemTime::now() + 2 * SECOND;
    let what = Override::new().threshold(7).until(end);
    limiter.overrides().fleet().set(POLICY.name(), what.clone()).await.unwrap();
    let threshold = async |limiter: &Limiter| {
        limiter.peek(&POLICY, "anyone").cost(0).await.unwrap().threshold()
    };
    until("the override", async || (threshold(&limiter).await == 7).then_some(())).await;
    until("its end", async || (threshold(&limiter).await == 1).then_some(())).await;
    assert!(SystemTime::now() >= end);
    assert_eq!(threshold(&server.limiter().await).await, 1);
    assert_eq!(limiter.overrides().fleet().get(POLICY.name()).await.unwrap(), None);
    // The field is there until someone removes it.
    let fields: Vec<String> = server.command("HKEYS ratelimit:overrides");
    assert_eq!(fields, [POLICY.name()]);
}
