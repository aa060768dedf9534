//! What a call takes from the heap: in memory, of a caller who is known, nothing.

use allocation_counter::{AllocationInfo, measure};
use ratelimit_runtime::{Limiter, Policy, RateLimitError, rate_limit};
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

type Done = Result<(), RateLimitError>;

/// The output of a future that is ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the embedded store does not wait"),
    }
}

/// Allocations of a call, after it was made before.
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
fn settings_take_nothing() {
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
fn by_hand_a_call_takes_what_gives_it_back() {
    const POLICY: Policy = Policy::token_bucket("p", Duration::from_secs(60), 100);
    let limiter = Limiter::in_memory();
    let check = || drop(now(limiter.check(&POLICY, "alice")).unwrap());
    assert_eq!(allocations(check), 1);
    assert_eq!(allocations(|| drop(now(limiter.peek(&POLICY, "alice")).unwrap())), 0);
}
