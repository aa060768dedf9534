//! One command to a server, and the record of its result in the server's breaker.

use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;

use super::{
    breaker::BreakerGuard,
    node::{Lane, Node},
};
use crate::{
    background,
    error::UnavailableReason,
    redis::transport::{Command, Failure, PendingReply},
};

/// How a command is sent.
#[derive(Clone, Copy)]
pub(crate) struct SendOptions<'a> {
    /// `true` if a second execution changes nothing.
    pub(crate) is_idempotent: bool,
    /// `true` if a reply of any kind proves that the server answers, and not that it decides calls.
    pub(crate) is_of_hash: bool,
    pub(crate) lane: Lane,
    /// The time until which a sent command is awaited beyond its deadline. Sent again, it could
    /// count twice.
    pub(crate) patience: Option<Instant>,
    /// Receives the reply to a sent command of which the deadline has passed, and the time of the
    /// patience, or for which another connection has been tried in vain meanwhile.
    pub(crate) on_late: Option<&'a (dyn Fn(PendingReply) + Sync)>,
}

/// The options of a short idempotent command.
pub(crate) const IDEMPOTENT: SendOptions<'static> = SendOptions {
    is_idempotent: true,
    is_of_hash: false,
    lane: Lane::Main,
    patience: None,
    on_late: None,
};

/// A failure that is not recorded yet: its record depends on what follows.
pub(super) struct Unrecorded {
    pub(crate) failure: Failure,
    /// None if the breaker knows that the reply is late.
    guard: Option<BreakerGuard>,
}

/// Sends a command, and waits for its reply until the deadline. Once the command is sent, its
/// result is always recorded. If the future is dropped, a task awaits the reply in its place.
///
/// # Errors
///
/// The reason of the last failure while the server's breaker is open. Then `command` is not called.
pub(crate) async fn send(
    node: &Node,
    command: impl FnOnce() -> Command,
    asking: bool,
    options: SendOptions<'_>,
    deadline: Instant,
) -> Result<Result<Value, Unrecorded>, UnavailableReason> {
    let guard = node.breaker.guard(options.is_of_hash)?;
    let reply = node.start(command(), asking, options.lane);
    let mut awaited = Awaited { node, deadline, parts: Some((reply, guard)) };
    Ok(awaited.wait(options).await)
}

/// A command whose caller awaits its reply.
struct Awaited<'a> {
    node: &'a Node,
    deadline: Instant,
    /// None once it has completed.
    parts: Option<(PendingReply, BreakerGuard)>,
}

impl Awaited<'_> {
    async fn wait(&mut self, options: SendOptions<'_>) -> Result<Value, Unrecorded> {
        let (reply, _) = self.parts.as_mut().expect("a command is awaited once");
        let answer = reply.wait(self.deadline).await;
        let (mut reply, guard) = self.parts.take().expect("a command is awaited once");
        match answer {
            Ok(answer) => {
                guard.succeeded();
                Ok(answer)
            }
            Err(failure) if failure.is_late() && reply.is_sent() => {
                let Some(until) = options.patience else {
                    if let Some(receive) = options.on_late {
                        receive(reply);
                    }
                    return Err(Unrecorded { failure, guard: Some(guard) });
                };
                // Before the long wait, so that the breaker learns of a late server in time.
                guard.failed(failure.reason());
                // Rare, and therefore on the heap: the future of a call stays small.
                let answer = Box::pin(reply.wait_on(until)).await;
                if let (Err(failure), Some(receive)) = (&answer, options.on_late)
                    && failure.is_late()
                {
                    receive(reply);
                }
                answer.map_err(|failure| Unrecorded { failure, guard: None })
            }
            Err(failure) => Err(Unrecorded { failure, guard: Some(guard) }),
        }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        // A command that is not sent yet need not be, and a few replies reveal as much as all.
        if let Some((mut reply, guard)) = self.parts.take()
            && reply.is_sent()
            && let Ok(permit) = Arc::clone(&self.node.abandoned).try_acquire_owned()
        {
            let deadline = self.deadline;
            background::spawn(async move {
                match reply.wait(deadline).await {
                    Ok(_) => guard.succeeded(),
                    Err(failure) => Unrecorded { failure, guard: Some(guard) }.record(),
                }
                drop(permit);
            });
        }
    }
}

impl Unrecorded {
    /// Records the failure of a command after which the call continues, or whose caller has gone. A
    /// redirect is a reply of a healthy server, and so is one while a slot moves. An unknown script
    /// counts for nothing: the server may refuse its text.
    pub(crate) fn record(self) {
        match self.failure {
            Failure::UnknownScript => drop(self.guard),
            Failure::Moved(_) | Failure::Ask(_) | Failure::TryAgain => {
                self.guard.into_iter().for_each(BreakerGuard::succeeded);
            }
            _ => {
                self.record_final();
            }
        }
    }

    /// Records the failure that ends the call, and returns it.
    pub(super) fn record_final(self) -> Failure {
        if let Some(guard) = self.guard {
            match self.failure.reason() {
                // A key of another type is no failure of the server.
                UnavailableReason::WrongType => guard.succeeded(),
                reason => guard.failed(reason),
            }
        }
        self.failure
    }
}
