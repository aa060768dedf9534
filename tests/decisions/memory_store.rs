//! The embedded store follows its clock, and keeps the memory bounds of each limit and of the whole.

use std::time::Duration;

use harness::{Lines, exceeded, listen, ran_in_own_process, unavailable};
use metrics_exporter_prometheus::PrometheusBuilder;
use ratelimit_runtime::{
    Decision, Limiter, LimiterBuilder, OnStoreError, Policy, RateLimitError, UnavailableReason,
    rate_limit,
};
use tokio::runtime::Runtime;

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);
const ALGORITHMS: [Policy; 4] = [
    Policy::sliding_window("p", MINUTE, 2),
    Policy::sliding_counter("p", MINUTE, 2),
    Policy::fixed_window("p", MINUTE, 2),
    Policy::token_bucket("p", MINUTE, 2),
];

/// Returns a runtime with a paused clock, this far ahead of others.
fn paused(ahead: Duration) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(tokio::time::advance(ahead));
    runtime
}

/// Two calls are admitted, the third only after its wait.
async fn assert_counts(limiter: &Limiter, policy: &Policy, caller: &str) {
    for _ in 0..2 {
        limiter.check(policy, caller).await.unwrap();
    }
    let wait = exceeded(limiter.check(policy, caller).await).retry_after();
    assert!(wait <= 2 * MINUTE, "{wait:?}");
    tokio::time::advance(wait.saturating_sub(Duration::from_micros(1))).await;
    exceeded(limiter.check(policy, caller).await);
    tokio::time::advance(Duration::from_micros(1)).await;
    limiter.check(policy, caller).await.unwrap();
}

#[test]
fn clocks_that_are_hours_apart_move_one_store() {
    for policy in ALGORITHMS {
        // Made by the first test that uses it, as the embedded limiter is.
        let limiter = paused(HOUR * 5).block_on(async { Limiter::in_memory() });
        for (caller, hours) in [("first", 5), ("behind", 0), ("ahead", 1_000), ("again", 2)] {
            paused(HOUR * hours).block_on(assert_counts(&limiter, &policy, caller));
        }
    }
}

#[test]
fn a_caller_of_a_clock_that_is_ahead_is_refused_for_one_period_at_the_most() {
    for policy in ALGORITHMS {
        let limiter = paused(HOUR * 5).block_on(async {
            let limiter = Limiter::in_memory();
            for _ in 0..2 {
                limiter.check(&policy, "alice").await.unwrap();
            }
            limiter
        });
        paused(Duration::ZERO).block_on(async {
            let wait = exceeded(limiter.check(&policy, "alice").await).retry_after();
            assert!(wait <= 2 * MINUTE, "{wait:?}");
            tokio::time::advance(wait).await;
            limiter.check(&policy, "alice").await.unwrap();
        });
    }
}

const LOGIN: Policy = Policy::token_bucket("login", HOUR, 2);
const SIGNUP: Policy = Policy::fixed_window("signup", HOUR, 2);
const SEARCH: Policy = Policy::sliding_counter("search", HOUR, 2);
const API: Policy = Policy::sliding_window("api", HOUR, 2);

/// Calls each of these limits in turn as invented callers. Returns the counted calls of each.
async fn flood<const N: usize>(limiter: &Limiter, limits: [Policy; N], names: u32) -> [usize; N] {
    let mut counted = [0; N];
    for name in 0..names {
        for (limit, counted) in limits.iter().zip(&mut counted) {
            match limiter.check(limit, format!("made-up-{name}")).await {
                Ok(decision) => *counted += usize::from(decision.reset_after() > Duration::ZERO),
                refused => assert_eq!(unavailable(refused), UnavailableReason::StoreFull),
            }
        }
    }
    counted
}

async fn assert_counted(limiter: &Limiter, policy: &Policy, callers: u32) {
    for caller in 0..callers {
        for _ in 0..2 {
            limiter.check(policy, caller).await.unwrap();
        }
        exceeded(limiter.check(policy, caller).await);
    }
}

