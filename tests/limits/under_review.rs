//! The program's limits against a file: what a failed comparison says, and how the file is updated.

use std::{
    env, fs,
    panic::catch_unwind,
    process::{Command, Output},
    time::Duration,
};

use ratelimit_runtime::{
    Policy,
    limits::{ChangeKind, LimitList, published_limits},
    lock,
};
use serde_json::{Value, json};

use crate::{
    axum_service, by_hand, dashboard, fleet, mail_tiers, outbound, reqwest_client, websocket,
};

#[test]
fn the_limits_of_the_examples_are_those_under_review() {
    lock!(
        "../examples/limits.lock",
        axum_service::UPLOAD,
        by_hand::JOB,
        by_hand::ORDER_TENANT,
        by_hand::ORDER_USER,
        by_hand::REPLY,
        dashboard::UPLOAD,
        fleet::INGEST,
        mail_tiers::MAIL,
        outbound::PACE,
        reqwest_client::PACE,
        websocket::MESSAGES,
        websocket::SOCKETS,
    );
}

#[test]
fn policies_that_no_function_has_are_given() {
    const PACE: Policy = Policy::token_bucket("pace", Duration::from_secs(1), 10);
    let limits = LimitList::of_program().with(&[PACE]);
    let block = "pace\n    algorithm: token_bucket\n    tier: 10 per 1s\n    key: of each check\n";
    assert!(limits.to_string().contains(block), "{limits}");
    let changes = limits.changes_since(&LimitList::of_program());
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].kind(), changes[0].name()), (ChangeKind::New, "pace"));
    let Err(panic) = catch_unwind(|| lock!("../examples/limits.lock", PACE)) else {
        panic!("the file has no such limit")
    };
    assert!(panic.downcast_ref::<String>().unwrap().contains("new       pace"));
}

#[test]
fn the_file_parses_back_to_limits_of_any_name() {
    let names = ["#support", " indented", "a: b", "two\nlines", "\"quoted\"", "last "];
    let limits = names.map(|name| Policy::token_bucket(name, Duration::from_secs(1), 10));
    let limits = LimitList::of_program().with(&limits);
    let Ok(parsed) = limits.to_string().parse::<LimitList>();
    assert_eq!(parsed, limits);
    assert_eq!(parsed.changes_since(&LimitList::of_program()).len(), names.len());
}

#[test]
fn the_file_parses_back_to_the_limits_of_the_program() {
    let limits = LimitList::of_program();
    let Ok(parsed) = limits.to_string().parse::<LimitList>();
    assert_eq!(parsed, limits);
    let text = format!("# Under review.\r\n\n{limits}").replace('\n', "\r\n");
    let Ok(parsed) = text.parse::<LimitList>();
    assert_eq!(parsed, limits);
    assert!(limits.changes_since(&parsed).is_empty());
}

#[test]
fn a_failed_comparison_tells_what_each_change_does() {
    let Err(panic) = catch_unwind(|| lock!("limits/earlier.lock")) else { panic!("they differ") };
    let text = panic.downcast_ref::<String>().unwrap();
    let (first, text) = text.split_once("\n\n").unwrap();
    assert!(first.starts_with("the limits differ from "), "{first}");
    assert!(first.ends_with("limits/earlier.lock:"), "{first}");
    let expected = "\
looser    limits::hello::say_hi
    - tier: 1 per 30s
    + tier: 2 per 30s
stricter  login-account
    - tier: 4 per 900s
    + tier: 3 per 900s
changed   login-address
    - tier: 6 per 60s
    - tier: 60 per 3600s
    + tier: 5 per 60s
gone      note
    - algorithm: sliding_window
    - tier: 5 per 60s
    - key: user
changed   tokens
    - key: account.name
    + key: account.id

UPDATE_LIMITS=1 writes the file
";
    // Other limits are new.
    let mut told = String::new();
    let mut is_new = false;
    for line in text.lines() {
        is_new = line.starts_with("new ") || is_new && line.starts_with("    ");
        if !is_new {
            told.push_str(line);
            told.push('\n');
        }
    }
    assert_eq!(told, expected);
}

#[test]
fn the_file_is_written_on_demand() {
    const FILE: &str = "LIMITS_FILE_OF_THIS_TEST";
    if let Ok(path) = env::var(FILE) {
        return ratelimit_runtime::__private::assert_locked(&path, &[]);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.lock");
    let run = |update: Option<&str>| {
        let mut process = Command::new(env::current_exe().unwrap());
        process.args(["--exact", "under_review::the_file_is_written_on_demand", "--nocapture"]);
        process.env(FILE, &path).env_remove("UPDATE_LIMITS");
        process.envs(update.map(|value| ("UPDATE_LIMITS", value)));
        let Output { status, stdout, stderr } = process.output().unwrap();
        let text = [stdout, stderr].concat();
        (status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (is_equal, text) = run(None);
    assert!(!is_equal && text.contains("new       tokens"), "{text}");
    assert!(text.contains("limits.lock, which does not exist:"), "{text}");
    assert!(!run(Some("0")).0 && !path.exists());
    assert!(run(Some("1")).0);
    assert_eq!(fs::read_to_string(&path).unwrap(), LimitList::of_program().to_string());
    assert!(run(None).0);
    fs::write(&path, "what somebody wrote").unwrap();
    let (is_equal, text) = run(None);
    assert!(!is_equal && text.contains("gone      what somebody wrote"), "{text}");
}

#[test]
fn customers_read_the_same_limits_as_json() {
    let published = serde_json::to_value(published_limits()).unwrap();
    let find = |name: &str| -> Value {
        let is_it = |limit: &&Value| limit["name"] == name;
        published.as_array().unwrap().iter().find(is_it).unwrap().clone()
    };
    assert_eq!(
        find("limits::hello::say_hi"),
        json!({
            "name": "limits::hello::say_hi",
            "algorithm": "sliding_window",
            "tiers": [{ "threshold": 2, "period_ms": 30_000 }],
            "unit": "requests",
            "burst": null,
            "concurrency": null,
        })
    );
    // The threshold is that of the account's plan.
    let tokens = find("tokens");
    assert_eq!(tokens["tiers"], json!([{ "threshold": null, "period_ms": 60_000 }]));
    assert_eq!((&tokens["unit"], &tokens["concurrency"]), (&json!("tokens"), &json!(5)));
    assert!(!published.to_string().contains("account."), "{published}");
}
