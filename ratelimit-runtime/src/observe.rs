//! What the limits inside a future answered, for those around it.

use std::{cell::RefCell, future::Future};

use crate::{decision::Decision, error::RateLimitError};

tokio::task_local! {
    static ANSWERS: RefCell<Vec<Result<Decision, RateLimitError>>>;
}

/// Runs `future`, and tells with its output what the limits of the annotated functions in it
/// answered, in that order.
///
/// An annotated function returns its own type; this is how the code around it learns how much is
/// left. Tasks that the future spawns are not covered. An observer around this one is told the same
/// answers.
///
/// ```
/// use ratelimit_runtime::{RateLimitError, observe, rate_limit};
///
/// #[rate_limit(period = 60, threshold = 3, key = user)]
/// async fn greet(user: &str) -> Result<String, RateLimitError> {
///     Ok(format!("hello, {user}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (greeting, answers) = observe(greet("alice")).await;
/// assert_eq!(greeting.unwrap(), "hello, alice");
/// assert_eq!(answers[0].as_ref().unwrap().remaining(), 2);
/// # }
/// ```
pub async fn observe<F: Future>(future: F) -> (F::Output, Vec<Result<Decision, RateLimitError>>) {
    let observed = async {
        let output = future.await;
        (output, ANSWERS.with(RefCell::take))
    };
    let (output, answers) = ANSWERS.scope(RefCell::default(), observed).await;
    answers.iter().for_each(record);
    (output, answers)
}

pub(crate) fn record(answer: &Result<Decision, RateLimitError>) {
    // Without an observer there is nothing to record.
    let _ = ANSWERS.try_with(|answers| answers.borrow_mut().push(answer.clone()));
}
