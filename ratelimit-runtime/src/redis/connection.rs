//! One multiplexed connection, shared by all calls, which reconnects by itself.
//!
//! A task connects, one attempt at a time, with pauses between failed ones, and again as soon as
//! the connection ends. Calls use the current handle. The connection itself never sends a command
//! again.
//!
//! # Transport
//!
//! The transport is our own: connections, their [tasks](super::multiplexer), the [streams](super::stream) below
//! them, the [exchange](super::exchange) of a command for its reply, and the [reader](super::resp) of replies. A
//! decision takes 2.5 µs of the client's processor, and 6 to 7 µs over the multiplexed connection of the crate
//! `redis`. That crate has the commands, the values and the handshake.

use std::{future::pending, io, pin::pin, sync::Arc, time::Duration};

use futures_util::future::{Either, select};
use redis::{RedisError, RedisResult};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use super::{
    background,
    backoff::Backoff,
    connector::Connector,
    credentials::{Credentials, CredentialsProvider},
    exchange::Exchange,
    failure::{Failure, broken, message},
    handle::{Handle, NewHandle},
};
use crate::error::UnavailableReason;

/// The pauses between failed attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// The pauses between logins that fail, of a connection that is open.
const RENEWAL_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// The timeout of the reply to a login.
const AUTH_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that ends earlier, without a reply to a command, counts as a failed attempt. As long as
/// the longest pause: no server is asked for more than one useless connection a second.
const MIN_LIFETIME: Duration = BACKOFF.longest;

pub(super) struct Connection {
    state: watch::Receiver<ConnectionState>,
    /// Keeps the connection until this is dropped.
    _task: JoinSet<()>,
}

#[derive(Clone)]
enum ConnectionState {
    /// An attempt is under way, the first or one after a connection.
    Connecting,
    Ready(Arc<Handle>),
    /// The last attempt failed; the next one follows after a pause.
    Failed(ConnectFailure),
}

/// The failure of an attempt to connect.
#[derive(Clone)]
pub(super) struct ConnectFailure {
    reason: UnavailableReason,
    /// The server's or the system's message.
    pub(super) cause: Arc<str>,
}

impl ConnectFailure {
    fn of(error: &RedisError) -> Self {
        Self { reason: Failure::of(error).into(), cause: message(error).into() }
    }
}

impl Connection {
    /// Connects in the background, and keeps connected.
    pub(super) fn new(connector: Connector) -> Arc<Self> {
        let (sender, state) = watch::channel(ConnectionState::Connecting);
        let task = background::spawn_owned(keep_connected(connector, sender));
        Arc::new(Self { state, _task: task })
    }

    /// Returns a live handle. Waits for an attempt under way, unless the one before it failed.
    pub(super) async fn get(&self) -> Result<Arc<Handle>, UnavailableReason> {
        // The usual case, without a copy of the receiver.
        if let ConnectionState::Ready(handle) = &*self.state.borrow()
            && handle.is_live()
        {
            return Ok(Arc::clone(handle));
        }
        // Rare, and therefore on the heap: the future of a call stays small.
        Box::pin(self.connected()).await.map_err(|failure| failure.reason)
    }

    /// Waits for the end of an attempt to connect, as [`get`](Self::get) does.
    pub(super) async fn connected(&self) -> Result<Arc<Handle>, ConnectFailure> {
        let mut state = self.state.clone();
        let is_settled = |state: &ConnectionState| match state {
            ConnectionState::Connecting => false,
            ConnectionState::Ready(handle) => handle.is_live(),
            ConnectionState::Failed(_) => true,
        };
        match state.wait_for(is_settled).await.as_deref() {
            Ok(ConnectionState::Ready(handle)) => Ok(Arc::clone(handle)),
            Ok(ConnectionState::Failed(failure)) => Err(failure.clone()),
            _ => Err(ConnectFailure::of(&broken())),
        }
    }

    /// Returns `true` if another connection has taken the place of this handle's, or could not.
    pub(super) fn has_replaced(&self, handle: &Handle) -> bool {
        self.is_down() || self.number().is_some_and(|current| current != handle.number)
    }

    /// Returns the number of the current connection, if there is one.
    pub(super) fn number(&self) -> Option<u64> {
        match &*self.state.borrow() {
            ConnectionState::Ready(handle) => Some(handle.number),
            ConnectionState::Connecting | ConnectionState::Failed(_) => None,
        }
    }

    /// Returns `true` if the last attempt to connect failed.
    pub(super) fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), ConnectionState::Failed(_))
    }
}

async fn keep_connected(connector: Connector, state: watch::Sender<ConnectionState>) {
    let mut backoff = BACKOFF;
    loop {
        let failure = match connect(&connector).await {
            Ok(NewHandle { handle, driver, renewal }) => {
                let since = Instant::now();
                state.send_replace(ConnectionState::Ready(Arc::clone(&handle)));
                let provider = connector.target.options.credentials.as_ref();
                let logins = pin!(keep_logged_in(provider, &handle, renewal));
                let retired = pin!(handle.retired.notified());
                let end = select(driver, select(retired, logins)).await;
                let has_ended = matches!(end, Either::Left((Ok(()), _)));
                if !has_ended || handle.has_replied() || since.elapsed() >= MIN_LIFETIME {
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
    handle: &Arc<Handle>,
    mut renewal: Option<Instant>,
) {
    while let (Some(provider), Some(at)) = (provider, renewal) {
        tokio::time::sleep_until(at).await;
        let mut backoff = RENEWAL_BACKOFF;
        renewal = loop {
            match log_in(provider, handle).await {
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
async fn log_in(provider: &CredentialsProvider, handle: &Arc<Handle>) -> RedisResult<Credentials> {
    let credentials = provider.renewed().await?;
    handle.secrets.add(&credentials);
    let exchange = Exchange::new(credentials.auth(), false);
    handle.send(&exchange);
    let Ok(reply) = tokio::time::timeout(AUTH_TIMEOUT, exchange.answer()).await else {
        exchange.abandon();
        return Err(io::Error::from(io::ErrorKind::TimedOut).into());
    };
    reply.map(|_| credentials)
}

/// Connects on the runtime that made the limiter.
async fn connect(connector: &Connector) -> RedisResult<NewHandle> {
    let work = || {
        let connector = connector.clone();
        async move { connector.connect().await }
    };
    // On the heap: the future is large.
    Box::pin(connector.target.options.home.run(work)).await
}
