//! The observer of a future: the answers of all checks inside it.
//!
//! Floor 4: the limiter and `web` import it.

use std::{
    cell::RefCell,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::task::futures::TaskLocalFuture;

use crate::{
    caller::Caller,
    decision::{Answer, Decision},
    error::RateLimitError,
};

tokio::task_local! {
    static ANSWERS: RefCell<Answers>;
}

/// The answers that an observer has received.
struct Answers {
    list: Vec<Observed>,
    /// On the heap: in place it would enlarge every observed future.
    audience: Option<Box<Audience>>,
    /// `true` without an audience, and inside an observer without one: no answer replaces another.
    keeps_all: bool,
}

/// An answer, and the caller whose quota it is about, if it is about a quota.
#[derive(Clone)]
struct Observed {
    caller: Option<Caller>,
    answer: Answer,
}

/// The reader to whom a layer shows answers.
#[cfg_attr(not(any(feature = "tower", feature = "actix")), allow(dead_code, reason = "for layers"))]
pub(crate) struct Audience {
    /// The caller of the request.
    pub(crate) caller: Caller,
    /// `true` if answers about other callers are shown as well.
    pub(crate) explicit_keys: bool,
}

/// Runs `future` and returns, with its output, the answers of all checks inside it, in their order.
///
/// It makes the remaining quota available around annotated functions, which return only their own
/// type. Checks by hand are observed as well; tasks that the future spawns are not. An observer
/// around this one receives the same answers.
///
/// All answers are kept until the future is ready. Around a stream that is served for hours, observe
/// the parts that handle one message each.
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
    Observe::new(future, None)
}

/// Does the same for an audience: it returns only the answers about the audience's caller. Of each
/// policy it returns only the latest, in the position of the first. So their number is bounded by
/// that of the policies, however many calls a client causes. Inside an observer of all answers, all
/// are kept.
#[cfg(any(feature = "tower", feature = "actix"))]
pub(crate) fn observe_for<F: Future>(
    audience: Audience,
    future: F,
) -> impl Future<Output = (F::Output, Vec<Result<Decision, RateLimitError>>)> {
    Observe::new(future, Some(Box::new(audience)))
}

pin_project! {
    /// A type of its own: an `async` block would contain the future twice.
    struct Observe<F> {
        #[pin]
        future: TaskLocalFuture<RefCell<Answers>, F>,
    }
}

impl<F: Future> Observe<F> {
    fn new(future: F, audience: Option<Box<Audience>>) -> Self {
        let outer_keeps_all = || ANSWERS.try_with(|outer| outer.borrow().keeps_all);
        let keeps_all = audience.is_none() || outer_keeps_all().unwrap_or(false);
        let answers = Answers { list: Vec::new(), audience, keeps_all };
        Self { future: ANSWERS.scope(RefCell::new(answers), future) }
    }
}

impl<F: Future> Future for Observe<F> {
    type Output = (F::Output, Vec<Answer>);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut future = self.project().future;
        let output = ready!(future.as_mut().poll(context));
        let answers =
            future.take_value().map_or_else(Vec::new, |answers| answers.into_inner().end());
        Poll::Ready((output, answers))
    }
}

impl Answers {
    /// Adds an answer. For an audience, a later answer of one subject replaces the earlier one.
    fn add(&mut self, observed: Observed) {
        let is_known = |audience: &Audience, it: &Observed| {
            subject(&it.answer) == subject(&observed.answer)
                && audience.reads(it) == audience.reads(&observed)
        };
        let known = match &self.audience {
            Some(audience) if !self.keeps_all => {
                self.list.iter_mut().find(|it| is_known(audience, it))
            }
            _ => None,
        };
        match known {
            Some(known) => *known = observed,
            None => self.list.push(observed),
        }
    }

    /// Returns the answers for this observer, and adds all of them to the observer around it.
    fn end(self) -> Vec<Answer> {
        let Self { list, audience, .. } = self;
        let _ = ANSWERS.try_with(|outer| {
            let mut outer = outer.borrow_mut();
            for it in &list {
                outer.add(it.clone());
            }
        });
        let is_read = |it: &Observed| audience.as_ref().is_none_or(|audience| audience.reads(it));
        list.into_iter().filter(is_read).map(|it| it.answer).collect()
    }
}

