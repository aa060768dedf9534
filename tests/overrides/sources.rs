//! Overrides from a file, the environment or Redis take effect within a second in every process that follows
//! them. Invalid ones are logged and change nothing.

use std::{
    fs,
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use harness::{Cluster, NOTICED, RedisServer, Watch, patient, until};
use ratelimit_runtime::{
    Enforcement, Limiter, Override, Policy, RateLimitError, overrides::OverrideSource, rate_limit,
};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
const POLICY: Policy = Policy::sliding_window("reply", MINUTE, 5);

/// The declaration that validates overrides.
#[rate_limit(name = "reply", period = 60, threshold = 5)]
#[expect(dead_code, reason = "to be in the program is enough")]
async fn reply() -> Result<(), RateLimitError> {
    Ok(())
}

async fn threshold(limiter: &Limiter) -> u32 {
    limiter.peek(&POLICY, "anyone").cost(0).await.unwrap().threshold()
}

async fn until_threshold(limiter: &Limiter, expected: u32) -> Duration {
    let start = Instant::now();
    until("the threshold", async || (threshold(limiter).await == expected).then_some(())).await;
    start.elapsed()
}

#[tokio::test]
async fn a_file_applies_in_toml_and_in_json_and_is_followed() {
    let watch = Watch::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.toml");
    fs::write(&path, "[limits.reply]\nthreshold = 7").unwrap();
    let limiter = Limiter::in_memory();
    limiter.overrides().follow_file(&path).unwrap();
    assert_eq!(threshold(&limiter).await, 7);
    assert_eq!(limiter.overrides().source("reply"), Some(OverrideSource::File));

    fs::write(&path, r#"{"limits": {"reply": {"threshold": 8}, "other": "off"}}"#).unwrap();
    let took = until_threshold(&limiter, 8).await;
    assert!(took < SECOND + NOTICED, "{took:?}");

    // One invalid limit, and none of the file applies.
    fs::write(&path, "[limits.other]\nthreshold = 1\n[limits.reply]\nthreshold = 0").unwrap();
    until("a warning", async || (watch.count("overrides refused") == 1).then_some(())).await;
    let message = "invalid override of rate limit `reply`: `threshold` must be at least 1";
    let warning = format!("{}: {message}", path.display());
    assert_eq!(watch.count(&warning), 1, "{}", watch.text());
    assert_eq!(threshold(&limiter).await, 8);
    assert_eq!(limiter.overrides().list()["other"], Override::new().enforcement(Enforcement::Off));

    fs::remove_file(&path).unwrap();
    until("a warning", async || (watch.count("overrides refused") == 2).then_some(())).await;
    assert_eq!(threshold(&limiter).await, 8);

    fs::write(&path, "").unwrap();
    until_threshold(&limiter, 5).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_is_not_applied_while_it_is_being_written() {
    const LOOK: Duration = Duration::from_millis(400);
    const HALF_A_LOOK: Duration = Duration::from_millis(200);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.toml");
    fs::write(&path, "enforcement = \"off\"\n[limits.reply]\nthreshold = 7").unwrap();
    let limiter = Limiter::in_memory();
    limiter.overrides().follow_file(&path).unwrap();
    let is_off = || {
        matches!(limiter.overrides().enforcement(), Some((Enforcement::Off, OverrideSource::File)))
    };
    // Read once after it was emptied, and once after each of two pieces.
    for text in ["", "enforcement = \"off\"\n[limits.reply]\n", "enforcement = \"off\"\n[limits.re"]
    {
        fs::write(&path, text).unwrap();
        tokio::time::sleep(if text.is_empty() { LOOK + HALF_A_LOOK / 2 } else { HALF_A_LOOK })
            .await;
        assert!(is_off(), "{text}");
        assert_eq!(limiter.overrides().list()["reply"], Override::new().threshold(7), "{text}");
    }
    fs::write(&path, "enforcement = \"off\"\n[limits.reply]\nthreshold = 8").unwrap();
    tokio::time::sleep(SECOND).await;
    assert!(is_off());
    assert_eq!(limiter.overrides().list()["reply"], Override::new().threshold(8));
    // Emptied for good.
    fs::write(&path, "").unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(limiter.overrides().enforcement(), None);
    assert!(limiter.overrides().list().is_empty());
}

#[tokio::test]
async fn a_file_that_is_invalid_from_the_start_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.toml");
    let limiter = Limiter::in_memory();
    let refused = || limiter.overrides().follow_file(&path).unwrap_err().to_string();
    assert!(refused().starts_with(&format!("{}: No such file", path.display())), "{}", refused());
    fs::write(&path, "[limits.reply]\nthreshold = 6\nperiod = \"1 week\"").unwrap();
    assert!(refused().contains("line 3") && refused().contains("no unit `week`"), "{}", refused());
    assert_eq!(threshold(&limiter).await, 5);
}

#[test]
fn a_dropped_limiter_follows_no_file() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("limits.toml");
        fs::write(&path, "").unwrap();
        let limiter = Limiter::in_memory();
        limiter.overrides().follow_file(&path).unwrap();
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert_eq!(tasks(), 1);
        drop(limiter);
        until("the task's end", async || (tasks() == 0).then_some(())).await;
    });
}

