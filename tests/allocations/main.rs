//! A call of a known caller in memory allocates nothing, and neither does a refusal in the deny cache.

use allocation_counter::{AllocationInfo, measure};
use harness::RedisServer;
use ratelimit_runtime::{Limiter, Override, Policy, RateLimitError, rate_limit};
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

type Done = Result<(), RateLimitError>;

/// The output of a future that is ready at once.
fn now<T>(future: impl IntoFuture<Output = T>) -> T {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("memory and the deny cache answer at once"),
    }
}

/// Returns the allocations of a call that follows a first one.
fn allocations(mut call: impl FnMut()) -> u64 {
    call();
    let AllocationInfo { count_total, .. } = measure(call);
    count_total
}

macro_rules! takes_nothing {
    ($($fact:ident: $algorithm:ident,)*) => {$(
        #[test]
        fn $fact() {
            #[rate_limit(algorithm = $algorithm, period = "1d", threshold = 100, key = (tenant, user))]
            async fn admitted(tenant: &str, user: u64) -> Done {
                Ok(())
            }

            #[rate_limit(algorithm = $algorithm, period = "1d", threshold = 1, key = (tenant, user))]
            async fn refused(tenant: &str, user: u64) -> Done {
                Ok(())
            }

            #[rate_limit(
                algorithm = $algorithm,
                tier(period = "1m", threshold = 20),
                tier(period = "1h", threshold = 30),
                tier(period = "1d", threshold = 40),
                key = (tenant, user)
            )]
            async fn tiers(tenant: &str, user: u64) -> Done {
                Ok(())
            }

            // A log grows now and then; it has room for eight before the last of these.
            for _ in 0..6 {
                now(admitted("acme", 7)).unwrap();
                now(tiers("acme", 7)).unwrap();
            }
            assert_eq!(allocations(|| now(admitted("acme", 7)).unwrap()), 0);
            assert_eq!(allocations(|| now(tiers("acme", 7)).unwrap()), 0);
            now(refused("acme", 7)).unwrap();
            assert_eq!(allocations(|| assert!(now(refused("acme", 7)).is_err())), 0);
        }
    )*};
}

takes_nothing! {
    a_sliding_window_takes_nothing: sliding_window,
    a_sliding_counter_takes_nothing: sliding_counter,
    a_fixed_window_takes_nothing: fixed_window,
    a_token_bucket_takes_nothing: token_bucket,
}

#[test]
fn the_first_call_of_a_limit_does_not_search_what_other_overrides_meant() {
    const FOREIGN: u64 = 300;
    const FRESH: Policy = Policy::sliding_window("fresh", Duration::from_secs(60), 5);
    let limiter = Limiter::in_memory();
    for number in 0..FOREIGN {
        let limit = format!("mail::letters::send_{number}");
        limiter.overrides().here().set(&limit, Override::new().threshold(1)).unwrap();
    }
    let AllocationInfo { count_total, .. } = measure(|| drop(now(limiter.check(&FRESH, "alice"))));
    assert!(count_total < 4 * FOREIGN, "{count_total}");
    let change = Override::new().threshold(2);
    let AllocationInfo { count_total, .. } =
        measure(|| limiter.overrides().here().set("mail::letters::send_0", change).unwrap());
    assert!(count_total < 10 * FOREIGN, "{count_total}");
}

/// A change is also fast where nothing is allocated for each caller: it holds the only lock of changes meanwhile.
#[test]
fn the_change_of_a_caller_allocates_no_more_beside_10_000_others() {
    let limiter = Limiter::in_memory();
    let overrides = limiter.overrides();
    let set = |caller: u32| {
        overrides.here().set(("crowded", caller), Override::new().threshold(7)).unwrap();
    };
    let mut callers = 0..;
    let mut changes = |others: usize| {
        callers.by_ref().take(others).for_each(set);
        let own = callers.next().unwrap();
        let changed = Override::new().threshold(8);
        [
            measure(|| set(own)),
            measure(|| overrides.here().set(("crowded", own), changed).unwrap()),
            measure(|| overrides.here().remove(("crowded", own))),
        ]
        .map(|it| (it.count_total, it.bytes_total))
    };
    let few = changes(20);
    for (few, many) in few.into_iter().zip(changes(10_000)) {
        assert!(
            many.0 <= few.0 + 5,
            "{many:?} allocations and bytes beside 10 000, {few:?} beside 20"
        );
        // The tables of a part with 40 callers, now and then with more than 56, for which a table doubles.
        assert!(many.1 <= few.1 + 8_192, "{many:?} allocations and bytes, {few:?} beside 20");
    }
}

