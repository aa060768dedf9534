//! The processes of a fleet report their counts on Redis while somebody reads them, and only then.

use std::{process::Command, time::Duration};

use harness::{Cluster, RedisServer, Running, until};
use ratelimit_runtime::{
    Limiter, Override, Policy, RateLimitError, UnavailableReason,
    fleet::{FleetCaller, FleetLimit, FleetStatus},
};

/// Starts a process that names callers so, with these calls.
fn process(url: &str, version: &str, callers: &str, calls: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counted"));
    Running::start(command.args([url, version]).args(calls).env("CALLERS", callers))
}

/// Waits until this many processes report their calls, beside the limiter's own process.
async fn status(limiter: &Limiter, processes: usize) -> FleetStatus {
    until("the reports", async || {
        let status = limiter.fleet().await.unwrap();
        let counted = status.processes().iter().filter(|it| it.version.is_some());
        (counted.count() == processes).then_some(status)
    })
    .await
}

fn counted(status: &FleetStatus) -> FleetLimit {
    let mut limits = status.limits().into_iter();
    limits.find(|limit| limit.name == "counted").expect("it was called")
}

/// Returns names, and the refused calls of the last hour.
fn named(callers: &[FleetCaller]) -> Vec<(&str, u64)> {
    callers.iter().map(|caller| (caller.name(), caller.refused_within[2])).collect()
}

#[tokio::test]
async fn sums_and_callers_and_versions_are_those_of_all_processes() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let mut killed = process(&server.url(), "1.0", "shown", &["mallory=41", "eve=3"]);
    let _other = process(&server.url(), "1.1", "shown", &["mallory=60", "alice=1"]);
    let all = status(&limiter, 2).await;
    let versions: Vec<_> = all.processes().iter().filter_map(|it| it.version.as_deref()).collect();
    assert_eq!(versions, ["1.0", "1.1"], "the oldest first");
    let limit = counted(&all);
    // The fleet admits one call of each caller.
    assert_eq!((limit.admitted, limit.refused, limit.undecided), (3, 102, 0));
    assert_eq!(limit.refused_within[2], 102);
    assert_eq!(named(&limit.callers), [("mallory", 100), ("eve", 2)]);

    // A killed process is none of the fleet, and its report is removed.
    killed.kill();
    let rest = status(&limiter, 1).await;
    assert_eq!((counted(&rest).admitted, counted(&rest).refused), (1, 60));
    assert_eq!(
        rest.processes().iter().filter(|it| it.version.as_deref() == Some("1.0")).count(),
        0
    );
    let fields: Vec<String> = server.command("HKEYS ratelimit:status");
    assert_eq!(fields.len(), 1 + rest.processes().len(), "{fields:?}");
}

#[tokio::test]
async fn nothing_is_written_unless_somebody_reads_and_the_hash_ends_by_itself() {
    let server = RedisServer::start();
    let _process = process(&server.url(), "1.0", "hidden", &["mallory=3"]);
    let limiter = server.limiter().await;
    let calls = |name: &str| server.calls().get(name).copied().unwrap_or(0);
    let asked = calls("hget");
    until("some polls", async || (calls("hget") > asked + 8).then_some(())).await;
    assert_eq!(calls("hset"), 0);
    assert!(!server.keys().contains(&"ratelimit:status".to_owned()), "{:?}", server.keys());

    let limit = counted(&status(&limiter, 1).await);
    assert_eq!((limit.refused, limit.callers), (2, Vec::new()));
    let left: u64 = server.command("PTTL ratelimit:status");
    assert!(left > 0 && left <= 60_000, "{left}");
    // What somebody else has written there is no report.
    let () = server.command("HSET ratelimit:status other {} third x");
    assert!(!limiter.fleet().await.unwrap().processes().is_empty());
    // Nobody reads any more.
    let () = server.command("HSET ratelimit:status watched 1");
    let written = async || {
        let before = calls("eval");
        let asked = calls("hget");
        until("some polls", async || (calls("hget") > asked + 8).then_some(())).await;
        calls("eval") - before
    };
    until("no report", async || (written().await == 0).then_some(())).await;
}

#[tokio::test]
async fn a_digest_of_the_fleet_is_the_one_of_this_process_and_is_overridden_in_all() {
    let cluster = Cluster::without_replicas();
    let _one = process(&cluster.url(), "1.0", "digest", &["mallory=5"]);
    let _other = process(&cluster.url(), "1.0", "digest", &["mallory=7"]);
    let builder = || Limiter::builder().deadline(Duration::from_secs(10));
    let limiter = builder().caller_digest("secret").connect(&cluster.url()).await.unwrap();
    let limit = counted(&status(&limiter, 2).await);
    assert_eq!((limit.admitted, limit.refused), (1, 11));
    let [mallory] = &limit.callers[..] else { panic!("{:?}", limit.callers) };
    assert_eq!((mallory.name().len(), mallory.refused_within[2]), (16, 11));
    // This process has refused nobody, and shuts out the caller of the list.
    let overrides = limiter.overrides();
    overrides.fleet().set(("*", mallory), Override::new().deny()).await.unwrap();
    let policy = Policy::fixed_window("other", Duration::from_secs(60), 9);
    until("the override", async || {
        matches!(limiter.check(&policy, "mallory").await, Err(RateLimitError::Denied(_)))
            .then_some(())
    })
    .await;
    limiter.check(&policy, "alice").await.unwrap();
}

#[tokio::test]
async fn without_redis_there_is_no_fleet_and_the_error_says_so() {
    let error = Limiter::in_memory().fleet().await.unwrap_err();
    assert_eq!(error.to_string(), "a limiter in memory has no fleet; connect it to Redis");
    assert_eq!(error.reason(), None);
    let mut server = RedisServer::start();
    let limiter = server.limiter().await;
    let () = server.command("ACL SETUSER default -eval");
    let error = limiter.fleet().await.unwrap_err();
    assert_eq!(error.reason(), Some(UnavailableReason::NoScripts));
    server.kill();
    let error = limiter.fleet().await.unwrap_err();
    assert!(error.to_string().starts_with("no status of the fleet from Redis: "), "{error}");
}

#[tokio::test]
async fn a_user_who_may_not_report_asks_seldom_and_follows_overrides_all_the_same() {
    let server = RedisServer::start();
    let () = server.command("ACL SETUSER limiter on >secret +@all ~ratelimit:overrides*");
    let url = server.url().replace("redis://", "redis://limiter:secret@");
    let process = process(&url, "1.0", "shown", &[]);
    let polls = || server.calls().get("hget").copied().unwrap_or(0);
    let rejected = || -> String {
        let stats: String = server.command("INFO commandstats");
        let line = stats.lines().find(|line| line.starts_with("cmdstat_hget:")).unwrap_or_default();
        let (_, after) = line.split_once("rejected_calls=").unwrap_or_default();
        after.split(',').next().unwrap_or_default().to_owned()
    };
    until("the refusal", async || (rejected() == "1").then_some(())).await;
    let before = polls();
    until("further polls", async || (polls() > before + 12).then_some(())).await;
    assert_eq!(rejected(), "1");
    drop(process);
}
