//! One multiplexed connection, shared by all calls, which reconnects by itself.
//!
//! A task connects, one attempt at a time, with pauses between failed ones, and again as soon as
//! the connection ends. Calls use the current handle. The connection itself never sends a command
//! again.

use std::{
    future::{pending, poll_fn},
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::RedisResult;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::Instant,
};

use super::{
    background,
    backoff::Backoff,
    connector::{Connector, NewConnection, broken, first},
    credentials::{Credentials, CredentialsProvider},
    exchange::{Exchange, Reply},
    failure::{Failure, message},
    multiplexer::Multiplexer,
    secrets::Secrets,
    stream::Traffic,
};
use crate::error::UnavailableReason;

/// The number of the first handle.
const FIRST: u64 = 1;

/// The pauses between failed attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// The pauses between logins that fail, of a connection that is open.
const RENEWAL_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// The timeout of the reply to a login.
const AUTH_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that ends unused after less than this counts as a failed attempt.
const MIN_LIFETIME: Duration = Duration::from_millis(100);

/// The owners of a handle that one call uses: that call and the state. Its command does not
/// wait for others, because there are none to share a write with.
const ALONE: usize = 2;

pub(super) struct Connection {
    state: watch::Receiver<ConnectionState>,
    retired: Arc<RetiredHandles>,
    task: JoinHandle<()>,
}

#[derive(Clone)]
enum ConnectionState {
    /// An attempt is under way, the first or one after a connection.
    Connecting,
    Ready(Arc<Handle>),
    /// The last attempt failed, for this reason; the next one follows after a pause.
    Failed(UnavailableReason),
}

/// A handle of one connection, for calls.
pub(super) struct Handle {
    multiplexer: Multiplexer,
    number: u64,
    traffic: Traffic,
    secrets: Secrets,
    /// The time of the next login, if the first one ends.
    renewal: Option<Instant>,
    _driver: Driver,
}

/// The task that carries a connection's bytes, for as long as its handle exists.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Retires the handle of a driver that ends, also with its runtime.
struct EndOfDriver {
    retired: Arc<RetiredHandles>,
    number: u64,
}

impl Drop for EndOfDriver {
    fn drop(&mut self) {
        self.retired.retire(self.number);
    }
}

impl Handle {
    /// Starts the driver of a connection on the current runtime. The handle is retired as soon as the
    /// connection ends, even if no call uses it then.
    fn new(connection: NewConnection, number: u64, retired: &Arc<RetiredHandles>) -> Self {
        let NewConnection { multiplexer, driver, traffic, secrets, renewal } = connection;
        let end = EndOfDriver { retired: Arc::clone(retired), number };
        let driver = tokio::spawn(async move {
            driver.await;
            end.retired.ended.fetch_max(number, Ordering::Relaxed);
        });
        Self { multiplexer, number, traffic, secrets, renewal, _driver: Driver(driver) }
    }

    /// Sends the command of an exchange.
    pub(super) fn send(self: &Arc<Self>, exchange: &Arc<Exchange>) {
        self.multiplexer.send(exchange, Arc::strong_count(self) <= ALONE);
    }
}

/// The handles that calls must not use any more: all up to a number.
#[derive(Default)]
struct RetiredHandles {
    number: AtomicU64,
    /// The last handle whose connection ended, other than by the end of its runtime.
    ended: AtomicU64,
    notify: Notify,
}

impl RetiredHandles {
    fn is_live(&self, number: u64) -> bool {
        number > self.number.load(Ordering::Relaxed)
    }

    /// Waits until a handle must not be used any more.
    async fn retired(&self, number: u64) {
        while self.is_live(number) {
            self.notify.notified().await;
        }
    }

    fn retire(&self, number: u64) {
        self.number.fetch_max(number, Ordering::Relaxed);
        self.notify.notify_one();
    }
}

impl Connection {
    /// Connects, and keeps connected.
    pub(super) async fn open(mut connector: Connector) -> RedisResult<Self> {
        let retired = Arc::new(RetiredHandles::default());
        let first = ConnectionState::Ready(connect(&mut connector, &retired, FIRST).await?);
        Ok(Self::start(connector, first, retired))
    }

    /// Connects in the background, and keeps connected.
    pub(super) fn lazy(connector: Connector) -> Self {
        Self::start(connector, ConnectionState::Connecting, Arc::default())
    }

    fn start(connector: Connector, first: ConnectionState, retired: Arc<RetiredHandles>) -> Self {
        // Before the task runs, calls may have written to the connection.
        let lifetime = Lifetime::of(&first);
        let (sender, state) = watch::channel(first);
        let keeper = keep_connected(connector, sender, lifetime, Arc::clone(&retired));
        let task = background::spawn(keeper);
        Self { state, retired, task }
    }

    /// Returns a live handle. Waits for an attempt under way, unless the one before it failed.
    pub(super) async fn get(&self) -> Result<Arc<Handle>, UnavailableReason> {
        // The usual case, without a copy of the receiver.
        if let ConnectionState::Ready(handle) = &*self.state.borrow()
            && self.retired.is_live(handle.number)
        {
            return Ok(Arc::clone(handle));
        }
        let mut state = self.state.clone();
        let is_settled = |state: &ConnectionState| match state {
            ConnectionState::Connecting => false,
            ConnectionState::Ready(handle) => self.retired.is_live(handle.number),
            ConnectionState::Failed(_) => true,
        };
        match state.wait_for(is_settled).await.as_deref() {
            Ok(ConnectionState::Ready(handle)) => Ok(Arc::clone(handle)),
            Ok(ConnectionState::Failed(reason)) => Err(*reason),
            _ => Err(UnavailableReason::Disconnected),
        }
    }