#[tokio::test]
async fn a_flood_on_one_limit_leaves_room_for_the_callers_of_another() {
    for on_store_error in [OnStoreError::Deny, OnStoreError::Local, OnStoreError::Allow] {
        let builder = Limiter::builder().max_keys(10_000).on_store_error(on_store_error);
        let limiter = builder.in_memory();
        limiter.check(&LOGIN, "known").await.unwrap();
        let counted = flood(&limiter, [LOGIN], 20_000).await;
        // Three quarters, with the known caller.
        assert_eq!(counted, [7_499]);
        assert_counted(&limiter, &API, 1_500).await;
        // Known callers are counted however full the store is.
        assert_eq!(limiter.check(&LOGIN, "known").await.unwrap().remaining(), 0);
        exceeded(limiter.check(&LOGIN, "known").await);
    }
}

#[tokio::test]
async fn floods_on_several_limits_have_equal_shares_and_leave_one_to_others() {
    let limiter = Limiter::builder().max_keys(10_000).in_memory();
    let shares = flood(&limiter, [LOGIN, SIGNUP, SEARCH], 20_000).await;
    assert_eq!(shares, [3_000; 3]);
    assert_counted(&limiter, &API, 750).await;
    assert_counted(&limiter, &Policy::token_bucket("another", HOUR, 2), 180).await;
}

#[tokio::test(start_paused = true)]
async fn a_share_is_free_again_once_those_who_took_it_have_expired() {
    let limiter = Limiter::builder().max_keys(1_000).in_memory();
    for _ in 0..3 {
        assert_eq!(flood(&limiter, [LOGIN, API], 2_000).await, [429, 428]);
        tokio::time::advance(2 * HOUR).await;
        assert_eq!(flood(&limiter, [API], 2_000).await, [750]);
        tokio::time::advance(2 * HOUR).await;
    }
}

#[tokio::test]
async fn bytes_are_bounded_and_shared_as_keys_are() {
    const BULK: Policy = Policy::sliding_window("bulk", HOUR, 10_000);
    let limiter = Limiter::builder().max_bytes(4 << 20).in_memory();
    limiter.check(&API, "known").await.unwrap();
    for _ in 0..3 {
        limiter.check(&BULK, "small").await.unwrap();
    }
    let mut units = 0;
    for caller in 0..200 {
        for _ in 0..10_000 {
            match limiter.check(&BULK, caller).await {
                Ok(_) => units += 1,
                refused => {
                    full(refused);
                    break;
                }
            }
        }
    }
    // Three quarters, of 8 bytes each.
    assert!((360_000..=393_216).contains(&units), "{units}");
    // A call for which nothing has to grow is decided.
    exceeded(limiter.check(&BULK, 0).await);
    // A window that has to grow needs room as a new key does, also if its units become entries.
    full(limiter.check(&BULK, "small").await);
    full(limiter.check(&BULK, "small").cost(2).await);
    assert_eq!(limiter.peek(&BULK, "small").cost(0).await.unwrap().remaining(), 9_997);
    limiter.reset(&BULK, 0).await.unwrap();
    assert_eq!(limiter.check(&BULK, "small").cost(1_000).await.unwrap().remaining(), 8_997);
    // Other limits have room, and known callers are still counted.
    assert_counted(&limiter, &API, 2_000).await;
    limiter.check(&API, "known").await.unwrap();
    exceeded(limiter.check(&API, "known").await);
}

