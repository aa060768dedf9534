//! The page is right about limits of odd names and policies.

use std::time::Duration;

use harness::RedisServer;
use ratelimit_dashboard::Access;
use ratelimit_runtime::Policy;

use crate::page::{Service, is_clean, open, until_said};

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
