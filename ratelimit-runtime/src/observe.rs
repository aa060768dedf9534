//! The observer of a future: the answers of all checks inside it.
//!
//! Floor 4: the limiter and `web` import it.
#![cfg_attr(
    not(any(feature = "tower", feature = "actix")),
    allow(dead_code, reason = "for layers")
)]

use std::{
    cell::RefCell,
    marker::PhantomData,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::task::futures::TaskLocalFuture;

use crate::{
    caller::Caller,
    decision::{Answer, Decision, Permit},
    error::RateLimitError,
};

tokio::task_local! {
    static ANSWERS: RefCell<Answers>;
}

/// `true` once a future has been observed: most calls of a process without layers read this alone.
static HAS_OBSERVERS: AtomicBool = AtomicBool::new(false);

/// The answers that an observer has received.
struct Answers {
    list: Vec<Observed>,
    /// The index of the latest answer.
    latest: usize,
    /// On the heap: in place it would enlarge every observed future.
    audience: Option<Box<Audience>>,
    /// `true` without an audience, and inside an observer without one: no answer replaces another.
    keeps_all: bool,
    /// The permits of annotated functions, if a layer makes a response of what is observed.
    permits: Option<Vec<Arc<dyn Permit>>>,
}

/// An answer as the pipeline records it.
#[derive(Clone)]
pub(crate) struct Observed {
    /// The caller whose quota the answer is about, if it is about a quota.
    pub(crate) caller: Option<Caller>,
    pub(crate) answer: Answer,
    /// `true` if the call passed although the answer is an error.
    pub(crate) is_dry_run: bool,
}

impl Observed {
    pub(crate) fn admitted(caller: Option<Caller>, decision: Decision) -> Self {
        Self { caller, answer: Ok(decision), is_dry_run: false }
    }
}

/// The result of an observation.
#[derive(Default)]
pub(crate) struct Observation {
    /// The answers that are for this observer.
    pub(crate) answers: Vec<Answer>,
    /// The error of the latest call, if that call was refused. It may be about any caller.
    pub(crate) refused: Option<RateLimitError>,
    /// The permits of the functions that have ended together with what was observed. The response
    /// has them.
    pub(crate) permits: Vec<Arc<dyn Permit>>,
}

impl From<Observation> for Vec<Answer> {
    fn from(observation: Observation) -> Self {
        observation.answers
    }
}

/// The reader to whom a layer shows answers.
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
/// All answers are kept until the future is ready. Around a stream that is served for hours,
/// observe the parts that handle one message each.
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
) -> impl Future<Output = (F::Output, Observation)> {
    Observe::new(future, Some(Box::new(audience)))
}

pin_project! {
    /// A type of its own: an `async` block would contain the future twice.
    struct Observe<F, T> {
        #[pin]
        future: TaskLocalFuture<RefCell<Answers>, Steps<F>>,
        result: PhantomData<fn() -> T>,
    }
}

pin_project! {
    /// A future that frees the permits of ended functions whenever it goes on to wait.
    struct Steps<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Steps<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let polled = self.project().future.poll(context);
        if polled.is_pending() {
            free_ended();
        }
        polled
    }
}

impl<F: Future, T> Observe<F, T> {
    fn new(future: F, audience: Option<Box<Audience>>) -> Self {
        HAS_OBSERVERS.store(true, Ordering::Relaxed);
        let outer_keeps_all = || ANSWERS.try_with(|outer| outer.borrow().keeps_all);
        let keeps_all = audience.is_none() || outer_keeps_all().unwrap_or(false);
        let outer_has_response = || ANSWERS.try_with(|outer| outer.borrow().permits.is_some());
        let has_response = audience.is_some() || outer_has_response().unwrap_or(false);
        let permits = has_response.then(Vec::new);
        let answers = Answers { list: Vec::new(), latest: 0, audience, keeps_all, permits };
        let future = ANSWERS.scope(RefCell::new(answers), Steps { future });
        Self { future, result: PhantomData }
    }
}

impl<F: Future, T: From<Observation>> Future for Observe<F, T> {
    type Output = (F::Output, T);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut future = self.project().future;
        let output = ready!(future.as_mut().poll(context));
        let observation = future.take_value().map(|answers| answers.into_inner().end());
        Poll::Ready((output, observation.unwrap_or_default().into()))
    }
}

impl Answers {
    /// Adds an answer, and returns its index. For an audience, a later answer of one subject
    /// replaces the earlier one.
    fn add(&mut self, observed: Observed) -> usize {
        let is_known = |audience: &Audience, it: &Observed| {
            subject(&it.answer) == subject(&observed.answer)
                && audience.reads(it) == audience.reads(&observed)
        };
        let known = match &self.audience {
            Some(audience) if !self.keeps_all => {
                self.list.iter().position(|it| is_known(audience, it))
            }
            _ => None,
        };
        self.latest = known.unwrap_or(self.list.len());
        match known {
            Some(index) => self.list[index] = observed,
            None => self.list.push(observed),
        }
        self.latest
    }

    /// Adds the answers of an observer inside this one.
    fn add_all(&mut self, inner: &Self) {
        let mut latest = self.latest;
        for (index, it) in inner.list.iter().enumerate() {
            let place = self.add(it.clone());
            if index == inner.latest {
                latest = place;
            }
        }
        self.latest = latest;
    }

