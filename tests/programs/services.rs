//! The example services run by the commands in their first lines, and keep their limits under load.

#[path = "../../examples/tonic/greeter/mod.rs"]
#[expect(unused_imports, reason = "the server is the example")]
mod greeter;

use std::process::Stdio;

use greeter::{HelloRequest, greeter_client::GreeterClient};
use harness::{RedisServer, Running, example, until};
use tempfile::NamedTempFile;
use tokio::task::JoinSet;

use crate::MACHINE;

/// A running example service, and a client for it.
pub(super) struct Service {
    pub(super) process: Running,
    pub(super) client: reqwest::Client,
}

impl Service {
    fn start(name: &str, redis: Option<&RedisServer>) -> Self {
        Self::start_with(name, redis, &[])
    }

    /// Starts it with these environment variables.
    pub(super) fn start_with(
        name: &str,
        redis: Option<&RedisServer>,
        environment: &[(&str, &str)],
    ) -> Self {
        Self::run(name, redis, environment, Stdio::inherit())
    }

    /// Starts it, and sends what it prints on standard error there.
    fn run(
        name: &str,
        redis: Option<&RedisServer>,
        environment: &[(&str, &str)],
        errors: Stdio,
    ) -> Self {
        let mut command = example(name);
        command.arg("127.0.0.1:0").envs(environment.iter().copied()).stderr(errors);
        if let Some(redis) = redis {
            command.env("RATELIMIT_URL", redis.url());
        }
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { process: Running::start(&mut command), client }
    }

    pub(super) fn url(&self, path: &str) -> String {
        let address = self.process.first_line().strip_prefix("listening on ").expect("an address");
        format!("{address}{path}")
    }

    fn post(&self, path: &str, form: &str) -> reqwest::RequestBuilder {
        let request = self.client.post(self.url(path)).body(form.to_owned());
        request.header("content-type", "application/x-www-form-urlencoded")
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(self.url(path))
    }
}

async fn status(request: reqwest::RequestBuilder) -> u16 {
    request.send().await.expect("the service answers").status().as_u16()
}

/// Returns the number of served requests of several at once; all others were refused.
async fn served(calls: usize, request: &reqwest::RequestBuilder) -> usize {
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        tasks.spawn(status(request.try_clone().expect("a body that can be sent again")));
    }
    let statuses = tasks.join_all().await;
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    statuses.into_iter().filter(|status| *status == 200).count()
}

#[tokio::test]
async fn logins_are_limited_and_nobody_locks_anybody_out() {
    let service = Service::start("axum_service", None);
    let login = |account: &str, password: &str, address: &str| {
        let form = format!("account={account}&password={password}");
        service.post("/login", &form).header("x-forwarded-for", address.to_owned())
    };
    // Any spelling of an account is the account.
    assert_eq!(status(login("ali", "guess", "203.0.113.1")).await, 403);
    assert_eq!(status(login("+ALI", "guess", "203.0.113.1")).await, 403);
    assert_eq!(status(login("Ali%09", "guess", "203.0.113.1")).await, 403);
    let refused = login("aLi+", "open+sesame", "203.0.113.1").send().await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["ratelimit-policy"], r#""login-account";q=3;w=900"#);
    let problem: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["login-account"]));
    // Its owner calls from elsewhere, and does not see the guesses.
    let welcome = login("ali", "open+sesame", "203.0.113.2").send().await.unwrap();
    assert_eq!(welcome.status(), 200);
    assert_eq!(welcome.headers()["ratelimit-policy"], r#""login-address";q=5;w=60"#);
    // The address's limit, for any account and any further header.
    for (account, forged, expected) in [
        ("a", "", 403),
        ("b", "1.1.1.1, ", 403),
        ("c", "127.0.0.1,", 403),
        ("d", "x, ", 403),
        ("e", "2.2.2.2, ", 403),
        ("f", "", 429),
    ] {
        let from = format!("{forged}203.0.113.4");
        assert_eq!(status(login(account, "guess", &from)).await, expected, "{account}");
    }
    assert_eq!(status(login("f", "guess", "203.0.113.5")).await, 403);
    // Only failures count.
    for _ in 0..10 {
        assert_eq!(status(login("ali", "open+sesame", "203.0.113.6")).await, 200);
    }
}

