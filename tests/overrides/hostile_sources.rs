//! A source of overrides with any content forges no log line, is logged once, blocks nothing, and stays
//! unchanged by its readers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use harness::{RedisServer, Watch, until};
use ratelimit_runtime::{Limiter, OnStoreError, Override, Policy, overrides::OverrideError};

const MINUTE: Duration = Duration::from_secs(60);

/// Follows a path, with a time limit on calls that may block for good.
fn follow(path: &Path) -> Result<(), OverrideError> {
    let (sender, answer) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        sender.send(Limiter::in_memory().overrides().follow_file(path)).unwrap();
    });
    answer.recv_timeout(MINUTE / 6).expect("it does not block")
}

fn fifo_in(directory: &Path) -> PathBuf {
    let path = directory.join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// Asserts that a text is one line of a log.
fn assert_one_line(text: &str) {
    let forges = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202e}');
    assert!(!text.contains(forges), "{text:?}");
}

const FORGED: &str = "a\nERROR forged\r\u{1b}[2J\u{2028}\u{202e}b";
const ESCAPED: &str = r"a\nERROR forged\r\u{1b}[2J\u{2028}\u{202e}b";

#[tokio::test]
async fn a_name_or_a_document_forges_no_line() {
    let limiter = Limiter::in_memory();
    let error = limiter.overrides().here().set(FORGED, Override::new().threshold(0)).unwrap_err();
    assert_one_line(&error.to_string());
    assert!(error.to_string().contains(ESCAPED), "{error}");
    assert_eq!(error.limit(), Some(FORGED));

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a\nb.toml");
    let quoted = serde_json::to_string(FORGED).unwrap();
    for document in [
        format!("{{\"limits\": {{ {quoted}: {{\"threshold\": 0}} }} }}"),
        format!("{{\"limits\": {{ \"reply\": {quoted} }} }}"),
        format!("{{ {quoted}: 1 }}"),
        "[limits.reply]\n\"a\\nERROR forged\" = 1\n".to_owned(),
        "[limits.reply]\nthreshold = \u{1b}[2J\n".to_owned(),
    ] {
        fs::write(&path, &document).unwrap();
        let error = limiter.overrides().follow_file(&path).unwrap_err().to_string();
        assert_one_line(&error);
        assert!(error.contains(r"a\nb.toml: "), "{error}");
    }
    let error = Limiter::connect("re\ndis://host").await.unwrap_err().to_string();
    assert_one_line(&error);
}

#[tokio::test]
async fn a_field_on_redis_forges_no_line() {
    let watch = Watch::start();
    let server = RedisServer::start();
    let mut connection = server.connection();
    for (field, value) in [(FORGED, "{\"threshold\":0}"), ("reply", FORGED)] {
        let set = redis::cmd("HSET").arg("ratelimit:overrides").arg(field).arg(value).to_owned();
        let () = set.query(&mut connection).unwrap();
    }
    let limiter = server.limiter().await;
    limiter.overrides().follow_redis().await.unwrap();
    assert_eq!(watch.count(ESCAPED), 2, "{}", watch.text());
    watch.text().lines().for_each(assert_one_line);
    assert!(!watch.text().lines().any(|line| line.starts_with("ERROR")), "{}", watch.text());
}

