//! One command under way to a server, and the record of its result in the server's breaker.

use std::{
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
    breaker::BreakerGuard,
    failure::Failure,
    node::{Lane, Node},
};
use crate::error::UnavailableReason;

/// The future of a command's reply. Once the command is sent, its result is always recorded. If the
/// future is dropped, a task awaits the reply in its place until the deadline.
pub(super) struct CommandFuture {
    node: Arc<Node>,
    is_sent: Arc<AtomicBool>,
    /// None once it has completed.
    reply: Option<Reply>,
}

type Reply = Pin<Box<dyn Future<Output = Result<Value, Unrecorded>> + Send>>;

/// A failure that is not recorded yet: its record depends on what follows.
pub(super) struct Unrecorded {
    pub(super) failure: Failure,
    guard: BreakerGuard,
}

impl CommandFuture {
    /// Prepares a command, which is sent when the future is first polled.
    ///
    /// # Errors
    ///
    /// The reason of the last failure while the server's breaker is open. Then `command` is not
    /// called.
    pub(super) fn new(
        node: &Arc<Node>,
        command: impl FnOnce() -> Cmd,
        asking: bool,
        lane: Lane,
        deadline: Instant,
    ) -> Result<Self, UnavailableReason> {
        let guard = node.breaker().guard()?;
        let (to, command) = (Arc::clone(node), command());
        let is_sent = Arc::new(AtomicBool::new(false));
        let sent = Arc::clone(&is_sent);
        let reply = Box::pin(async move {
            match to.send(command, asking, lane, deadline, &sent).await {
                Ok(reply) => {
                    guard.succeeded();
                    Ok(reply)
                }
                Err(failure) => Err(Unrecorded { failure, guard }),
            }
        });
        Ok(Self { node: Arc::clone(node), is_sent, reply: Some(reply) })
    }
}

impl Future for CommandFuture {
    type Output = Result<Value, Unrecorded>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = self.reply.as_mut().expect("a completed future is not polled again");
        let reply = reply.as_mut().poll(context);
        if reply.is_ready() {
            self.reply = None;
        }
        reply
    }
}

impl Drop for CommandFuture {
    fn drop(&mut self) {
        // A command that is not sent yet need not be, and a few replies reveal as much as all.
        if let Some(reply) = self.reply.take()
            && self.is_sent.load(Ordering::Relaxed)
            && let Ok(permit) = Arc::clone(self.node.abandoned()).try_acquire_owned()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                if let Err(failed) = reply.await {
                    failed.record();
                }
                drop(permit);
            });
        }
    }
}

impl Unrecorded {
    /// Records the failure of a command after which the call continues, or whose caller has gone. A
    /// redirect and an unknown script are replies of a healthy server.
    pub(super) fn record(self) {
        match self.failure {
            Failure::UnknownScript | Failure::Moved(_) | Failure::Ask(_) => self.guard.succeeded(),
            _ => {
                self.record_final();
            }
        }
    }

    /// Records the failure that ends the call, and returns it.
    pub(super) fn record_final(self) -> Failure {
        match self.failure.reason() {
            // A key of another type, or a hash of such a size, is no failure of the server.
            UnavailableReason::WrongType | UnavailableReason::OverridesTooLarge => {
                self.guard.succeeded();
            }
            reason => self.guard.failed(reason),
        }
        self.failure
    }
}
