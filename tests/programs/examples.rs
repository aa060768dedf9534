//! The examples run by the commands in their first lines, and behave as documented.

use std::{collections::BTreeSet, process::Output};

use harness::{EXAMPLES, RedisServer, Running, cargo, example};

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Requests `say_hi` as a caller. Returns the status, `Retry-After` and the body.
fn say_hi(server: &Running, user: &str) -> (u16, Option<u64>, String) {
    let url = server.first_line().strip_prefix("listening on ").expect("the address");
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = agent.get(format!("{url}/hello/sayHi")).header("x-user", user);
    let mut response = request.call().expect("the server answers");
    let retry_after = response.headers().get("retry-after");
    let retry_after = retry_after.map(|wait| wait.to_str().unwrap().parse().unwrap());
    let status = response.status().as_u16();
    (status, retry_after, response.body_mut().read_to_string().unwrap())
}

#[test]
fn hello_limits_each_caller_of_each_function() {
    let output = lines(&example("hello").output().unwrap());
    assert!(output[0].contains(r#"store: "memory""#), "{}", output[0]);
    for (caller, calls) in ["alice", "bob"].into_iter().zip(output[2..].chunks(6)) {
        for (call, left) in calls.iter().zip([1, 0]) {
            let expected = format!(
                "{:18} hi, {caller:8} {left} left, more after ",
                format!("say_hi({caller:?})")
            );
            assert!(call.starts_with(&expected), "{call}");
        }
        assert!(calls[2].contains("`hello::say_hi` exceeded: at most 2 per 30s, retry after "));
        assert!(calls[3].contains("all is well  0 left, more after "), "{}", calls[3]);
        assert!(calls[4].contains("`hello::report` exceeded: at most 1 per 60s, retry after "));
    }
}

#[test]
fn hello_keeps_its_counts_on_redis() {
    let server = RedisServer::start();
    let run = || lines(&example("hello").env("RATELIMIT_URL", server.url()).output().unwrap());
    let (first, second) = (run(), run());
    assert!(first[0].contains(r#"store: "redis""#), "{}", first[0]);
    assert_eq!(first.iter().filter(|line| line.contains("exceeded")).count(), 4);
    assert_eq!(second.iter().filter(|line| line.contains("exceeded")).count(), 10);
}

#[test]
fn the_third_request_within_30_seconds_is_a_429_also_after_a_restart() {
    let redis = RedisServer::start();
    let start = || {
        Running::start(example("axum_hello").arg("127.0.0.1:0").env("RATELIMIT_URL", redis.url()))
    };
    let server = start();
    assert_eq!(say_hi(&server, "alice"), (200, None, "hi, alice\n".to_owned()));
    drop(server);

    let server = start();
    assert_eq!(say_hi(&server, "alice").0, 200);
    let (status, retry_after, body) = say_hi(&server, "alice");
    assert_eq!(status, 429);
    assert!(body.starts_with("rate limit `axum_hello::say_hi` exceeded"), "{body}");
    let key = "ratelimit:sliding_window:axum_hello::say_hi/alice";
    let retry_after = retry_after.expect("a refusal has a retry time");
    assert!((1..=30).contains(&retry_after), "{retry_after}");

    assert_eq!(say_hi(&server, "bob").0, 200);
    assert_eq!(redis.keys(), [key, "ratelimit:sliding_window:axum_hello::say_hi/bob"]);
    assert_eq!(redis.command::<String>(&format!("TYPE {key}")), "zset");
    assert_eq!(redis.command::<u32>(&format!("ZCOUNT {key} 0 +inf")), 2);
    let ttl = redis.command::<i64>(&format!("PTTL {key}"));
    assert!((1..=31_000).contains(&ttl), "{ttl}");
}

#[test]
fn only_failed_logins_count() {
    let output = lines(&example("login_failures").output().unwrap());
    assert_eq!(
        output[..5],
        [
            "open sesame  welcome",
            "guess        wrong, 2 attempts left",
            "open sesame  welcome",
            "guess        wrong, 1 attempts left",
            "guess        wrong, 0 attempts left",
        ]
    );
    assert!(output[5].starts_with("open sesame  rate limit `login` exceeded"), "{}", output[5]);
}

#[test]
fn a_right_login_is_served_when_its_attempt_cannot_be_refunded() {
    let redis = RedisServer::start();
    // The command of a refund.
    let () = redis.command("ACL SETUSER default -zrem");
    let output = example("login_failures").env("RATELIMIT_URL", redis.url()).output().unwrap();
    let output = lines(&output);
    assert_eq!(output[0], "open sesame  welcome");
    assert_eq!(output[1], "guess        wrong, 1 attempts left");
    assert_eq!(output[2], "open sesame  welcome");
    assert!(output[3].starts_with("guess        rate limit `login` exceeded"), "{}", output[3]);
}

#[test]
fn a_limit_is_overridden_in_one_process_and_in_a_fleet() {
    let steered = [
        "as written: 2 in 60 s                       2 of 10 pass",
        "5 in 60 s, two of them are taken            3 of 10 pass",
        "a dry run                                  10 of 10 pass",
        "invalid override of rate limit `reply`: `threshold` must be at least 1",
        "as written again, and dry runs count        0 of 10 pass",
    ];
    assert_eq!(lines(&example("overrides").output().unwrap()), steered);
    let redis = RedisServer::start();
    let output = example("overrides").env("RATELIMIT_URL", redis.url()).output().unwrap();
    let in_a_fleet = "the kill switch of the fleet               10 of 10 pass";
    assert_eq!(lines(&output), [&steered[..], &[in_a_fleet]].concat());
}

#[test]
fn a_plan_is_a_threshold_and_another_plan_keeps_the_count() {
    assert_eq!(
        lines(&example("plans").output().unwrap()),
        [
            "search: sliding_window, by user.plan.searches_an_hour(), key (user.id)",
            "on the free plan     2 of 8",
            "the same, now paying 3 of 8",
            "another who pays     5 of 8",
            "one of the house     8 of 8",
        ]
    );
}

#[test]
fn the_threshold_that_refuses_one_in_a_thousand_callers_is_found_in_a_log() {
    let output = lines(&example("replay").output().unwrap());
    assert_eq!(output[1], "2 of 2002 callers");
    assert!(output[3].starts_with("crawler: ") && output[4].starts_with("monitor: "), "{output:?}");
    // One of 1 001 callers may be refused.
    let quiet = (0..1_000).flat_map(|caller| [(caller, 0), (caller, 30)]);
    let quiet = quiet.map(|(caller, at)| format!("17000000{at:02}.5 192.0.2.{caller}\n"));
    let busy = (0..7).map(|at| format!("170000000{at} 192.0.2.busy\n"));
    let log = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(log.path(), quiet.chain(busy).collect::<String>()).unwrap();
    let expected = [
        "2007 requests; 2 a minute refuse:",
        "1 of 1001 callers",
        "5 of 2007 requests",
        "192.0.2.busy: 5 requests, for 58s at most",
    ];
    assert_eq!(lines(&example("replay").arg(log.path()).output().unwrap()), expected);
}

#[test]
fn the_index_lists_every_example() {
    let index = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/README.md");
    let index = std::fs::read_to_string(index).unwrap();
    let listed: BTreeSet<_> = index
        .lines()
        .filter_map(|line| line.strip_prefix("| [")?.split(']').next())
        .map(str::to_owned)
        .collect();
    assert_eq!(listed, EXAMPLES.keys().cloned().collect());
}

#[test]
fn the_first_line_of_an_example_is_the_command_that_runs_it() {
    for (name, example) in EXAMPLES.iter() {
        let source = std::fs::read_to_string(&example.source).unwrap();
        let options = match (name.as_str(), example.package.as_str()) {
            ("overrides", "examples") => "--features overrides ".to_owned(),
            (_, "examples") => String::new(),
            (_, package) => format!("-p {package} "),
        };
        let command = format!("//! `cargo run {options}--example {name}`");
        assert_eq!(source.lines().next(), Some(command.as_str()));
    }
}

#[test]
fn a_reader_of_the_first_example_builds_no_framework() {
    let tree = cargo().args(["tree", "--quiet", "--edges", "normal", "--prefix", "none"]).output();
    let tree = String::from_utf8(tree.unwrap().stdout).unwrap();
    assert!(tree.contains("ratelimit-runtime "), "{tree}");
    for framework in ["actix-web ", "axum ", "tonic ", "hyper ", "serde_json "] {
        assert!(!tree.contains(framework), "{tree}");
    }
    let _alone = crate::MACHINE.blocking_lock();
    let output = cargo().args(["run", "--quiet", "--example", "hello"]).output().unwrap();
    assert!(lines(&output)[0].contains("memory"), "{output:?}");
}

/// Returns the number before these words of a line.
fn count(line: &str, words: &str) -> usize {
    let before = line.split(words).next().expect("a part before them");
    before.rsplit(' ').next().and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn three_processes_send_nothing_in_a_pause_and_keep_their_order() {
    let output = lines(&example("outbound").output().unwrap());
    let [_, called, pause, ends @ ..] = &output[..] else { panic!("{output:#?}") };
    let (first, again) = called.split_once(", and again by ").unwrap();
    let calls = |list: &str| -> Vec<usize> {
        list.split(' ').filter_map(|number| number.parse().ok()).collect()
    };
    // First come, first served over all processes, and the last three find the line too long.
    assert_eq!(calls(first), (1..=15).collect::<Vec<_>>(), "{called}");
    assert!(!again.contains("429"), "{called}");
    let refused = first.matches("(429)").count();
    assert_eq!(calls(again).len(), refused, "{called}");
    assert!(first.contains(" 4 (429)") && again.starts_with('4'), "{called}");
    // Others learn it within a second, in which at most the turns of a second come.
    assert_eq!(count(pause, " calls of the process that was told,"), 0, "{pause}");
    assert_eq!(count(pause, " of others within a second,"), refused - 1, "{pause}");
    assert!(refused <= 4, "{called}");
    assert_eq!(count(pause, " after it"), 0, "{pause}");
    assert_eq!(ends.len(), 3);
    let mut told = 0;
    for (number, end) in ends.iter().enumerate() {
        assert_eq!(count(end, " answered,"), 5, "{end}");
        assert!(end.ends_with(&format!("; 1 without a turn: {}", 16 + number)), "{end}");
        told += count(end, " refused by the service");
    }
    assert_eq!(told, refused, "{output:#?}");
}

#[test]
fn a_middleware_of_reqwest_waits_heeds_and_sends_again_within_its_time() {
    let output = lines(&example("reqwest_client").output().unwrap());
    assert_eq!(
        output,
        [
            "sunny   200 OK, after 0 s",
            "cloudy  200 OK, after 2 s",
            "rainy   429 Too Many Requests, after 0 s",
            "stormy  rate limit `weather` exceeded: at most 10 per 1s, retry after 2s, after 0 s",
            "the service was called by sunny, after 0 s",
            "the service was called by cloudy (429), after 0 s",
            "the service was called by cloudy, after 2 s",
            "the service was called by rainy (429), after 2 s",
        ]
    );
}

#[test]
fn a_refused_mailbox_gets_the_tier_and_the_wait() {
    let output = lines(&example("mail_tiers").output().unwrap());
    let output: Vec<_> = output.iter().map(|line| line.trim()).collect();
    assert_eq!(output[..2], ["0 s  mail 1 is sent", "0 s  refused: 1 per 60s, wait 60s"]);
    assert!(output.contains(&"240 s  refused: 5 per 3600s, wait 3360s"), "{output:#?}");
    assert!(output.contains(&"3840 s  refused: 10 per 86400s, wait 82560s"), "{output:#?}");
    assert_eq!(output.last(), Some(&"86400 s  mail 11 is sent"));
    assert_eq!(output.len(), 21);
}

#[test]
fn of_harrys_20_replies_5_are_allowed_and_15_refused_in_memory_and_on_redis() {
    let server = RedisServer::start();
    for url in ["memory://".to_owned(), server.url()] {
        let output = lines(&example("reply").env("RATELIMIT_URL", url).output().unwrap());
        assert!(output[4].starts_with("call  5: allowed, 0 left"), "{output:#?}");
        assert!(output[5].starts_with("call  6: refused, again in "), "{output:#?}");
        assert_eq!(output[20], "5 allowed, 15 refused");
    }
}

#[test]
fn the_algorithms_differ_in_when_the_quota_comes_back() {
    let output = lines(&example("algorithms").output().unwrap());
    let rows = output.iter().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            ["second", "sliding_window", "sliding_counter", "fixed_window", "token_bucket"],
            ["0", "+++++..", "+++++..", "+++++..", "+++++.."],
            ["3", ".......", ".......", ".......", "+......"],
            ["6", ".......", ".......", ".......", "++....."],
            ["9", ".......", ".......", ".......", "+......"],
            ["12", "+++++..", "+......", "+++++..", "++....."],
            ["15", ".......", "+......", ".......", "+......"],
            ["18", ".......", "++.....", ".......", "++....."],
            ["21", ".......", "+......", ".......", "+......"],
            ["24", "+++++..", "+......", "+++++..", "++....."],
        ]
    );
}

#[tokio::test]
async fn the_page_for_operators_is_for_those_on_this_machine() {
    let service = Running::start(example("dashboard").arg("127.0.0.1:0"));
    let url = service.first_line().strip_prefix("listening on ").expect("the address");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let page = client.get(url).send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.text().await.unwrap().contains("<title>Rate limits</title>"));
    // A foreign site whose name resolves to this address.
    let foreign = client.get(url).header("host", "evil.example:80").send().await.unwrap();
    assert_eq!(foreign.status(), 421);
    let reply = url.replace("/ops/limits/", "/reply");
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let asked = client.get(&reply).header("x-user", "dora").send().await.unwrap();
        statuses.push(asked.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
}

#[tokio::test]
async fn an_admin_interface_lists_limits_overrides_them_and_resets_callers() {
    let service = Running::start(example("admin").arg("127.0.0.1:0"));
    let url = service.first_line().strip_prefix("listening on ").expect("the address");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let send = async |method: reqwest::Method, path: &str, body: &'static str| {
        let request = client.request(method, format!("{url}{path}")).body(body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let (get, put, delete) = (reqwest::Method::GET, reqwest::Method::PUT, reqwest::Method::DELETE);
    let hello = async || send(get.clone(), "/hello/alice", "").await.0;
    let list = async || send(get.clone(), "/limits", "").await.1;

    assert_eq!([hello().await, hello().await, hello().await], [200, 200, 429]);
    let limit = "hello: sliding_window, 2 per 60s, key (user)";
    assert_eq!(list().await, format!("{limit}: 2 admitted, 1 refused\n"));

    assert_eq!(send(put.clone(), "/limits/hello", r#"{"threshold": 3}"#).await.0, 200);
    assert_eq!([hello().await, hello().await], [200, 429]);
    let expected = format!("{limit}, override {{\"threshold\":3}}: 3 admitted, 2 refused\n");
    assert_eq!(list().await, expected);
    let (status, error) = send(put.clone(), "/limits/hello", r#"{"threshold": 0}"#).await;
    assert_eq!(status, 422);
    assert!(error.contains("`threshold` must be at least 1"), "{error}");
    assert_eq!(list().await, expected, "the override before it stays");
    let (status, error) = send(put.clone(), "/limits/hello", r#"{"threshold": "abc"}"#).await;
    let words = "invalid type: string \"abc\", expected a whole number up to 4294967295\n";
    assert!(status == 422 && error.starts_with(words), "{status}: {error}");
    let unknown = (404, "there is no limit `nosuch`\n".to_owned());
    assert_eq!(send(put, "/limits/nosuch", "off").await, unknown);
    for path in ["/limits/nosuch", "/limits/nosuch/alice"] {
        assert_eq!(send(delete.clone(), path, "").await, unknown);
    }

    assert_eq!(send(delete.clone(), "/limits/hello", "").await.0, 200);
    assert_eq!(hello().await, 429);
    assert_eq!(send(delete, "/limits/hello/alice", "").await.0, 200);
    assert_eq!([hello().await, hello().await, hello().await], [200, 200, 429]);
}

#[test]
fn an_invalid_url_is_reported_with_its_variable_and_without_its_password() {
    let output = example("hello").env("RATELIMIT_URL", "http://me:secret@host/").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("RATELIMIT_URL: unknown scheme `http`"), "{error}");
    assert!(error.contains("redis://") && !error.contains("secret"), "{error}");
}
