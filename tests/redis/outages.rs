//! During an outage callers get the chosen answer within the deadline, and Redis decides again soon after it.

use std::{
    future::poll_fn,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use harness::{
    DEADLINE, FaultLine, Lateness, NOTICED, Network, Proxy, RedisServer, exceeded, patient,
    unavailable, until,
};
use ratelimit_runtime::{
    Limiter, OnStoreError, Policy, RateLimitError, UnavailableReason, rate_limit,
};
use tokio::time::timeout;

const MINUTE: Duration = Duration::from_secs(60);
const POLICY: Policy = Policy::sliding_window("p", MINUTE, 3);
const KEY: &str = "ratelimit:sliding_window:p/alice";

async fn limiter(server: &RedisServer, on_store_error: OnStoreError) -> Limiter {
    harness::limiter_on(&server.url(), on_store_error).await
}

/// Waits until Redis decides again, as the key of a call shows.
async fn until_redis_decides(server: &RedisServer, limiter: &Limiter) {
    let start = Instant::now();
    for caller in 0.. {
        let _ = limiter.check(&POLICY, format!("probe-{caller}")).await;
        if !server.keys().is_empty() {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "Redis is not found again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn without_redis_the_embedded_store_decides() {
    let mut server = RedisServer::start();
    let limiter = limiter(&server, OnStoreError::Local).await;
    limiter.check(&POLICY, "alice").await.unwrap();
    server.kill();
    // A count of its own while Redis is unreachable.
    for remaining in [2, 1, 0] {
        assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), remaining);
    }
    let refused = limiter.check(&POLICY, "alice").await.unwrap_err();
    assert!(matches!(refused, RateLimitError::Exceeded(_)), "{refused}");
    // A refund goes to the store of the charge.
    let decision = limiter.check(&POLICY, "bob").await.unwrap();
    limiter.refund(&decision).await.unwrap();
    assert_eq!(limiter.peek(&POLICY, "bob").cost(0).await.unwrap().remaining(), 3);

    server.restart();
    until_redis_decides(&server, &limiter).await;
    assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), 2);
}