#[rate_limit(name = "login", period = "1h", threshold = 2, key = user, limiter = limiter)]
async fn as_the_limiter(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "login", period = "1h", threshold = 2, key = user, limiter = limiter, on_store_error = allow)]
async fn allowing(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "login", period = "1h", threshold = 2, key = user, limiter = limiter, on_store_error = deny)]
async fn denying(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "login", period = "1h", threshold = 2, key = user, limiter = limiter, on_store_error = local)]
async fn local(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

const ALL: [OnStoreError; 3] = [OnStoreError::Allow, OnStoreError::Deny, OnStoreError::Local];

fn full<T: std::fmt::Debug>(answer: Result<T, RateLimitError>) {
    assert_eq!(unavailable(answer), UnavailableReason::StoreFull);
}

#[tokio::test]
async fn a_full_store_in_memory_obeys_on_store_error() {
    for setting in ALL {
        let limiter = Limiter::builder().max_keys(1).on_store_error(setting).in_memory();
        denying(&limiter, "known").await.unwrap();
        for _ in 0..5 {
            if setting == OnStoreError::Allow {
                as_the_limiter(&limiter, "new").await.unwrap();
                limiter.check(&LOGIN, "new").await.unwrap();
            } else {
                full(as_the_limiter(&limiter, "new").await);
                full(limiter.check(&LOGIN, "new").await);
            }
            allowing(&limiter, "new").await.unwrap();
            full(denying(&limiter, "new").await);
            full(local(&limiter, "new").await);
            let call = || limiter.check(&LOGIN, "new");
            call().on_store_error(OnStoreError::Allow).await.unwrap();
            full(call().on_store_error(OnStoreError::Deny).await);
            full(call().on_store_error(OnStoreError::Local).await);
        }
    }
}

#[tokio::test]
async fn an_uncounted_call_has_no_units_to_refund() {
    let limiter = Limiter::builder().max_keys(1).on_store_error(OnStoreError::Allow).in_memory();
    limiter.check(&LOGIN, "known").await.unwrap();
    let uncounted: Decision = limiter.check(&LOGIN, "new").await.unwrap();
    assert_eq!(uncounted.remaining(), 1);
    limiter.reset(&LOGIN, "known").await.unwrap();
    limiter.check(&LOGIN, "new").cost(2).await.unwrap();
    limiter.refund(&uncounted).await.unwrap();
    exceeded(limiter.check(&LOGIN, "new").await);
}

#[tokio::test]
async fn a_full_fallback_obeys_on_store_error() {
    // No server listens there.
    let url = format!("redis://127.0.0.1:{}", harness::free_port());
    let on = |builder: LimiterBuilder| builder.max_keys(1).connect_lazy(&url).unwrap();
    let limiter = on(Limiter::builder());
    limiter.check(&LOGIN, "known").await.unwrap();
    full(limiter.check(&LOGIN, "new").await);
    full(as_the_limiter(&limiter, "new").await);
    full(local(&limiter, "new").await);
    allowing(&limiter, "new").await.unwrap();
    assert_eq!(unavailable(denying(&limiter, "new").await), UnavailableReason::Disconnected);
    // The fallback's bytes are bounded as well.
    let limiter = on(Limiter::builder().max_bytes(50));
    full(limiter.check(&LOGIN, "known").await);
}

#[tokio::test(start_paused = true)]
async fn fullness_is_an_event_once_for_each_limit_and_period_and_a_metric_for_each_call() {
    let path = "memory_store::fullness_is_an_event_once_for_each_limit_and_period_and_a_metric_for_each_call";
    if ran_in_own_process(path) {
        return;
    }
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let prometheus = PrometheusBuilder::new().install_recorder().unwrap();
    let [first, second] = ["first", "second"].map(|name| Policy::fixed_window(name, HOUR, 2));
    let events = || -> Vec<String> {
        let all = lines.all();
        all.into_iter().filter(|line| line.starts_with("WARN")).collect()
    };
    let limiter = Limiter::builder().max_keys(100).in_memory();
    flood(&limiter, [first], 200).await;
    let [event] = &events()[..] else { panic!("{:?}", events()) };
    for part in ["store in memory full", "policy=\"first\"", "keys=75 ", "bytes=", "max_keys"] {
        assert!(event.contains(part), "{event}");
    }
    assert!(!event.contains("made-up"), "{event}");
    flood(&limiter, [first, second], 200).await;
    assert_eq!(events().len(), 2);
    let page = prometheus.render();
    let of_first = "ratelimit_memory_full_total{policy=\"first\"} 250";
    assert!(page.contains(of_first), "{page}");
    assert!(page.contains("ratelimit_memory_full_total{policy=\"second\"}"), "{page}");
    // Calls go on for longer than a minute, and find it full: one period.
    for _ in 0..5 {
        tokio::time::advance(MINUTE / 2).await;
        full(limiter.check(&first, "new").await);
    }
    assert_eq!(events().len(), 2);
    tokio::time::advance(MINUTE).await;
    full(limiter.check(&first, "new").await);
    assert_eq!(events().len(), 3);
}
