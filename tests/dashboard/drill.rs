//! An operator's bad night, in the steps of the first lines of the example `drill`.

use std::{ops::Range, process::Command};

use futures_util::future::join_all;
use harness::{Browser, Clock, RedisServer, Running, example, until};
use serde_json::Value;

use crate::page::{click, fill, find, until_said};

/// In milliseconds.
const TEN_MINUTES: i64 = 600_000;

const HOUR: i64 = 3_600_000;

/// Sets a field to a time so many hours from now.
const SETS_TIME: &str = "(name, hours) => {
    const at = new Date(Date.now() + hours * 36e5 - new Date().getTimezoneOffset() * 6e4);
    document.querySelector(`.more [name=${name}]`).value = at.toISOString().slice(0, 16);
}";

/// Returns the status of a call of `checkout`.
async fn pay(client: &reqwest::Client, service: &str, user: &str) -> u16 {
    let call = client.get(format!("{service}/checkout")).header("x-user", user);
    call.send().await.expect("the service answers").status().as_u16()
}

async fn choose(browser: &Browser, select: &str, value: &str) {
    find(browser, &format!("{select} option[value='{value}']")).await.click().await.unwrap();
}

/// Chooses an order, and waits until this limit is the first one.
async fn until_first(browser: &Browser, order: &str, limit: &str) {
    choose(browser, "#order", order).await;
    // What has the pointer or the focus stays where it is.
    let arranged = "document.querySelector('#order').dispatchEvent(new Event('change'))";
    let first =
        format!("({arranged}, document.querySelector('#rows li').dataset.limit === '{limit}')");
    browser.until(&first).await;
}

/// Everything is halved for an hour, and whole again after the undo.
async fn halve_everything(browser: &Browser, client: &reqwest::Client, service: &str) {
    click(browser, "#kill").await;
    choose(browser, "#dialog [name=ends]", "3600").await;
    fill(browser, "#dialog [name=scale]", "0.5").await;
    click(browser, "#dialog [data-scale]").await;
    until_said(browser, "#all", "all limits: scale 0.5, until ").await;
    until_said(browser, "[data-limit=checkout] .said", "10 per 10s").await;
    until_said(browser, "[data-limit=search] .said", "5 per 10s").await;
    let admitted = async |user: &str| {
        let answers = join_all((0..30).map(|_| pay(client, service, user))).await;
        answers.into_iter().filter(|status| *status == 200).count()
    };
    assert_eq!(admitted("dora").await, 10);
    click(browser, "[data-undo][aria-label*='→ scale 0.5']").await;
    until_said(browser, "#confirm-text", "Undo for all limits: back to none.").await;
    click(browser, "#confirm-yes").await;
    until_said(browser, "[data-limit=checkout] .said", "20 per 10s").await;
    assert_eq!(admitted("emil").await, 20);
}

