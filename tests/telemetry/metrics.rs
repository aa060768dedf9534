//! A scrape by Prometheus has every decision, the latency and health of the store, and the number of keys.

use std::{collections::BTreeMap, sync::Barrier, time::Duration};

use harness::{RedisServer, Running, example, ran_in_own_process, until};
use metrics_exporter_prometheus::PrometheusBuilder;
use ratelimit_runtime::{
    Limiter, OnStoreError, Override, Policy, RateLimitError, caller, rate_limit, stats,
};

/// Returns the samples of a page by their series. Panics on an invalid line.
fn samples(page: &str) -> BTreeMap<String, String> {
    let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').expect(line);
        let _: f64 = value.parse().expect(line);
        (series.to_owned(), value.to_owned())
    };
    lines.map(sample).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_over_http_counts_admitted_and_refused_calls() {
    let service = Running::start(example("metrics").arg("127.0.0.1:0"));
    let url = service.first_line().rsplit_once(' ').unwrap().1.to_owned();
    for _ in 0..5 {
        let _ = reqwest::get(&url).await.unwrap();
    }
    let page = reqwest::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap();
    assert!(page.contains("# TYPE ratelimit_decisions_total counter"), "{page}");
    let expected = [
        (
            "ratelimit_decisions_total{policy=\"hello\",outcome=\"admitted\",decided_by=\"store\"}",
            "2",
        ),
        (
            "ratelimit_decisions_total{policy=\"hello\",outcome=\"refused\",decided_by=\"store\"}",
            "3",
        ),
        ("ratelimit_enforcement{policy=\"hello\"}", "2"),
        ("ratelimit_limit{policy=\"hello\",tier=\"0\"}", "2"),
        ("ratelimit_refused_total{policy=\"hello\",tier=\"0\"}", "3"),
        ("ratelimit_units_total{policy=\"hello\",outcome=\"admitted\"}", "2"),
        ("ratelimit_units_total{policy=\"hello\",outcome=\"refused\"}", "3"),
        ("ratelimit_used_share{policy=\"hello\"}", "1"),
        ("ratelimit_memory_bytes", "84"),
        ("ratelimit_memory_keys", "1"),
    ];
    assert_eq!(
        samples(&page),
        expected.map(|(series, value)| (series.to_owned(), value.to_owned())).into()
    );
}

#[rate_limit(name = "dry", period = 60, threshold = 1, key = 1, limiter = limiter, dry_run)]
async fn dry(limiter: &Limiter) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn redis_is_measured_by_outcome_latency_and_health() {
    const MINUTE: Duration = Duration::from_secs(60);
    const POLICY: Policy = Policy::sliding_window("p", MINUTE, 1);
    if ran_in_own_process("metrics::redis_is_measured_by_outcome_latency_and_health") {
        return;
    }
    let prometheus = PrometheusBuilder::new().install_recorder().unwrap();
    let mut server = RedisServer::start();
    let limiter = server.limiter().await;
    for _ in 0..4 {
        let _ = limiter.check(&POLICY, "alice").await;
        dry(&limiter).await.unwrap();
    }
    let denying = Limiter::builder().on_store_error(OnStoreError::Deny);
    let denying = denying.connect(&server.url()).await.unwrap();
    server.kill();
    for _ in 0..10 {
        denying.check(&POLICY, "bob").await.unwrap_err();
    }
    for policy in [
        Policy::sliding_window("too large", MINUTE, 2),
        Policy::sliding_window("invalid", Duration::ZERO, 3),
    ] {
        for _ in 0..2 {
            limiter.check(&policy, "alice").cost(3).await.unwrap_err();
        }
    }
    let page = prometheus.render();
    let scraped = samples(&page);
    let decisions = |policy: &str, outcome: &str, source: &str| {
        let labels = format!("policy=\"{policy}\",outcome=\"{outcome}\",decided_by=\"{source}\"");
        scraped.get(&format!("ratelimit_decisions_total{{{labels}}}")).map(String::as_str)
    };
    assert_eq!(decisions("p", "admitted", "store"), Some("1"), "{page}");
    assert_eq!(decisions("p", "refused", "store"), Some("1"), "{page}");
    assert_eq!(decisions("p", "refused", "deny_cache"), Some("2"), "{page}");
    assert_eq!(decisions("p", "unavailable", "none"), Some("10"), "{page}");
    assert_eq!(decisions("too large", "too_large", "limiter"), Some("2"), "{page}");
    assert_eq!(decisions("invalid", "invalid_policy", "limiter"), Some("2"), "{page}");
    assert_eq!(decisions("dry", "admitted", "store"), Some("1"), "{page}");
    assert_eq!(decisions("dry", "would_have_refused", "store"), Some("1"), "{page}");
    assert_eq!(decisions("dry", "would_have_refused", "deny_cache"), Some("2"), "{page}");
    assert_eq!(scraped["ratelimit_store_duration_seconds_count{result=\"ok\"}"], "4", "{page}");
    let up = format!("ratelimit_store_up{{server=\"Redis at {}\"}}", server.url().split_off(8));
    assert_eq!(scraped[&up], "0", "{page}");
    assert!(!page.contains("alice") && !page.contains("bob"), "{page}");

    assert_eq!(scraped.get("ratelimit_memory_keys"), None, "{page}");
    let in_memory = Limiter::in_memory();
    for caller in 0..7 {
        in_memory.check(&POLICY, caller).await.unwrap();
    }
    assert_eq!(samples(&prometheus.render())["ratelimit_memory_keys"], "7");
    in_memory.reset(&POLICY, 3).await.unwrap();
    assert_eq!(samples(&prometheus.render())["ratelimit_memory_keys"], "6");
    drop(in_memory);
    assert_eq!(samples(&prometheus.render())["ratelimit_memory_keys"], "0");
    assert_gauge_is_exact(|| samples(&prometheus.render())["ratelimit_memory_keys"].clone());

    server.restart();
    until("Redis", async || denying.check(&POLICY, "carol").await.ok()).await;
    assert_eq!(samples(&prometheus.render())[&up], "1");
}

