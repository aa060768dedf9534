//! The future of a check.

use std::{
    fmt,
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
        CheckFuture { stage: Stage::New(self), is_ready: false }
    }
}

/// The future of a [`Check`], which is decided at the first poll; in memory nothing is boxed.
///
/// It panics if it is polled after it was ready.
#[must_use = "a check does nothing until it is awaited"]
pub struct CheckFuture<'a> {
    stage: Stage<'a>,
    /// Beside the stage, so that the answer of a new check is moved once.
    is_ready: bool,
}

enum Stage<'a> {
    New(Check<'a>),
    Pending(Pin<Box<dyn Future<Output = Answer<Decision>> + Send>>),
}

impl Future for CheckFuture<'_> {
    type Output = Result<Decision, RateLimitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        assert!(!this.is_ready, "a check was polled after it was ready");
        if let Stage::New(check) = &this.stage {
            this.is_ready = true;
            match check.as_call().start_as() {
                Poll::Pending => {}
                ready @ Poll::Ready(_) => return ready,
            }
            match check.as_call().start_any() {
                Started::Ready(answer) => return Poll::Ready(answer),
                Started::Pending(future) => this.stage = Stage::Pending(future),
            }
        }
        let Stage::Pending(future) = &mut this.stage else { unreachable!("it was started") };
        let polled = future.as_mut().poll(context);
        this.is_ready = polled.is_ready();
        polled
    }
}

impl fmt::Debug for CheckFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckFuture").finish_non_exhaustive()
    }
}
