//! Under `#[async_trait]` errors are at the same tokens.

use async_trait::async_trait;
use ratelimit_runtime::rate_limit;

struct Service;

#[async_trait]
trait Greet {
    async fn greet(&self) -> String;
    async fn part(&self) -> String;
}

#[async_trait]
impl Greet for Service {
    #[rate_limit(period = 30, threshold = 0)]
    async fn greet(&self) -> String {
        String::new()
    }

    #[rate_limit(period = 30, threshold = 2)]
    async fn part(&self) -> String {
        String::new()
    }
}

fn main() {}
