//! A limiter whose logins end keeps its connections, and every call is decided.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use harness::{
    Cluster, FaultLine, Load, RedisServer, Sentinels, limiter_on, unavailable, until, until_decided,
};
use ratelimit_runtime::{Credentials, Limiter, LimiterBuilder, OnStoreError, Policy};

const WIDE: Policy = Policy::sliding_counter("wide", Duration::from_secs(60), 1_000_000);

/// The time of a user: then the servers delete it, and end the connections that use it.
const VALIDITY: Duration = Duration::from_secs(4);
/// The time from one user to the next.
const STEP: Duration = Duration::from_secs(1);

/// The users of some servers, each for a while only.
#[derive(Clone, Default)]
struct Tokens {
    current: Arc<Mutex<Option<(String, SystemTime)>>>,
    asked: Arc<AtomicU32>,
}

impl Tokens {
    /// Makes this user the current one.
    fn issue(&self, servers: &[&RedisServer], user: u32) {
        for server in servers {
            let () = server.command(&format!("ACL SETUSER u{user} on >of-u{user} ~* +@all"));
        }
        *self.current.lock().unwrap() = Some((format!("u{user}"), SystemTime::now() + VALIDITY));
    }

    /// Ends the connections of a user.
    fn delete(servers: &[&RedisServer], user: u32) {
        for server in servers {
            let deleted: u32 = server.command(&format!("ACL DELUSER u{user}"));
            assert_eq!(deleted, 1);
        }
    }

    /// A builder whose provider fails each second time, once it has succeeded.
    fn builder(&self) -> LimiterBuilder {
        let tokens = self.clone();
        let builder = Limiter::builder().deadline(Duration::from_secs(10)).deny_cache(0);
        builder.on_store_error(OnStoreError::Deny).credentials(move || {
            let asked = tokens.asked.fetch_add(1, Ordering::Relaxed);
            let current = tokens.current.lock().unwrap().clone();
            async move {
                let (user, end) =
                    current.filter(|_| asked.is_multiple_of(2)).ok_or("no token now")?;
                let password = format!("of-{user}");
                Ok::<_, &str>(Credentials::new(user, password).valid_until(end))
            }
        })
    }
}

/// The ids and the users of the limiter's connections.
fn connections(servers: &[&RedisServer]) -> BTreeSet<(u16, String, String)> {
    let mut connections = BTreeSet::new();
    for server in servers {
        let clients: String = server.command("CLIENT LIST TYPE normal");
        for line in clients.lines().filter(|line| line.contains("name=ratelimit")) {
            let field = |name: &str| {
                let mut fields = line.split(' ').filter_map(|field| field.strip_prefix(name));
                fields.next().expect(name).to_owned()
            };
            connections.insert((server.port(), field("id="), field("user=")));
        }
    }
    connections
}

fn ids(connections: &BTreeSet<(u16, String, String)>) -> BTreeSet<(u16, String)> {
    connections.iter().map(|(port, id, _)| (*port, id.clone())).collect()
}

