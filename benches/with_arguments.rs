//! Annotated functions, each with an argument that does more than count the call, and the function
//! that it is measured against.

use std::{
    future::Future,
    hint::black_box,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use ratelimit_runtime::{Limiter, Policy, RateLimitError, caller, rate_limit};

use crate::call;

type Done = Result<(), RateLimitError>;

/// A call that is over once this is ready.
type Called = Pin<Box<dyn Future<Output = ()> + Send>>;

const DAY: Duration = Duration::from_secs(24 * 3_600);
const SHARED: Policy = Policy::token_bucket("shared", DAY, 10_000_000);
const TOGETHER: [Policy; 2] = [
    Policy::token_bucket("first", DAY, 10_000_000),
    Policy::token_bucket("second", DAY, 10_000_000),
];

/// A function, and the most that a call of it may take.
pub struct Case {
    /// The argument.
    pub name: &'static str,
    /// The name of the case that it is measured against; its own if it is such a case.
    pub base: &'static str,
    /// The most commands that a client sends for a call on Redis.
    pub commands: u32,
    /// Calls it in memory, for the caller of a number.
    pub in_memory: fn(&Limiter, u32),
    /// Calls it on Redis, for the caller of a number.
    pub on_redis: fn(&'static Limiter, u32) -> Called,
}

macro_rules! case {
    ($call:path, $name:literal, $base:literal, $commands:literal) => {
        Case {
            name: $name,
            base: $base,
            commands: $commands,
            in_memory: |limiter, user| call!($call(limiter, user)),
            on_redis: |limiter, user| {
                Box::pin(async move {
                    black_box($call(limiter, user).await).ok();
                })
            },
        }
    };
}

/// All cases, each after the one that it is measured against.
pub const CASES: [Case; 18] = [
    case!(bucket, "token_bucket, limiter", "token_bucket, limiter", 1),
    case!(decision, "decision", "token_bucket, limiter", 1),
    case!(soft, "soft", "token_bucket, limiter", 1),
    case!(otherwise, "otherwise", "token_bucket, limiter", 1),
    case!(policy, "policy", "token_bucket, limiter", 1),
    case!(settle, "settle", "token_bucket, limiter", 2),
    case!(concurrency, "concurrency", "token_bucket, limiter", 2),
    case!(concurrency_alone, "concurrency alone", "token_bucket, limiter", 2),
    case!(stacked, "two stacked", "token_bucket, limiter", 2),
    case!(bucket_3, "token_bucket, limiter, refused", "token_bucket, limiter, refused", 1),
    case!(soft_refused, "soft, refused", "token_bucket, limiter, refused", 1),
    case!(otherwise_refused, "otherwise, refused", "token_bucket, limiter, refused", 1),
    case!(by_hand, "token_bucket by hand", "token_bucket by hand", 1),
    case!(check_all, "check_all of two", "token_bucket by hand", 2),
    case!(window, "sliding_window, limiter", "sliding_window, limiter", 1),
    case!(request_id, "request_id", "sliding_window, limiter", 1),
    case!(of_cost, "cost = 10", "sliding_window, limiter", 1),
    case!(settled_cost, "cost = 10, settle", "sliding_window, limiter", 2),
];

macro_rules! bucket {
    ($($name:ident($threshold:literal $($argument:tt)*) -> $output:ty $body:block)*) => {$(
        #[rate_limit(
            algorithm = token_bucket,
            period = "366d",
            threshold = $threshold,
            key = user,
            limiter = limiter
            $($argument)*
        )]
        async fn $name(limiter: &Limiter, user: u32) -> $output $body
    )*};
}

macro_rules! window {
    ($($name:ident($($argument:tt)*))*) => {$(
        #[rate_limit($($argument)*, key = user, limiter = limiter)]
        async fn $name(limiter: &Limiter, user: u32) -> Done {
            Ok(())
        }
    )*};
}

bucket! {
    bucket(10_000_000) -> Done { Ok(()) }
    bucket_3(3) -> Done { Ok(()) }
    decision(10_000_000, decision = quota) -> Done {
        black_box(quota.remaining());
        Ok(())
    }
    soft(10_000_000, soft, decision = quota) -> Done {
        black_box(quota.is_ok());
        Ok(())
    }
    soft_refused(3, soft, decision = quota) -> Done {
        black_box(quota.is_ok());
        Ok(())
    }
    otherwise(10_000_000, otherwise = Ok(())) -> Done { Ok(()) }
    otherwise_refused(3, otherwise = Ok(())) -> Done { Ok(()) }
    settle(10_000_000, cost = 2, settle = |_| 1_u32) -> Done { Ok(()) }
    concurrency(10_000_000, concurrency = 100) -> Done { Ok(()) }
}

window! {
    window(period = "1ms", threshold = 100_000)
    of_cost(period = "1ms", threshold = 1_000_000, cost = 10)
    policy(policy = SHARED)
    concurrency_alone(concurrency = 100)
}

#[rate_limit(name = "narrow", algorithm = token_bucket, period = "366d", threshold = 10_000_000, key = user, limiter = limiter)]
#[rate_limit(name = "wide", algorithm = token_bucket, period = "366d", threshold = 10_000_000, key = user, limiter = limiter)]
async fn stacked(limiter: &Limiter, user: u32) -> Done {
    Ok(())
}

async fn by_hand(limiter: &Limiter, user: u32) -> Done {
    limiter.check(&TOGETHER[0], &caller!(user)).await.map(drop)
}

async fn check_all(limiter: &Limiter, user: u32) -> Done {
    let caller = caller!(user);
    let checks = [limiter.check(&TOGETHER[0], &caller), limiter.check(&TOGETHER[1], &caller)];
    limiter.check_all(checks).await.map(drop)
}

/// The number of calls of the functions below, whose callers have a hundred calls each: in memory,
/// a call looks through the ids of its caller, and a settle finds its entry among those of its
/// caller.
static CALLS: AtomicU64 = AtomicU64::new(0);

#[rate_limit(
    period = "366d",
    threshold = 100,
    request_id = CALLS.fetch_add(1, Ordering::Relaxed),
    key = CALLS.load(Ordering::Relaxed) / 100,
    limiter = limiter
)]
async fn request_id(limiter: &Limiter, _: u32) -> Done {
    Ok(())
}

#[rate_limit(
    period = "366d",
    threshold = 1_000_000,
    cost = 10,
    settle = |_| 5_u32,
    key = CALLS.fetch_add(1, Ordering::Relaxed) / 100,
    limiter = limiter
)]
async fn settled_cost(limiter: &Limiter, _: u32) -> Done {
    Ok(())
}