    /// Replaces the connection of this handle, unless that has been done.
    pub(super) fn reconnect(&self, handle: &Handle) {
        self.retired.retire(handle.number);
    }

    /// Returns `true` if another connection has taken the place of this handle's, or could not.
    pub(super) fn has_replaced(&self, handle: &Handle) -> bool {
        match &*self.state.borrow() {
            ConnectionState::Ready(current) => current.number != handle.number,
            ConnectionState::Failed(_) => true,
            ConnectionState::Connecting => false,
        }
    }

    /// Replaces the current connection.
    pub(super) fn reconnect_current(&self) {
        let current = match &*self.state.borrow() {
            ConnectionState::Ready(handle) => Some(Arc::clone(handle)),
            ConnectionState::Connecting | ConnectionState::Failed(_) => None,
        };
        if let Some(handle) = current {
            self.reconnect(&handle);
        }
    }

    /// Returns the number of the current connection, if there is one.
    #[cfg(feature = "overrides")]
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

async fn keep_connected(
    mut connector: Connector,
    state: watch::Sender<ConnectionState>,
    mut lifetime: Option<Lifetime>,
    retired: Arc<RetiredHandles>,
) {
    let mut backoff = BACKOFF;
    let mut number = lifetime.as_ref().map_or(0, |lifetime| lifetime.number);
    loop {
        let renewal = lifetime.as_ref().and_then(|lifetime| lifetime.renewal);
        let logins = keep_logged_in(&connector, &state, renewal);
        let _ = first(retired.retired(number), logins).await;
        let reason = if lifetime.take().is_some_and(|lifetime| lifetime.was_rejected(&retired)) {
            UnavailableReason::Disconnected
        } else {
            if !matches!(&*state.borrow(), ConnectionState::Failed(_)) {
                backoff.reset();
                state.send_replace(ConnectionState::Connecting);
            }
            match connect(&mut connector, &retired, number + 1).await {
                Ok(handle) => {
                    number += 1;
                    let ready = ConnectionState::Ready(handle);
                    lifetime = Lifetime::of(&ready);
                    state.send_replace(ready);
                    continue;
                }
                Err(error) => {
                    tracing::debug!(error = %message(&error), "rate limit store connection failed");
                    Failure::of(&error).into()
                }
            }
        };
        state.send_replace(ConnectionState::Failed(reason));
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Logs the current connection in again before each end of its login.
async fn keep_logged_in(
    connector: &Connector,
    state: &watch::Sender<ConnectionState>,
    mut renewal: Option<Instant>,
) {
    if let Some(provider) = connector.credentials() {
        while let Some(at) = renewal {
            tokio::time::sleep_until(at).await;
            let mut backoff = RENEWAL_BACKOFF;
            renewal = loop {
                match log_in(provider, state).await {
                    Ok(credentials) => break credentials.renewal(),
                    Err(error) => {
                        tracing::debug!(error = %message(&error), "new login at the rate limit store failed");
                        tokio::time::sleep(backoff.next()).await;
                    }
                }
            };
        }
    }
    // Without an end there is nothing to renew.
    pending::<()>().await;
}

/// Logs the current connection in, between the commands of calls. If that fails, it keeps its login.
async fn log_in(
    provider: &CredentialsProvider,
    state: &watch::Sender<ConnectionState>,
) -> RedisResult<Credentials> {
    let credentials = provider.renewed().await?;
    let handle = match &*state.borrow() {
        ConnectionState::Ready(handle) => Arc::clone(handle),
        _ => return Err(broken()),
    };
    handle.secrets.add_login(&credentials);
    let exchange = Exchange::new(credentials.auth(), false);
    handle.send(&exchange);
    let reply = poll_fn(|context| exchange.poll_reply(context));
    match tokio::time::timeout(AUTH_TIMEOUT, reply).await {
        Ok(Reply::Received(reply)) => reply.map(|_| credentials),
        Ok(Reply::Unsent) => Err(broken()),
        Err(_) => {
            exchange.abandon();
            Err(io::Error::from(io::ErrorKind::TimedOut).into())
        }
    }
}

/// The use that a connection was of.
struct Lifetime {
    number: u64,
    traffic: Traffic,
    renewal: Option<Instant>,
    /// The number of writes of the handshake.
    handshake_writes: u64,
    since: Instant,
}

impl Lifetime {
    fn of(state: &ConnectionState) -> Option<Self> {
        let ConnectionState::Ready(handle) = state else { return None };
        let (number, traffic) = (handle.number, handle.traffic.clone());
        let (renewal, handshake_writes) = (handle.renewal, traffic.writes());
        Some(Self { number, traffic, renewal, handshake_writes, since: Instant::now() })
    }

    /// Returns `true` if the server ended the connection right after the handshake.
    fn was_rejected(&self, retired: &RetiredHandles) -> bool {
        retired.ended.load(Ordering::Relaxed) == self.number
            && self.traffic.writes() == self.handshake_writes
            && self.since.elapsed() < MIN_LIFETIME
    }
}

/// Connects, and returns the handle of this number.
async fn connect(
    connector: &mut Connector,
    retired: &Arc<RetiredHandles>,
    number: u64,
) -> RedisResult<Arc<Handle>> {
    let work = || {
        let (mut connector, retired) = (connector.clone(), Arc::clone(retired));
        async move {
            let connection = connector.connect().await;
            let handle = connection.map(|it| Arc::new(Handle::new(it, number, &retired)));
            (handle, connector)
        }
    };
    // On the heap: the future is large, and would be part of each caller's.
    let (handle, changed) = Box::pin(connector.home().run(work)).await;
    *connector = changed;
    handle
}
