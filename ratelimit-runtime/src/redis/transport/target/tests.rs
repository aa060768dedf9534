use super::*;

fn parse(url: &str) -> Target {
    Target::parse(url, &ConnectOptions::default()).unwrap()
}

fn fault(url: &str) -> String {
    let fault = Target::parse(url, &ConnectOptions::default()).err().expect(url).to_string();
    let why = fault.strip_prefix("malformed URL (").and_then(|it| it.split_once("); write "));
    let scheme = fault.strip_prefix("unknown ").and_then(|it| it.split_once("; the schemes "));
    why.or(scheme).expect(&fault).0.to_owned()
}

fn addresses(target: &Target) -> Vec<String> {
    target.servers.iter().map(|server| server.addr().to_string()).collect()
}

#[test]
fn one_server_by_tcp_or_by_its_socket() {
    let target = parse("redis://user:p%40ss@host:1234/7?protocol=resp3");
    assert_eq!(addresses(&target), ["host:1234"]);
    let settings = target.servers[0].redis_settings();
    assert_eq!((settings.username(), settings.password()), (Some("user"), Some("p@ss")));
    assert_eq!((settings.db(), target.protocol), (7, Some(ProtocolVersion::RESP3)));
    for url in ["unix:///run/redis.sock?db=2", "redis+unix:///run/redis.sock?db=2"] {
        let target = parse(url);
        assert_eq!(addresses(&target), ["/run/redis.sock"]);
        assert_eq!(target.servers[0].redis_settings().db(), 2);
    }
    assert_eq!(addresses(&parse("valkey://[::1]")), ["::1:6379"]);
    assert_eq!(parse("redis://host").protocol, None);
}

#[test]
fn connections_are_named_by_the_url_or_the_setting() {
    assert_eq!(parse("redis://host").options.client_name(), "ratelimit");
    for url in [
        "redis://host/3?client_name=shop-api",
        "unix:///run/redis.sock?db=2&client_name=shop-api",
        "redis+cluster://a,b?protocol=resp2&client_name=shop-api",
        "redis+sentinel://a/mymaster?client_name=shop-api",
    ] {
        assert_eq!(parse(url).options.client_name(), "shop-api", "{url}");
    }
    let named =
        ConnectOptions { client_name: Some("shop api".into()), ..ConnectOptions::default() };
    let target = Target::parse("redis://host?client_name=", &named).unwrap();
    assert_eq!(target.options.client_name(), "");
    let why = Target::parse("redis://host", &named).err().expect("a name with a space").to_string();
    assert!(why.contains("client_name=shop-api"), "{why}");
}

#[test]
fn a_cluster_by_several_of_its_nodes() {
    let target = parse("redis+cluster://user:secret@a:7000,b:7001,[::1]:7002");
    assert!(matches!(target.kind, Kind::Cluster));
    assert_eq!(addresses(&target), ["a:7000", "b:7001", "::1:7002"]);
    assert!(target.servers.iter().all(|it| it.redis_settings().password() == Some("secret")));
    let target = parse("valkey+cluster://a:7000,b:7001/3?protocol=resp2");
    assert!(target.servers.iter().all(|it| it.redis_settings().db() == 3));
}

#[test]
fn a_primary_by_its_sentinels() {
    let target = parse("redis+sentinel://:secret@a,b:7001/mymaster/3?sentinel_password=s%26");
    assert_eq!(addresses(&target), ["a:26379", "b:7001"]);
    assert_eq!(target.servers[0].redis_settings().db(), 3);
    assert_eq!(target.servers[0].redis_settings().password(), Some("secret"));
    let Kind::Sentinel { primary, login } = target.kind else { panic!() };
    let secrets = login.as_ref().map(|login| login.secrets().collect::<Vec<_>>());
    assert_eq!((&*primary, secrets), ("mymaster", Some(vec!["s&"])));
}

#[test]
fn the_fault_is_named() {
    assert_eq!(fault("localhost:6379"), "it has no scheme");
    for scheme in ["http", "redis+x", "memory+cluster", "unixs", "rediss+unix"] {
        assert_eq!(fault(&format!("{scheme}://host")), format!("scheme `{scheme}`"));
    }
    assert!(fault("redis+sentinel://a:1").contains("name of the primary is missing"));
    assert!(fault("redis+cluster://a:1,b:2/x").contains("database number"));
    assert!(
        fault("redis://a?timeout=5")
            .contains("unknown parameter `timeout`; allowed are `protocol`")
    );
    assert!(fault("redis://a/x").contains("database number"));
    assert!(fault("redis+cluster://a:1,").contains("Missing hostname"));
    assert!(fault("unix:///s?timeout=5").contains("unknown parameter `timeout`"));
}

