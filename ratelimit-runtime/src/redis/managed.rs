//! Commands over a connection that the limiter keeps.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use redis::{Cmd, Pipeline, RedisResult, Value};

use super::{
    connection::{Connection, Link},
    failure::Failure,
    node::explained,
};
use crate::error::UnavailableReason;

/// After so many calls without an answer the connection is replaced: a peer that vanished without
/// a word is noticed by nothing else.
const UNANSWERED: u32 = 3;

pub(super) struct Kept {
    connection: Connection,
    /// Calls in a row that got no answer in time.
    unanswered: AtomicU32,
}

impl Kept {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, unanswered: AtomicU32::new(0) }
    }

    /// Waits until a connection has been made, or could not be.
    #[cfg(feature = "overrides")]
    pub(super) async fn is_made(&self) {
        let _ = self.connection.get().await;
    }

    /// Whether the last attempt to connect failed.
    pub(super) fn is_down(&self) -> bool {
        self.connection.is_down()
    }

    /// Sends a command, which `is_sent` from then on that there is a connection, and waits for its
    /// reply.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        asking: bool,
        is_sent: &AtomicBool,
    ) -> Result<Value, Failure> {
        loop {
            is_sent.store(false, Ordering::Relaxed);
            let mut link = self.connection.get().await?;
            is_sent.store(true, Ordering::Relaxed);
            let writes = link.writes();
            let answer = if asking {
                Box::pin(ask(&mut link, command)).await
            } else {
                link.connection.send_packed_command(command).await
            };
            self.unanswered.store(0, Ordering::Relaxed);
            let error = match answer.and_then(Value::extract_error) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let failure = explained(&error);
            if failure.is_of_the_connection() || error.is_unrecoverable_error() {
                self.connection.replace(&link);
            }
            if link.is_cut() {
                return Err(UnavailableReason::OverridesTooLarge.into());
            }
            // A connection that had been closed before: the command is one for the next.
            let was_written = link.writes() > writes;
            if was_written || !matches!(failure, Failure::Lost) {
                return Err(failure);
            }
        }
    }

    /// A command got no answer in time.
    pub(super) fn missed(&self) {
        if self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= UNANSWERED {
            self.unanswered.store(0, Ordering::Relaxed);
            self.connection.replace_current();
        }
    }
}

/// Sends both commands as one: between them no other call's may come.
async fn ask(link: &mut Link, command: &Cmd) -> RedisResult<Value> {
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd("ASKING").ignore().add_command(command.clone());
    let mut replies = link.connection.send_packed_commands(&pipeline, 1, 1).await?;
    Ok(replies.pop().unwrap_or(Value::Nil))
}
