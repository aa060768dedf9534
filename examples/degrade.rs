//! `cargo run --example degrade`
//!
//! Above a limit, callers get less instead of an error. `otherwise` replaces the body, and with `soft` the body chooses.
//! It prints
//!
//! ```text
//! suggestions for tea: green tea, black tea (just found)
//! suggestions for tea: green tea, black tea (just found)
//! suggestions for tea: tea (from the cache)
//! thumbnail: 400 x 300 pixels, 1 more of this size
//! thumbnail: 400 x 300 pixels, 0 more of this size
//! thumbnail: 40 x 30 pixels: rate limit `thumbnail` exceeded: at most 2 per 60s, retry after 60s
//! ```

use ratelimit_runtime::rate_limit;

/// The return type needs no error: a refused call gets what the cache has.
#[rate_limit(
    name = "suggestions",
    period = "1m",
    threshold = 2,
    key = user,
    otherwise = cached(words)
)]
async fn suggestions(user: &str, words: &str) -> String {
    format!("green {words}, black {words} (just found)")
}

fn cached(words: &str) -> String {
    format!("{words} (from the cache)")
}

/// `quota` is the decision, or the refusal.
#[rate_limit(name = "thumbnail", period = "1m", threshold = 2, key = user, soft, decision = quota)]
async fn thumbnail(user: &str) -> String {
    match quota {
        Ok(decision) => format!("400 x 300 pixels, {} more of this size", decision.remaining()),
        Err(refusal) => format!("40 x 30 pixels: {refusal}"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    for _ in 0..3 {
        println!("suggestions for tea: {}", suggestions("alice", "tea").await);
    }
    for _ in 0..3 {
        println!("thumbnail: {}", thumbnail("alice").await);
    }
}
