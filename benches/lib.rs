//! The functions that the benchmarks call, and their measurements.

pub mod figures;
pub mod floor;
pub mod load;
pub mod on_redis;
pub mod rounds;
pub mod server;
pub mod with_arguments;

use std::{
    future::Future,
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use ratelimit_runtime::{Limiter, Policy, caller};

/// Annotated functions of every algorithm, and one that is not annotated.
pub mod calls {
    use ratelimit_runtime::{RateLimitError, rate_limit};

    type Done = Result<(), RateLimitError>;

    /// A function without a limit.
    ///
    /// # Errors
    ///
    /// None.
    #[expect(clippy::unused_async, reason = "as its limited counterparts are written")]
    pub async fn plain(tenant: &str, user: u32) -> Done {
        let _ = (tenant, user);
        Ok(())
    }

    macro_rules! calls {
        ($($name:ident: $algorithm:ident $period:literal $threshold:literal,)*) => {
            $(
                /// A limited function.
                ///
                /// # Errors
                ///
                /// The refusal.
                #[rate_limit(algorithm = $algorithm, period = $period, threshold = $threshold, key = (tenant, user))]
                pub async fn $name(tenant: &str, user: u32) -> Done {
                    Ok(())
                }
            )*

            /// The same functions, counted by a limiter that they are given.
            pub mod counted_by {
                use ratelimit_runtime::{Limiter, rate_limit};

                $(
                    /// A limited function.
                    ///
                    /// # Errors
                    ///
                    /// The refusal.
                    #[rate_limit(
                        algorithm = $algorithm,
                        period = $period,
                        threshold = $threshold,
                        key = (tenant, user),
                        limiter = limiter
                    )]
                    pub async fn $name(limiter: &Limiter, tenant: &str, user: u32) -> super::Done {
                        Ok(())
                    }
                )*
            }
        };
    }

    // Small thresholds refuse all but the first calls; the others admit at any rate. Keys that are
    // full again before their caller returns would be collected, and measured as new ones.
    calls! {
        window_3: sliding_window "366d" 3,
        window_of_many: sliding_window "366d" 3,
        // A multiple of 16: the next sample is due while all calls are refused.
        window_96: sliding_window "366d" 96,
        window_1_000: sliding_window "366d" 1_000,
        window_100_000: sliding_window "366d" 100_000,
        window: sliding_window "1ms" 100_000,
        window_of_100: sliding_window "1ms" 100,
        window_of_1_000: sliding_window "1ms" 1_000,
        counter_3: sliding_counter "366d" 3,
        counter: sliding_counter "1d" 1_000_000_000,
        fixed_3: fixed_window "366d" 3,
        fixed: fixed_window "1d" 1_000_000_000,
        bucket_3: token_bucket "366d" 3,
        bucket: token_bucket "366d" 10_000_000,
    }

    macro_rules! tiers {
        ($($name:ident: $algorithm:ident $($period:literal $threshold:literal)*,)*) => {$(
            /// A function with a limit of several tiers.
            ///
            /// # Errors
            ///
            /// The refusal.
            #[rate_limit(
                algorithm = $algorithm,
                $(tier(period = $period, threshold = $threshold),)*
                key = (tenant, user)
            )]
            pub async fn $name(tenant: &str, user: u32) -> Done {
                Ok(())
            }
        )*};
    }

    tiers! {
        windows_2: sliding_window "1ms" 100 "1s" 99_000,
        windows_3: sliding_window "1ms" 100 "10ms" 990 "1s" 98_000,
        windows_4: sliding_window "1ms" 100 "10ms" 990 "100ms" 9_800 "1s" 97_000,
        windows_5: sliding_window "1ms" 100 "5ms" 490 "20ms" 1_950 "100ms" 9_700 "1s" 96_000,
        buckets_2: token_bucket "90d" 10_000_000 "180d" 19_000_000,
        buckets_3: token_bucket "90d" 10_000_000 "180d" 19_000_000 "270d" 28_000_000,
        buckets_4: token_bucket "90d" 10_000_000 "180d" 19_000_000 "270d" 28_000_000
            "360d" 37_000_000,
        buckets_5: token_bucket "45d" 6_000_000 "90d" 10_000_000 "180d" 19_000_000
            "270d" 28_000_000 "360d" 37_000_000,
    }
}

/// Returns the output of a future that is ready at once, as every call in memory is.
///
/// # Panics
///
/// When it is not.
pub fn now<T>(future: impl IntoFuture<Output = T>) -> T {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the embedded store does not wait"),
    }
}

/// Polls a future that is ready at once. It is not moved, as one that a program awaits is not.
#[macro_export]
macro_rules! call {
    ($future:expr) => {{
        let mut future = std::pin::pin!(std::future::IntoFuture::into_future($future));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let polled = std::future::Future::poll(future.as_mut(), &mut context);
        assert!(polled.is_ready(), "the embedded store does not wait");
        std::hint::black_box(&polled);
    }};
}

/// A policy for checks by hand, which admits at any rate, and one that refuses all but three calls.
pub const BY_HAND: [Policy; 2] = {
    let day = Duration::from_secs(24 * 3_600);
    [Policy::token_bucket("by_hand", day, 10_000_000), Policy::token_bucket("by_hand_3", day, 3)]
};

/// A call by hand under one of [`BY_HAND`], for the caller of a number.
#[must_use]
pub fn by_hand(limiter: &Limiter, policy: usize) -> Box<dyn Fn(u32) + Sync + '_> {
    Box::new(move |user| {
        let caller = caller!(black_box("acme"), user);
        call!(limiter.check(&BY_HAND[policy], &caller));
    })
}

/// A call of the annotated function of this name, for the caller of a number. With a limiter it
/// counts the call.
#[macro_export]
macro_rules! annotated {
    ($name:ident) => {
        Box::new(|user| $crate::call!($crate::calls::$name(std::hint::black_box("acme"), user)))
    };
    ($name:ident, $limiter:expr) => {{
        let limiter = $limiter;
        Box::new(move |user| {
            let tenant = std::hint::black_box("acme");
            $crate::call!($crate::calls::counted_by::$name(&limiter, tenant, user));
        })
    }};
}
