//! One multiplexed connection, shared by all calls, and made anew when it is lost.
//!
//! A task of its own makes the connection, one attempt at a time and with pauses between failed
//! ones; calls take what is there. Nothing is sent twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{AsyncConnectionConfig, Client, RedisResult, aio::MultiplexedConnection};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};

use super::describe;
use crate::error::UnavailableReason;

/// How long connecting may take, name resolution and handshake included.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The pauses between attempts that fail.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Connection {
    state: watch::Receiver<State>,
    lost: Arc<Lost>,
    task: JoinHandle<()>,
}

#[derive(Clone)]
enum State {
    /// An attempt is under way that may succeed.
    Connecting,
    Ready(Link),
    /// The last attempt failed; the next one comes after a pause.
    Failed,
}

/// A connection as calls use it.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: MultiplexedConnection,
    number: u64,
}

/// The last link that is not to be used any more.
#[derive(Default)]
struct Lost {
    number: AtomicU64,
    notify: Notify,
}

impl Lost {
    fn is_in_use(&self, number: u64) -> bool {
        number > self.number.load(Ordering::Relaxed)
    }
}

impl Connection {
    /// Connects, and from then on keeps connected.
    pub(super) async fn open(client: Client) -> RedisResult<Self> {
        let connection = connect(&client).await?;
        Ok(Self::start(client, Some(connection)))
    }

    /// Connects in the background.
    pub(super) fn lazy(client: Client) -> Self {
        Self::start(client, None)
    }

    fn start(client: Client, first: Option<MultiplexedConnection>) -> Self {
        let first = first.map(|connection| Link { connection, number: 1 });
        let (sender, state) = watch::channel(first.map_or(State::Connecting, State::Ready));
        let lost = Arc::new(Lost::default());
        let task = tokio::spawn(keep_connected(client, sender, Arc::clone(&lost)));
        Self { state, lost, task }
    }

    /// The connection; waits while one is being made, but not for a server that was just not there.
    pub(super) async fn get(&self) -> Result<Link, UnavailableReason> {
        // The usual case, without a copy of the receiver.
        if let State::Ready(link) = &*self.state.borrow()
            && self.lost.is_in_use(link.number)
        {
            return Ok(link.clone());
        }
        let mut state = self.state.clone();
        let is_known = |state: &State| match state {
            State::Connecting => false,
            State::Ready(link) => self.lost.is_in_use(link.number),
            State::Failed => true,
        };
        match state.wait_for(is_known).await.as_deref() {
            Ok(State::Ready(link)) => Ok(link.clone()),
            _ => Err(UnavailableReason::Disconnected),
        }
    }

    /// Has the connection made anew that this link is of.
    pub(super) fn replace(&self, link: &Link) {
        self.lost.number.fetch_max(link.number, Ordering::Relaxed);
        self.lost.notify.notify_one();
    }

    /// Has the connection made anew, whichever it is.
    pub(super) fn replace_current(&self) {
        let current = match &*self.state.borrow() {
            State::Ready(link) => Some(link.clone()),
            State::Connecting | State::Failed => None,
        };
        if let Some(link) = current {
            self.replace(&link);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_connected(client: Client, state: watch::Sender<State>, lost: Arc<Lost>) {
    let mut pause = FIRST_PAUSE;
    let mut number = u64::from(matches!(&*state.borrow(), State::Ready(_)));
    loop {
        // A link that is in use stays until it is said to be lost.
        while lost.is_in_use(number) {
            lost.notify.notified().await;
        }
        if !matches!(&*state.borrow(), State::Failed) {
            state.send_replace(State::Connecting);
        }
        match connect(&client).await {
            Ok(connection) => {
                number += 1;
                pause = FIRST_PAUSE;
                state.send_replace(State::Ready(Link { connection, number }));
            }
            Err(error) => {
                tracing::debug!(error = %describe(&error), "cannot connect to the rate limit store");
                state.send_replace(State::Failed);
                // Spread, so that processes that lost it together do not come back together.
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    // A call waits no longer than the limiter's deadline; the connection itself does not count.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            format!("no answer within {CONNECT_TIMEOUT:?}"),
        )
        .into()),
    }
}
