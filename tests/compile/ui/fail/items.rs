//! Items that cannot be limited.

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(period = 30, threshold = 2)]
fn not_async() -> Done {
    Ok(())
}

#[rate_limit(period = 30, threshold = 2)]
const fn constant() -> Done {
    Ok(())
}

#[rate_limit(period = 30, threshold = 2)]
fn future() -> impl Future<Output = Done> {
    async { Ok(()) }
}

trait Service {
    #[rate_limit(period = 30, threshold = 2)]
    async fn without_a_body(&self) -> Done;
}

#[rate_limit(period = 30, threshold = 2)]
struct NotAFunction;

#[rate_limit(period = 30, threshold = 2)]
impl NotAFunction {}

#[rate_limit(period = 0)]
fn both_wrong() -> Done {
    Ok(())
}

fn main() {
    let _ = (not_async(), constant(), future(), NotAFunction, both_wrong());
}
