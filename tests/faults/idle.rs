//! After an idle connection was closed Redis decides the next call, and counts it once.

use std::{
    collections::HashSet,
    io::{Read, Write},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use harness::{Authority, FaultLine, Network, Proxy, RedisServer, unavailable, until, wait_for};
use ratelimit_runtime::{Limiter, OnStoreError, Policy};

const MINUTE: Duration = Duration::from_secs(60);
const ALGORITHMS: [Policy; 4] = [
    Policy::sliding_window("p", MINUTE, 3),
    Policy::sliding_counter("p", MINUTE, 3),
    Policy::fixed_window("p", MINUTE, 3),
    Policy::token_bucket("p", MINUTE, 3),
];

/// A server that is reached in every way, and how.
struct Ways {
    server: RedisServer,
    proxy: Proxy,
    tls_proxy: Proxy,
    certificate: String,
}

impl Ways {
    fn open() -> Self {
        let authority = Authority::new();
        let identity = authority.identity("server", &["127.0.0.1"]);
        let server = RedisServer::with_tls(&authority.arguments(&identity, false));
        Self {
            proxy: Proxy::start(server.port()),
            tls_proxy: Proxy::start(server.public_port()),
            certificate: authority.certificate(),
            server,
        }
    }

    /// Limiters with a connection each, over these URLs: for each protocol one for each algorithm.
    async fn callers(&self, urls: &[String]) -> Vec<Caller> {
        let mut callers = Vec::new();
        for url in urls {
            for protocol in ["resp2", "resp3"] {
                let url = format!("{url}?protocol={protocol}");
                for (number, policy) in ALGORITHMS.into_iter().enumerate() {
                    let mut builder = Limiter::builder().deadline(Duration::from_secs(10));
                    if url.starts_with("rediss") {
                        builder = builder.root_certificate(&*self.certificate);
                    }
                    let builder = builder.on_store_error(OnStoreError::Deny).deny_cache(0);
                    let limiter = builder.connect(&url).await.unwrap();
                    let way = format!("algorithm {number} over {url}");
                    callers.push(Caller { way, limiter, policy });
                }
            }
        }
        callers
    }

    fn direct(&self) -> [String; 3] {
        let tls = format!("rediss://127.0.0.1:{}", self.server.public_port());
        [self.server.url(), self.server.unix_url(), tls]
    }

    fn through_proxies(&self) -> [String; 2] {
        [self.proxy.url(), format!("rediss://127.0.0.1:{}", self.tls_proxy.port())]
    }

    /// The connections of limiters that are open.
    fn connections(&self) -> HashSet<String> {
        let clients: String = self.server.command("CLIENT LIST TYPE normal");
        let ids = clients.lines().filter(|line| line.contains("name=ratelimit"));
        ids.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
    }
}

struct Caller {
    way: String,
    limiter: Limiter,
    policy: Policy,
}

impl Caller {
    async fn is_left(&self, remaining: u32) -> Result<(), String> {
        match self.limiter.check(&self.policy, &*self.way).await {
            Ok(decision) if decision.remaining() == remaining => Ok(()),
            other => Err(format!("{}: {other:?}", self.way)),
        }
    }
}

/// Closes the connections of all callers and repeats each call, first before the runtime can notice it and
/// then after.
async fn closed(fault: &str, ways: &Ways, urls: &[String], close: impl Fn()) {
    let callers = ways.callers(urls).await;
    let assert_left = async |remaining, when| {
        let mut wrong = Vec::new();
        for caller in &callers {
            wrong.extend(caller.is_left(remaining).await.err());
        }
        FaultLine::of(&format!("{fault}, {when}"))
            .with("calls not decided", format!("{} of {}", wrong.len(), callers.len()))
            .print();
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    };
    let close = || {
        let connections = ways.connections();
        close();
        // The runtime stands still meanwhile: it has the test's thread alone.
        wait_for("the end of all connections", || {
            ways.connections().is_disjoint(&connections).then_some(())
        });
    };
    assert_left(2, "before").await;
    close();
    assert_left(1, "not yet seen").await;
    close();
    until("connections that are made without a call", async || {
        (ways.connections().len() >= callers.len()).then_some(())
    })
    .await;
    assert_left(0, "seen").await;
}

#[tokio::test]
async fn idle_connections_that_redis_times_out_cost_no_call_and_no_count() {
    let ways = Ways::open();
    let () = ways.server.command("CONFIG SET timeout 1");
    closed("idle connections, `timeout 1`", &ways, &ways.direct(), || {}).await;
}

#[tokio::test]
async fn idle_connections_that_are_killed_cost_no_call_and_no_count() {
    let ways = Ways::open();
    let kill = || {
        let _: i64 = ways.server.command("CLIENT KILL TYPE normal SKIPME yes");
    };
    closed("idle connections, CLIENT KILL", &ways, &ways.direct(), kill).await;
}

#[tokio::test]
async fn idle_connections_that_a_proxy_closes_cost_no_call_and_no_count() {
    let ways = Ways::open();
    let end = || [&ways.proxy, &ways.tls_proxy].map(|it| it.set(Network::Ends));
    closed("idle connections, closed by a proxy", &ways, &ways.through_proxies(), || {
        end();
    })
    .await;
}

#[tokio::test]
async fn idle_connections_that_a_firewall_resets_cost_no_call_and_no_count() {
    let ways = Ways::open();
    let reset = || [&ways.proxy, &ways.tls_proxy].map(|it| it.set(Network::Resets));
    closed("idle connections, reset by a firewall", &ways, &ways.through_proxies(), || {
        reset();
    })
    .await;
}

/// Accepts every connection, acknowledges its handshake, and closes it.
fn inhospitable() -> (u16, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let visits = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&visits);
    thread::spawn(move || {
        for visitor in listener.incoming() {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut visitor = visitor.unwrap();
            let mut input = [0; 1024];
            let length = visitor.read(&mut input).unwrap_or(0);
            let commands = String::from_utf8_lossy(&input[..length]).matches('*').count();
            let _ = visitor.write_all("+OK\r\n".repeat(commands).as_bytes());
        }
    });
    (port, visits)
}

#[tokio::test]
async fn a_server_that_hangs_up_at_once_is_not_stormed() {
    let (port, visits) = inhospitable();
    let url = format!("redis://127.0.0.1:{port}?protocol=resp2");
    let builder = Limiter::builder().deadline(Duration::from_millis(200));
    let limiter = builder.on_store_error(OnStoreError::Deny).connect_lazy(&url).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        unavailable(limiter.check(&ALGORITHMS[0], "alice").await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let visits = visits.load(Ordering::Relaxed);
    FaultLine::of("a server that hangs up at once").with("connections in 3 s", visits).print();
    // At first soon, then about one a second.
    assert!((3..=12).contains(&visits), "{visits}");
}