#[tokio::test(start_paused = true)]
async fn faults_that_take_turns_are_logged_once_each() {
    let watch = Watch::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.toml");
    fs::write(&path, "").unwrap();
    let limiter = Limiter::in_memory();
    limiter.overrides().follow_file(&path).unwrap();
    let logged = |words: &str| watch.count(words);
    let good = |threshold: u32| format!("[limits.reply]\nthreshold = {threshold}");
    for round in 1..=2 {
        for _ in 0..3 {
            fs::write(&path, "one").unwrap();
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            fs::remove_file(&path).unwrap();
            tokio::time::sleep(Duration::from_millis(900)).await;
        }
        assert_eq!(logged("overrides refused"), 2 * round, "{}", watch.text());
        assert_eq!(logged("No such file"), round, "{}", watch.text());
        // A valid value ends the fault, so that the next one is logged.
        fs::write(&path, good(7 + u32::try_from(round).unwrap())).unwrap();
        until("the override", async || {
            let overrides = limiter.overrides().list();
            let threshold = 7 + u32::try_from(round).unwrap();
            (overrides.get("reply") == Some(&Override::new().threshold(threshold))).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn values_on_redis_that_take_turns_are_logged_once_each() {
    let watch = Watch::start();
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    limiter.overrides().follow_redis().await.unwrap();
    for round in 0..3 {
        for value in ["one", "other"] {
            let marker = format!("marker-{round}-{value}");
            let () =
                server.command(&format!("HSET ratelimit:overrides reply {value} {marker} off"));
            until("the marker", async || {
                limiter.overrides().list().contains_key(&marker).then_some(())
            })
            .await;
        }
    }
    for value in ["`one` is none of", "`other` is none of"] {
        assert_eq!(watch.count(value), 1, "{}", watch.text());
    }
}

#[tokio::test]
async fn what_is_no_regular_file_is_an_error_and_blocks_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = fifo_in(directory.path());
    for path in [&*fifo, directory.path(), Path::new("/dev/zero"), Path::new("/dev/tty")] {
        let error = follow(path).unwrap_err().to_string();
        assert!(error.ends_with("is no regular file"), "{error}");
        assert!(error.starts_with(&path.display().to_string()), "{error}");
    }
    let path = directory.path().join("limits.toml");
    fs::write(&path, " ".repeat((1 << 20) + 1)).unwrap();
    let error = follow(&path).unwrap_err().to_string();
    assert!(error.ends_with("is larger than 1 MiB"), "{error}");
    fs::write(&path, " ".repeat(1 << 20)).unwrap();
    follow(&path).unwrap();
    fs::write(&path, [0xff, 0xfe]).unwrap();
    let error = follow(&path).unwrap_err().to_string();
    assert!(error.contains("UTF-8"), "{error}");
}

#[tokio::test]
async fn a_fifo_in_the_place_of_a_followed_file_blocks_nothing() {
    let watch = Watch::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.toml");
    fs::write(&path, "[limits.reply]\nthreshold = 7").unwrap();
    let limiter = Limiter::in_memory();
    limiter.overrides().follow_file(&path).unwrap();
    fs::rename(fifo_in(directory.path()), &path).unwrap();
    until("a warning", async || (watch.count("is no regular file") == 1).then_some(())).await;
    assert_eq!(limiter.overrides().list()["reply"], Override::new().threshold(7));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "[limits.reply]\nthreshold = 8").unwrap();
    until("the override", async || {
        (limiter.overrides().list()["reply"] == Override::new().threshold(8)).then_some(())
    })
    .await;
}

/// The commands that the guide gives to operators, each on one line.
fn documented_users() -> Vec<String> {
    let guide = include_str!("../../ratelimit-runtime/src/guide/redis.md");
    let blocks = guide.split("```text\n").skip(1).map(|block| block.split("```").next().unwrap());
    let users = blocks.filter(|block| block.starts_with("ACL SETUSER"));
    users.map(|block| block.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test]
async fn the_documented_user_of_a_limiter_reads_the_overrides_and_cannot_change_them() {
    const POLICY: Policy = Policy::sliding_window("reply", MINUTE, 5);
    let server = RedisServer::start();
    let users = documented_users();
    assert_eq!(users.len(), 3, "{users:?}");
    for user in &users {
        let () = server.command(user);
    }
    let as_user = async |user: &str| {
        let url = server.url().replace("redis://", &format!("redis://{user}:password@"));
        let builder = Limiter::builder().deadline(MINUTE).on_store_error(OnStoreError::Deny);
        builder.connect(&url).await.unwrap()
    };
    let (limiter, publisher) = (as_user("limiter").await, as_user("publisher").await);
    limiter.overrides().follow_redis().await.unwrap();
    let what = Override::new().threshold(7);
    publisher.overrides().fleet().set("reply", what.clone()).await.unwrap();
    until("the override", async || {
        (limiter.overrides().list().get("reply") == Some(&what)).then_some(())
    })
    .await;
    for policy in [
        POLICY,
        POLICY.concurrency(2),
        POLICY,
        POLICY.concurrency(2),
        Policy::sliding_counter("reply", MINUTE, 5),
        Policy::fixed_window("reply", MINUTE, 5),
        Policy::token_bucket("reply", MINUTE, 5),
    ] {
        let decision = limiter.check(&policy, "alice").cost(2).await.unwrap();
        assert_eq!(decision.threshold(), 7);
        limiter.settle(&decision, 1).await.unwrap();
        drop(decision);
        limiter.flush().await.unwrap();
        limiter.reset(&policy, "alice").await.unwrap();
    }

    until("its report", async || {
        (!limiter.fleet().await.unwrap().processes().is_empty()).then_some(())
    })
    .await;
    let error = limiter.overrides().fleet().remove("reply").await.unwrap_err().to_string();
    assert!(error.contains("lacks a permission"), "{error}");
    let url = server.url().replace("redis://", "redis://limiter:password@");
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let hash = "ratelimit:overrides";
    for (command, arguments) in [
        ("DEL", &[hash][..]),
        ("UNLINK", &[hash]),
        ("HSET", &[hash, "*", "off"]),
        ("HDEL", &[hash, "reply"]),
        ("SET", &[hash, "gone"]),
        ("PEXPIRE", &[hash, "1"]),
        ("EVAL", &["return redis.call('UNLINK', KEYS[1])", "1", hash]),
        ("EVAL", &["return redis.call('SET', KEYS[1], '1')", "1", hash]),
    ] {
        let answer: redis::RedisResult<redis::Value> =
            redis::cmd(command).arg(arguments).query(&mut connection);
        let error = answer.expect_err(command).to_string();
        assert!(error.contains("NOPERM") || error.contains("permissions"), "{command}: {error}");
    }
    assert_eq!(server.command::<String>(&format!("HGET {hash} reply")), "{\"threshold\":7}");
    // And the publisher counts nothing.
    assert!(publisher.check(&POLICY, "alice").await.is_err());
    publisher.overrides().fleet().remove("reply").await.unwrap();
}
