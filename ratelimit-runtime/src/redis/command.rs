//! One command under way to a server, and what its answer means for the server's breaker.

use std::{
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use redis::{Cmd, Value};
use tokio::{runtime::Handle, time::Instant};

use super::{
    breaker::Trial,
    failure::Failure,
    node::{Lane, Node},
};
use crate::error::UnavailableReason;

/// A command under way. Once it is sent its answer counts, whoever waits for it: when the caller gives
/// up, a task waits in its place, until the deadline at most.
pub(super) struct Sending {
    node: Arc<Node>,
    is_sent: Arc<AtomicBool>,
    state: State,
}

enum State {
    UnderWay(Answer),
    Answered,
}

type Answer = Pin<Box<dyn Future<Output = Result<Value, Failed>> + Send>>;

/// A failure, which is yet to be recorded.
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) trial: Trial,
}

impl Sending {
    /// Sends the command as soon as it is awaited. While the server's breaker is open the error is
    /// the reason, and no command is made.
    pub(super) fn new(
        node: &Arc<Node>,
        command: impl FnOnce() -> Cmd,
        asking: bool,
        lane: Lane,
        deadline: Instant,
    ) -> Result<Self, UnavailableReason> {
        let trial = node.breaker().trial()?;
        let (to, command) = (Arc::clone(node), command());
        let is_sent = Arc::new(AtomicBool::new(false));
        let sent = Arc::clone(&is_sent);
        let answer = Box::pin(async move {
            match to.send(&command, asking, lane, deadline, &sent).await {
                Ok(reply) => {
                    trial.succeeded();
                    Ok(reply)
                }
                Err(failure) => Err(Failed { failure, trial }),
            }
        });
        Ok(Self { node: Arc::clone(node), is_sent, state: State::UnderWay(answer) })
    }
}

impl Future for Sending {
    type Output = Result<Value, Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let State::UnderWay(answer) = &mut self.state else {
            unreachable!("a sending is awaited once");
        };
        let answer = answer.as_mut().poll(context);
        if answer.is_ready() {
            self.state = State::Answered;
        }
        answer
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let State::UnderWay(answer) = mem::replace(&mut self.state, State::Answered) else {
            return;
        };
        // One that is not sent yet need not be; and some tell as much of the server as all of them.
        if self.is_sent.load(Ordering::Relaxed)
            && let Ok(room) = Arc::clone(self.node.given_up()).try_acquire_owned()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                if let Err(failed) = answer.await {
                    failed.record();
                }
                drop(room);
            });
        }
    }
}

impl Failed {
    /// Records it where the call goes on: an answer counts as one.
    pub(super) fn record(self) {
        match self.failure {
            Failure::UnknownScript | Failure::Moved(_) | Failure::Ask(_) => self.trial.succeeded(),
            _ => {
                self.recorded();
            }
        }
    }

    /// Records it where the call ends with it.
    pub(super) fn recorded(self) -> Failure {
        match self.failure.reason() {
            // A key of another type, or of such a size, is not the server's failing.
            UnavailableReason::WrongType | UnavailableReason::OverridesTooLarge => {
                self.trial.succeeded();
            }
            reason => self.trial.failed(reason),
        }
        self.failure
    }
}