#[tokio::test]
async fn outages_admit_one_threshold_more_for_each_process_however_many_there_are() {
    let server = RedisServer::start();
    // Otherwise the deny cache refuses for a second longer.
    let builder = Limiter::builder().deadline(DEADLINE).deny_cache(0);
    let mut processes = Vec::new();
    for _ in 0..2 {
        processes.push(builder.clone().connect(&server.url()).await.unwrap());
    }
    let admitted = async |limiter: &Limiter| {
        harness::admitted(async || limiter.check(&POLICY, "alice").await.map(drop)).await
    };
    assert_eq!(admitted(&processes[0]).await, 3);
    for outage in 0..2 {
        server.signal("STOP");
        for limiter in &processes {
            assert_eq!(admitted(limiter).await, [3, 0][outage]);
        }
        server.signal("CONT");
        for limiter in &processes {
            // A busy machine may miss a deadline once more; nobody is admitted all the while.
            harness::until("a refusal by Redis", async || {
                let request = limiter.check(&POLICY, "alice").on_store_error(OnStoreError::Deny);
                match request.await {
                    Err(RateLimitError::Unavailable(_)) => None,
                    answer => Some(exceeded(answer)),
                }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn without_redis_calls_are_denied_or_allowed_as_was_chosen() {
    let mut server = RedisServer::start();
    let denying = limiter(&server, OnStoreError::Deny).await;
    let allowing = limiter(&server, OnStoreError::Allow).await;
    server.kill();
    for _ in 0..20 {
        let reason = unavailable(denying.check(&POLICY, "alice").await);
        assert_eq!(reason, UnavailableReason::Disconnected);
        assert_eq!(allowing.check(&POLICY, "alice").await.unwrap().remaining(), 2);
        // A call's own choice takes precedence.
        let own = denying.check(&POLICY, "alice").on_store_error(OnStoreError::Allow);
        assert!(own.await.is_ok());
    }
}

#[tokio::test]
async fn an_annotated_function_chooses_for_itself() {
    #[rate_limit(threshold = 1, key = 1, limiter = limiter, on_store_error = deny)]
    async fn denied(limiter: &Limiter) -> Result<(), RateLimitError> {
        Ok(())
    }

    #[rate_limit(threshold = 1, key = 1, limiter = limiter, on_store_error = allow)]
    async fn allowed(limiter: &Limiter) -> Result<(), RateLimitError> {
        Ok(())
    }

    #[rate_limit(threshold = 1, key = 1, limiter = limiter)]
    async fn local(limiter: &Limiter) -> Result<(), RateLimitError> {
        Ok(())
    }

    let mut server = RedisServer::start();
    let limiter = limiter(&server, OnStoreError::Local).await;
    server.kill();
    unavailable(denied(&limiter).await);
    for _ in 0..3 {
        allowed(&limiter).await.unwrap();
    }
    local(&limiter).await.unwrap();
    assert!(matches!(local(&limiter).await, Err(RateLimitError::Exceeded(_))));
}

#[tokio::test]
async fn a_stalled_redis_costs_few_calls_the_deadline_and_none_more() {
    let server = RedisServer::start();
    let limiter = limiter(&server, OnStoreError::Deny).await;
    limiter.check(&POLICY, "warm").await.unwrap();
    server.signal("STOP");
    let (start, lateness) = (Instant::now(), Lateness::watch());
    let (mut calls, mut waited) = (0, 0);
    while start.elapsed() < Duration::from_secs(1) || calls <= 50 {
        let asked = Instant::now();
        let mut call = pin!(limiter.check(&POLICY, "alice").into_future());
        let answer = match poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                waited += 1;
                call.await
            }
        };
        let (took, late) = (asked.elapsed(), lateness.worst());
        assert_eq!(unavailable(answer), UnavailableReason::DeadlineExceeded);
        assert!(took < DEADLINE + NOTICED + late, "{took:?}, sleepers are {late:?} late");
        calls += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Five open the circuit breaker; of the rest only probes wait, after pauses of 50 ms and more.
    let probes = (0..).scan(Duration::ZERO, |at, doublings: u32| {
        *at += Duration::from_millis(50 << doublings.min(3));
        Some(*at)
    });
    let probes = probes.take_while(|at| *at < start.elapsed()).count();
    assert!(waited <= 5 + probes, "{waited} of {calls} calls waited, {probes} as probes");

    server.signal("CONT");
    let back = Instant::now();
    while limiter.check(&POLICY, "after").await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(back.elapsed() < Duration::from_secs(2), "{:?}", back.elapsed());
}

/// Returns a limiter on its own connection, and one on a connection that the program brings.
async fn of_both_kinds(url: &str, deadline: Duration) -> [(Limiter, &'static str); 2] {
    let builder = Limiter::builder().deadline(deadline).on_store_error(OnStoreError::Deny);
    let client = redis::Client::open(url).unwrap();
    let brought = client.get_multiplexed_async_connection().await.unwrap();
    [
        (builder.clone().connect(url).await.unwrap(), "a connection of ours"),
        (builder.redis_connection(brought), "a connection of the program's own"),
    ]
}

/// The patience of a caller that gives up before the deadline.
const HASTY: Duration = Duration::from_millis(10);

#[tokio::test]
async fn a_stalled_redis_opens_the_breaker_though_every_caller_gives_up_before_the_deadline() {
    let server = RedisServer::start();
    for (limiter, connection) in of_both_kinds(&server.url(), DEADLINE).await {
        limiter.check(&POLICY, "warm").await.unwrap();
        server.signal("STOP");
        let start = Instant::now();
        let mut given_up = 0;
        while limiter.servers()[0].failure().is_none() {
            let call = limiter.check(&POLICY, "alice");
            given_up += u32::from(tokio::time::timeout(HASTY, call).await.is_err());
            assert!(start.elapsed() < Duration::from_secs(10), "{given_up} calls were sent");
        }
        FaultLine::of(&format!("kill -STOP, callers give up after 10 ms, {connection}"))
            .with("calls given up", given_up)
            .after("breaker open after", start.elapsed())
            .print();
        assert!(given_up >= 5, "{given_up}");
        // Callers no longer wait.
        let reason = unavailable(limiter.check(&POLICY, "alice").await);
        assert_eq!(reason, UnavailableReason::DeadlineExceeded);

        server.signal("CONT");
        let back = Instant::now();
        harness::until("a decision", async || limiter.check(&POLICY, "bob").await.ok()).await;
        assert!(back.elapsed() < Duration::from_secs(2), "{:?}", back.elapsed());
    }
}

#[tokio::test]
async fn callers_hastier_than_a_healthy_redis_open_no_breaker() {
    const PATIENT: Duration = Duration::from_secs(2);
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    for (limiter, connection) in of_both_kinds(&proxy.url(), PATIENT).await {
        limiter.check(&POLICY, "warm").await.unwrap();
        proxy.set(Network::Slow { latency: HASTY, jitter: Duration::ZERO });
        let before = server.calls()["evalsha"];
        let start = Instant::now();
        let mut given_up = 0;
        // Long enough to count the first as missed, if the breaker did so.
        while given_up < 50 || start.elapsed() < 2 * PATIENT {
            let call = limiter.check(&POLICY, "alice");
            given_up += u32::from(tokio::time::timeout(HASTY, call).await.is_err());
            assert_eq!(limiter.servers()[0].failure(), None, "{connection}: {given_up} given up");
        }
        assert!(server.calls()["evalsha"] > before + 20, "they reach Redis");
        proxy.heal();
    }
}

#[tokio::test]
async fn callers_that_give_up_before_there_is_a_connection_are_not_charged() {
    let server = RedisServer::start();
    // The script is known from here on.
    server.limiter().await.check(&POLICY, "warm").await.unwrap();
    server.signal("STOP");
    let builder = Limiter::builder().deadline(Duration::from_secs(60));
    let limiter = builder.on_store_error(OnStoreError::Deny).connect_lazy(&server.url()).unwrap();
    for _ in 0..3 {
        let call = limiter.check(&POLICY, "alice");
        assert!(tokio::time::timeout(HASTY, call).await.is_err());
    }
    server.signal("CONT");
    harness::until_decided(&limiter).await;
    assert_eq!(limiter.peek(&POLICY, "alice").cost(0).await.unwrap().remaining(), 3);
}

#[tokio::test]
async fn a_server_that_refuses_to_write_is_an_outage_and_its_end_is_seen() {
    let server = RedisServer::start();
    let limiter = limiter(&server, OnStoreError::Deny).await;
    let () = server.command("CONFIG SET min-replicas-to-write 1");
    let reason = unavailable(limiter.check(&POLICY, "alice").await);
    assert_eq!(reason, UnavailableReason::RefusesWrites);
    let () = server.command("CONFIG SET min-replicas-to-write 0");
    until_redis_decides(&server, &limiter).await;
    limiter.check(&POLICY, "alice").await.unwrap();
}

#[tokio::test]
async fn a_demoted_server_is_left_and_its_promotion_is_seen() {
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    limiter.check(&POLICY, "alice").await.unwrap();
    let () = server.command("REPLICAOF 127.0.0.1 1");
    // The connection is made anew each time, and leads to the same replica.
    for _ in 0..10 {
        let reason = unavailable(limiter.check(&POLICY, "bob").await);
        let expected = [UnavailableReason::ReadOnly, UnavailableReason::NotReady];
        assert!(expected.contains(&reason), "{reason:?}");
    }
    let () = server.command("REPLICAOF NO ONE");
    let back = Instant::now();
    while limiter.check(&POLICY, "carol").await.is_err() {
        assert!(back.elapsed() < Duration::from_secs(2));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_limiter_may_start_before_its_redis() {
    let port = harness::free_port();
    let url = format!("redis://127.0.0.1:{port}");
    let limiter = Limiter::builder().deadline(DEADLINE).connect_lazy(&url).unwrap();
    let asked = Instant::now();
    assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), 2);
    assert!(asked.elapsed() < DEADLINE + NOTICED);

    let server = RedisServer::start_on(port);
    until_redis_decides(&server, &limiter).await;
    assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), 2);
    assert!(server.keys().iter().any(|key| key == KEY));

    let memory = Limiter::builder().connect_lazy("memory://").unwrap();
    memory.check(&POLICY, "alice").await.unwrap();
    let error = Limiter::builder().connect_lazy("http://host").unwrap_err().to_string();
    assert!(error.contains("unknown scheme `http`"), "{error}");
}

#[tokio::test]
async fn a_user_with_the_documented_permissions_is_enough_and_with_less_is_reported() {
    let server = RedisServer::start();
    let () = server.command(
        "ACL SETUSER limiter on >secret resetchannels ~ratelimit:* -@all \
         +evalsha +eval +time +zrange +zcount +zcard +zadd +zremrangebyrank +zremrangebyscore +pexpire +zscore \
         +zrangebyscore +zrem +get +set +unlink +hgetall +hset +hdel",
    );
    let url = server.url().replace("redis://", "redis://limiter:secret@");
    let connect = |url: String| async move {
        let builder = Limiter::builder().deadline(Duration::from_secs(10));
        builder.on_store_error(OnStoreError::Deny).deny_cache(0).connect(&url).await.unwrap()
    };
    let limiter = connect(url.clone()).await;
    for policy in [
        POLICY,
        Policy::sliding_counter("p", MINUTE, 3),
        Policy::fixed_window("p", MINUTE, 3),
        Policy::token_bucket("p", MINUTE, 3),
    ] {
        let decision = limiter.check(&policy, "alice").await.unwrap();
        limiter.refund(&decision).await.unwrap();
        limiter.check(&policy, "alice").cost(3).await.unwrap();
        assert!(matches!(limiter.check(&policy, "alice").await, Err(RateLimitError::Exceeded(_))));
        limiter.peek(&policy, "alice").cost(0).await.unwrap();
        // It has a turn when the wait ends.
        let waits = limiter.check(&policy, "alice").max_wait(2 * MINUTE).into_future();
        assert!(timeout(Duration::from_millis(300), waits).await.is_err());
        assert_eq!(limiter.servers()[0].failure(), None, "{policy:?}");
        limiter.reset(&policy, "alice").await.unwrap();
    }
    let once = || limiter.check(&POLICY, "alice").request_id(1);
    once().await.unwrap();
    once().await.unwrap();
    let leased = Policy::fixed_window("p", MINUTE, 1_000_000).lease(Duration::from_secs(6));
    until("units on lease", async || {
        limiter.check(&leased, "bob").await.unwrap();
        server.calls().get("hset").is_some_and(|calls| *calls > 0).then_some(())
    })
    .await;

    let () = server.command("ACL SETUSER limiter -zadd");
    assert_eq!(unavailable(limiter.check(&POLICY, "bob").await), UnavailableReason::NotPermitted);
    let () = server.command("ACL SETUSER limiter +zadd resetkeys ~other:*");
    assert_eq!(unavailable(limiter.check(&POLICY, "bob").await), UnavailableReason::NotPermitted);
}

#[tokio::test]
async fn a_server_that_runs_no_scripts_is_known_after_one_call() {
    let server = RedisServer::start();
    let () = server.command("ACL SETUSER limiter on >secret ~* +@all -eval -evalsha");
    let url = server.url().replace("redis://", "redis://limiter:secret@");
    let limiter = Limiter::builder().connect(&url).await.unwrap();
    assert_eq!(limiter.servers()[0].failure(), None);
    limiter.check(&POLICY, "alice").await.unwrap();
    assert_eq!(limiter.servers()[0].failure(), Some(UnavailableReason::NoScripts));

    // As soon as it may, it is used.
    let () = server.command("ACL SETUSER limiter +eval +evalsha");
    until_redis_decides(&server, &limiter).await;
}

#[tokio::test]
async fn a_server_busy_with_a_script_is_an_outage_that_passes() {
    let server = RedisServer::start();
    let limiter = limiter(&server, OnStoreError::Deny).await;
    limiter.check(&POLICY, "alice").await.unwrap();
    let () = server.command("CONFIG SET lua-time-limit 1");
    let mut busy = server.connection();
    let spin = std::thread::spawn(move || {
        let _ = redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut busy);
    });
    let reason = loop {
        match limiter.check(&POLICY, "bob").await {
            Err(RateLimitError::Unavailable(error)) => break error.reason(),
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    let expected = [UnavailableReason::NotReady, UnavailableReason::DeadlineExceeded];
    assert!(expected.contains(&reason), "{reason:?}");
    harness::wait_for("SCRIPT KILL", || {
        let mut connection = server.connection();
        redis::cmd("SCRIPT").arg("KILL").exec(&mut connection).ok()
    });
    spin.join().unwrap();
    while limiter.check(&POLICY, "carol").await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
