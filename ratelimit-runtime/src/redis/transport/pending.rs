//! Commands under way, and the waits for their replies. The replies of a managed connection are
//! matched with their commands in `multiplexer.rs`.

use std::{sync::Arc, time::Duration};

use redis::{RedisFuture, Value};
use tokio::time::{Instant, timeout_at};

use super::{
    connection::Connection,
    echo::{Command, is_named},
    exchange::Exchange,
    failure::Failure,
    managed::ManagedConnection,
};
use crate::error::UnavailableReason;

/// The time after which a late reply is lost, once another connection has replaced that of its
/// command.
const LATE: Duration = Duration::from_secs(1);

/// The reply to a command under way.
pub(crate) enum PendingReply {
    /// A command over a connection that the limiter manages. Dropped before it is written, it is
    /// not sent.
    Managed {
        to: Arc<ManagedConnection>,
        exchange: Arc<Exchange>,
        /// The connection of the command, which lasts as long as its callers.
        connection: Option<Arc<Connection>>,
    },
    /// A command over the program's own connection, and the number by which the reply names it.
    External { reply: RedisFuture<'static, Value>, echo: Option<u64> },
}

impl PendingReply {
    /// With `asking`, the command is for a slot that its node imports.
    pub(crate) fn managed(to: &Arc<ManagedConnection>, command: Command, asking: bool) -> Self {
        let exchange = Exchange::new(command, asking);
        Self::Managed { to: Arc::clone(to), exchange, connection: None }
    }

    /// Returns `true` if the command was sent, or may have been.
    pub(crate) fn is_sent(&self) -> bool {
        match self {
            Self::Managed { exchange, .. } => exchange.is_sent(),
            Self::External { .. } => true,
        }
    }

    /// Returns `true` if another connection has taken the place of the command's own, or could not.
    fn is_replaced(&self) -> bool {
        matches!(self, Self::Managed { to, connection: Some(connection), .. } if to.has_replaced(connection))
    }

    /// Waits for the late reply to a sent command, at most until then. It is lost once another
    /// connection has been tried for a while in vain.
    pub(crate) async fn wait_on(&mut self, until: Instant) -> Result<Value, Failure> {
        loop {
            let is_replaced = self.is_replaced();
            let answer = self.wait((Instant::now() + LATE).min(until)).await;
            match answer {
                Err(failure) if failure.is_late() && !is_replaced && Instant::now() < until => {}
                answer => return answer,
            }
        }
    }

    /// Waits for the reply until the deadline. A wait that is cancelled can be resumed.
    pub(crate) async fn wait(&mut self, deadline: Instant) -> Result<Value, Failure> {
        match self {
            Self::Managed { to, exchange, connection } => {
                let reply = timeout_at(deadline, reply(to, exchange, connection)).await;
                reply.unwrap_or_else(|_| {
                    if let Some(connection) = connection {
                        connection.on_timeout();
                    }
                    Err(UnavailableReason::DeadlineExceeded.into())
                })
            }
            Self::External { reply, echo } => {
                let reply = timeout_at(deadline, reply).await;
                let reply = reply.map_err(|_| UnavailableReason::DeadlineExceeded)?;
                let mut reply =
                    reply.and_then(Value::extract_error).map_err(|it| Failure::logged(&it))?;
                if is_named(&mut reply, *echo) {
                    Ok(reply)
                } else {
                    Err(UnavailableReason::UnexpectedReply.into())
                }
            }
        }
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Self::Managed { exchange, .. } = self {
            exchange.abandon();
        }
    }
}

/// Sends the command of an exchange, unless that has been done, and waits for its reply.
async fn reply(
    to: &ManagedConnection,
    exchange: &Arc<Exchange>,
    used: &mut Option<Arc<Connection>>,
) -> Result<Value, Failure> {
    loop {
        let connection = if let Some(connection) = used {
            connection
        } else {
            let connection = used.insert(to.get().await?);
            connection.send(exchange);
            connection
        };
        let error = match exchange.reply().await {
            Some(Ok(reply)) => {
                connection.on_reply();
                return Ok(reply);
            }
            Some(Err(error)) => error,
            // The connection had ended before, and the command goes over the next one.
            None => {
                connection.avoid();
                *used = None;
                continue;
            }
        };
        let failure = Failure::logged(&error);
        if failure.needs_reconnect() || error.is_unrecoverable_error() {
            connection.retire();
        } else {
            // An error is a reply, too: the peer is there.
            connection.on_reply();
        }
        return Err(failure);
    }
}
