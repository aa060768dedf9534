//! Commands over a connection that the limiter manages.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use redis::{Cmd, Value};

use super::{batch::Unanswered, connection::Connection, failure::Failure};
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

    /// Sends a command and waits for its reply. Sets `is_sent` once it is sent over a connection. With
    /// `asking`, `ASKING` precedes it.
    pub(super) async fn send(
        &self,
        mut command: Cmd,
        asking: bool,
        is_sent: &Arc<AtomicBool>,
    ) -> Result<Value, Failure> {
        loop {
            is_sent.store(false, Ordering::Relaxed);
            let handle = self.connection.get().await?;
            let reply = handle.send(command, asking, is_sent).await;
            self.timeouts.store(0, Ordering::Relaxed);
            let (error, unwritten) = match reply.map(Value::extract_error) {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(error)) => (error, None),
                Err(Unanswered { error, unwritten }) => (error, unwritten),
            };
            let failure = Failure::logged(&error);
            if failure.needs_reconnect() || error.is_unrecoverable_error() {
                self.connection.reconnect(&handle);
            }
            if handle.exceeded_limit() {
                return Err(UnavailableReason::OverridesTooLarge.into());
            }
            // Not written: the connection had ended before, and the command goes over the next one.
            match (&failure, unwritten) {
                (Failure::ConnectionLost, Some(unwritten)) => command = unwritten,
                _ => return Err(failure),
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
