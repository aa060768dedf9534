//! `cargo run --example plans`
//!
//! The plan of a user is the threshold of searches an hour. All plans count under one name, so a user
//! who changes the plan keeps the counts. The program first lists all its limits. It prints
//!
//! ```text
//! search: sliding_window, by user.plan.searches_an_hour(), key (user.id)
//! on the free plan     2 of 8
//! the same, now paying 3 of 8
//! another who pays     5 of 8
//! one of the house     8 of 8
//! ```

use ratelimit_runtime::{RateLimitError, limits::policies, rate_limit};

#[derive(Clone, Copy)]
enum Plan {
    Free,
    Paid,
    Internal,
}

impl Plan {
    fn searches_an_hour(self) -> u32 {
        match self {
            Self::Free => 2,
            Self::Paid | Self::Internal => 5,
        }
    }
}

struct User {
    id: u64,
    plan: Plan,
}

#[rate_limit(
    name = "search",
    period = "1h",
    threshold = user.plan.searches_an_hour(),
    key = user.id,
    skip = matches!(user.plan, Plan::Internal)
)]
async fn search(user: &User, words: &str) -> Result<String, RateLimitError> {
    Ok(format!("what there is of {words}"))
}

/// Searches eight times, and prints the number of admitted searches.
async fn search_eight_times(who: &str, user: &User) {
    let mut found = 0;
    for _ in 0..8 {
        found += u32::from(search(user, "tea").await.is_ok());
    }
    println!("{who:20} {found} of 8");
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    for policy in policies() {
        println!("{policy}");
    }
    search_eight_times("on the free plan", &User { id: 1, plan: Plan::Free }).await;
    search_eight_times("the same, now paying", &User { id: 1, plan: Plan::Paid }).await;
    search_eight_times("another who pays", &User { id: 2, plan: Plan::Paid }).await;
    search_eight_times("one of the house", &User { id: 3, plan: Plan::Internal }).await;
}
