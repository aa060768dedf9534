//! The overrides of single callers apply at once, or within a second in the whole fleet, and to nobody else.

use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

use harness::{NOTICED, RedisServer, Watch, exceeded, on_each_store, until};
use ratelimit_runtime::{
    Caller, Enforcement, Limiter, OnStoreError, Override, Policy, RateLimitError,
    overrides::{OverrideProblem, OverrideSource},
    rate_limit,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const LINE: Policy = Policy::sliding_window("line of callers", HOUR, 1);

#[rate_limit(name = "greeting", period = 60, threshold = 1, key = (tenant, user), limiter = limiter)]
async fn greet(limiter: &Limiter, tenant: &str, user: u32) -> Result<(), RateLimitError> {
    Ok(())
}

fn is_denied<T>(answer: &Result<T, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::Denied(_)))
}

fn deny() -> Override {
    Override::new().deny()
}

#[tokio::test]
async fn one_caller_is_raised_exempt_or_shut_out_and_the_others_are_not() {
    on_each_store(async |limiter| {
        let (overrides, acme) = (limiter.overrides(), Caller::from("acme").and(42));
        overrides.here().set(("greeting", &acme), Override::new().threshold(3)).unwrap();
        for _ in 0..3 {
            greet(limiter, "acme", 42).await.unwrap();
        }
        assert_eq!(exceeded(greet(limiter, "acme", 42).await).threshold(), 3);
        greet(limiter, "acme", 43).await.unwrap();
        assert_eq!(exceeded(greet(limiter, "acme", 43).await).threshold(), 1);

        let off = Override::new().enforcement(Enforcement::Off);
        overrides.here().set(("greeting", &acme), off).unwrap();
        greet(limiter, "acme", 42).await.unwrap();
        overrides.here().remove(("greeting", &acme));
        assert_eq!(exceeded(greet(limiter, "acme", 42).await).threshold(), 1);

        // Of all limits, past the kill switch.
        overrides.here().set(("*", &acme), deny()).unwrap();
        overrides.here().set("*", Enforcement::Off).unwrap();
        let refused = greet(limiter, "acme", 42).await.unwrap_err();
        assert_eq!(refused.to_string(), "rate limit `greeting` denies the caller");
        assert!(is_denied(&limiter.check(&LINE, &acme).cost(0).await));
        assert!(is_denied(&limiter.peek(&LINE, &acme).await));
        greet(limiter, "acme", 43).await.unwrap();
        overrides.here().remove("*");
        overrides.here().remove(("*", &acme));
        assert_eq!(exceeded(greet(limiter, "acme", 42).await).threshold(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_caller_is_exempt_from_all_limits_beside_numbers_for_one_of_them() {
    let exempt = || Override::new().enforcement(Enforcement::Off);
    on_each_store(async |limiter| {
        let (overrides, acme) = (limiter.overrides(), Caller::from("acme").and(42));
        overrides.here().set(("*", &acme), exempt()).unwrap();
        overrides.here().set(("greeting", &acme), Override::new().threshold(2)).unwrap();
        for _ in 0..9 {
            greet(limiter, "acme", 42).await.unwrap();
        }
        // The numbers are those of the limit once the exemption ends.
        overrides.here().remove(("*", &acme));
        greet(limiter, "acme", 42).await.unwrap();
        greet(limiter, "acme", 42).await.unwrap();
        assert_eq!(exceeded(greet(limiter, "acme", 42).await).threshold(), 2);
        // One that is shut out is so beside numbers of its own, but not in a limit that it is exempt from.
        overrides.here().set(("*", &acme), deny()).unwrap();
        assert!(is_denied(&greet(limiter, "acme", 42).await));
        overrides.here().set(("greeting", &acme), exempt().threshold(2)).unwrap();
        greet(limiter, "acme", 42).await.unwrap();
    })
    .await;

    let server = RedisServer::start();
    let limiter = connected(&server, None).await;
    let acme = Caller::from("acme").and(42);
    let seen = async |expected: (Enforcement, u32)| {
        let usage = limiter.usage("greeting", &acme).await.unwrap();
        ((usage.enforcement(), usage.tiers()[0].quota()) == expected).then_some(())
    };
    let overrides = limiter.overrides();
    overrides.fleet().set(("greeting", &acme), Override::new().threshold(3)).await.unwrap();
    overrides.fleet().set(("*", &acme), exempt()).await.unwrap();
    until("both overrides", async || seen((Enforcement::Off, 3)).await).await;
    let write = |fields: &str| -> u32 {
        server.command(&format!("HSET ratelimit:overrides:callers {fields} # {}", fields.len()))
    };
    write("greeting/acme/42 dry_run");
    until("the enforcement of the limit", async || seen((Enforcement::DryRun, 1)).await).await;
    write("greeting/acme/42 {\"threshold\":4} */acme/42 {\"enforcement\":\"off\",\"threshold\":5}");
    until("the numbers of the limit", async || seen((Enforcement::Off, 4)).await).await;
}

#[tokio::test]
async fn a_denied_call_of_several_takes_nothing_of_the_others() {
    on_each_store(async |limiter| {
        let other = Policy::fixed_window("other of callers", MINUTE, 1);
        limiter.overrides().here().set((LINE.name(), "alice"), deny()).unwrap();
        let both = || [limiter.check(&other, "alice"), limiter.check(&LINE, "alice")];
        assert!(is_denied(&limiter.check_all(both()).await));
        assert_eq!(limiter.peek(&other, "alice").cost(0).await.unwrap().remaining(), 1);
        limiter.overrides().here().remove((LINE.name(), "alice"));
        limiter.check_all(both()).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_call_that_waits_is_refused_once_its_caller_is_shut_out_and_gives_its_turn_back() {
    on_each_store(async |limiter| {
        let wait = async || exceeded(limiter.peek(&LINE, "alice").await).retry_after();
        limiter.check(&LINE, "alice").await.unwrap();
        let its = limiter.clone();
        let call = tokio::spawn(async move { its.check(&LINE, "alice").max_wait(3 * HOUR).await });
        until("a call in line", async || (wait().await > HOUR).then_some(())).await;
        let until_noon = SystemTime::now() + HOUR;
        let overrides = limiter.overrides();
        overrides.here().set((LINE.name(), "alice"), deny().until(until_noon)).unwrap();
        let Err(RateLimitError::Denied(denied)) = call.await.unwrap() else {
            panic!("its caller is shut out");
        };
        let told = denied.retry_after().unwrap();
        assert!(told <= HOUR + NOTICED && told + NOTICED > HOUR, "{told:?}");
        overrides.here().remove((LINE.name(), "alice"));
        until("the turn given back", async || (wait().await <= HOUR).then_some(())).await;
    })
    .await;
}

#[tokio::test]
async fn a_promised_turn_stands_when_the_override_of_its_caller_ends() {
    on_each_store(async |limiter| {
        let period = 6 * SECOND;
        let policy = Policy::sliding_window("ending", period, 1);
        let end = SystemTime::now() + period / 2;
        let raised = Override::new().threshold(3).until(end);
        limiter.overrides().here().set(("ending", "alice"), raised).unwrap();
        limiter.check(&policy, "alice").cost(3).await.unwrap();
        let waiting = || {
            let its = limiter.clone();
            tokio::spawn(async move { its.check(&policy, "alice").max_wait(MINUTE).await })
        };
        // Both turns come after the end, and under one unit in a period they would be a period apart.
        for call in [waiting(), waiting()] {
            let waited = call.await.unwrap().unwrap().waited();
            assert!(waited < period + period / 2 && SystemTime::now() > end, "{waited:?}");
        }
        assert_eq!(exceeded(limiter.check(&policy, "alice").await).threshold(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_file_overrides_callers_and_one_fault_refuses_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.toml");
    let document = r#"
        [[callers]]
        limit = "greeting"
        caller = ["acme", "42"]
        threshold = 2
        until = 2999-11-27T18:00:00Z

        [[callers]]
        caller = ["acme", "43"]
        deny = true

        [[callers]]
        limit = "greeting"
        caller = ["acme", "44"]
        deny = true
        until = "1999-11-27T18:00:00+02:00"
    "#;
    fs::write(&path, document).unwrap();
    let limiter = Limiter::in_memory();
    limiter.overrides().follow_file(&path).unwrap();
    greet(&limiter, "acme", 42).await.unwrap();
    greet(&limiter, "acme", 42).await.unwrap();
    assert!(is_denied(&greet(&limiter, "acme", 43).await));
    greet(&limiter, "acme", 44).await.unwrap();
    let listed = limiter.overrides().list_for("greeting");
    let listed: Vec<_> = listed.iter().map(|it| (it.text(), it.source)).collect();
    assert_eq!(listed, [("/acme/42".into(), OverrideSource::File)]);

    for (text, parts) in [
        (
            "[[callers]]\ncaller = \"a\"\nthreshhold = 1",
            ["TOML parse error", "unknown field `threshhold`"],
        ),
        ("[[callers]]\ncaller = []\ndeny = true", ["TOML parse error", "`caller` has no part"]),
        (
            "[[callers]]\ncaller = 5\ndeny = true",
            ["TOML parse error", "`caller` is a text or a list"],
        ),
        ("[[callers]]\ndeny = true", ["TOML parse error", "missing field `caller`"]),
        ("[[callers]]\ncaller = \"a\"\nuntil = \"soon\"", ["TOML parse error", "`until` "]),
        (
            "[[callers]]\ncaller = \"a\"\nuntil = 2026-11-27",
            ["TOML parse error", "needs a date, a time and"],
        ),
        ("[[callers]]\ncaller = \"a\"\ndeny = true\nburst = 1", ["rate limit `*`", "nothing but"]),
        ("[limits.greeting]\ndeny = true", ["`greeting`", "is for single callers"]),
    ] {
        fs::write(&path, text).unwrap();
        let message = limiter.overrides().follow_file(&path).unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
    }
    assert!(is_denied(&greet(&limiter, "acme", 43).await), "the one before stays in effect");
}

async fn connected(server: &RedisServer, secret: Option<&str>) -> Limiter {
    let builder = Limiter::builder().deadline(10 * SECOND).on_store_error(OnStoreError::Deny);
    let builder = match secret {
        Some(secret) => builder.caller_digest(secret),
        None => builder,
    };
    builder.connect(&server.url()).await.unwrap()
}

/// Waits until all see the answer, and returns for how long.
async fn until_all(fleet: &[Limiter], expected: impl AsyncFn(&Limiter) -> bool) -> Duration {
    let start = Instant::now();
    for limiter in fleet {
        until("the change", async || expected(limiter).await.then_some(())).await;
    }
    start.elapsed()
}

#[tokio::test]
async fn a_fleet_sees_and_loses_the_override_of_a_caller_within_a_second() {
    let server = RedisServer::start();
    let fleet = [(); 3].map(|()| connected(&server, None));
    let [first, second, third] = fleet;
    let fleet = [first.await, second.await, third.await];
    let sees = async |limiter: &Limiter, user: u32| {
        let caller = Caller::from("acme").and(user);
        is_denied(&limiter.peek(&Policy::fixed_window("greeting", MINUTE, 1), &caller).await)
    };
    let overrides = fleet[0].overrides();
    let acme = Caller::from("acme").and(42);
    overrides.fleet().set(("greeting", &acme), deny()).await.unwrap();
    let took = until_all(&fleet, async |it| sees(it, 42).await).await;
    assert!(took < SECOND + NOTICED, "{took:?}");
    assert!(!sees(&fleet[1], 43).await);
    let fields: Vec<String> = server.command("HKEYS ratelimit:overrides:callers");
    assert!(fields.contains(&"greeting/acme/42".to_owned()) && fields.len() == 2, "{fields:?}");

    fleet[2].overrides().fleet().remove(("greeting", &acme)).await.unwrap();
    let took = until_all(&fleet, async |it| !sees(it, 42).await).await;
    assert!(took < SECOND + NOTICED, "{took:?}");
    overrides.fleet().set(("*", &acme), deny()).await.unwrap();
    until_all(&fleet, async |it| sees(it, 42).await).await;
    assert_eq!(fleet[1].overrides().list_for("*").len(), 1);

    // A caller may be named like a field, or like the mark of a digest.
    for odd in ["#", "*", "greeting/acme", "%keyed-0123456789abcdef-0123456789abcdef", "%none"] {
        overrides.fleet().set(("greeting", odd), deny()).await.unwrap();
        let policy = Policy::fixed_window("greeting", MINUTE, 1);
        until_all(&fleet, async |it| is_denied(&it.peek(&policy, odd).await)).await;
    }
    assert!(!sees(&fleet[1], 43).await);
    assert_eq!(fleet[0].overrides().problems(), []);
}

#[tokio::test]
async fn under_a_secret_redis_has_only_digests() {
    let watch = Watch::start();
    let server = RedisServer::start();
    let fleet = [connected(&server, Some("key")).await, connected(&server, Some("key")).await];
    let without = connected(&server, None).await;
    let policy = Policy::fixed_window("greeting", MINUTE, 1);
    let sees = async |it: &Limiter| is_denied(&it.peek(&policy, "alice").await);
    fleet[0].overrides().fleet().set(("greeting", "alice"), deny()).await.unwrap();
    until_all(&fleet, async |it| sees(it).await).await;
    let fields: Vec<String> = server.command("HKEYS ratelimit:overrides:callers");
    assert!(fields.iter().any(|it| it.starts_with("greeting/%keyed-")), "{fields:?}");
    assert!(!fields.iter().any(|it| it.contains("alice")), "{fields:?}");
    assert!(watch.text().contains("override of a caller changed"), "{}", watch.text());
    assert!(!watch.text().contains("alice"), "{}", watch.text());

    // The listed digest stands for the caller.
    let listed = fleet[1].overrides().list_for("greeting");
    assert!(listed[0].text().starts_with("/%keyed-"));
    for it in &fleet {
        let overrides = it.overrides();
        let by_name = overrides.fleet().get(("greeting", "alice")).await.unwrap();
        let by_digest = overrides.fleet().get(("greeting", &listed[0].caller)).await.unwrap();
        assert_eq!([by_name, by_digest], [Some(deny()), Some(deny())]);
        assert_eq!(overrides.fleet().get(("greeting", "bob")).await.unwrap(), None);
    }
    let problem = until("the problem", async || without.overrides().problems().pop()).await;
    assert!(problem.to_string().contains("has no `caller_digest`"), "{problem}");
    assert!(!sees(&without).await);
    fleet[1].overrides().fleet().remove(("greeting", &listed[0].caller)).await.unwrap();
    until_all(&fleet, async |it| !sees(it).await).await;

    // An operator may write the caller as in keys.
    let () = server.command("HSET ratelimit:overrides:callers greeting/alice {\"deny\":true} # 1");
    until_all(&fleet, async |it| sees(it).await).await;
    assert!(fleet[0].overrides().list_for("greeting")[0].text().starts_with("/%keyed-"));
}

#[tokio::test]
async fn invalid_fields_of_callers_are_problems_and_the_others_apply() {
    let server = RedisServer::start();
    let limiter = connected(&server, None).await;
    let () = server.command(
        "HSET ratelimit:overrides:callers greeting/acme/42 {\"deny\":true} greeting/bob \
         {\"threshold\":0} nobody off /alice off greetng/carol off greeting/a{b} off # 1",
    );
    let acme = Caller::from("acme").and(42);
    let policy = Policy::fixed_window("greeting", MINUTE, 1);
    until_all(std::slice::from_ref(&limiter), async |it| is_denied(&it.peek(&policy, &acme).await))
        .await;
    // They are listed once the fields that are valid apply.
    let problems = until("the problems", async || {
        Some(limiter.overrides().problems()).filter(|it| it.len() >= 5)
    })
    .await;
    let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let field = "a field is a limit, or `*`, and the caller as in keys";
    for (expected, count) in [
        ("rate limit `greeting`: `threshold` must be at least 1", 1),
        (field, 3),
        ("no limit is named `greetng`; `greeting` is", 1),
    ] {
        let found = problems.iter().filter(|it| it.contains(expected)).count();
        assert_eq!(found, count, "{expected}: {problems:?}");
    }
    assert_eq!(problems.len(), 5, "{problems:?}");
}

#[tokio::test]
async fn ten_thousand_callers_are_read_once_for_each_change() {
    let server = RedisServer::start();
    let fleet = [connected(&server, None).await, connected(&server, None).await];
    let mut fields = redis::cmd("HSET");
    fields.arg("ratelimit:overrides:callers").arg("#").arg("first");
    for number in 0..9_999 {
        fields.arg(format!("greeting/user-{number}")).arg("{\"threshold\":500}");
    }
    let () = fields.query(&mut server.connection()).unwrap();
    let policy = Policy::fixed_window("greeting", MINUTE, 1);
    let threshold =
        async |it: &Limiter, user: &str| it.peek(&policy, user).cost(0).await.unwrap().threshold();
    until_all(&fleet, async |it| threshold(it, "user-9998").await == 500).await;
    let reads = || server.calls().get("hgetall").copied().unwrap_or_default();
    assert_eq!((reads(), threshold(&fleet[0], "user-9999").await), (2, 1));
    for change in 1..=3_u32 {
        let what = Override::new().threshold(500 + change);
        fleet[0].overrides().fleet().set(("greeting", "user-7"), what.clone()).await.unwrap();
        until_all(&fleet, async |it| threshold(it, "user-7").await == 500 + change).await;
        assert_eq!(reads(), 2 + 2 * u64::from(change));
    }
    assert_eq!(fleet[1].overrides().list_for("greeting").len(), 9_999);
    // One more than is read: what was in effect stays, and the other hash is followed.
    let () = server.command(
        "HSET ratelimit:overrides:callers greeting/another off greeting/and-another off # 1",
    );
    let problem = until("the problem", async || fleet[1].overrides().problems().pop()).await;
    assert!(matches!(problem, OverrideProblem::Unreadable { .. }), "{problem}");
    assert_eq!(threshold(&fleet[1], "user-7").await, 503);
    fleet[0].overrides().fleet().set("*", Enforcement::Off).await.unwrap();
    let is_off = async |it: &Limiter| it.overrides().enforcement().is_some();
    until_all(&fleet, is_off).await;
}

#[tokio::test]
async fn a_redis_that_loses_its_callers_does_not_let_them_in() {
    let mut server = RedisServer::start();
    let fleet = [connected(&server, None).await];
    let overrides = fleet[0].overrides();
    let policy = Policy::fixed_window("greeting", MINUTE, 1);
    let sees = async |it: &Limiter, who: &str| is_denied(&it.peek(&policy, who).await);
    overrides.fleet().set(("greeting", "alice"), deny()).await.unwrap();
    until_all(&fleet, async |it| sees(it, "alice").await).await;
    server.kill();
    server.restart();
    let lost = "Redis has lost `ratelimit:overrides:callers`";
    until("the loss", async || {
        overrides.problems().iter().any(|it| it.to_string().contains(lost)).then_some(())
    })
    .await;
    assert!(sees(&fleet[0], "alice").await);
    overrides.fleet().set(("greeting", "bob"), deny()).await.unwrap();
    until_all(&fleet, async |it| sees(it, "bob").await && sees(it, "alice").await).await;
    let fields: Vec<String> = server.command("HKEYS ratelimit:overrides:callers");
    assert_eq!(fields.len(), 3, "{fields:?}");
    assert_eq!(overrides.problems(), []);
}
