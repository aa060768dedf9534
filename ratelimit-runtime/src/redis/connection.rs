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

use std::{
    future::pending,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{RedisError, RedisResult};
use tokio::{
    sync::{Notify, watch},
    task::{AbortHandle, JoinHandle},
    time::Instant,
};

use super::{
    background,
    backoff::Backoff,
    connector::{Connector, NewConnection, first, reply_to},
    credentials::{Credentials, CredentialsProvider},
    exchange::Exchange,
    failure::{Failure, broken, message},
    multiplexer::Multiplexer,
    secrets::Secrets,
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

/// Consecutive timeouts after which a connection is replaced: nothing else reveals a peer that
/// vanished without closing it.
const MAX_TIMEOUTS: u32 = 3;

/// The owners of a handle that one call uses: that call, the state and the task that keeps the connection.
/// Its command does not wait for others, because there are none to share a write with.
const ALONE: usize = 3;

pub(super) struct Connection {
    state: watch::Receiver<ConnectionState>,
    task: JoinHandle<()>,
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

/// A handle of one connection, for calls.
pub(super) struct Handle {
    multiplexer: Multiplexer,
    /// The number of the connection in this process.
    number: u64,
    secrets: Secrets,
    since: Instant,
    /// `true` after the first reply to a command.
    has_replied: AtomicBool,
    /// Consecutive commands without a reply in time.
    timeouts: AtomicU32,
    /// `true` if calls must not use it any more.
    is_retired: AtomicBool,
    retired: Notify,
    /// The task that carries the connection's bytes, for as long as its handle exists.
    driver: AbortHandle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Handle {
    /// Starts the driver of a connection on the current runtime.
    fn start(connection: NewConnection) -> NewHandle {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);

        let NewConnection { multiplexer, driver, secrets, renewal } = connection;
        let driver = tokio::spawn(driver);
        let handle = Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            multiplexer,
            secrets,
            since: Instant::now(),
            has_replied: AtomicBool::new(false),
            timeouts: AtomicU32::new(0),
            is_retired: AtomicBool::new(false),
            retired: Notify::new(),
            driver: driver.abort_handle(),
        };
        NewHandle { handle: Arc::new(handle), driver, renewal }
    }

    /// Sends the command of an exchange.
    pub(super) fn send(self: &Arc<Self>, exchange: &Arc<Exchange>) {
        self.multiplexer.send(exchange, Arc::strong_count(self) <= ALONE);
    }

    fn is_live(&self) -> bool {
        !self.is_retired.load(Ordering::Relaxed) && !self.driver.is_finished()
    }

    /// Ends the use of the connection, which is then replaced.
    pub(super) fn retire(&self) {
        self.avoid();
        self.retired.notify_one();
    }

    /// Ends the use of a connection whose driver ends: by that it is replaced.
    pub(super) fn avoid(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// Records that a command got a reply.
    pub(super) fn on_reply(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
        self.has_replied.store(true, Ordering::Relaxed);
    }

    /// Records that a command got no reply in time.
    pub(super) fn on_timeout(&self) {
        if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_TIMEOUTS {
            self.retire();
        }
    }

    /// Returns `true` if the connection is young and has served no command.
    fn is_useless(&self) -> bool {
        !self.has_replied.load(Ordering::Relaxed) && self.since.elapsed() < MIN_LIFETIME
    }
}

/// A handle, the task that carries its bytes, and the time of the next login, if the first one ends.
struct NewHandle {
    handle: Arc<Handle>,
    driver: JoinHandle<()>,
    renewal: Option<Instant>,
}

impl Connection {
    /// Connects in the background, and keeps connected.
    pub(super) fn new(connector: Connector) -> Arc<Self> {
        let (sender, state) = watch::channel(ConnectionState::Connecting);
        let task = background::spawn(keep_connected(connector, sender));
        Arc::new(Self { state, task })
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

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_connected(mut connector: Connector, state: watch::Sender<ConnectionState>) {
    let mut backoff = BACKOFF;
    loop {
        let failure = match connect(&mut connector).await {
            Ok(NewHandle { handle, driver, renewal }) => {
                state.send_replace(ConnectionState::Ready(Arc::clone(&handle)));
                let logins =
                    keep_logged_in(connector.target.options.credentials.as_ref(), &handle, renewal);
                let retired = async {
                    let _ = first(handle.retired.notified(), logins).await;
                };
                let has_ended = matches!(first(driver, retired).await, Some(Ok(())));
                if !has_ended || !handle.is_useless() {
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
    let Ok(reply) = tokio::time::timeout(AUTH_TIMEOUT, reply_to(&exchange)).await else {
        exchange.abandon();
        return Err(io::Error::from(io::ErrorKind::TimedOut).into());
    };
    reply.map(|_| credentials)
}

/// Connects on the runtime that made the limiter.
async fn connect(connector: &mut Connector) -> RedisResult<NewHandle> {
    let work = || {
        let mut connector = connector.clone();
        async move { (connector.connect().await.map(Handle::start), connector) }
    };
    // On the heap: the future is large.
    let (handle, changed) = Box::pin(connector.target.options.home.run(work)).await;
    *connector = changed;
    handle
}