    /// Returns the result for this observer, and adds all answers to the observer around it.
    fn end(mut self) -> Observation {
        let mut permits = self.permits.take().unwrap_or_default();
        let _ = ANSWERS.try_with(|outer| {
            let mut outer = outer.borrow_mut();
            outer.add_all(&self);
            if self.audience.is_none() {
                outer.permits.iter_mut().for_each(|outer| outer.append(&mut permits));
            }
        });
        let Self { list, latest, audience, .. } = self;
        let latest = list.get(latest).filter(|it| !it.is_dry_run);
        let refused = latest.and_then(|it| it.answer.as_ref().err().cloned());
        let is_read = |it: &Observed| audience.as_ref().is_none_or(|audience| audience.reads(it));
        let answers = list.into_iter().filter(is_read).map(|it| it.answer).collect();
        Observation { answers, refused, permits }
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
        Err(error) => {
            let is_of_quota =
                matches!(error, RateLimitError::Exceeded(_) | RateLimitError::Busy(_));
            (error.policy(), is_of_quota)
        }
    }
}

/// Returns `true` if the current task is observed.
#[inline]
pub(crate) fn is_observed() -> bool {
    HAS_OBSERVERS.load(Ordering::Relaxed) && is_task_observed()
}

/// A cold function, so that a process without layers keeps its registers.
#[cold]
fn is_task_observed() -> bool {
    ANSWERS.try_with(|_| ()).is_ok()
}

/// Keeps the permit of an annotated function for the response that a layer makes of what is
/// observed.
pub(crate) fn keep_for_response(permit: &Arc<dyn Permit>) {
    let _ = ANSWERS.try_with(|answers| {
        if let Some(permits) = &mut answers.borrow_mut().permits {
            permits.push(Arc::clone(permit));
        }
    });
}

/// Frees the permits that nothing else has any more: their functions have ended, and the request
/// goes on.
pub(crate) fn free_ended() {
    let ended: Result<Vec<_>, _> = ANSWERS.try_with(|answers| {
        let mut answers = answers.borrow_mut();
        let permits = answers.permits.iter_mut();
        permits.flat_map(|it| it.extract_if(.., |it| Arc::strong_count(it) == 1)).collect()
    });
    drop(ended);
}

/// Records an answer for the observer of the current task.
pub(crate) fn record(observed: impl FnOnce() -> Observed) {
    let _ = ANSWERS.try_with(|answers| {
        let observed = observed();
        answers.borrow_mut().add(observed);
    });
}

#[cfg(all(test, any(feature = "tower", feature = "actix")))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Limiter, Policy, error::UnavailableReason};

    const A: Policy = Policy::sliding_window("a", Duration::from_secs(60), 3);
    const B: Policy = Policy::sliding_window("b", Duration::from_secs(60), 10);

    /// Messages of a stream, each of which calls both limits; the store of a third limit is
    /// unavailable.
    async fn messages(count: usize) {
        let limiter = Limiter::in_memory();
        let lost = crate::error::Unavailable::new("c", UnavailableReason::Disconnected);
        for _ in 0..count {
            for policy in [&A, &B] {
                let _ = limiter.check(policy, "alice").await;
            }
            record(|| Observed {
                caller: None,
                answer: Err(lost.clone().into()),
                is_dry_run: false,
            });
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
        let ((), Observation { answers, .. }) = observe_for(to("alice"), messages(1_000)).await;
        assert_eq!(policies(&answers), ["a", "b"]);
        assert!(answers.iter().all(Result::is_err));
        let ((), Observation { answers, .. }) = observe_for(to("alice"), messages(4)).await;
        assert!(answers[0].is_err());
        assert_eq!(answers[1].as_ref().unwrap().remaining(), 6);
    }

    #[tokio::test]
    async fn an_answer_about_another_caller_is_not_shown_and_replaces_none() {
        let limiter = Limiter::in_memory();
        let work = || async {
            let _ = limiter.check(&A, "alice").await;
            let _ = limiter.check(&A, "bob").cost(3).await;
        };
        let ((), Observation { answers, .. }) = observe_for(to("alice"), work()).await;
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].as_ref().unwrap().remaining(), 2);
        let ((), Observation { answers, .. }) = observe_for(to("carol"), work()).await;
        assert!(answers.is_empty());
        let all = Audience { explicit_keys: true, ..to("carol") };
        let ((), Observation { answers, .. }) = observe_for(all, work()).await;
        assert_eq!(policies(&answers), ["a"]);
        assert!(answers[0].is_err());
    }

    #[tokio::test]
    async fn an_observer_of_all_answers_gets_all_through_one_for_an_audience() {
        let (((), inner), outer) =
            observe(async { observe_for(to("alice"), messages(5)).await }).await;
        assert_eq!((inner.answers.len(), outer.len()), (10, 15));
        let (((), inner), outer) = observe_for(to("alice"), observe(messages(5))).await;
        assert_eq!((inner.len(), outer.answers.len()), (15, 2));
        assert_eq!(policies(&outer.answers), ["a", "b"]);
    }

    #[tokio::test]
    async fn a_future_is_refused_if_its_latest_call_is() {
        const NEVER: Policy = Policy::sliding_window("never", Duration::from_secs(60), 0);
        let limiter = Limiter::in_memory();
        let calls = async |policies: &[&Policy]| {
            for policy in policies {
                let _ = limiter.check(policy, "bob").await;
            }
        };
        for (policies, expected) in [
            (&[][..], None),
            (&[&B, &NEVER], Some("never")),
            (&[&NEVER, &B], None),
            (&[&NEVER, &B, &NEVER], Some("never")),
        ] {
            let ((), observed) = observe_for(to("alice"), calls(policies)).await;
            assert_eq!(observed.refused.map(|error| error.policy()), expected);
            let inner = async { observe_for(to("bob"), calls(policies)).await };
            let (_, outer) = observe_for(to("alice"), inner).await;
            assert_eq!(outer.refused.map(|error| error.policy()), expected);
        }
    }
}
