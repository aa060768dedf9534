//! What runs before a future boxed by hand cannot be limited with it.

use std::pin::Pin;

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

fn pay() -> u32 {
    1
}

#[rate_limit(period = 30, threshold = 2)]
fn paid_before(user: u32) -> Pin<Box<dyn Future<Output = Done> + Send>> {
    let user = user;
    let paid = pay();
    Box::pin(async move {
        let _ = (user, paid);
        Ok(())
    })
}

fn main() {
    let _ = paid_before(1);
}
