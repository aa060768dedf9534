//! The future of a check.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll},
};

use super::{check::Check, pipeline::Started};
use crate::{
    decision::{Answer, Decision},
    error::RateLimitError,
};

impl<'a> IntoFuture for Check<'a> {
    type Output = Result<Decision, RateLimitError>;
    type IntoFuture = CheckFuture<'a>;

    fn into_future(self) -> CheckFuture<'a> {
        CheckFuture(Stage::New(self))
    }
}

/// The future of a [`Check`], which is decided at the first poll; in memory nothing is boxed.
///
/// It panics if it is polled after it was ready.
#[must_use = "a check does nothing until it is awaited"]
pub struct CheckFuture<'a>(Stage<'a>);

#[expect(clippy::large_enum_variant, reason = "in memory the check is never boxed")]
enum Stage<'a> {
    New(Check<'a>),
    Pending(Pin<Box<dyn Future<Output = Answer<Decision>> + Send>>),
    Done,
}

impl Future for CheckFuture<'_> {
    type Output = Result<Decision, RateLimitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut self.get_mut().0;
        let mut future = match mem::replace(state, Stage::Done) {
            Stage::New(check) => match check.start() {
                Started::Ready(answer) => return Poll::Ready(answer),
                Started::Pending(future) => future,
            },
            Stage::Pending(future) => future,
            Stage::Done => panic!("a check was polled after it was ready"),
        };
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            *state = Stage::Pending(future);
        }
        polled
    }
}

impl fmt::Debug for CheckFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckFuture").finish_non_exhaustive()
    }
}