#[test]
fn no_message_contains_a_piece_of_a_login() {
    const LOGINS: [&str; 14] = [
        "hunter:ab?zebra",
        "hunter:ab?zebra=okapi",
        "hunter:ab?protocol=zebra",
        "hunter:12?zebra",
        "hunter:ab/zebra",
        "hunter:12/zebra",
        "hunter:12/34",
        "hunter:12#zebra",
        "hunter:ab#zebra",
        "hunter:12/?zebra",
        "hunter:12/#zebra",
        "hunter:ab?zebra&okapi",
        ":12?zebra",
        "zebra#okapi:ab",
    ];
    let mut urls = Vec::new();
    for login in LOGINS {
        for scheme in ["redis", "rediss", "valkey", "redis+cluster", "redis+sentinel"] {
            for end in ["host:6379", "host:6379/0", "host/mymaster", "host#insecure"] {
                urls.push(format!("{scheme}://{login}@{end}"));
            }
        }
        urls.push(format!("unix://{login}@/run/redis.sock"));
        urls.push(format!("{login}@host://6379"));
        urls.push(format!("{login}://@host:6379"));
    }
    for url in [
        "hunter:zebra://okapi@host",
        "redis:hunter:zebra@host",
        "memory:hunter:zebra@host://",
        "redis://hunter:zebra",
        "redis://:zebra",
        "redis://hunter:%ff%zebra@host",
        "redis://%ff%zebra@host",
        "redis://hunter:zebra@",
        "redis://hunter:zebra@host:okapi",
        "redis://hunter:zebra@0.0.0.0",
        "redis://hunter:zebra@host/okapi",
        "redis://hunter:zebra@ho st",
        "redis://hunter:zebra@[::1",
        "redis+cluster://hunter:zebra@a:1,okapi:zebra@b:x",
        "redis+sentinel://:ab@host/mymaster?sentinel_password=ab&zebra",
        "redis+sentinel://:ab@host/mymaster?sentinel_password=ab#zebra",
        "redis+sentinel://:ab@host/mymaster?sentinel_passwort=zebra@okapi&ab",
        "unix:///run/redis.sock?user=hunter&pass=ab&zebra=okapi",
        "unix:///run/redis.sock?user=hunter&pass=ab#zebra",
    ] {
        urls.push(url.to_owned());
    }
    for url in urls {
        let message = fault(&url);
        for piece in ["hunter", "zebra", "okapi", "12", "34"] {
            assert!(!message.contains(piece), "{url}: {message}");
        }
    }
    let escapes = "special characters in a user name or password are percent-encoded";
    for url in ["redis://me:a?b@host/0", "redis://me:1/b@host", "redis://me:1#b@host"] {
        assert!(fault(url).contains(escapes), "{url}: {}", fault(url));
    }
}

#[test]
fn a_percent_encoded_login_is_read() {
    let target = parse("redis://us%40er:p%3Fa%2Fs%23s%40@host:1/7");
    let settings = target.servers[0].redis_settings();
    assert_eq!((settings.username(), settings.password()), (Some("us@er"), Some("p?a/s#s@")));
    assert_eq!(addresses(&target), ["host:1"]);
    // An `@` in a path is no part of a login.
    assert_eq!(addresses(&parse("unix:///run/redis@main.sock")), ["/run/redis@main.sock"]);
}

#[test]
fn an_insecure_url_is_refused_before_anything_is_sent() {
    for scheme in ["rediss", "rediss+cluster", "rediss+sentinel", "valkeys+sentinel"] {
        let url = format!("{scheme}://app:zebra@host/mymaster#insecure");
        let url = if scheme.ends_with("sentinel") { url } else { url.replace("/mymaster", "") };
        let Err(error) = Target::parse(&url, &ConnectOptions::default()) else { panic!("{url}") };
        let error = format!("{error}");
        assert!(error.contains("remove `#insecure`"), "{url}: {error}");
        assert!(!error.contains("zebra"), "{error}");
    }
}