#[tokio::test]
async fn commands_that_are_given_up_are_counted() {
    const BRIEF: Policy = Policy::fixed_window("brief", Duration::from_millis(100), 9);
    const LINE: Policy = Policy::fixed_window("line", Duration::from_secs(1), 1);
    if ran_in_own_process("metrics::commands_that_are_given_up_are_counted") {
        return;
    }
    let prometheus = PrometheusBuilder::new().install_recorder().unwrap();
    let mut server = RedisServer::start();
    let limiter = server.limiter().await;
    let decisions = [
        limiter.check(&BRIEF, "alice").cost(2).await.unwrap(),
        limiter.check(&BRIEF, "alice").cost(2).await.unwrap(),
    ];
    limiter.check(&LINE, "alice").await.unwrap();
    let waiting = limiter.clone();
    let waiting = tokio::spawn(async move {
        waiting.check(&LINE, "alice").max_wait(Duration::from_secs(9)).await.map(drop)
    });
    let is_waiting = "ratelimit_waiting{policy=\"line\"}";
    until("the line", async || {
        (samples(&prometheus.render()).remove(is_waiting)? == "1").then_some(())
    })
    .await;
    server.kill();
    waiting.abort();
    waiting.await.unwrap_err();
    for decision in decisions {
        decision.settle(1);
    }
    until("the end of the window", async || limiter.flush().await.ok()).await;
    let page = prometheus.render();
    let series = "ratelimit_unsent_total{policy=\"brief\",command=\"settle\"}";
    assert_eq!(samples(&page)[series], "2", "{page}");
    let series = "ratelimit_unsent_total{policy=\"line\",command=\"leave\"}";
    assert_eq!(samples(&page)[series], "1", "{page}");
}

