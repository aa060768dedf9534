//! The calls' end of one connection.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinHandle},
    time::Instant,
};

use super::{exchange::Exchange, multiplexer::Multiplexer, secrets::Secrets, stream::BoxedStream};

/// Consecutive timeouts after which a connection is replaced: nothing else reveals a peer that
/// vanished without closing it.
const MAX_TIMEOUTS: u32 = 3;

/// The owners of a connection that one call uses: that call, and the state and the task of its
/// manager. Its command does not wait for others, because there are none to share a write with.
const ALONE: usize = 3;

/// One connection, as calls use it.
pub(crate) struct Connection {
    multiplexer: Multiplexer,
    /// The number of the connection in this process.
    pub(super) number: u64,
    /// The logins that it has used.
    pub(super) secrets: Secrets,
    has_replied: AtomicBool,
    /// Consecutive commands without a reply in time.
    timeouts: AtomicU32,
    /// `true` if calls must not use it any more.
    is_retired: AtomicBool,
    pub(super) retired: Notify,
    /// The task that carries the bytes, until the connection is dropped.
    driver: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Sends the command of an exchange.
    pub(super) fn send(self: &Arc<Self>, exchange: &Arc<Exchange>) {
        self.multiplexer.send(exchange, Arc::strong_count(self) <= ALONE);
    }

    pub(super) fn is_live(&self) -> bool {
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

    /// Returns `true` after the first reply to a command.
    pub(super) fn has_replied(&self) -> bool {
        self.has_replied.load(Ordering::Relaxed)
    }
}

/// A connection, the task that carries its bytes, and the time of the next login, if the first one
/// ends.
pub(super) struct NewConnection {
    pub(super) connection: Arc<Connection>,
    pub(super) driver: JoinHandle<()>,
    pub(super) renewal: Option<Instant>,
}

impl NewConnection {
    /// Starts the task of a stream on the current runtime. A reply of more than this many bytes
    /// ends it.
    pub(super) fn start(stream: BoxedStream, max_reply: usize, secrets: Secrets) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);

        let (multiplexer, driver) = Multiplexer::new(stream, max_reply, secrets.clone());
        let driver = tokio::spawn(driver);
        let connection = Connection {
            multiplexer,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            secrets,
            has_replied: AtomicBool::new(false),
            timeouts: AtomicU32::new(0),
            is_retired: AtomicBool::new(false),
            retired: Notify::new(),
            driver: driver.abort_handle(),
        };
        Self { connection: Arc::new(connection), driver, renewal: None }
    }
}
