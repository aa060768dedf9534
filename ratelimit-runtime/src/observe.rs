//! What the limits inside a future answered, for those around it.

use std::{
    cell::RefCell,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::task::futures::TaskLocalFuture;

use crate::{decision::Decision, error::RateLimitError};

type Answer = Result<Decision, RateLimitError>;

tokio::task_local! {
    static ANSWERS: RefCell<Answers>;
}

/// What an observer is told.
struct Answers {
    list: Vec<Answer>,
    /// Of several answers of one policy, only the last.
    only_latest: bool,
}

/// Runs `future`, and tells with its output what the limits of the annotated functions in it
/// answered, in that order.
///
/// An annotated function returns its own type; this is how the code around it learns how much is
/// left. Tasks that the future spawns are not covered. An observer around this one is told the same
/// answers.
///
/// All answers are kept until the future is ready: of one that serves a stream for hours, observe
/// the parts that handle a message each.
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
    Observe::new(future, false)
}

/// As [`observe`], but of each policy only the last answer that is about a quota and the last that is
/// not, in the place of the first: no more than there are policies, however often a client has them
/// asked. Inside an observer of all answers, all.
#[cfg(any(feature = "tower", feature = "actix"))]
pub(crate) fn observe_latest<F: Future>(
    future: F,
) -> impl Future<Output = (F::Output, Vec<Result<Decision, RateLimitError>>)> {
    let all_are_wanted = ANSWERS.try_with(|answers| !answers.borrow().only_latest);
    Observe::new(future, !all_are_wanted.unwrap_or(false))
}

pin_project! {
    /// Written out, because an `async` block would hold the future twice.
    struct Observe<F> {
        #[pin]
        future: TaskLocalFuture<RefCell<Answers>, F>,
    }
}

impl<F: Future> Observe<F> {
    fn new(future: F, only_latest: bool) -> Self {
        let answers = Answers { list: Vec::new(), only_latest };
        Self { future: ANSWERS.scope(RefCell::new(answers), future) }
    }
}

impl<F: Future> Future for Observe<F> {
    type Output = (F::Output, Vec<Answer>);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut future = self.project().future;
        let output = ready!(future.as_mut().poll(context));
        let answers = future.take_value().map(|answers| answers.into_inner().list);
        let answers = answers.unwrap_or_default();
        for answer in &answers {
            record(|| answer.clone());
        }
        Poll::Ready((output, answers))
    }
}

impl Answers {
    fn add(&mut self, answer: Answer) {
        let known = |it: &&mut Answer| self.only_latest && subject(it) == subject(&answer);
        match self.list.iter_mut().find(known) {
            Some(known) => *known = answer,
            None => self.list.push(answer),
        }
    }
}

/// The policy that an answer is of, and whether it is about a quota.
fn subject(answer: &Answer) -> (&'static str, bool) {
    match answer {
        Ok(decision) => (decision.policy(), true),
        Err(RateLimitError::Exceeded(error)) => (error.policy(), true),
        Err(RateLimitError::TooLarge(error)) => (error.policy(), false),
        Err(RateLimitError::Unavailable(error)) => (error.policy(), false),
        Err(RateLimitError::InvalidPolicy(error)) => (error.policy(), false),
    }
}

/// Whether there is an observer.
pub(crate) fn is_observed() -> bool {
    ANSWERS.try_with(|_| ()).is_ok()
}

/// Tells an observer, if there is one, the answer.
pub(crate) fn record(answer: impl FnOnce() -> Result<Decision, RateLimitError>) {
    // Without an observer there is nothing to record.
    let _ = ANSWERS.try_with(|answers| answers.borrow_mut().add(answer()));
}

#[cfg(all(test, any(feature = "tower", feature = "actix")))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Limiter, Policy, error::UnavailableReason};

    const A: Policy = Policy::sliding_window("a", Duration::from_secs(60), 3);
    const B: Policy = Policy::sliding_window("b", Duration::from_secs(60), 10);

    /// Messages of a stream, each of which asks both limits; the third limit's store is away.
    async fn messages(count: usize) {
        let limiter = Limiter::in_memory();
        let lost = crate::error::Unavailable::new("c", UnavailableReason::Disconnected);
        for _ in 0..count {
            for policy in [&A, &B] {
                let answer = limiter.check(policy, "alice").await;
                record(|| answer);
            }
            record(|| Err(lost.clone().into()));
        }
    }

    fn policies(answers: &[Answer]) -> Vec<&'static str> {
        answers.iter().map(|answer| subject(answer).0).collect()
    }

    #[tokio::test]
    async fn of_many_answers_the_latest_of_each_policy_are_kept_in_the_order_of_the_first() {
        let ((), answers) = observe_latest(messages(1_000)).await;
        assert_eq!(policies(&answers), ["a", "b", "c"]);
        assert!(answers.iter().all(Result::is_err));
        let ((), answers) = observe_latest(messages(4)).await;
        assert!(answers[0].is_err());
        assert_eq!(answers[1].as_ref().unwrap().remaining(), 6);
    }

    #[tokio::test]
    async fn an_answer_without_a_quota_takes_no_quota_from_the_list() {
        let quota = Limiter::in_memory().check(&A, "alice").await;
        let lost =
            || Err(crate::error::Unavailable::new("a", UnavailableReason::Disconnected).into());
        let work = async {
            record(lost);
            record(|| quota.clone());
            record(lost);
        };
        let ((), answers) = observe_latest(work).await;
        assert_eq!(answers.len(), 2);
        assert_eq!(answers[1].as_ref().unwrap().remaining(), 2);
    }

    #[tokio::test]
    async fn an_observer_of_all_answers_is_told_all_through_one_of_the_latest() {
        let (((), inner), outer) = observe(async { observe_latest(messages(5)).await }).await;
        assert_eq!((inner.len(), outer.len()), (15, 15));
        let (((), inner), outer) = observe_latest(observe(messages(5))).await;
        assert_eq!((inner.len(), outer.len()), (15, 3));
        assert_eq!(policies(&outer), ["a", "b", "c"]);
    }
}
