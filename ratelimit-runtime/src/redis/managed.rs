//! Commands over a connection that the limiter manages.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use redis::{Cmd, Pipeline, RedisResult, Value};

use super::{
    connection::{Connection, Handle},
    failure::Failure,
};
use crate::error::UnavailableReason;

/// Consecutive timeouts after which the connection is replaced: nothing else reveals a peer that
/// vanished without closing it.
const MAX_TIMEOUTS: u32 = 3;

pub(super) struct ManagedConnection {
    connection: Connection,
    /// Consecutive commands without a reply in time.
    timeouts: AtomicU32,
}

impl ManagedConnection {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, timeouts: AtomicU32::new(0) }
    }

    /// Waits for the end of an attempt to connect.
    #[cfg(feature = "overrides")]
    pub(super) async fn settled(&self) {
        let _ = self.connection.get().await;
    }

    /// Returns `true` if the last attempt to connect failed.
    pub(super) fn is_down(&self) -> bool {
        self.connection.is_down()
    }

    /// Sends a command and waits for its reply. Sets `is_sent` once there is a connection to send it
    /// over. With `asking`, `ASKING` precedes it.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        asking: bool,
        is_sent: &AtomicBool,
    ) -> Result<Value, Failure> {
        loop {
            is_sent.store(false, Ordering::Relaxed);
            let mut handle = self.connection.get().await?;
            is_sent.store(true, Ordering::Relaxed);
            let writes = handle.writes();
            let reply = if asking {
                Box::pin(send_asking(&mut handle, command)).await
            } else {
                handle.connection.send_packed_command(command).await
            };
            self.timeouts.store(0, Ordering::Relaxed);
            let error = match reply.and_then(Value::extract_error) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let failure = Failure::logged(&error);
            if failure.needs_reconnect() || error.is_unrecoverable_error() {
                self.connection.reconnect(&handle);
            }
            if handle.exceeded_limit() {
                return Err(UnavailableReason::OverridesTooLarge.into());
            }
            // Without a write the connection had ended before: the command goes over the next one.
            let was_written = handle.writes() > writes;
            if was_written || !matches!(failure, Failure::ConnectionLost) {
                return Err(failure);
            }
        }
    }

    /// Records that a command got no reply in time.
    pub(super) fn on_timeout(&self) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_TIMEOUTS {
            self.timeouts.store(0, Ordering::Relaxed);
            self.connection.reconnect_current();
        }
    }
}

/// Sends `ASKING` and the command in one write, so that no command of another call comes between
/// them.
async fn send_asking(handle: &mut Handle, command: &Cmd) -> RedisResult<Value> {
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd("ASKING").ignore().add_command(command.clone());
    let mut replies = handle.connection.send_packed_commands(&pipeline, 1, 1).await?;
    Ok(replies.pop().unwrap_or(Value::Nil))
}
