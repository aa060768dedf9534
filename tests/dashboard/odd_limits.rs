//! The page is right about limits of odd names and policies.

use std::time::{Duration, SystemTime};

use harness::{RedisServer, ran_in_own_process, until};
use ratelimit_dashboard::Access;
use ratelimit_runtime::{Limiter, OnStoreError, Override, Policy, RateLimitError, rate_limit};
use serde_json::json;

use crate::{
    operator::{MINUTE, Operator},
    page::{Service, click, find, is_clean, open, until_said},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_may_have_the_name_of_what_every_object_has() {
    // All pages of the process list the limit.
    if ran_in_own_process("odd_limits::a_limit_may_have_the_name_of_what_every_object_has") {
        return;
    }
    let service = Service::start(|| Access::Act).await;
    // Known, and all but one not yet called.
    for name in ["constructor", "__proto__", "toString"] {
        let limit = Policy::sliding_window(name, MINUTE, 5);
        service.limiter.peek(&limit, "alice").await.unwrap();
    }
    let called = Policy::sliding_window("constructor", MINUTE, 5);
    service.limiter.check(&called, "alice").await.unwrap();
    let browser = open(&service).await;
    until_said(&browser, "[data-limit=paced] .sum .number", "0").await;
    click(&browser, "[data-limit=constructor] .row").await;
    until_said(&browser, ".more .facts", "refused0 in the last minute").await;
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_not_blamed_for_a_policy_that_breaks_a_rule() {
    const BROKEN: Policy = Policy::sliding_window("broken", Duration::ZERO, 5);
    let server = RedisServer::start();
    let service = Service::of(server.limiter().await, || Access::View).await;
    let limiter = service.limiter.clone();
    tokio::spawn(async move {
        loop {
            limiter.check(&BROKEN, "alice").await.unwrap_err();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let browser = open(&service).await;
    let undecided = "document.querySelector('#totals [data-count=undecided] .value').textContent";
    browser.until(&format!("Number({undecided}) > 1")).await;
    until_said(&browser, "#store", "127.0.0.1").await;
    assert_eq!(browser.value("document.querySelector('#store').className").await, "chip good");
    assert_eq!(browser.value("document.querySelector('#store-notice').hidden").await, true);
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_share_that_redis_did_not_decide_is_one_of_all_calls() {
    const HALF: Policy = Policy::sliding_window("half", MINUTE, 1_000_000);
    // Its calls are those of the whole process.
    if ran_in_own_process("odd_limits::the_share_that_redis_did_not_decide_is_one_of_all_calls") {
        return;
    }
    let server = RedisServer::start();
    let service = Service::of(server.limiter().await, || Access::View).await;
    let limiter = service.limiter.clone();
    let lost = Limiter::builder().on_store_error(OnStoreError::Deny);
    let lost = lost.connect_lazy("redis://127.0.0.1:1/").unwrap();
    tokio::spawn(async move {
        loop {
            limiter.check(&HALF, "alice").await.unwrap();
            lost.check(&HALF, "alice").await.unwrap_err();
        }
    });
    let browser = open(&service).await;
    find(&browser, "#counts option[value=fleet]").await.click().await.unwrap();
    until_said(&browser, "#fleet-rows", "Redis did not decide").await;
    let said = browser.value("document.querySelector('#fleet-rows').textContent").await;
    let (_, share) = said.as_str().unwrap().split_once("did not decide ").unwrap();
    let share: u32 = share.trim_end_matches(" %").parse().unwrap();
    assert!((40..=60).contains(&share), "{said}");
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_build_that_does_not_report_all_calls_has_a_share_of_the_known_ones() {
    let server = RedisServer::start();
    let service = Service::of(server.limiter().await, || Access::View).await;
    let browser = open(&service).await;
    find(&browser, "#counts option[value=fleet]").await.click().await.unwrap();
    let mut calls = 0;
    until("the share", async || {
        calls += 1;
        let limit = json!({
            "name": "older", "admitted": 2 * calls, "refused": calls, "undecided": calls,
            "refused_within": [0, 0, 0], "callers": [],
        });
        let now = SystemTime::now();
        let report = json!({ "name": "older", "started": now, "reported": now, "limits": [limit] });
        let () = server.command(&format!("HSET ratelimit:status older {report}"));
        let rows = browser.value("document.querySelector('#fleet-rows').textContent").await;
        rows.as_str().unwrap().contains("Redis did not decide 34 %").then_some(())
    })
    .await;
    is_clean(&browser, &service).await;
}

#[rate_limit(
    name = "of each call",
    tier(period = "1ms", threshold = few),
    tier(period = "1h", threshold = many),
    key = 1,
    limiter = limiter
)]
async fn of_each_call(limiter: &Limiter, few: u32, many: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "of each period", period = period, threshold = 1, key = 1, limiter = limiter)]
async fn of_each_period(limiter: &Limiter, period: Duration) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn each_window_that_has_refused_is_told() {
    const ONE: Policy = Policy::sliding_window("of one", MINUTE, 9);
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let refused_by = async |name| operator.counts_of(name).await["refused_by"].clone();
    let pause = || tokio::time::sleep(Duration::from_millis(5));
    of_each_call(&limiter, 1, 2).await.unwrap();
    pause().await;
    of_each_call(&limiter, 1, 2).await.unwrap();
    pause().await;
    of_each_call(&limiter, 1, 2).await.unwrap_err();
    assert_eq!(refused_by("of each call").await, json!([["3600s window", 1]]));

    // An override has had more windows than there are now.
    let several = Override::new().tier(Duration::from_millis(1), 1).tier(60 * MINUTE, 2);
    limiter.overrides().here().set("of one", several).unwrap();
    limiter.check(&ONE, "alice").await.unwrap();
    pause().await;
    limiter.check(&ONE, "alice").await.unwrap();
    pause().await;
    limiter.check(&ONE, "alice").await.unwrap_err();
    assert_eq!(refused_by("of one").await, json!([["3600s window", 1]]));
    limiter.overrides().here().remove("of one");
    assert_eq!(refused_by("of one").await, json!([["a window of other numbers", 1]]));
    // So had it two windows more than now.
    let several = Override::new()
        .tier(Duration::from_millis(1), 1)
        .tier(Duration::from_millis(3), 2)
        .tier(60 * MINUTE, 3);
    limiter.overrides().here().set("of one", several).unwrap();
    for _ in 0..3 {
        limiter.check(&ONE, "bob").await.unwrap();
        pause().await;
    }
    limiter.check(&ONE, "bob").await.unwrap_err();
    limiter.overrides().here().remove("of one");
    assert_eq!(refused_by("of one").await, json!([["a window of other numbers", 2]]));

    // The periods come with each call, too.
    let period = Duration::from_secs(90);
    of_each_period(&limiter, period).await.unwrap();
    of_each_period(&limiter, period).await.unwrap_err();
    assert_eq!(refused_by("of each period").await, json!([["90s window", 1]]));
}