#[tokio::test]
async fn a_known_device_has_guesses_of_its_own_and_no_other_cookie_has() {
    let service = Service::start("login", None);
    let log_in = |account: &str, password: &str, device: Option<&str>| {
        let request = service.post("/login", &format!("account={account}&password={password}"));
        match device {
            Some(device) => request.header("cookie", device.to_owned()),
            None => request,
        }
    };
    let cookie = async |account: &str| {
        let welcome = log_in(account, "open+sesame", None).send().await.unwrap();
        assert_eq!(welcome.status(), 200);
        let cookie = welcome.headers()["set-cookie"].to_str().unwrap();
        cookie.split_once(';').unwrap().0.to_owned()
    };
    let (ours, theirs) = (cookie("ali").await, cookie("mallory").await);
    for expected in [403, 403, 403, 429] {
        assert_eq!(status(log_in("ali", "guess", None)).await, expected);
    }
    // Of another account, or signed for one and changed.
    let changed = theirs.replace("%2Fmallory", "%2Fali");
    assert_ne!(changed, theirs);
    for stranger in [&theirs, &changed] {
        assert_eq!(status(log_in("ali", "open+sesame", Some(stranger))).await, 429);
    }
    for _ in 0..5 {
        assert_eq!(status(log_in("+ALI", "open+sesame", Some(&ours))).await, 200);
    }
    // A stolen one has three guesses.
    for expected in [403, 403, 403, 429] {
        assert_eq!(status(log_in("ali", "guess", Some(&ours))).await, expected);
    }
}

#[tokio::test]
async fn a_right_login_is_served_when_its_attempt_cannot_be_given_back() {
    let _machine = MACHINE.lock().await;
    let redis = RedisServer::start();
    let service = Service::start("login", Some(&redis));
    let login = || service.post("/login", "account=ali&password=open+sesame");
    assert_eq!(status(login()).await, 200);
    let is_settled = || redis.calls().get("zrem").is_some_and(|calls| *calls == 2);
    until("the attempt is given back", async || is_settled().then_some(())).await;
    // A command of settles.
    let () = redis.command("ACL SETUSER default -zrem");
    for expected in [200, 200, 200, 429] {
        assert_eq!(status(login()).await, expected);
    }
}

#[tokio::test]
async fn proxies_in_a_file_are_trusted_while_they_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let networks = directory.path().join("networks");
    std::fs::write(&networks, "192.0.2.0/24 # edge\n").unwrap();
    let file = ("TRUSTED_PROXIES", networks.to_str().unwrap());
    let service = Service::start_with("axum_service", None, &[file]);
    // The edge has appended its client, and a proxy on this machine the edge.
    let login = async |client: &str, password: &str| {
        let request = service.post("/login", &format!("account=ali&password={password}"));
        status(request.header("x-forwarded-for", format!("{client}, 192.0.2.7"))).await
    };
    for expected in [403, 403, 403, 429] {
        assert_eq!(login("203.0.113.9", "guess").await, expected);
    }
    assert_eq!(login("203.0.113.9", "open+sesame").await, 429);
    assert_eq!(login("203.0.113.10", "open+sesame").await, 200);
    // Of the edge alone, which is a client now, no limit is used up.
    std::fs::write(&networks, "198.51.100.0/24\n").unwrap();
    until("the change", async || (login("203.0.113.9", "open+sesame").await == 200).then_some(()))
        .await;
}

