//! Several limits of one function, each with a name of its own, and such as exclude each other.
#![deny(warnings)]
#![forbid(dead_code)]

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(name = "by-user", period = "1m", threshold = 5, key = user)]
#[rate_limit(name = "by-tenant", period = "1m", threshold = 50, key = tenant, skip = tenant == 0)]
#[ratelimit_runtime::rate_limit(name = "by-all", period = "1m", threshold = 500, key = "all")]
async fn three(user: &str, tenant: u32) -> Done {
    let _ = (user, tenant);
    Ok(())
}

macro_rules! named {
    ($($name:literal)+) => {
        $(#[rate_limit(name = $name)])+
        async fn by_macro() -> Done {
            Ok(())
        }
    };
}

named! { "first" "second" }

/// One of two.
#[cfg_attr(all(), rate_limit(threshold = 1))]
#[cfg_attr(not(all()), rate_limit(threshold = 2))]
async fn configured() -> Done {
    Ok(())
}

/// The one that is written goes with those that are not there.
#[rate_limit(threshold = 1)]
#[cfg_attr(not(all()), rate_limit(threshold = 2))]
#[cfg_attr(any(), allow(unused), rate_limit(name = "third"))]
async fn alone() -> Done {
    Ok(())
}

struct Service;

#[async_trait::async_trait]
trait Greet {
    async fn greet(&self, pair: (u32, u32)) -> Done;
}

#[async_trait::async_trait]
impl Greet for Service {
    #[rate_limit(name = "greet-first", key = first, skip = second == 0)]
    #[rate_limit(name = "greet-second", key = second)]
    async fn greet(&self, (first, second): (u32, u32)) -> Done {
        let _ = (first, second);
        Ok(())
    }
}

impl Service {
    #[rate_limit]
    #[cfg_attr(any(), rate_limit)]
    async fn method(&self) -> Done {
        Ok(())
    }
}

fn main() {
    let _ = (three("a", 1), by_macro(), configured(), alone(), Service.method());
    let _ = Service.greet((1, 2));
}