/// From 15:00 to 19:00, for a tenth of the callers: from an hour from now to five.
async fn limit_a_tenth(
    browser: &Browser,
    client: &reqwest::Client,
    service: &str,
    (clock, redis): (&Clock, &RedisServer),
) {
    choose(browser, ".more [name=begins]", "at").await;
    choose(browser, ".more [name=ends]", "at").await;
    browser.value(&format!("({SETS_TIME})('from', 1)")).await;
    browser.value(&format!("({SETS_TIME})('until', 5)")).await;
    click(browser, "[data-share='10%']").await;
    until_said(browser, "#confirm-text", "checkout: enforced for 10% of the callers, from ").await;
    click(browser, "#confirm-yes").await;
    let change = "checkout: none → enforced for 10 % of the callers, from ";
    until_said(browser, "#change-rows li", change).await;
    let refused = async |users: Range<u32>| {
        let mut refused = 0;
        for user in users {
            let user = format!("user {user}");
            let calls = (0..21).map(|_| pay(client, service, &user));
            refused += u32::from(join_all(calls).await.contains(&429));
        }
        refused
    };
    assert_eq!(refused(0..3).await, 3, "it has not begun");
    clock.step(redis, 2 * HOUR);
    until_said(browser, "[data-limit=checkout] .row .chip", "dry run").await;
    let within = refused(10..50).await;
    assert!((1..=12).contains(&within), "{within} of 40");
    // Each step has what it would have refused.
    until_said(browser, "[data-steps]", " at 10 %, ").await;
    clock.step(redis, 6 * HOUR);
    until_said(browser, "[data-limit=checkout] .row .chip", "enforced").await;
    assert_eq!(refused(60..63).await, 3, "it has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_night_is_over_in_twelve_steps() {
    let clock = Clock::new();
    let mut redis = clock.server(&[]);
    let mut drill = example("drill");
    drill.arg("127.0.0.1:0").env("RATELIMIT_URL", redis.url());
    drill.envs(clock.environment()).env("CLOCK_MONOTONIC_TOO", "1");
    let drill = Running::start(&mut drill);
    let service = drill.first_line().strip_prefix("listening on ").expect("an address");
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut flood = Command::new("curl");
    flood.args(["-s", "-o", "/dev/null", "-w", "%{http_code}\n", "-H", "x-user: mallory"]);
    let flood = flood.arg(format!("{service}/checkout?[1-1500]")).output().expect("curl runs");
    let answers = String::from_utf8(flood.stdout).unwrap();
    assert_eq!(answers.lines().filter(|it| ["200", "429"].contains(it)).count(), 1_500);
    assert!(answers.matches("429").count() > 1_300, "{answers}");
    let browser = Browser::start().await;
    browser.page.goto(&format!("{service}/ops/limits/")).await.unwrap();
    browser.until("document.querySelector('#live').textContent === 'live'").await;

    // Which limit, and whom?
    until_first(&browser, "minutes", "checkout").await;
    until_said(&browser, "[data-limit=checkout] .said", "at the limit").await;
    click(&browser, "[data-limit=checkout] .row").await;
    // A refusal at the same time as another is not sampled by caller.
    let most = "document.querySelector('.refusedmost li:first-child')?.textContent";
    browser.until(&format!("/^mallory1[34]\\d\\d refused/.test({most})")).await;
    until_said(&browser, ".refusedmost li:nth-child(2)", "acme").await;
    until_said(&browser, ".more .facts", "refused by10s window 100 %").await;
    click(&browser, "[aria-label='Choose mallory']").await;
    until_said(&browser, ".more .caller ~ .answer [data-is=limit]", "20 per 10s").await;

    // What would 40 do? It would admit `acme`. It is applied.
    fill(&browser, ".numbers [name=threshold]", "40").await;
    click(&browser, "[data-try]").await;
    until_said(&browser, "#confirm-text", "checkout: try threshold 40.").await;
    click(&browser, "#confirm-yes").await;
    let tried = "threshold 40, tried by on-call. It refuses nobody.";
    until_said(&browser, "[data-candidate=numbers]", tried).await;
    until_said(&browser, "[data-candidate=calls]", "it would have refused 0 of ").await;
    until_said(&browser, "[data-candidate=calls]", "It would have admitted ").await;
    until_said(&browser, "[data-limit=checkout] .said", "20 per 10s").await;
    click(&browser, "[data-apply-candidate]").await;
    until_said(&browser, "#confirm-text", "checkout: the candidate is applied.").await;
    click(&browser, "#confirm-yes").await;
    until_said(&browser, "[data-limit=checkout] .said", "40 per 10s").await;

    // A customer is exempt.
    choose(&browser, ".caller select", "text").await;
    fill(&browser, ".caller [name=part]", "acme").await;
    click(&browser, "[data-exception=exempt]").await;
    until_said(&browser, "#confirm-text", "checkout, caller acme: exempt.").await;
    click(&browser, "#confirm-yes").await;
    until_said(&browser, ".exceptions li", "/acme").await;
    until_said(&browser, "#change-rows li", "checkout, one caller: none → off").await;

    // After the undo the candidate is tried again, and the exception stays.
    click(&browser, "[data-undo][aria-label*='→ threshold 40']").await;
    let question = "Undo for checkout: back to candidate threshold 40.";
    until_said(&browser, "#confirm-text", question).await;
    click(&browser, "#confirm-yes").await;
    until_said(&browser, "[data-limit=checkout] .said", "20 per 10s").await;
    until_said(&browser, "[data-candidate=numbers]", tried).await;
    click(&browser, "[data-end-candidate]").await;
    click(&browser, "#confirm-yes").await;
    until("no override", async || {
        (redis.command::<u32>("EXISTS drill:overrides") == 0).then_some(())
    })
    .await;
    until_said(&browser, ".exceptions li", "/acme").await;
    for _ in 0..25 {
        assert_eq!(pay(&client, service, "acme").await, 200);
    }

    halve_everything(&browser, &client, service).await;

    // Ten minutes later others are refused more, and the flood is still the first of the last hour.
    clock.set_ahead(TEN_MINUTES);
    until_first(&browser, "minute", "search").await;
    until_first(&browser, "hour", "checkout").await;
    until_said(&browser, "[data-limit=checkout] .sum", "refused in the last hour").await;

    limit_a_tenth(&browser, &client, service, (&clock, &redis)).await;

    // A kill switch, and then Redis dies.
    click(&browser, "#kill").await;
    click(&browser, "dialog [value=off]").await;
    // The browser has not come so far: an end of its clock would have passed.
    choose(&browser, "#dialog [name=ends]", "never").await;
    click(&browser, "#dialog-confirm").await;
    until_said(&browser, "#all", "all limits: off").await;
    until_said(&browser, "[data-limit=search] .row .rate", "not counted").await;
    redis.kill();
    until_said(&browser, "#store", "fails since ").await;
    until_said(&browser, "#store-notice", "Check that Redis runs").await;
    browser.until("document.querySelector('.more [data-scope=fleet]').disabled").await;
    for _ in 0..50 {
        assert_eq!(pay(&client, service, "mallory").await, 200);
    }
    until_said(&browser, "#all", "all limits: off").await;
    // In this process it is ended all the same.
    click(&browser, "#kill").await;
    click(&browser, "dialog [value=on]").await;
    click(&browser, "#dialog-confirm").await;
    until_said(&browser, "#all-answer", "in effect in this process alone").await;
    let is_refused = async || (pay(&client, service, "mallory").await == 429).then_some(());
    until("a limit that refuses", is_refused).await;
    let mut errors = browser.log("browser").await;
    errors.retain(|entry| entry["level"] == "SEVERE");
    assert_eq!(errors, Vec::<Value>::new());
}
