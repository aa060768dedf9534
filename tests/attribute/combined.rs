//! `settle`, `concurrency` and other answers of a call, together and beside other arguments.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    unused,
    rust_2018_idioms,
    missing_docs,
    unused_qualifications
)]
#![allow(clippy::redundant_pub_crate, reason = "`unreachable_pub` asks for the contrary")]

use std::{
    future::{Future, ready},
    pin::pin,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    task::{Context, Waker},
    time::Duration,
};

use harness::on_each_store;
use ratelimit_runtime::{Decision, Limiter, Policy, RateLimitError, rate_limit};
use tokio::{sync::Notify, time::Instant};

type Told<T> = Result<T, RateLimitError>;

const DAY: Duration = Duration::from_secs(86_400);

/// The policy of an annotated function of this name.
const fn log(name: &'static str) -> Policy {
    Policy::sliding_window(name, DAY, 10)
}

const SHARED: Policy = log("combined-shared").tier(DAY.saturating_mul(7), 12).concurrency(1);

#[rate_limit(period = "1d", threshold = 10, name = "dry", key = 1, limiter = limiter, dry_run,
    cost = units, settle = |taken| { told.fetch_add(1, Relaxed); *taken }, fallible)]
async fn dry(limiter: &Limiter, units: u32, told: &AtomicU32) -> u32 {
    units + 1
}

#[rate_limit(period = "10s", threshold = 2, name = "patient", key = 1, limiter = limiter,
    max_wait = wait, settle = |out| out.map_or(9, |taken| taken), otherwise = Err(0))]
async fn patient(limiter: &Limiter, wait: Duration, taken: u32) -> Result<u32, u32> {
    Ok(taken)
}

#[rate_limit(period = "1d", threshold = 10, name = "once", key = 1, limiter = limiter, cost = 4,
    request_id = (id), settle = |out| out.as_ref().map_or(0, String::len))]
async fn once(limiter: &Limiter, id: String) -> Told<String> {
    Ok(id)
}

/// The answer awaits, uses `?`, and moves what the body moves.
#[rate_limit(policy = SHARED, key = 1, limiter = limiter, cost = 3, max_wait = "1ms", decision = quota,
    request_id = &text, settle = |out| out.as_ref().map_or(2, String::len),
    otherwise = |error| Some(cached(text, &error).await? + "!"))]
async fn answered(limiter: &Limiter, text: String, end: &Notify) -> Option<String> {
    end.notified().await;
    quota.has_permit().then_some(text)
}

async fn cached(text: String, error: &RateLimitError) -> Option<String> {
    ready(()).await;
    let is_busy = matches!(error, RateLimitError::Busy(_));
    (!text.is_empty()).then(|| if is_busy { text + "?" } else { text })
}

#[rate_limit(period = "1d", threshold = 10, concurrency = 1, name = "soft-beside", key = 1,
    limiter = limiter, cost = 2, decision = quota, soft, on_store_error = deny, settle = |units| *units)]
async fn soft(limiter: &Limiter, units: u8) -> u8 {
    ready(()).await;
    if quota.as_ref().is_ok_and(Decision::has_permit) { units } else { 0 }
}

/// The body settles first.
#[rate_limit(tier(period = "1d", threshold = 10), tier(period = "2d", threshold = 15), name = "first",
    key = 1, limiter = limiter, cost = 5, concurrency = 2, concurrency_timeout = "5s", decision = quota,
    settle = |_| 1_u8)]
async fn settles_first(limiter: &Limiter, units: u32) -> Told<u32> {
    quota.settle(units);
    Ok(quota.remaining())
}

struct Service {
    limiter: Limiter,
    units: u32,
}

#[async_trait::async_trait]
trait Report {
    async fn report(&self, name: String) -> Option<String>;
}

#[async_trait::async_trait]
impl Report for Service {
    #[rate_limit(period = "1d", threshold = 10, name = "report", key = &name, limiter = self.limiter,
        cost = self.units, concurrency = 1, settle = |_| self.units * 2,
        otherwise = |error| cached(name, &error).await)]
    async fn report(&self, name: String) -> Option<String> {
        ready(()).await;
        Some(name + ".")
    }
}

/// Returns the units that are left, on each store.
async fn left(limiter: &Limiter, policy: Policy, caller: impl ToString) -> u32 {
    limiter.flush().await.expect("the settles");
    limiter.peek(&policy, caller.to_string()).cost(0).await.expect("a peek").remaining()
}

