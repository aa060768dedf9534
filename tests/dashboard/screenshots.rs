//! `cargo run -p ratelimit-tests --example screenshots`
//!
//! Pictures of the live page, as the example `dashboard` shows it after a while of traffic:
//! light, dark and on a phone. They are written to
//! `ratelimit-runtime/screenshots`, or to the folder that is given. Needs `chromium` and
//! `chromedriver`, which `tests/run` installs.

#![allow(missing_docs, reason = "a program has no interface")]

use std::{env, fs, path::PathBuf, time::Duration};

use fantoccini::Locator;
use harness::{Browser, Running, example};

/// How long the traffic has gone on by then.
const TRAFFIC: Duration = Duration::from_secs(90);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ours = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../ratelimit-runtime/screenshots");
    let folder = env::args().nth(1).map_or(ours, PathBuf::from);
    fs::create_dir_all(&folder)?;
    let service = Running::start(example("dashboard").arg("127.0.0.1:0"));
    let url = service.first_line().rsplit_once(' ').ok_or("the service says where it is")?.1;
    let seconds = env::var("TRAFFIC").ok().and_then(|it| it.parse().ok());
    tokio::time::sleep(seconds.map_or(TRAFFIC, Duration::from_secs)).await;

    let browser = Browser::start().await;
    browser.resize(1280, 960).await;
    browser.prefer("prefers-color-scheme", "light").await;
    browser.page.goto(url).await?;
    browser.until("document.querySelectorAll('#rows li').length >= 8").await;
    browser.until("document.querySelector('#live').textContent === 'live'").await;
    browser.screenshot(&folder.join("light.png")).await;

    browser.prefer("prefers-color-scheme", "dark").await;
    browser.resize(1280, 1540).await;
    browser.page.find(Locator::Css("[data-limit=webhook] .row")).await?.click().await?;
    browser.until("document.querySelector('.more canvas') !== null").await;
    let caller = browser.page.find(Locator::Css(".caller [name=part]")).await?;
    caller.send_keys("1").await?;
    browser.page.find(Locator::Css(".caller [type=submit]")).await?.click().await?;
    browser.until("document.querySelector('.caller + .answer [data-is=left]') !== null").await;
    browser.value("window.scrollTo(0, 0)").await;
    browser.screenshot(&folder.join("dark.png")).await;

    browser.prefer("prefers-color-scheme", "light").await;
    browser.page.find(Locator::Css("[data-limit=webhook] .row")).await?.click().await?;
    browser.resize(390, 844).await;
    browser.value("window.scrollTo(0, 0)").await;
    // The plots follow the new width.
    tokio::time::sleep(Duration::from_secs(2)).await;
    browser.screenshot(&folder.join("narrow.png")).await;

    for entry in browser.log("browser").await {
        println!("{entry}");
    }
    Ok(())
}
