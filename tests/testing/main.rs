//! The test kit of users: limiters of single tests, planned refusals, and assertions that fail when they should.

mod assertions;
mod covered;
mod isolated;
mod planned;

use ratelimit_runtime::{RateLimitError, rate_limit};

#[rate_limit(name = "report", period = "1h", threshold = 2, key = user)]
async fn report(user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

/// Returns the message with which a test fails.
async fn failure_of<F>(test: F) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let panic = tokio::spawn(test).await.expect_err("the test is to fail").into_panic();
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => (*other.downcast::<&str>().expect("a message")).to_owned(),
    }
}