#[tokio::test]
async fn permits_that_others_have_taken_are_counted() {
    const BRIEF: Policy =
        Policy::concurrency_limit("brief", 2).concurrency_timeout(Duration::from_millis(600));
    const PERMITS: &str = "ratelimit:sliding_window:{ratelimit:sliding_window:brief/alice}:c";
    if ran_in_own_process("metrics::permits_that_others_have_taken_are_counted") {
        return;
    }
    let prometheus = PrometheusBuilder::new().install_recorder().unwrap();
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let calls = [
        limiter.check(&BRIEF, "alice").await.unwrap(),
        limiter.check(&BRIEF, "alice").await.unwrap(),
    ];
    let lost = || {
        let page = prometheus.render();
        samples(&page).remove("ratelimit_permits_lost_total{policy=\"brief\"}")
    };
    let until_held = async |held: usize| {
        until("the permits", async || {
            (calls.iter().filter(|call| call.has_permit()).count() == held).then_some(())
        })
        .await;
    };
    let lose_to = |others: &[&str]| {
        let (now, _): (u64, u64) = server.command("TIME");
        let mut lost = redis::pipe();
        lost.atomic().cmd("FLUSHALL");
        for other in others {
            lost.cmd("ZADD").arg(PERMITS).arg((now + 600) * 1_000_000).arg(other);
        }
        lost.exec(&mut server.connection()).unwrap();
    };
    let until_lost = async |permits: &str| {
        until("the metric", async || (lost().as_deref() == Some(permits)).then_some(())).await;
    };
    assert_eq!(lost(), None);
    lose_to(&["one", "two"]);
    until_held(0).await;
    until_lost("2").await;
    // Lost once, however often they ask for a place; and places taken again are no loss.
    tokio::time::sleep(Duration::from_millis(600)).await;
    lose_to(&[]);
    until_held(2).await;
    assert_eq!(lost().as_deref(), Some("2"));
    lose_to(&["one"]);
    until_held(1).await;
    until_lost("3").await;
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_are_counted_while_they_wait_and_their_waits_recorded() {
    const LINE: Policy = Policy::sliding_window("line", Duration::from_secs(60), 1);
    if ran_in_own_process(
        "metrics::waiting_calls_are_counted_while_they_wait_and_their_waits_recorded",
    ) {
        return;
    }
    let prometheus = PrometheusBuilder::new().install_recorder().unwrap();
    let limiter = Limiter::in_memory();
    let waiting = || {
        let gauge =
            samples(&prometheus.render()).get("ratelimit_waiting{policy=\"line\"}").cloned();
        let limits = stats::snapshot();
        let line = limits.iter().find(|limit| limit.name() == "line").unwrap();
        assert_eq!(gauge, Some(line.waiting().to_string()));
        line.waiting()
    };
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let limiter = limiter.clone();
            let hour = Duration::from_secs(3_600);
            tokio::spawn(async move { limiter.check(&LINE, "alice").max_wait(hour).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(waiting(), 3);
    calls[2].abort();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(waiting(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(waiting(), 0);
    let scraped = samples(&prometheus.render());
    assert_eq!(scraped["ratelimit_wait_seconds_count{policy=\"line\"}"], "2");
    assert_eq!(scraped["ratelimit_wait_seconds_sum{policy=\"line\"}"], "180");
}

#[rate_limit(name = "keyless", threshold = 9, limiter = limiter)]
async fn keyless(limiter: &Limiter) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn calls_without_a_caller_are_counted() {
    if ran_in_own_process("metrics::calls_without_a_caller_are_counted") {
        return;
    }
    let prometheus = PrometheusBuilder::new().install_recorder().unwrap();
    let limiter = Limiter::in_memory();
    let silent = Limiter::builder().instrument(false).in_memory();
    let count = || {
        let samples = samples(&prometheus.render());
        samples.get("ratelimit_without_caller_total{policy=\"keyless\"}").cloned()
    };
    caller::scope("alice", keyless(&limiter)).await.unwrap();
    keyless(&silent).await.unwrap();
    assert_eq!(count(), None);
    for _ in 0..3 {
        keyless(&limiter).await.unwrap();
    }
    assert_eq!(count().as_deref(), Some("3"));
}

#[tokio::test]
async fn an_override_of_a_period_or_of_tiers_leaves_no_stale_series() {
    const MINUTE: Duration = Duration::from_secs(60);
    const POLICY: Policy = Policy::sliding_window("tiers", MINUTE, 1);
    if ran_in_own_process("metrics::an_override_of_a_period_or_of_tiers_leaves_no_stale_series") {
        return;
    }
    let prometheus = PrometheusBuilder::new().install_recorder().unwrap();
    let limiter = Limiter::in_memory();
    let scrape = |name: &str| {
        limiter.record_limits();
        let scraped = samples(&prometheus.render()).into_iter();
        let series = format!("{name}{{policy=\"tiers\"");
        let of_it = scraped.filter(|(it, _)| it.starts_with(&series));
        of_it.map(|(_, value)| value).collect::<Vec<_>>()
    };
    limiter.check(&POLICY, "alice").await.unwrap();
    limiter.check(&POLICY, "alice").await.unwrap_err();
    assert_eq!(scrape("ratelimit_limit"), ["1"]);
    limiter.overrides().here().set("tiers", Override::new().period(2 * MINUTE)).unwrap();
    assert_eq!(
        (scrape("ratelimit_limit"), scrape("ratelimit_refused_total")),
        (vec!["1".to_owned()], vec!["1".to_owned()])
    );
    let tiers = Override::new().tier(MINUTE, 3).tier(5 * MINUTE, 4);
    limiter.overrides().here().set("tiers", tiers).unwrap();
    assert_eq!(scrape("ratelimit_limit"), ["3", "4"]);
    limiter.overrides().here().remove("tiers");
    assert_eq!(scrape("ratelimit_limit"), ["1", "NaN"]);
}

/// Asserts that the gauge of keys is exact whenever no thread is at work.
fn assert_gauge_is_exact(gauge: impl Fn() -> String) {
    const POLICY: Policy = Policy::fixed_window("gauge", Duration::from_secs(3_600), 1);
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 5_000;
    let limiter = Limiter::in_memory();
    // Before a round, and after it.
    let line = Barrier::new(THREADS as usize + 1);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (limiter, line) = (&limiter, &line);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for round in 0..ROUNDS {
                    line.wait();
                    let decided = limiter.check(&POLICY, round * THREADS + thread).into_future();
                    let _ = runtime.block_on(decided);
                    line.wait();
                }
            });
        }
        let rounds: Vec<_> = (1..=ROUNDS)
            .map(|round| {
                line.wait();
                line.wait();
                (round * THREADS).to_string() == gauge()
            })
            .collect();
        let wrong = rounds.iter().filter(|is_right| !**is_right).count();
        assert_eq!(wrong, 0, "of {ROUNDS} rounds");
    });
}

