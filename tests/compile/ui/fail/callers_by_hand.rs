//! Callers by hand: the error names `caller!`.

use std::time::Duration;

use ratelimit_runtime::{Limiter, Policy, caller};

const SEARCH: Policy = Policy::sliding_window("search", Duration::from_secs(60), 5);

async fn several_parts(limiter: Limiter) {
    let _ = limiter.check(&SEARCH, ("acme", 42));
}

async fn ambient_caller(limiter: Limiter) {
    let _ = limiter.peek(&SEARCH, caller::current());
}

fn main() {}