#[tokio::test]
async fn a_dry_run_settles_what_was_counted_and_nothing_else() {
    on_each_store(async |limiter| {
        let told = AtomicU32::new(0);
        for (units, expected, settled) in [(4, 5, 1), (5, 0, 2), (1, 0, 2), (11, 0, 2), (0, 0, 2)] {
            assert_eq!(dry(limiter, units, &told).await.unwrap(), units + 1);
            assert_eq!(left(limiter, log("dry"), 1).await, expected);
            assert_eq!(told.load(Relaxed), settled, "{units}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_debt_and_is_settled_then() {
    let (limiter, start, minute) = (Limiter::in_memory(), Instant::now(), Duration::from_secs(60));
    for _ in 0..3 {
        assert_eq!(patient(&limiter, minute, 0).await, Ok(0));
    }
    assert_eq!(patient(&limiter, minute, 7).await, Ok(7));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(patient(&limiter, Duration::from_secs(9), 1).await, Err(0));
    assert_eq!(patient(&limiter, minute, 1).await, Ok(1));
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}

#[tokio::test]
async fn a_repeated_call_is_charged_and_settled_once() {
    on_each_store(async |limiter| {
        for id in ["ab", "ab", "c", "ab", "long id"] {
            assert_eq!(once(limiter, id.to_owned()).await.unwrap(), id);
        }
        // 2, 1, and 7 instead of 4.
        assert_eq!(left(limiter, log("once"), 1).await, 0);
        once(limiter, "ab".to_owned()).await.unwrap();
        once(limiter, "new".to_owned()).await.unwrap_err();
    })
    .await;
}

#[tokio::test]
async fn a_busy_call_is_answered_beside_one_that_is_settled() {
    let (limiter, end) = (Limiter::in_memory(), Notify::new());
    let call = |text: &str| answered(&limiter, text.to_owned(), &end);
    {
        let mut first = pin!(call("first"));
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(call("other").await.as_deref(), Some("other?!"));
        assert_eq!(call("").await, None);
        assert_eq!(left(&limiter, SHARED, 1).await, 7);
        end.notify_one();
        assert_eq!(first.await.as_deref(), Some("first"));
    }
    assert_eq!(left(&limiter, SHARED, 1).await, 5);
    end.notify_one();
    assert_eq!(call("second").await.as_deref(), Some("second"));
    // In debt.
    assert_eq!(call("third").await.as_deref(), Some("third!"));
    assert_eq!(left(&limiter, SHARED, 1).await, 0);
}

#[tokio::test]
async fn soft_calls_and_those_of_boxed_futures_are_settled() {
    let limiter = Limiter::in_memory();
    for (units, told, expected) in [(3, 3, 7), (9, 9, 0), (1, 0, 0)] {
        assert_eq!(soft(&limiter, units).await, told);
        assert_eq!(left(&limiter, log("soft-beside").concurrency(1), 1).await, expected);
    }
    let policy = log("first").tier(2 * DAY, 15).concurrency(2);
    assert_eq!(settles_first(&limiter, 2).await.unwrap(), 8);
    assert_eq!(settles_first(&limiter, 8).await.unwrap(), 0);
    assert_eq!(left(&limiter, policy, 1).await, 0);
    settles_first(&limiter, 1).await.unwrap_err();

    let service = Service { limiter: limiter.clone(), units: 4 };
    assert_eq!(service.report("a".to_owned()).await.as_deref(), Some("a."));
    assert_eq!(left(&limiter, log("report").concurrency(1), "a").await, 2);
    assert_eq!(service.report("a".to_owned()).await.as_deref(), Some("a"));
    assert_eq!(service.report("b".to_owned()).await.as_deref(), Some("b."));
}

const fn assert_send<T: Send>(_: &T) {}

#[test]
fn futures_of_combined_arguments_stay_send_and_small() {
    async fn plain(text: String, end: &Notify) -> Option<String> {
        end.notified().await;
        Some(text)
    }

    let (limiter, end, told) = (Limiter::in_memory(), Notify::new(), AtomicU32::new(0));
    let text = || "a".to_owned();
    let without = size_of_val(&plain(text(), &end));
    let (dry, once) = (dry(&limiter, 1, &told), once(&limiter, text()));
    let (patient, answered) = (patient(&limiter, DAY, 1), answered(&limiter, text(), &end));
    let (soft, first) = (soft(&limiter, 1), settles_first(&limiter, 1));
    assert_send(&dry);
    assert_send(&once);
    assert_send(&patient);
    assert_send(&answered);
    assert_send(&soft);
    assert_send(&first);
    println!("a function without the attribute: {without} bytes");
    for (what, size) in [
        ("settle, dry_run", size_of_val(&dry)),
        ("settle, request_id", size_of_val(&once)),
        ("settle, max_wait, otherwise", size_of_val(&patient)),
        ("settle, policy, decision, otherwise, request_id", size_of_val(&answered)),
        ("settle, concurrency, decision, soft", size_of_val(&soft)),
        ("settle, concurrency, decision", size_of_val(&first)),
    ] {
        println!("{what}: {size} bytes");
        assert!(size < 1536, "{what}: {size} bytes");
    }
}
