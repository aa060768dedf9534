//! What the limits inside a future answered, for those around it.

use std::{
    cell::RefCell,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::task::futures::TaskLocalFuture;

use crate::{decision::Decision, error::RateLimitError};

type Answers = Vec<Result<Decision, RateLimitError>>;

tokio::task_local! {
    static ANSWERS: RefCell<Answers>;
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
pub fn observe<F: Future>(
    future: F,
) -> impl Future<Output = (F::Output, Vec<Result<Decision, RateLimitError>>)> {
    Observe { future: ANSWERS.scope(RefCell::default(), future) }
}

pin_project! {
    /// Written out, because an `async` block would hold the future twice.
    struct Observe<F> {
        #[pin]
        future: TaskLocalFuture<RefCell<Answers>, F>,
    }
}

impl<F: Future> Future for Observe<F> {
    type Output = (F::Output, Answers);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut future = self.project().future;
        let output = ready!(future.as_mut().poll(context));
        let answers = future.take_value().map(RefCell::into_inner).unwrap_or_default();
        for answer in &answers {
            record(|| answer.clone());
        }
        Poll::Ready((output, answers))
    }
}

/// Whether there is an observer.
pub(crate) fn is_observed() -> bool {
    ANSWERS.try_with(|_| ()).is_ok()
}

/// Tells an observer, if there is one, the answer.
pub(crate) fn record(answer: impl FnOnce() -> Result<Decision, RateLimitError>) {
    // Without an observer there is nothing to record.
    let _ = ANSWERS.try_with(|answers| answers.borrow_mut().push(answer()));
}