#[test]
fn settings_do_not_allocate() {
    #[rate_limit(
        period = "1d",
        threshold = limit,
        cost = units,
        key = Some(user),
        limiter = limiter,
        max_wait = 0,
        on_store_error = deny
    )]
    async fn late(limiter: &Limiter, user: &str, limit: u32, units: u32) -> Done {
        Ok(())
    }

    let limiter = Limiter::in_memory();
    for _ in 0..2 {
        now(late(&limiter, "alice", 100, 3)).unwrap();
    }
    assert_eq!(allocations(|| now(late(&limiter, "alice", 100, 1)).unwrap()), 0);
}

#[test]
fn large_logs_stay_within_the_memory_of_a_limiter() {
    const BULK: Policy = Policy::sliding_window("bulk", Duration::from_secs(3_600), 100_000);
    let mut units = 0;
    let held = measure(|| {
        let limiter = Limiter::builder().max_bytes(16 << 20).in_memory();
        for caller in 0..50 {
            let take = |_: &i32| now(limiter.check(&BULK, caller)).is_ok();
            units += (0..100_000).take_while(take).count();
        }
        std::mem::forget(limiter);
    });
    // One limit may take three quarters of the bytes. A unit takes 8, and three of each caller none.
    assert!((1_200_000..1_575_000).contains(&units), "{units}");
    assert!(held.bytes_current < 13 << 20, "{}", held.bytes_current);
    assert!(held.bytes_max < 14 << 20, "{}", held.bytes_max);
}

#[test]
fn counted_bytes_are_allocated_bytes() {
    const BOUND: usize = 6 << 20;
    const DAY: Duration = Duration::from_secs(86_400);
    let policies = [
        Policy::sliding_window("log", DAY, 100),
        Policy::sliding_window("ids", DAY, 50),
        Policy::token_bucket("tiers", DAY, 9).tier(2 * DAY, 12).tier(3 * DAY, 15),
        Policy::fixed_window("window", DAY, 3),
        Policy::sliding_counter("counter", DAY, 3),
    ];
    let mut full = 0;
    let held = measure(|| {
        let limiter = Limiter::builder().max_bytes(BOUND).in_memory();
        for round in 0..6 {
            for caller in 0..10_000_u32 {
                for policy in &policies {
                    // Short names are stored inline, long ones on the heap.
                    let name = "x".repeat(usize::try_from(caller % 60).unwrap());
                    let call = limiter.check(policy, format!("{name}{caller}"));
                    let call = if policy.name() == "ids" { call.request_id(round) } else { call };
                    let answer = now(call.cost(1 + caller % 3));
                    full += i32::from(matches!(answer, Err(RateLimitError::Unavailable(_))));
                }
            }
        }
        std::mem::forget(limiter);
    });
    assert!(full > 10_000, "{full}");
    let (held, bound) = (usize::try_from(held.bytes_current).unwrap(), BOUND);
    // Five limits leave a sixteenth. The shards take what they take.
    assert!((bound / 16 * 14..bound / 16 * 15 + (1 << 20)).contains(&held), "{held} of {bound}");
}

#[test]
fn a_check_by_hand_allocates_nothing() {
    const POLICY: Policy = Policy::token_bucket("p", Duration::from_secs(60), 100);
    let limiter = Limiter::in_memory();
    let check = || drop(now(limiter.check(&POLICY, "alice")).unwrap());
    assert_eq!(allocations(check), 0);
    assert_eq!(allocations(|| drop(now(limiter.peek(&POLICY, "alice")).unwrap())), 0);
}

#[test]
fn a_cached_refusal_is_answered_at_once_and_allocates_nothing() {
    const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(86_400), 1);

    #[rate_limit(period = "1d", threshold = 1, key = (tenant, user), limiter = limiter)]
    async fn refused(limiter: &Limiter, tenant: &str, user: u64) -> Done {
        Ok(())
    }

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let server = RedisServer::start();
    // No call revalidates during the test.
    let builder = Limiter::builder().deny_cache_ttl(Duration::from_secs(3_600));
    let limiter = runtime.block_on(builder.connect(&server.url())).unwrap();
    runtime.block_on(async {
        // Admitted, refused by Redis.
        for _ in 0..2 {
            refused(&limiter, "acme", 7).await.ok();
            limiter.check(&POLICY, "alice").await.ok();
        }
    });
    assert_eq!(allocations(|| assert!(now(refused(&limiter, "acme", 7)).is_err())), 0);
    assert_eq!(allocations(|| assert!(now(limiter.check(&POLICY, "alice")).is_err())), 0);
}
