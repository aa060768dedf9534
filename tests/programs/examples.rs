//! The examples run by the commands in their first lines, and behave as documented.

use std::{
    collections::BTreeSet,
    io::{Read, Seek},
    iter,
    process::Output,
    sync::Mutex,
    thread,
};

use harness::{EXAMPLES, RedisServer, Running, cargo, compare_with_first_lines, example, wait_for};

use crate::MACHINE;

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Requests `say_hi` as a caller. Returns the status, `Retry-After` and the body.
async fn say_hi(server: &Running, user: &str) -> (u16, Option<u64>, String) {
    let url = server.first_line().strip_prefix("listening on ").expect("the address");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.get(format!("{url}/hello/sayHi")).header("x-user", user);
    let response = request.send().await.expect("the server answers");
    let retry_after = response.headers().get("retry-after");
    let retry_after = retry_after.map(|wait| wait.to_str().unwrap().parse().unwrap());
    (response.status().as_u16(), retry_after, response.text().await.unwrap())
}

#[test]
fn hello_keeps_its_counts_on_redis() {
    let _machine = MACHINE.blocking_lock();
    let server = RedisServer::start();
    let run = || lines(&example("hello").env("RATELIMIT_URL", server.url()).output().unwrap());
    let (first, second) = (run(), run());
    assert!(first[0].contains(r#"store: "redis""#), "{}", first[0]);
    assert_eq!(first.iter().filter(|line| line.contains("exceeded")).count(), 4);
    assert_eq!(second.iter().filter(|line| line.contains("exceeded")).count(), 10);
}

#[tokio::test]
async fn the_third_request_within_30_seconds_is_a_429_also_after_a_restart() {
    let _machine = MACHINE.lock().await;
    let redis = RedisServer::start();
    let start = || {
        Running::start(example("axum_hello").arg("127.0.0.1:0").env("RATELIMIT_URL", redis.url()))
    };
    let server = start();
    assert_eq!(say_hi(&server, "alice").await, (200, None, "hi, alice\n".to_owned()));
    drop(server);

    let server = start();
    assert_eq!(say_hi(&server, "alice").await.0, 200);
    let (status, retry_after, body) = say_hi(&server, "alice").await;
    assert_eq!(status, 429);
    assert!(body.starts_with("rate limit `axum_hello::say_hi` exceeded"), "{body}");
    let key = "ratelimit:sliding_window:axum_hello::say_hi/alice";
    let retry_after = retry_after.expect("a refusal has a retry time");
    assert!((1..=30).contains(&retry_after), "{retry_after}");

    assert_eq!(say_hi(&server, "bob").await.0, 200);
    assert_eq!(redis.keys(), [key, "ratelimit:sliding_window:axum_hello::say_hi/bob"]);
    assert_eq!(redis.command::<String>(&format!("TYPE {key}")), "zset");
    assert_eq!(redis.command::<u32>(&format!("ZCOUNT {key} 0 +inf")), 2);
    let ttl = redis.command::<i64>(&format!("PTTL {key}"));
    assert!((1..=31_000).contains(&ttl), "{ttl}");
}

#[test]
fn a_limit_is_overridden_in_one_process_and_in_a_fleet() {
    let _machine = MACHINE.blocking_lock();
    let steered = lines(&example("overrides").output().unwrap());
    assert_eq!(steered.len(), 5);
    let redis = RedisServer::start();
    let output = example("overrides").env("RATELIMIT_URL", redis.url()).output().unwrap();
    let in_a_fleet = "the kill switch of the fleet               10 of 10 pass";
    assert_eq!(lines(&output), [&steered[..], &[in_a_fleet.to_owned()]].concat());
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
        "2007 requests; a threshold of 2 a minute refuses:",
        "1 of 1001 callers",
        "5 of 2007 requests",
        "192.0.2.busy: 5 requests, with waits of 58s at most",
    ];
    assert_eq!(lines(&example("replay").arg(log.path()).output().unwrap()), expected);
}

#[test]
fn the_index_lists_every_example() {
    let index = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/README.md");
    let index = std::fs::read_to_string(index).unwrap();
    let listed: BTreeSet<_> = index
        .lines()
        .filter_map(|line| line.strip_prefix("| [")?.split_once(')')?.0.split_once("]("))
        .map(|(name, file)| (name, harness::ROOT.join("examples").join(file)))
        .collect();
    let files = EXAMPLES.iter().map(|(name, it)| (name.as_str(), it.source.clone()));
    assert_eq!(listed, files.collect());
}

#[test]
fn the_first_line_of_an_example_is_the_command_that_runs_it() {
    for (name, example) in EXAMPLES.iter() {
        let source = std::fs::read_to_string(&example.source).unwrap();
        let command = format!("//! `{}`", example.command(name));
        assert_eq!(source.lines().next(), Some(command.as_str()));
    }
}

#[test]
fn every_example_prints_and_answers_what_its_first_lines_promise() {
    let _machine = MACHINE.blocking_lock();
    let names = Mutex::new(EXAMPLES.keys());
    let next = || names.lock().unwrap().next();
    let compare = || -> Vec<_> {
        iter::from_fn(next).filter_map(|name| compare_with_first_lines(name, &[]).err()).collect()
    };
    // Most of them wait.
    let broken = thread::scope(|scope| {
        let several = [(); 4].map(|()| scope.spawn(compare));
        several.into_iter().flat_map(|it| it.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn checks_by_hand_are_the_same_on_redis() {
    let _machine = MACHINE.blocking_lock();
    let server = RedisServer::start();
    compare_with_first_lines("by_hand", &[("RATELIMIT_URL", &server.url())]).unwrap();
}

#[test]
fn a_service_prints_what_the_limiter_warns_of() {
    let _machine = MACHINE.blocking_lock();
    let overrides = ("RATELIMIT_OVERRIDES", "[limits.nosuch]\nthreshold = 5");
    let mut services = 0;
    for (name, it) in EXAMPLES.iter() {
        let source = std::fs::read_to_string(&it.source).unwrap();
        if !(source.contains("listening on") && source.contains("from_env")) {
            continue;
        }
        services += 1;
        let mut log = tempfile::tempfile().unwrap();
        let mut service = example(name);
        service.arg("127.0.0.1:0").envs([overrides]).stderr(log.try_clone().unwrap());
        let _service = Running::start(&mut service);
        wait_for("the warning", || {
            let mut text = String::new();
            log.rewind().unwrap();
            log.read_to_string(&mut text).unwrap();
            text.contains("no limit is named `nosuch`").then_some(())
        });
    }
    assert_eq!(services, 11);
}

#[test]
fn a_reader_of_the_first_example_builds_no_framework() {
    let tree = cargo().args(["tree", "--quiet", "--edges", "normal", "--prefix", "none"]).output();
    let tree = String::from_utf8(tree.unwrap().stdout).unwrap();
    assert!(tree.contains("ratelimit-runtime "), "{tree}");
    for framework in ["actix-web ", "axum ", "tonic ", "hyper ", "serde_json "] {
        assert!(!tree.contains(framework), "{tree}");
    }
}

/// Returns the number before these words of a line.
fn count(line: &str, words: &str) -> usize {
    let before = line.split(words).next().expect("a part before them");
    before.rsplit(' ').next().and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn three_processes_send_nothing_in_a_pause_and_keep_their_order() {
    let _machine = MACHINE.blocking_lock();
    let output = lines(&example("outbound").output().unwrap());
    // The end of each call, when it ends: the last three do not wait for the others.
    let at = |call: &str| output.iter().position(|line| line.contains(call)).expect("it ended");
    for hasty in 16..=18 {
        assert!(at(&format!("call {hasty}: no turn")) < at("call 15: answered"), "{output:#?}");
    }
    let ended = |line: &&String| line.contains(", call ");
    assert_eq!(output.iter().filter(ended).count(), 18, "{output:#?}");
    let output: Vec<_> = output.iter().filter(|line| !ended(line)).collect();
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
    assert_eq!(count(pause, " calls of the process that was refused,"), 0, "{pause}");
    assert_eq!(count(pause, " of others within a second,"), refused - 1, "{pause}");
    assert!(refused <= 4, "{called}");
    assert_eq!(count(pause, " after it"), 0, "{pause}");
    assert_eq!(ends.len(), 3);
    let mut told = 0;
    for end in ends {
        assert_eq!(count(end, " answered,"), 5, "{end}");
        assert!(end.ends_with(", 1 without a turn"), "{end}");
        told += count(end, " refused by the service");
    }
    assert_eq!(told, refused, "{output:#?}");
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
    let words = "invalid type: string \"abc\", expected a whole number up to 4294967295, as `threshold`, \
                 `burst` and `concurrency` are\n";
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