impl Audience {
    fn reads(&self, observed: &Observed) -> bool {
        let Some(caller) = &observed.caller else { return false };
        self.explicit_keys || *caller == self.caller
    }
}

/// Returns the policy of an answer, and `true` if the answer is about a quota.
fn subject(answer: &Answer) -> (&'static str, bool) {
    match answer {
        Ok(decision) => (decision.policy(), true),
        Err(RateLimitError::Exceeded(error)) => (error.policy(), true),
        Err(RateLimitError::Busy(error)) => (error.policy(), true),
        Err(RateLimitError::TooLarge(error)) => (error.policy(), false),
        Err(RateLimitError::Unavailable(error)) => (error.policy(), false),
        Err(RateLimitError::InvalidPolicy(error)) => (error.policy(), false),
    }
}

/// Returns `true` if the current task is observed.
pub(crate) fn is_observed() -> bool {
    ANSWERS.try_with(|_| ()).is_ok()
}

/// Records an answer, and the caller whose quota it is about, for the observer of the current task.
pub(crate) fn record(observed: impl FnOnce() -> (Option<Caller>, Answer)) {
    let _ = ANSWERS.try_with(|answers| {
        let (caller, answer) = observed();
        answers.borrow_mut().add(Observed { caller, answer });
    });
}

#[cfg(all(test, any(feature = "tower", feature = "actix")))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Limiter, Policy, error::UnavailableReason};

    const A: Policy = Policy::sliding_window("a", Duration::from_secs(60), 3);
    const B: Policy = Policy::sliding_window("b", Duration::from_secs(60), 10);

    /// Messages of a stream, each of which calls both limits; the store of a third limit is unavailable.
    async fn messages(count: usize) {
        let limiter = Limiter::in_memory();
        let lost = crate::error::Unavailable::new("c", UnavailableReason::Disconnected);
        for _ in 0..count {
            for policy in [&A, &B] {
                let _ = limiter.check(policy, "alice").await;
            }
            record(|| (None, Err(lost.clone().into())));
        }
    }

    /// Shows answers to a request's caller.
    fn to(caller: &str) -> Audience {
        Audience { caller: caller.into(), explicit_keys: false }
    }

    fn policies(answers: &[Answer]) -> Vec<&'static str> {
        answers.iter().map(|answer| subject(answer).0).collect()
    }

    #[tokio::test]
    async fn of_many_answers_the_latest_of_each_policy_are_kept_in_the_order_of_the_first() {
        let ((), answers) = observe_for(to("alice"), messages(1_000)).await;
        assert_eq!(policies(&answers), ["a", "b"]);
        assert!(answers.iter().all(Result::is_err));
        let ((), answers) = observe_for(to("alice"), messages(4)).await;
        assert!(answers[0].is_err());
        assert_eq!(answers[1].as_ref().unwrap().remaining(), 6);
    }

    #[tokio::test]
    async fn an_answer_about_another_caller_is_not_shown_and_replaces_none() {
        let limiter = Limiter::in_memory();
        let work = || async {
            let _ = limiter.check(&A, "alice").await;
            let _ = limiter.check_n(&A, "bob", 3).await;
        };
        let ((), answers) = observe_for(to("alice"), work()).await;
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].as_ref().unwrap().remaining(), 2);
        let ((), answers) = observe_for(to("carol"), work()).await;
        assert!(answers.is_empty());
        let all = Audience { explicit_keys: true, ..to("carol") };
        let ((), answers) = observe_for(all, work()).await;
        assert_eq!(policies(&answers), ["a"]);
        assert!(answers[0].is_err());
    }

    #[tokio::test]
    async fn an_observer_of_all_answers_gets_all_through_one_for_an_audience() {
        let (((), inner), outer) =
            observe(async { observe_for(to("alice"), messages(5)).await }).await;
        assert_eq!((inner.len(), outer.len()), (10, 15));
        let (((), inner), outer) = observe_for(to("alice"), observe(messages(5))).await;
        assert_eq!((inner.len(), outer.len()), (15, 2));
        assert_eq!(policies(&outer), ["a", "b"]);
    }
}
