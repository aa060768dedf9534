//! A connection that is replaced whenever it ends.
//!
//! A task connects, one attempt at a time, with pauses between failed ones, and again as soon as
//! the connection ends. Calls use the current one.

use std::{future::pending, io, pin::pin, sync::Arc, time::Duration};

use futures_util::future::{Either, select};
use redis::{RedisError, RedisResult};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use super::{
    connection::{Connection, NewConnection},
    connector::Connector,
    credentials::{Credentials, CredentialsProvider},
    exchange::Exchange,
    failure::{Failure, broken, message},
};
use crate::{background, error::UnavailableReason, redis::backoff::Backoff};

/// The pauses between failed attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// The pauses between logins that fail, of a connection that is open.
const RENEWAL_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// The timeout of the reply to a login.
const AUTH_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that ends earlier, without a reply to a command, counts as a failed attempt. As
/// long as the longest pause: no server is asked for more than one useless connection a second.
const MIN_LIFETIME: Duration = BACKOFF.longest;

pub(crate) struct ManagedConnection {
    state: watch::Receiver<ConnectionState>,
    /// Keeps the connection until this is dropped.
    _task: JoinSet<()>,
}

#[derive(Clone)]
enum ConnectionState {
    /// An attempt is under way, the first or one after a connection.
    Connecting,
    Ready(Arc<Connection>),
    /// The last attempt failed; the next one follows after a pause.
    Failed(ConnectFailure),
}

/// The failure of an attempt to connect.
#[derive(Clone)]
pub(crate) struct ConnectFailure {
    reason: UnavailableReason,
    /// The server's or the system's message.
    pub(crate) cause: Arc<str>,
}

impl ConnectFailure {
    fn of(error: &RedisError) -> Self {
        Self { reason: Failure::of(error).into(), cause: message(error).into() }
    }
}

impl ManagedConnection {
    /// Connects in the background, and keeps connected.
    pub(crate) fn new(connector: Connector) -> Arc<Self> {
        let (sender, state) = watch::channel(ConnectionState::Connecting);
        let task = background::spawn_owned(keep_connected(connector, sender));
        Arc::new(Self { state, _task: task })
    }

    /// Returns a live connection. Waits for an attempt under way, unless the one before it failed.
    pub(super) async fn get(&self) -> Result<Arc<Connection>, UnavailableReason> {
        // The usual case, without a copy of the receiver.
        if let ConnectionState::Ready(connection) = &*self.state.borrow()
            && connection.is_live()
        {
            return Ok(Arc::clone(connection));
        }
        // Rare, and therefore on the heap: the future of a call stays small.
        Box::pin(self.connected()).await.map_err(|failure| failure.reason)
    }

    /// Waits for the end of an attempt to connect, as [`get`](Self::get) does.
    pub(crate) async fn connected(&self) -> Result<Arc<Connection>, ConnectFailure> {
        let mut state = self.state.clone();
        let is_settled = |state: &ConnectionState| match state {
            ConnectionState::Connecting => false,
            ConnectionState::Ready(connection) => connection.is_live(),
            ConnectionState::Failed(_) => true,
        };
        match state.wait_for(is_settled).await.as_deref() {
            Ok(ConnectionState::Ready(connection)) => Ok(Arc::clone(connection)),
            Ok(ConnectionState::Failed(failure)) => Err(failure.clone()),
            _ => Err(ConnectFailure::of(&broken())),
        }
    }

    /// Returns `true` if a connection has taken the place of this one, or could not.
    pub(super) fn has_replaced(&self, other: &Connection) -> bool {
        self.is_down() || self.number().is_some_and(|current| current != other.number)
    }

    /// Returns the number of the current connection, if there is one.
    pub(crate) fn number(&self) -> Option<u64> {
        match &*self.state.borrow() {
            ConnectionState::Ready(connection) => Some(connection.number),
            ConnectionState::Connecting | ConnectionState::Failed(_) => None,
        }
    }

    /// Returns `true` if the last attempt to connect failed.
    pub(crate) fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), ConnectionState::Failed(_))
    }
}

async fn keep_connected(connector: Connector, state: watch::Sender<ConnectionState>) {
    let mut backoff = BACKOFF;
    loop {
        let failure = match connect(&connector).await {
            Ok(NewConnection { connection, driver, renewal }) => {
                let since = Instant::now();
                state.send_replace(ConnectionState::Ready(Arc::clone(&connection)));
                let provider = connector.target.options.credentials.as_ref();
                let logins = pin!(keep_logged_in(provider, &connection, renewal));
                let retired = pin!(connection.retired.notified());
                let end = select(driver, select(retired, logins)).await;
                // Otherwise calls have retired it, or its task has panicked.
                let has_ended = matches!(end, Either::Left((Ok(()), _)));
                if !has_ended || connection.has_replied() || since.elapsed() >= MIN_LIFETIME {
                    backoff.reset();
                    state.send_replace(ConnectionState::Connecting);
                    continue;
                }
                // The server ended the connection and had replied to nothing but the handshake.
                ConnectFailure::of(&broken())
            }
            Err(error) => {
                tracing::debug!(error = %message(&error), "rate limit store connection failed");
                ConnectFailure::of(&error)
            }
        };
        state.send_replace(ConnectionState::Failed(failure));
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Logs a connection in again before each end of its login.
async fn keep_logged_in(
    provider: Option<&CredentialsProvider>,
    connection: &Arc<Connection>,
    mut renewal: Option<Instant>,
) {
    while let (Some(provider), Some(at)) = (provider, renewal) {
        tokio::time::sleep_until(at).await;
        let mut backoff = RENEWAL_BACKOFF;
        renewal = loop {
            match log_in(provider, connection).await {
                Ok(credentials) => break credentials.renewal(),
                Err(error) => {
                    tracing::debug!(error = %message(&error), "new login at the rate limit store failed");
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        };
    }
    // Without an end there is nothing to renew.
    pending::<()>().await;
}

/// Logs a connection in, between the commands of calls. If that fails, it keeps its login.
async fn log_in(
    provider: &CredentialsProvider,
    connection: &Arc<Connection>,
) -> RedisResult<Credentials> {
    let credentials = provider.renewed().await?;
    connection.secrets.add(&credentials);
    let exchange = Exchange::new(credentials.auth(), false);
    connection.send(&exchange);
    let Ok(reply) = tokio::time::timeout(AUTH_TIMEOUT, exchange.answer()).await else {
        exchange.abandon();
        return Err(io::Error::from(io::ErrorKind::TimedOut).into());
    };
    reply.map(|_| credentials)
}

/// Connects on the runtime that made the limiter.
async fn connect(connector: &Connector) -> RedisResult<NewConnection> {
    // On the heap: the future is large.
    Box::pin(connector.target.options.home.run(|| connector.clone().connect())).await
}