/// A process that prints the effective limit `shared`.
pub(crate) struct Follower {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Follower {
    pub(crate) fn of(server: &RedisServer) -> Self {
        Self::start(follower().arg(server.url()))
    }

    /// Follows for whom the limit is on.
    pub(crate) fn of_callers(server: &RedisServer) -> Self {
        Self::start(follower().arg(server.url()).arg("callers"))
    }

    fn start(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("follower starts");
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Waits for the next change.
    pub(crate) fn next(&mut self) -> String {
        self.lines.next().expect("the process goes on").unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn follower() -> Command {
    let mut follower = Command::new(env!("CARGO_BIN_EXE_override_follower"));
    follower.env_remove("RATELIMIT_URL");
    follower
}

#[test]
fn the_environment_takes_precedence_over_a_file_and_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.toml");
    fs::write(&path, "enforcement = \"off\"\n[limits.shared]\nthreshold = 7").unwrap();
    let mut by_environment = follower();
    assert_eq!(Follower::start(&mut by_environment).next(), "3, as written");
    by_environment.env("RATELIMIT_OVERRIDES_FILE", &path);
    assert_eq!(Follower::start(&mut by_environment).next(), "7, off");
    by_environment.env("RATELIMIT_OVERRIDES", "[limits.shared]\nthreshold = 9");
    assert_eq!(Follower::start(&mut by_environment).next(), "9, off");
    by_environment.env("RATELIMIT_ENFORCEMENT", "dry_run");
    assert_eq!(Follower::start(&mut by_environment).next(), "9, dry_run");
    // It replaces the enforcement of all limits, and nothing else of their override.
    for (all_limits, holds) in [
        (r#"{ scale = 2.0, enforcement = "off" }"#, "200, dry_run"),
        (r#"{ scale = 2.0, enforce = "10%" }"#, "200, dry_run"),
        ("[{ scale = 2.0, from = 2001-01-01T00:00:00Z }]", "200, dry_run"),
        ("[{ scale = 2.0, until = 2001-01-01T00:00:00Z }]", "100, dry_run"),
    ] {
        let overrides = format!("[limits]\n\"*\" = {all_limits}\nshared = {{ threshold = 100 }}");
        by_environment.env("RATELIMIT_OVERRIDES", overrides);
        assert_eq!(Follower::start(&mut by_environment).next(), holds, "{all_limits}");
    }
}

#[test]
fn an_invalid_environment_is_an_error_that_names_the_variable() {
    for (name, value, message) in [
        ("RATELIMIT_OVERRIDES", "[limits.shared]\nthreshold = 0", "`threshold` must be at least 1"),
        ("RATELIMIT_OVERRIDES", "[limits.shared", "TOML parse error at line 1"),
        ("RATELIMIT_OVERRIDES_FILE", "/nowhere/limits.toml", "/nowhere/limits.toml: No such file"),
        ("RATELIMIT_ENFORCEMENT", "of", "`of` is none of on, dry_run and off"),
    ] {
        let ended = follower().env(name, value).output().unwrap();
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success());
        assert!(
            stderr.starts_with(&format!("Error: {name}: ")) && stderr.contains(message),
            "{stderr}"
        );
    }
}

#[test]
fn two_processes_follow_the_overrides_on_redis_within_a_second() {
    let server = RedisServer::start();
    let mut fleet = [Follower::of(&server), Follower::of(&server)];
    assert_eq!(fleet.each_mut().map(Follower::next), ["100, as written", "100, as written"]);
    for (command, holds) in [
        (r#"HSET ratelimit:overrides shared {"threshold":7}"#, "7, as written"),
        // An invalid value changes nothing, and later ones apply nevertheless.
        (r#"HSET ratelimit:overrides shared {"threshold":0} * off"#, "7, off"),
        (r#"HSET ratelimit:overrides shared {"threshold":9,"period":"2h"}"#, "9, off"),
        ("HDEL ratelimit:overrides *", "9, as written"),
        ("DEL ratelimit:overrides", "100, as written"),
    ] {
        let _: u64 = server.command(command);
        let sent = Instant::now();
        for follower in &mut fleet {
            assert_eq!(follower.next(), holds, "{command}");
        }
        assert!(sent.elapsed() < SECOND + NOTICED, "{command}: {:?}", sent.elapsed());
    }
}

#[tokio::test]
async fn an_invalid_value_on_redis_is_logged_once_and_the_old_one_stays() {
    let watch = Watch::start();
    let server = RedisServer::start();
    let () = server.command("HSET ratelimit:overrides reply {\"threshold\":7} gone dry_run");
    let limiter = server.limiter().await;
    assert_eq!(threshold(&limiter).await, 7);

    for (value, message) in [
        ("{\"threshold\":0}", "invalid override of rate limit `reply`: `threshold` must be"),
        ("{\"treshold\":1}", "unknown field `treshold`"),
        ("of", "`of` is none of on, dry_run and off, and no object such as {\"threshold\": 10}"),
    ] {
        let () = server.command(&format!("HSET ratelimit:overrides reply {value}"));
        until("a warning", async || (watch.count(message) == 1).then_some(())).await;
        assert_eq!(threshold(&limiter).await, 7);
    }
    let () = server.command("HSET ratelimit:overrides * {\"threshold\":1} other off");
    let warning = "invalid override of rate limit `*`: all limits together take only";
    until("a warning", async || (watch.count(warning) == 1).then_some(())).await;
    // It came with a valid one, which applies after the refusal is logged.
    until("the valid one", async || limiter.overrides().list().contains_key("other").then_some(()))
        .await;
    assert_eq!(watch.count("`of` is none of"), 1, "{}", watch.text());
}

#[tokio::test]
async fn without_redis_its_last_overrides_stay() {
    let watch = Watch::start();
    let mut server = RedisServer::start();
    let () = server.command("HSET ratelimit:overrides reply {\"threshold\":7}");
    let limiter = server.limiter().await;
    server.kill();
    let warning = "overrides on Redis unreadable";
    until("a warning", async || (watch.count(warning) == 1).then_some(())).await;
    assert_eq!(threshold(&limiter).await, 7);
}

#[tokio::test]
async fn an_override_is_validated_and_then_published_to_the_fleet() {
    let server = RedisServer::start();
    let deaf = Limiter::builder().deadline(MINUTE).follow_overrides(false);
    let (here, there) = (deaf.connect(&server.url()).await.unwrap(), server.limiter().await);
    let what = Override::new().threshold(8).period(MINUTE * 2);
    here.overrides().fleet().set("reply", what.clone()).await.unwrap();
    until_threshold(&there, 8).await;
    assert_eq!(there.overrides().list()["reply"], what);
    // A limiter that does not follow keeps its limit.
    assert_eq!(threshold(&here).await, 5);

    let error = here.overrides().fleet().set("reply", Override::new().threshold(0)).await;
    assert!(error.unwrap_err().to_string().contains("`threshold` must be at least 1"));
    here.overrides().fleet().set("*", Enforcement::Off).await.unwrap();
    until("the switch", async || there.overrides().enforcement()).await;
    here.overrides().fleet().remove("reply").await.unwrap();
    until_threshold(&there, 5).await;
    here.overrides().fleet().remove("*").await.unwrap();
    until("its end", async || there.overrides().enforcement().is_none().then_some(())).await;
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[tokio::test]
async fn a_fleet_on_a_cluster_follows_the_node_that_has_the_hash() {
    let cluster = Cluster::start();
    let limiter = async || patient(&cluster.url()).await;
    let (here, there) = (limiter().await, limiter().await);
    here.overrides().fleet().set("reply", Override::new().threshold(8)).await.unwrap();
    until_threshold(&there, 8).await;
    here.overrides().fleet().remove("reply").await.unwrap();
    until_threshold(&there, 5).await;
}

#[tokio::test]
async fn a_limiter_in_memory_has_no_fleet() {
    let limiter = Limiter::in_memory();
    let message = "a limiter in memory has no overrides on Redis; connect it, or set them `here()`";
    assert_eq!(limiter.overrides().follow_redis().await.unwrap_err().to_string(), message);
    let published = limiter.overrides().fleet().remove("reply").await;
    assert_eq!(published.unwrap_err().to_string(), message);
}
