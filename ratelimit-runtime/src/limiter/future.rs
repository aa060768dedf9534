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

    #[inline]
    fn into_future(self) -> CheckFuture<'a> {
        CheckFuture { check: self, stage: Stage::New }
    }
}

/// The future of a [`Check`], which is decided at the first poll; in memory nothing is boxed.
///
/// It panics if it is polled after it was ready.
#[must_use = "a check does nothing until it is awaited"]
pub struct CheckFuture<'a> {
    check: Check<'a>,
    stage: Stage,
}

/// The stage of a check.
enum Stage {
    New,
    Pending(Pin<Box<dyn Future<Output = Answer<Decision>> + Send>>),
    Ready,
}

impl Stage {
    /// Polls a check that has started.
    fn poll(
        &mut self,
        started: Started<Answer<Decision>>,
        context: &mut Context<'_>,
    ) -> Poll<Answer<Decision>> {
        let mut future = match started {
            Started::Ready(answer) => return Poll::Ready(answer),
            Started::Pending(future) => future,
        };
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            *self = Self::Pending(future);
        }
        polled
    }
}

impl Future for CheckFuture<'_> {
    type Output = Result<Decision, RateLimitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { check, stage } = self.get_mut();
        match mem::replace(stage, Stage::Ready) {
            Stage::New => {
                let call = check.as_call();
                call.start_as(Poll::Ready, |is_straight| {
                    stage.poll(call.start_further(is_straight), context)
                })
            }
            Stage::Pending(future) => stage.poll(Started::Pending(future), context),
            Stage::Ready => panic!("a check was polled after it was ready"),
        }
    }
}

impl fmt::Debug for CheckFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckFuture").finish_non_exhaustive()
    }
}
