//! One command and its reply, shared by its caller and the task of a connection.

#[cfg(all(test, ratelimit_loom))]
mod schedules;

use std::{
    future::poll_fn,
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use redis::{Cmd, RedisResult, Value};

use super::{echo::Command, failure::broken};
use crate::sync::Mutex;

/// `ASKING`, which precedes a command for a slot that its node imports.
const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

pub(crate) struct Exchange {
    /// `ASKING` precedes the command.
    pub(super) asking: bool,
    /// The number by which the reply names the command.
    pub(super) echo: Option<u64>,
    state: Mutex<ExchangeState>,
}

enum ExchangeState {
    /// No connection has the command: it is new, or its connection ended before it was written.
    Unsent(Cmd),
    /// The command waits to be written.
    Queued {
        command: Cmd,
        caller: Option<Waker>,
    },
    /// The command was written, at least in part.
    Sent {
        caller: Option<Waker>,
    },
    Replied(RedisResult<Value>),
    /// Nobody awaits a reply.
    Abandoned,
}

/// The reply to a command, which may be an error, or the loss of the connection after the command
/// was written. None if the connection ended before that: the command may go over another one.
pub(super) type Reply = Option<RedisResult<Value>>;

impl Exchange {
    pub(super) fn new(command: impl Into<Command>, asking: bool) -> Arc<Self> {
        let Command { command, echo } = command.into();
        Arc::new(Self { asking, echo, state: Mutex::new(ExchangeState::Unsent(command)) })
    }

    /// Prepares an unsent command for the queue of a connection.
    pub(super) fn enqueue(&self) {
        let mut state = self.state.lock();
        if let ExchangeState::Unsent(command) = &mut *state {
            *state = ExchangeState::Queued { command: mem::take(command), caller: None };
        }
    }

    /// Writes a queued command, if its caller awaits it.
    pub(super) fn write(&self, output: &mut Vec<u8>) -> bool {
        let mut state = self.state.lock();
        let ExchangeState::Queued { command, caller } = &mut *state else { return false };
        // In one write, so that no command of another call comes between them.
        if self.asking {
            output.extend_from_slice(ASKING);
        }
        command.write_packed_command(output);
        *state = ExchangeState::Sent { caller: caller.take() };
        true
    }

    /// Gives a sent command its reply, a queued one back to its caller.
    pub(super) fn complete(&self, reply: RedisResult<Value>) {
        let mut state = self.state.lock();
        let caller = match &mut *state {
            ExchangeState::Sent { caller } => {
                let caller = caller.take();
                *state = ExchangeState::Replied(reply);
                caller
            }
            ExchangeState::Queued { command, caller } => {
                let caller = caller.take();
                *state = ExchangeState::Unsent(mem::take(command));
                caller
            }
            ExchangeState::Unsent(_) | ExchangeState::Replied(_) | ExchangeState::Abandoned => None,
        };
        // A waker is foreign code.
        drop(state);
        if let Some(caller) = caller {
            caller.wake();
        }
    }

    /// Waits for the reply of an enqueued command.
    pub(super) fn reply(&self) -> impl Future<Output = Reply> {
        poll_fn(|context| self.poll_reply(context))
    }

    /// Waits for the reply of an enqueued command that goes over no other connection.
    pub(super) async fn answer(&self) -> RedisResult<Value> {
        self.reply().await.unwrap_or_else(|| Err(broken()))
    }

    /// Returns the reply of an enqueued command once it is there.
    fn poll_reply(&self, context: &mut Context<'_>) -> Poll<Reply> {
        let mut state = self.state.lock();
        match &mut *state {
            ExchangeState::Queued { caller, .. } | ExchangeState::Sent { caller } => {
                if !caller.as_ref().is_some_and(|caller| caller.will_wake(context.waker())) {
                    *caller = Some(context.waker().clone());
                }
                Poll::Pending
            }
            ExchangeState::Unsent(_) => Poll::Ready(None),
            ExchangeState::Replied(reply) => {
                let reply = mem::replace(reply, Ok(Value::Nil));
                *state = ExchangeState::Abandoned;
                Poll::Ready(Some(reply))
            }
            ExchangeState::Abandoned => Poll::Pending,
        }
    }

    /// Returns `true` if the command was written.
    pub(super) fn is_sent(&self) -> bool {
        matches!(&*self.state.lock(), ExchangeState::Sent { .. } | ExchangeState::Replied(_))
    }

    /// Ends the caller's part. A command that is not written yet will not be.
    pub(super) fn abandon(&self) {
        // Dropped without the lock: a waker is foreign code.
        let state = mem::replace(&mut *self.state.lock(), ExchangeState::Abandoned);
        drop(state);
    }
}