#[tokio::test]
async fn overrides_that_change_no_limit_are_a_gauge_until_they_do_or_are_removed() {
    if ran_in_own_process(
        "metrics::overrides_that_change_no_limit_are_a_gauge_until_they_do_or_are_removed",
    ) {
        return;
    }
    let prometheus = PrometheusBuilder::new().install_recorder().unwrap();
    let gauge = |source: &str, problem: &str| {
        let labels = format!("source=\"{source}\",problem=\"{problem}\"");
        let series = format!("ratelimit_override_problems{{{labels}}}");
        samples(&prometheus.render()).get(&series).cloned()
    };
    let unknown = || gauge("program", "unknown_limit");
    let some = |count: &str| Some(count.to_owned());
    let (one, other) = (Limiter::in_memory(), Limiter::in_memory());
    let strict = Override::new().threshold(1);
    one.overrides().here().set("dry", strict.clone()).unwrap();
    assert_eq!(unknown(), None, "the limit is known");
    one.overrides().here().set("drie", strict.clone()).unwrap();
    one.overrides().here().set("unheard of", strict.clone()).unwrap();
    other.overrides().here().set("drie", strict).unwrap();
    assert_eq!((unknown(), stats::override_problems()), (some("3"), 3));
    // A limit that is checked by hand is known from then on.
    let by_hand = Policy::fixed_window("unheard of", Duration::from_secs(60), 9);
    one.check(&by_hand, "alice").await.unwrap();
    assert_eq!(unknown(), some("2"));
    one.overrides().here().remove("drie");
    assert_eq!(unknown(), some("1"));
    // The problems of a limiter end with it.
    drop(other);
    assert_eq!((unknown(), stats::override_problems()), (some("0"), 0));

    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |threshold: u32| {
        let text = format!("[limits]\ndry = {{ threshold = {threshold} }}\n");
        std::fs::write(file.path(), text).unwrap();
    };
    write(2);
    one.overrides().follow_file(file.path()).unwrap();
    for (threshold, rejected) in [(0, "1"), (3, "0")] {
        write(threshold);
        until("the file's new problems", async || {
            let is_so = gauge("file", "rejected") == some(rejected);
            is_so.then_some(())
        })
        .await;
    }
}