#[tokio::test]
async fn an_api_has_the_threshold_of_the_plan_and_mail_its_tiers() {
    let service = Service::start("axum_service", None);
    let api = |key: &str| service.get("/api").header("x-api-key", key.to_owned());
    assert_eq!(status(api("made up")).await, 401);
    assert_eq!(served(20, &api("key-of-a-free-plan")).await, 2);
    assert_eq!(served(150, &api("key-of-a-paid-plan")).await, 100);
    let refused = api("key-of-a-free-plan").send().await.unwrap();
    assert_eq!(refused.headers()["ratelimit-policy"], r#""api";q=2;w=60"#);
    // Mail is counted by the authenticated user, regardless of the claimed sender.
    let mail =
        |form: &str, key: &str| service.post("/mail", form).header("x-api-key", key.to_owned());
    assert_eq!(status(mail("from=ali&to=baba", "made up")).await, 401);
    assert_eq!(served(10, &mail("from=ali&to=baba", "key-of-a-free-plan")).await, 1);
    assert_eq!(served(10, &mail("from=baba&to=ali", "key-of-a-free-plan")).await, 0);
    assert_eq!(served(10, &mail("from=ali&to=baba", "key-of-a-paid-plan")).await, 1);
    assert_eq!(served(10, &service.post("/upload", "data")).await, 2);
}

#[tokio::test]
async fn an_api_by_plan_has_a_month_a_crawler_and_customers_of_its_own() {
    let _machine = MACHINE.lock().await;
    let redis = RedisServer::start();
    for redis in [None, Some(&redis)] {
        let printed = NamedTempFile::new().unwrap();
        let errors = printed.reopen().unwrap().into();
        let service = Service::run("api_plans", redis, &[], errors);
        let call =
            |path: &str, who: &str| service.get(path).header("x-api-key", format!("key-of-{who}"));
        let usage =
            async |who: &str| call("/usage", who).send().await.unwrap().text().await.unwrap();
        assert_eq!(status(call("/search", "nobody")).await, 401);
        // A fifth of the five calls of the free plan is left to people.
        assert_eq!(served(9, &call("/crawl", "alice")).await, 4);
        assert_eq!(served(9, &call("/search", "alice")).await, 1);
        let page = usage("alice").await;
        assert_eq!(page.lines().count(), 3, "{page}");
        // The seconds are whole, as in the first lines of the example.
        let used = ["calls this minute: 5 of 5", "calls this month: 1 of 10"];
        for (line, used) in page.lines().skip(1).zip(used) {
            let seconds = line.strip_prefix(&format!("{used}, all back in "));
            let seconds = seconds.and_then(|it| it.strip_suffix(" s")).expect(&page);
            assert!((1..=31 * 86_400).contains(&seconds.parse::<u32>().unwrap()), "{page}");
        }
        // Carol has more calls a minute until the evening, and no more a month.
        let mails = || {
            let printed = std::fs::read_to_string(printed.path()).unwrap();
            let mails = printed.split_inclusive('\n').filter(|line| line.starts_with("mail to "));
            mails.collect::<String>()
        };
        for _ in 0..7 {
            assert_eq!(status(call("/search", "carol")).await, 200);
        }
        assert_eq!(mails(), "");
        assert_eq!(status(call("/search", "carol")).await, 200);
        until("the mail", async || mails().ends_with('\n').then_some(())).await;
        assert_eq!(served(30, &call("/search", "carol")).await, 2);
        assert_eq!(mails(), "mail to carol: 2 calls are left this month\n");
        assert_eq!(status(call("/search", "mallory")).await, 403);
        assert_eq!(status(call("/crawl", "bob")).await, 200);
    }
}

#[tokio::test]
async fn two_processes_share_a_limit_under_load() {
    let _machine = MACHINE.lock().await;
    let redis = RedisServer::start();
    let one = Service::start("axum_service", Some(&redis));
    let other = Service::start("axum_service", Some(&redis));
    let api = |service: &Service| service.get("/api").header("x-api-key", "key-of-a-paid-plan");
    let (first, second) = (api(&one), api(&other));
    let (first, second) = tokio::join!(served(100, &first), served(100, &second));
    assert_eq!(first + second, 100);
}

#[tokio::test]
async fn the_actix_service_counts_by_key_or_address() {
    let service = Service::start("actix_service", None);
    let search = || service.get("/search?q=x");
    assert_eq!(served(50, &search()).await, 3);
    assert_eq!(served(50, &search().header("x-api-key", "key-of-alice")).await, 3);
    assert_eq!(status(search().header("x-api-key", "made up")).await, 429);
    let refused = search().send().await.unwrap();
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(served(50, &service.post("/mail", "from=ali&to=baba")).await, 1);
    assert_eq!(served(50, &service.post("/mail", "from=baba&to=ali")).await, 0);
    assert_eq!(served(50, &service.get("/healthz")).await, 50);
}

#[tokio::test]
async fn actix_and_tonic_count_clients_behind_proxies_in_a_file() {
    let networks = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(networks.path(), "127.0.0.1 # a proxy on this machine").unwrap();
    let file = [("TRUSTED_PROXIES", networks.path().to_str().unwrap())];
    let service = Service::start_with("actix_service", None, &file);
    for (client, expected) in
        [("203.0.113.9", 3), ("192.0.2.66, 203.0.113.9", 0), ("203.0.113.10", 3)]
    {
        let search = service.get("/search?q=x").header("x-forwarded-for", client);
        assert_eq!(served(5, &search).await, expected, "{client}");
    }
    let service = Service::start_with("tonic_service", None, &file);
    let mut rpc = GreeterClient::connect(service.url("")).await.unwrap();
    let mut is_served = async |client: &'static str| {
        let mut request = tonic::Request::new(HelloRequest { name: "you".to_owned() });
        request.metadata_mut().insert("x-forwarded-for", client.parse().unwrap());
        rpc.say_hello(request).await.is_ok()
    };
    assert!(is_served("203.0.113.9").await);
    assert!(is_served("192.0.2.66, 203.0.113.9").await);
    assert!(!is_served("203.0.113.9").await);
    assert!(is_served("203.0.113.10").await);
}

#[tokio::test]
async fn the_grpc_service_counts_by_key_or_address_and_its_client_prints_it() {
    let service = Service::start("tonic_service", None);
    let client = GreeterClient::connect(service.url("")).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let mut client = client.clone();
        let request = HelloRequest { name: "you".to_owned() };
        tasks.spawn(async move { client.say_hello(request).await });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 2);
    for status in answers.into_iter().filter_map(Result::err) {
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    }
    let output = example("tonic_service").args(["call", &service.url(""), "key-of-alice"]).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines[0], r#"hello, you, Some("\"greet\";r=1;t=30")"#);
    assert!(lines[1].starts_with(r#"hello, you, Some("\"greet\";r=0;t="#), "{output}");
    assert!(lines[2].starts_with("ResourceExhausted: rate limit `greet` exceeded"), "{output}");
    assert!(lines[3].starts_with("Some(RetryInfo { retry_delay: Some("), "{output}");
    assert!(lines[4].contains(r#"subject: "greet""#), "{output}");
}
