//! Hostile caller names stay apart, cost no more than a bounded key, and reach nothing else in the store.

use std::{collections::HashSet, time::Duration};

use harness::{FaultLine, RedisServer, exceeded, on_each_store};
use ratelimit_runtime::{Caller, Limiter, Policy, RateLimitError, UnavailableReason};

const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 1);
const ALGORITHMS: [Policy; 4] = [
    POLICY,
    Policy::sliding_counter("p", Duration::from_secs(60), 1),
    Policy::fixed_window("p", Duration::from_secs(60), 1),
    Policy::token_bucket("p", Duration::from_secs(60), 1),
];

/// Names that mean something to a key, a protocol, a pattern, a cluster, a log or a terminal.
fn names() -> Vec<String> {
    let mut names: Vec<String> = [
        "",
        " ",
        "  ",
        "a",
        "A",
        "a ",
        " a",
        "a:b",
        ":a:b",
        "a/b",
        "a//b",
        "/",
        "//",
        "a%2Fb",
        "%",
        "%%",
        "{",
        "}",
        "{}",
        "{a}",
        "{a}b",
        "a{b}",
        "}{",
        "*",
        "?",
        "[a]",
        "\\",
        "\\x00",
        "\0",
        "a\0",
        "\0a",
        "\r\n",
        "a\r\nFLUSHALL\r\n",
        "\n*1\r\n$8\r\nFLUSHALL\r\n",
        "'; redis.call('FLUSHALL') --",
        "\u{7f}",
        "\u{80}",
        "\u{feff}",
        "\u{fffd}",
        "\u{202e}a",
        "é",
        "e\u{301}",
        "😀",
        "👩‍👩‍👧‍👧",
        "ª",
        "\u{10ffff}",
        "../../etc/passwd",
        "ratelimit:sliding_window:p/a",
        "-1",
        "0",
        "00",
        "1e308",
        "nan",
        "null",
        "None",
        "true",
        "+inf",
        "(1",
    ]
    .iter()
    .map(|&name| name.to_owned())
    .collect();
    // Bytes that are not UTF-8, as from a header.
    for bytes in [&b"\xff"[..], b"\xc3\x28", b"\xed\xa0\x80"] {
        names.push(String::from_utf8_lossy(bytes).into_owned() + &format!("{bytes:?}"));
    }
    for length in [127, 128, 129, 255, 256, 65_536, 1 << 20] {
        names.push("x".repeat(length));
        names.push("x".repeat(length - 1) + "y");
        names.push("\0".repeat(length));
    }
    names
}

/// Each of the callers is admitted once, however many others there are.
async fn assert_apart(limiter: &Limiter, callers: &[Caller]) {
    for policy in ALGORITHMS {
        for caller in callers {
            limiter.check(&policy, caller.clone()).await.unwrap();
        }
        for caller in callers {
            exceeded(limiter.check(&policy, caller.clone()).await);
        }
    }
}

#[tokio::test]
async fn every_name_is_a_caller_of_its_own() {
    let names = names();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    on_each_store(async |limiter| {
        let callers: Vec<_> = names.iter().map(Caller::from).collect();
        assert_apart(limiter, &callers).await;
    })
    .await;
}

#[tokio::test]
async fn parts_that_read_alike_when_joined_are_callers_of_their_own() {
    let parts: [&[&str]; 16] = [
        &["a"],
        &["a", ""],
        &["", "a"],
        &["a", "b"],
        &["a", "b", ""],
        &["a", "", "b"],
        &["ab"],
        &["a/b"],
        &["a:b", "c"],
        &["a", "b:c"],
        &["a/b", "c"],
        &["a", "b/c"],
        &["a%2Fb", "c"],
        &["", ""],
        &["", "", ""],
        &["a\0", "b"],
    ];
    let caller = |parts: &&[&str]| {
        let (first, others) = parts.split_first().unwrap();
        others.iter().fold(Caller::from(first), Caller::and)
    };
    on_each_store(async |limiter| {
        let callers: Vec<_> = parts.iter().map(caller).collect();
        assert_apart(limiter, &callers).await;
    })
    .await;
}

#[tokio::test]
async fn in_redis_a_name_is_a_bounded_readable_key_and_nothing_else() {
    let server = RedisServer::start();
    let () = server.command("SET theirs value");
    let limiter = server.limiter().await;
    let names = names();
    for name in &names {
        limiter.check(&POLICY, name).await.unwrap();
    }
    let keys = server.keys();
    assert_eq!(keys.len(), names.len() + 1);
    for key in keys {
        assert!(key.len() < 200, "{} bytes: {key}", key.len());
        // Bytes with a meaning to a protocol, a shell or a terminal are escaped.
        assert!(!key.contains(|c: char| c.is_ascii_control() || c == ' '), "{key:?}");
        // No hash tag of a cluster: a caller's name chooses no node.
        assert!(!key.contains(['{', '}']), "{key}");
    }
    assert_eq!(server.command::<String>("GET theirs"), "value");
}

#[tokio::test]
async fn a_flood_of_names_fills_memory_to_its_bound_and_touches_no_known_caller() {
    const MAX_KEYS: usize = 10_000;
    const NAMES: u32 = 500_000;
    let two = Policy::sliding_window("p", Duration::from_secs(3_600), 2);
    let limiter = Limiter::builder().max_keys(MAX_KEYS).in_memory();
    limiter.check(&two, "known").await.unwrap();
    let before = resident();
    let (mut admitted, mut full) = (0, 0);
    for name in 0..NAMES {
        match limiter.check(&two, name).await {
            Ok(_) => admitted += 1,
            Err(RateLimitError::Unavailable(error)) => {
                assert_eq!(error.reason(), UnavailableReason::StoreFull);
                full += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let grown = resident().saturating_sub(before);
    FaultLine::of("500 000 callers in a memory of 10 000")
        .with("admitted", admitted)
        .with("StoreFull", full)
        .with("grown by MB", grown / 1_000_000)
        .print();
    // Shards fill at their own pace.
    assert!((MAX_KEYS / 2..=MAX_KEYS).contains(&admitted), "{admitted}");
    assert!(grown < 64_000_000, "{grown}");
    limiter.check(&two, "known").await.unwrap();
    exceeded(limiter.check(&two, "known").await);
}

/// Returns the resident memory of this process in bytes, or 0 without `/proc`.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4_096
}

#[tokio::test]
async fn what_a_refused_caller_reads_names_no_caller() {
    on_each_store(async |limiter| {
        let name = "alice@example.org";
        limiter.check(&POLICY, name).await.unwrap();
        let error = limiter.check(&POLICY, name).await.unwrap_err();
        for text in [error.to_string(), format!("{error:?}"), format!("{limiter:?}")] {
            assert!(!text.contains("alice"), "{text}");
        }
    })
    .await;
}