/// Replaces the users under 64 tasks. Returns the limiter, whose every call was decided over the connections
/// of the start.
async fn rotated(deployment: &str, url: &str, servers: &[&RedisServer]) -> (Limiter, Tokens) {
    let tokens = Tokens::default();
    tokens.issue(servers, 0);
    let limiter = tokens.builder().connect(url).await.unwrap();
    let load = Load::start(&limiter, WIDE, 64, 64, Duration::from_millis(10));
    until("load", async || (load.admitted() > 1_000).then_some(())).await;
    let before = connections(servers);
    assert!(before.iter().all(|(_, _, user)| user == "u0"), "{before:?}");
    let start = Instant::now();
    let mut deleted = 0;
    for user in 1_u32..=8 {
        tokio::time::sleep((STEP * user).saturating_sub(start.elapsed())).await;
        tokens.issue(servers, user);
        let alive = u32::try_from(VALIDITY.as_secs() / STEP.as_secs()).unwrap();
        if let Some(ended) = user.checked_sub(alive) {
            Tokens::delete(servers, ended);
            deleted += 1;
        }
    }
    let admitted = load.admitted();
    until("load", async || (load.admitted() > admitted + 500).then_some(())).await;
    let after = connections(servers);
    let history = load.stop().await;
    FaultLine::of(&format!("{deployment}: users that end every {STEP:?}, 64 tasks"))
        .with("users deleted", deleted)
        .with("callers get", history.answers())
        .with("connections kept", format!("{} of {}", after.len(), before.len()))
        .with("provider asked", tokens.asked.load(Ordering::Relaxed))
        .after("slowest call", history.slowest())
        .print();
    assert_eq!(history.unavailable(), 0);
    assert_eq!(ids(&after), ids(&before));
    assert!(after.iter().all(|(_, _, user)| !["u0", "u1", "u2", "u3"].contains(&&**user)));
    (limiter, tokens)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_one_server_are_replaced_without_a_reconnect() {
    let server = RedisServer::start();
    let servers = [&server];
    for protocol in ["resp2", "resp3"] {
        let url = format!("{}?protocol={protocol}", server.url());
        let (limiter, tokens) = rotated(protocol, &url, &servers).await;
        // A new connection asks again, and if that fails it has the last login.
        tokens.issue(&servers, 9);
        for _ in 0..2 {
            let kept = ids(&connections(&servers));
            let _: i64 = server.command("CLIENT KILL TYPE normal");
            until_decided(&limiter).await;
            assert!(ids(&connections(&servers)).is_disjoint(&kept));
        }
        drop(limiter);
        let () = server.command("FLUSHALL");
        for user in 5..=9 {
            Tokens::delete(&servers, user);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_a_cluster_are_replaced_without_a_reconnect() {
    let cluster = Cluster::without_replicas();
    let nodes: Vec<_> = cluster.nodes.iter().collect();
    rotated("cluster", &cluster.url(), &nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_behind_sentinels_are_replaced_and_a_new_primary_gets_the_current_one() {
    let mut sentinels = Sentinels::start();
    let (limiter, _) = {
        let servers: Vec<_> = sentinels.servers.iter().collect();
        rotated("sentinel", &sentinels.url(), &servers).await
    };
    // The user of the start, with which the Sentinels' client was made, is gone from both.
    sentinels.servers[0].kill();
    until("the failover", async || (sentinels.primary() == 1).then_some(())).await;
    until_decided(&limiter).await;
    assert!(!connections(&[&sentinels.servers[1]]).is_empty());
}

#[tokio::test]
async fn a_provider_that_fails_is_reported_and_asked_again_with_pauses() {
    let server = RedisServer::start();
    let tokens = Tokens::default();
    let error = tokens.builder().connect(&server.url()).await.unwrap_err().to_string();
    assert!(error.ends_with("credentials provider: no token now"), "{error}");

    let limiter = tokens.builder().connect_lazy(&server.url()).unwrap();
    let (start, received) = (Instant::now(), server.figure("total_connections_received"));
    while start.elapsed() < Duration::from_secs(3) {
        unavailable(limiter.check(&WIDE, "alice").await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let asked = tokens.asked.load(Ordering::Relaxed);
    FaultLine::of("a provider that fails").with("asked in 3 s", asked).print();
    assert!((3..=16).contains(&asked), "{asked}");
    // None but that of the figure itself.
    assert_eq!(server.figure("total_connections_received"), received + 1);
    tokens.issue(&[&server], 0);
    until_decided(&limiter).await;
}

#[tokio::test]
async fn a_url_with_a_login_beside_a_provider_is_refused() {
    let server = RedisServer::start();
    let tokens = Tokens::default();
    tokens.issue(&[&server], 0);
    for login in ["me:hunter2@", ":hunter2@", "me@"] {
        let url = server.url().replace("://", &format!("://{login}"));
        let error = tokens.builder().connect(&url).await.unwrap_err().to_string();
        assert!(error.contains("remove one of them") && !error.contains("hunter"), "{error}");
    }
    limiter_on(&server.url(), OnStoreError::Deny).await;
}
