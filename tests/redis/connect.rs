//! A limiter that cannot connect reports the reason, the place and the fix, and never a password.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use harness::{
    Cluster, HostileServer, Hostility, RedisServer, free_port, ran_in_own_process, until,
};
use ratelimit_runtime::{AlreadyInstalled, Limiter, Policy, install};

const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 1);

async fn refused(url: &str) -> String {
    let error = Limiter::connect(url).await.expect_err("the URL cannot be used");
    assert_eq!(error.to_string(), format!("{error:?}"));
    error.to_string()
}

#[tokio::test]
async fn a_malformed_url_names_the_schemes() {
    for url in ["", "localhost", "redis://me:secret@", "redis://me:secret@host:port/", "memory://x"]
    {
        let error = refused(url).await;
        assert!(error.starts_with("rate limit store URL: malformed URL ("), "{error}");
        assert!(error.contains("memory://, redis://, rediss://"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn an_unknown_scheme_is_named() {
    let error = refused("https://me:secret@host").await;
    assert_eq!(
        error,
        "rate limit store URL: unknown scheme `https`; \
         the schemes are memory://, redis://, rediss://, unix://, redis+cluster:// or \
         redis+sentinel://"
    );
}

#[tokio::test]
async fn an_absent_server_is_reported_at_once_with_address_and_cause() {
    let port = free_port();
    let error = refused(&format!("redis://me:secret@127.0.0.1:{port}")).await;
    assert!(
        error.starts_with(&format!(
            "rate limit store URL: cannot connect to Redis at 127.0.0.1:{port}: Connection refused"
        )),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
}

/// On a cluster without databases, as Redis's, the reason is the server's.
#[tokio::test]
async fn a_database_of_a_cluster_is_selected_on_each_node() {
    let cluster = Cluster::without_replicas();
    let url = format!("{}/3", cluster.url());
    if !Cluster::has_databases() {
        let error = refused(&url).await;
        assert!(error.contains("SELECT is not allowed in cluster mode"), "{error}");
        return;
    }
    let limiter = harness::patient(&url).await;
    for caller in 0..24 {
        limiter.check(&POLICY, caller).await.unwrap();
    }
    for node in &cluster.nodes {
        let keys: String = node.command("INFO keyspace");
        assert!(keys.contains("db3:") && !keys.contains("db0:"), "{keys}");
    }
}

/// As twemproxy does.
#[tokio::test]
async fn a_proxy_that_ends_the_connection_at_a_command_has_it_named() {
    let proxy = HostileServer::start(Hostility::ClosesOnClient);
    let error = refused(&proxy.url()).await;
    assert!(error.contains("at the command CLIENT SETNAME; `?client_name=` in the URL"), "{error}");
    assert!(!error.contains("zebra"), "{error}");
    Limiter::connect(&format!("{}?client_name=", proxy.url())).await.unwrap();
    let error = refused(&format!("{}?protocol=resp3", proxy.url())).await;
    assert!(error.contains("at the command HELLO"), "{error}");
}

#[tokio::test]
async fn a_silent_server_is_given_up_within_a_second() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = Instant::now();
    let error = refused(&format!("redis://{}", silent.local_addr().unwrap())).await;
    let took = start.elapsed();
    assert!(took < Duration::from_millis(1_500), "{took:?}");
    assert!(error.contains("no answer within 1s") || error.contains("timed out"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_reported_without_it() {
    let server = RedisServer::start();
    let () = server.command("CONFIG SET requirepass right");
    let error = refused(&server.url().replace("redis://", "redis://:wrong@")).await;
    assert!(error.contains("cannot connect to Redis at 127.0.0.1:"), "{error}");
    assert!(!error.contains("wrong"), "{error}");
}

#[tokio::test]
async fn connections_have_a_name() {
    let server = RedisServer::start();
    let names = || -> Vec<String> {
        let clients: String = server.command("CLIENT LIST TYPE normal");
        let fields = clients.split_whitespace().filter_map(|field| field.strip_prefix("name="));
        fields.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    for (url, name, expected) in [
        (server.url(), None, "ratelimit"),
        (server.url() + "?protocol=resp2", Some("shop-api"), "shop-api"),
        (server.unix_url() + "?client_name=shop", Some("shop-api"), "shop"),
    ] {
        let mut builder = Limiter::builder().deadline(Duration::from_secs(10));
        if let Some(name) = name {
            builder = builder.client_name(name);
        }
        let limiter = builder.connect(&url).await.unwrap();
        assert_eq!(names(), [expected], "{url}");
        // The name is also that of the connection after one that was killed.
        let _: i64 = server.command("CLIENT KILL TYPE normal");
        until("the next connection", async || {
            let _ = limiter.check(&POLICY, &url).await;
            (!names().is_empty()).then_some(())
        })
        .await;
        assert_eq!(names(), [expected], "{url}");
        drop(limiter);
        until("no connection", async || names().is_empty().then_some(())).await;
    }
    Limiter::builder().client_name("").connect(&server.url()).await.unwrap();
    assert!(names().is_empty());
    let error = Limiter::builder().client_name("a b").connect(&server.url()).await.unwrap_err();
    assert!(error.to_string().contains("client name"), "{error}");
}

#[tokio::test]
async fn a_user_who_may_not_name_its_connection_connects() {
    let server = RedisServer::start();
    let () = server.command("ACL SETUSER limiter on >right ~* +@all -client");
    let url = server.url().replace("redis://", "redis://limiter:right@");
    let limiter = Limiter::builder().deadline(Duration::from_secs(10)).connect(&url).await.unwrap();
    assert!(limiter.check(&POLICY, "alice").await.is_ok());
}

#[tokio::test]
async fn every_way_to_name_a_store_works() {
    let server = RedisServer::start();
    for url in [String::from("memory://"), server.url(), server.unix_url()] {
        let limiter = Limiter::connect(&url).await.expect(&url);
        assert!(limiter.check(&POLICY, &url).await.is_ok(), "{url}");
        assert!(limiter.check(&POLICY, &url).await.is_err(), "{url}");
    }
}

#[tokio::test]
async fn a_limiter_is_installed_once() {
    if ran_in_own_process("connect::a_limiter_is_installed_once") {
        return;
    }
    assert_eq!(install(Limiter::in_memory()), Ok(()));
    assert_eq!(install(Limiter::in_memory()), Err(AlreadyInstalled));
}
