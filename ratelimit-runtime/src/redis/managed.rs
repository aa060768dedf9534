//! Commands over a connection that the limiter manages.
//!
//! A part of our own [transport](super::connection#transport), which has the reason.

use std::sync::Arc;

use redis::Value;

use super::{
    connection::Connection, echo::Command, exchange::Exchange, failure::Failure, handle::Handle,
};

/// The caller's part of a command. Dropped before the command is written, it is not sent.
pub(super) struct PendingCommand {
    to: Arc<Connection>,
    exchange: Arc<Exchange>,
    /// The connection of the command, which lasts as long as its callers.
    handle: Option<Arc<Handle>>,
}

impl PendingCommand {
    /// With `asking`, the command is for a slot that its node imports.
    pub(super) fn new(to: &Arc<Connection>, command: Command, asking: bool) -> Self {
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
                let handle = self.handle.insert(self.to.get().await?);
                handle.send(&self.exchange);
                handle
            };
            let error = match self.exchange.reply().await {
                Some(Ok(reply)) => {
                    handle.on_reply();
                    return Ok(reply);
                }
                Some(Err(error)) => error,
                // The connection had ended before, and the command goes over the next one.
                None => {
                    handle.avoid();
                    self.handle = None;
                    continue;
                }
            };
            let failure = Failure::logged(&error);
            if failure.needs_reconnect() || error.is_unrecoverable_error() {
                handle.retire();
            } else {
                handle.on_reply();
            }
            return Err(failure);
        }
    }

    /// Returns `true` if another connection has taken the place of the command's own, or could not.
    pub(super) fn is_replaced(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| self.to.has_replaced(handle))
    }

    /// Records that the command got no reply in time.
    pub(super) fn on_timeout(&self) {
        if let Some(handle) = &self.handle {
            handle.on_timeout();
        }
    }
}

impl Drop for PendingCommand {
    fn drop(&mut self) {
        self.exchange.abandon();
    }
}
