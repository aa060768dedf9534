//! A headless browser, driven over `WebDriver`.

use std::{
    env, fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use fantoccini::{Client, ClientBuilder, wd::WebDriverCompatibleCommand};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{PATIENCE, free_port, until, wait_for};

/// The pause between two looks at a page: each is work for the driver, the browser and the page.
const LOOK: Duration = Duration::from_millis(50);

/// A browser with a page, a profile and a driver of its own, which are gone when it is dropped.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// The page, by `fantoccini`.
    pub page: Client,
    _profile: TempDir,
}

impl Browser {
    /// Starts Chromium by a `chromedriver` on a free port. On a machine that stands still for a
    /// minute the driver gives up before the browser has answered, so it is started up to three
    /// times.
    pub async fn start() -> Self {
        let mut refusal = None;
        for _ in 0..3 {
            match Self::try_start().await {
                Ok(browser) => return browser,
                Err(error) => refusal = Some(error),
            }
        }
        panic!("chromium does not start: {refusal:?}");
    }

    async fn try_start() -> Result<Self, fantoccini::error::NewSessionError> {
        let profile = TempDir::new().expect("a directory for the browser");
        let (mut driver, port) = (0..10).find_map(|_| launch()).expect("chromedriver starts");
        let page = match connect(port, &profile).await {
            Ok(page) => page,
            Err(error) => {
                let _ = driver.kill();
                let _ = driver.wait();
                return Err(error);
            }
        };
        let session = page.session_id().await.ok().flatten().expect("a session has an id");
        Ok(Self { driver, port, session, page, _profile: profile })
    }

    /// Gives the page this size, scroll bars included.
    pub async fn resize(&self, width: u32, height: u32) {
        // A window has a least width; what is shown in it has none.
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Sets the preferences of the page's user, such as `prefers-color-scheme`.
    pub async fn prefer(&self, feature: &str, value: &str) {
        let features = json!({ "features": [{ "name": feature, "value": value }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Sends a command of Chromium's own protocol.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let command = DevTools(json!({ "cmd": command, "params": parameters }));
        self.page.issue_cmd(command).await.expect("the browser does it")
    }

    /// Returns the page's log since the last call, with errors of scripts; for `performance`, its
    /// requests to the network.
    pub async fn log(&self, kind: &'static str) -> Vec<Value> {
        let entries = self.page.issue_cmd(Log(kind)).await.expect("the browser has logs");
        entries.as_array().cloned().unwrap_or_default()
    }

    /// Evaluates an expression in the page.
    pub async fn value(&self, expression: &str) -> Value {
        let script = format!("return ({expression});");
        self.page.execute(&script, Vec::new()).await.expect(expression)
    }

    /// Evaluates an expression in the page after a pause, for loops that wait for it.
    pub async fn look(&self, expression: &str) -> Value {
        tokio::time::sleep(LOOK).await;
        self.value(expression).await
    }

    /// Waits until an expression in the page is true.
    pub async fn until(&self, expression: &str) {
        until(expression, async || (self.look(expression).await == true).then_some(())).await;
    }

    /// Writes what is seen to a file.
    pub async fn screenshot(&self, path: &std::path::Path) {
        let image = self.page.screenshot().await.expect("a screenshot");
        fs::write(path, image).expect("a file for the screenshot");
    }
}

/// Starts a driver. Returns `None` if another process has taken its port.
fn launch() -> Option<(Child, u16)> {
    let port = free_port();
    let mut driver = Command::new("chromedriver")
        .arg(format!("--port={port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver is there; tests/run installs it");
    let listens = wait_for("chromedriver", || {
        if driver.try_wait().expect("the driver's state").is_some() {
            return Some(false);
        }
        TcpStream::connect(("127.0.0.1", port)).ok().map(|_| true)
    });
    listens.then_some((driver, port))
}

async fn connect(
    port: u16,
    profile: &TempDir,
) -> Result<Client, fantoccini::error::NewSessionError> {
    let arguments = [
        "--headless=new",
        // Required if tests run as root.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        // Pages of the address bar, which nobody sees here; each costs as much as ours.
        "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
    ];
    let mut arguments: Vec<_> = arguments.map(str::to_owned).into();
    arguments.push(format!("--user-data-dir={}", profile.path().display()));
    let mut options = json!({ "args": arguments });
    if let Some(shell) = shell(profile) {
        options["binary"] = json!(shell);
    }
    let capabilities = json!({
        "goog:chromeOptions": options,
        "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
    });
    let capabilities: Map<String, Value> = capabilities.as_object().cloned().unwrap_or_default();
    let mut builder = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
    builder.capabilities(capabilities);
    builder.connect(&format!("http://127.0.0.1:{port}")).await
}

/// Returns a program that starts Chromium's headless shell, if there is one: without the parts of a
/// window, it takes 60 % of the processor's time. A driver expects a page, which the shell opens
/// only if it is given one.
fn shell(profile: &TempDir) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    let mut shells = env::split_paths(&folders).map(|it| it.join("chromium-headless-shell"));
    let shell = shells.find(|it| it.exists())?;
    let start = profile.path().join("start");
    let script = format!("#!/bin/sh\nexec {} \"$@\" data:,\n", shell.display());
    fs::write(&start, script).expect("a file for the start");
    fs::set_permissions(&start, PermissionsExt::from_mode(0o700)).expect("the mode of the file");
    Some(start)
}

impl Drop for Browser {
    /// Ends the browser and then its driver, also after a failed test.
    fn drop(&mut self) {
        if let Ok(mut driver) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = driver.set_read_timeout(Some(PATIENCE));
            let request = format!(
                "DELETE /session/{} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
                self.session
            );
            let _ = driver.write_all(request.as_bytes());
            let _ = driver.read(&mut [0; 64]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A command of chromedriver's own.
#[derive(Debug)]
struct DevTools(Value);

impl WebDriverCompatibleCommand for DevTools {
    fn endpoint(
        &self,
        base: &url::Url,
        session: Option<&str>,
    ) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.0.to_string()))
    }
}

#[derive(Debug)]
struct Log(&'static str);

impl WebDriverCompatibleCommand for Log {
    fn endpoint(
        &self,
        base: &url::Url,
        session: Option<&str>,
    ) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({ "type": self.0 }).to_string()))
    }
}
