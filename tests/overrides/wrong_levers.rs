//! A wrong value is named with its field, wherever it is written, and what was in effect before stays.

use std::{fs, time::Duration};

use harness::{RedisServer, until};
use ratelimit_runtime::{Limiter, Policy};

use crate::sources::follower;

const POLICY: Policy = Policy::sliding_window("reply", Duration::from_secs(60), 5);

/// Overrides, and the words of their errors. The page has the same in `tests/dashboard/levers.rs`.
const WRONG: [(&str, &str); 15] = [
    (
        r#"{"threshold":8,"from":"2030-01-02T00:00:00Z","until":"2030-01-01T00:00:00Z"}"#,
        "`until` is later than `from`, and 2030-01-01T00:00:00Z is not later than 2030-01-02T00:00:00Z",
    ),
    (r#"{"enforce":"0%"}"#, r#"`enforce` must be a share of 1% to 100%, such as "10%", not "0%""#),
    (r#"{"enforce":"101%"}"#, r#"such as "10%", not "101%""#),
    (r#"{"enforce":"+10%"}"#, r#"such as "10%", not "+10%""#),
    (r#"{"enforce":10}"#, r#"`enforce` must be a share of 1% to 100%, such as "10%", not 10"#),
    (r#"{"scale":0}"#, "`scale` must be 0.001 to 1000, not 0"),
    (r#"{"scale":0.0005}"#, "`scale` must be 0.001 to 1000, not 0.0005"),
    (r#"{"scale":1000000}"#, "`scale` must be 0.001 to 1000, not 1000000"),
    (r#"{"scale":1000.0004}"#, "`scale` must be 0.001 to 1000, not 1000.0004"),
    (r#"{"scale":"0.5"}"#, r#"`scale` must be 0.001 to 1000, not "0.5""#),
    (r#"{"scale":[0.5]}"#, "`scale` must be 0.001 to 1000, not a value of another kind"),
    (r#"{"on_store_error":"local(0)"}"#, r#"such as `local(20)`, not "local(0)""#),
    (r#"{"on_store_error":"local(101)"}"#, r#"such as `local(20)`, not "local(101)""#),
    (r#"{"on_store_error":"local(+20)"}"#, r#"such as `local(20)`, not "local(+20)""#),
    (r#"{"on_store_error":20}"#, "such as `local(20)`, not 20"),
];

/// Waits for a problem with these words. Then the override before is in effect still.
async fn is_kept(limiter: &Limiter, words: &str) {
    until("a problem", async || {
        let problems = limiter.overrides().problems();
        problems.iter().any(|it| it.to_string().contains(words)).then_some(())
    })
    .await;
    let left = limiter.peek(&POLICY, "anyone").cost(0).await.unwrap();
    assert_eq!(left.threshold(), 7, "{words}");
}

#[tokio::test]
async fn in_the_hash() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let () = server.command(r#"HSET ratelimit:overrides reply {"threshold":7}"#);
    until("the override", async || limiter.overrides().get("reply").map(drop)).await;
    for (what, words) in WRONG {
        let () = server.command(&format!("HSET ratelimit:overrides reply {what}"));
        is_kept(&limiter, words).await;
    }
}

#[tokio::test]
async fn in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.json");
    let write =
        |what: &str| fs::write(&path, format!(r#"{{"limits":{{"reply":{what}}}}}"#)).unwrap();
    write(r#"{"threshold":7}"#);
    let limiter = Limiter::in_memory();
    limiter.overrides().follow_file(&path).unwrap();
    for (what, words) in WRONG {
        write(what);
        is_kept(&limiter, words).await;
    }
}

#[test]
fn in_the_environment() {
    for (what, words) in WRONG {
        let document = format!(r#"{{"limits":{{"shared":{what}}}}}"#);
        let ended = follower().env("RATELIMIT_OVERRIDES", document).output().unwrap();
        let text = String::from_utf8_lossy(&ended.stderr);
        // Text in JSON is written as it is for `Debug`.
        let text = text.replace("\\\"", "\"");
        assert!(
            !ended.status.success() && text.starts_with("Error: RATELIMIT_OVERRIDES: "),
            "{text}"
        );
        assert!(text.contains(words), "{words}: {text}");
    }
}
