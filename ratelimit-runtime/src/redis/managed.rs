//! Commands over a connection that the limiter manages.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use redis::Value;

use super::{
    connection::{Connection, Handle},
    echo::Command,
    exchange::{Exchange, Reply},
    failure::Failure,
};

/// Consecutive timeouts after which the connection is replaced: nothing else reveals a peer that
/// vanished without closing it.
const MAX_TIMEOUTS: u32 = 3;

pub(super) struct ManagedConnection {
    connection: Connection,
    /// Consecutive commands without a reply in time.
    timeouts: AtomicU32,
}

impl ManagedConnection {
    pub(super) fn new(connection: Connection) -> Arc<Self> {
        Arc::new(Self { connection, timeouts: AtomicU32::new(0) })
    }

    /// Waits for the end of an attempt to connect.
    #[cfg(feature = "overrides")]
    pub(super) async fn settled(&self) {
        let _ = self.connection.get().await;
    }

    /// Returns the number of the current connection, if there is one.
    #[cfg(feature = "overrides")]
    pub(super) fn number(&self) -> Option<u64> {
        self.connection.number()
    }

    /// Returns `true` if the last attempt to connect failed.
    pub(super) fn is_down(&self) -> bool {
        self.connection.is_down()
    }
}

/// The caller's part of a command. Dropped before the command is written, it is not sent.
pub(super) struct PendingCommand {
    to: Arc<ManagedConnection>,
    exchange: Arc<Exchange>,
    /// The connection of the command, which lasts as long as its callers.
    handle: Option<Arc<Handle>>,
}

impl PendingCommand {
    /// With `asking`, the command is for a slot that its node imports.
    pub(super) fn new(to: &Arc<ManagedConnection>, command: Command, asking: bool) -> Self {
        Self { to: Arc::clone(to), exchange: Exchange::new(command, asking), handle: None }
    }

    /// Returns `true` if the command was written.
    pub(super) fn is_sent(&self) -> bool {
        self.exchange.is_sent()
    }

    /// Sends a command, unless that has been done, and waits for its reply.
    pub(super) async fn reply(&mut self) -> Result<Value, Failure> {
        loop {
            let handle = if let Some(handle) = &self.handle {
                handle
            } else {
                let handle = self.handle.insert(self.to.connection.get().await?);
                handle.send(&self.exchange);
                handle
            };
            let reply = poll_fn(|context| self.exchange.poll_reply(context)).await;
            self.to.timeouts.store(0, Ordering::Relaxed);
            let error = match reply {
                Reply::Received(Ok(reply)) => return Ok(reply),
                Reply::Received(Err(error)) => error,
                // The connection had ended before, and the command goes over the next one.
                Reply::Unsent => {
                    self.to.connection.reconnect(handle);
                    self.handle = None;
                    continue;
                }
            };
            let failure = Failure::logged(&error);
            if failure.needs_reconnect() || error.is_unrecoverable_error() {
                self.to.connection.reconnect(handle);
            }
            return Err(failure);
        }
    }

    /// Returns `true` if another connection has taken the place of the command's own, or could not.
    pub(super) fn is_replaced(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| self.to.connection.has_replaced(handle))
    }

    /// Records that the command got no reply in time.
    pub(super) fn on_timeout(&self) {
        let ManagedConnection { connection, timeouts } = &*self.to;
        if self.is_replaced() {
            return;
        }
        if timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_TIMEOUTS {
            timeouts.store(0, Ordering::Relaxed);
            connection.reconnect_current();
        }
    }
}

impl Drop for PendingCommand {
    fn drop(&mut self) {
        self.exchange.abandon();
    }
}
