//! The page sums the counts of the whole fleet, if its viewer asks for it.

use std::{process::Command, time::Duration};

use harness::{RedisServer, Running};
use ratelimit_dashboard::Access;
use ratelimit_runtime::{Limiter, Override, Policy};
use serde_json::json;

use crate::{
    operator::Operator,
    page::{Service, click, find, is_clean, open, until_said},
};

/// The limit of the processes, which this one calls too.
const COUNTED: Policy = Policy::fixed_window("counted", Duration::from_secs(86_400), 1);

fn process(server: &RedisServer, version: &str, calls: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counted"));
    let arguments = [&server.url(), version];
    Running::start(command.args(arguments).args(calls).env("CALLERS", "shown"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_has_sums_versions_and_callers_of_all_processes() {
    let server = RedisServer::start();
    let builder = Limiter::builder().deadline(Duration::from_secs(10)).version("1.2");
    let limiter = builder.show_callers().connect(&server.url()).await.unwrap();
    let service = Service::of(limiter.clone(), || Access::Act.named("alice")).await;
    limiter.check(&COUNTED, "dora").await.unwrap();
    let _one = process(&server, "1.0", &["mallory=31"]);
    let _other = process(&server, "1.1", &["mallory=11", "eve=2"]);

    let browser = open(&service).await;
    browser.page.goto(&format!("{}#limit=counted", service.page())).await.unwrap();
    until_said(&browser, "[data-limit=counted] .more .facts", "refused0 in the last minute").await;
    // Nobody looks at the fleet, and nothing is written.
    assert_eq!(server.command::<u64>("EXISTS ratelimit:status"), 0);
    find(&browser, "#counts option[value=fleet]").await.click().await.unwrap();
    for version in ["version 1.0, since ", "version 1.1, since ", "version 1.2, since "] {
        until_said(&browser, "#fleet-rows", version).await;
    }
    until_said(&browser, "#fleet-hint", "3 processes report every two seconds.").await;
    until_said(&browser, "[data-limit=counted] .sum", "42 refused in the last 10 minutes").await;
    until_said(&browser, "[data-limit=counted] .more .facts", "refused by the fleet").await;
    until_said(&browser, ".refusedmost li", "mallory41 refused").await;
    browser.resize(400, 800).await;
    // A window that gets narrow.
    browser.until("document.documentElement.scrollWidth === 400").await;
    browser.resize(1280, 800).await;

    // This process has not refused the caller whom it shuts out everywhere.
    click(&browser, ".refusedmost [data-choose]").await;
    until_said(&browser, ".more .caller ~ .answer [data-is=left]", "0").await;
    click(&browser, "[data-exception=deny]").await;
    click(&browser, "#confirm-yes").await;
    until_said(&browser, ".exceptions li", "/mallory").await;
    let expected = Override::new().deny().by("alice");
    assert_eq!(limiter.overrides().list_for("counted")[0].what, expected);

    find(&browser, "#counts option[value=process]").await.click().await.unwrap();
    until_said(&browser, ".refusedmost ~ .hint", "Nobody was refused.").await;
    browser.until("document.querySelector('#fleet').hidden").await;
    is_clean(&browser, &service).await;
}

#[tokio::test]
async fn there_is_no_fleet_in_memory_and_viewers_see_no_caller_of_it() {
    let memory = Operator::of(&Limiter::in_memory()).await;
    let get = async |operator: &Operator| {
        let request = operator.request(reqwest::Method::GET, "fleet").header("x-operator", "view");
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let (status, why) = get(&memory).await;
    assert_eq!((status, why.contains("a limiter in memory has no fleet")), (503, true), "{why}");

    let server = RedisServer::start();
    let _process = process(&server, "1.0", &["mallory=3"]);
    let limiter = server.limiter().await;
    limiter.check(&COUNTED, "dora").await.unwrap();
    let operator = Operator::of(&limiter).await;
    let seen = harness::until("the report", async || {
        let (status, processes) = get(&operator).await;
        assert_eq!(status, 200);
        processes.contains("counted").then_some(processes)
    })
    .await;
    assert!(!seen.contains("mallory"), "{seen}");
    let window = json!({ "limit": "counted", "window": "hour", "is_fleet": true });
    // The report may have been that of this process alone.
    let told = harness::until("a refused caller", async || {
        let (_, told) = operator.act("refused", window.clone()).await;
        told["callers"].get(0).cloned()
    });
    assert_eq!(told.await, json!({ "name": "mallory", "calls": 2, "at_most_wrong": 0 }));
}
