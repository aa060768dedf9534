//! One multiplexed connection, shared by all calls, and made anew when it is lost.
//!
//! A task of its own makes the connection, one attempt at a time and with pauses between failed
//! ones, and again as soon as it ends; calls take what is there. Nothing is sent twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{RedisResult, aio::MultiplexedConnection};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::Instant,
};

use super::{
    backoff::Backoff,
    connector::{Connected, Connector},
    failure::{Failure, describe},
    stream::Traffic,
};
use crate::error::UnavailableReason;

/// The number of the first link.
const FIRST: u64 = 1;

/// The pauses between attempts that fail.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A link that ends unused after less than this was of no use: the attempt failed.
const BRIEF: Duration = Duration::from_millis(100);

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
    /// The last attempt failed, for this reason; the next one comes after a pause.
    Failed(UnavailableReason),
}

/// A connection as calls use it.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: MultiplexedConnection,
    number: u64,
    traffic: Traffic,
    _driver: Arc<Driver>,
}

/// Carries the bytes of a link, for as long as anybody has it.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Link {
    /// Begins to use a connection. It is lost as soon as it has ended, also while nobody uses it.
    fn new(connected: Connected, number: u64, lost: &Arc<Lost>) -> Self {
        let Connected { connection, driver, traffic } = connected;
        let lost = Arc::clone(lost);
        let driver = tokio::spawn(async move {
            driver.await;
            lost.lose(number);
        });
        Self { connection, number, traffic, _driver: Arc::new(Driver(driver)) }
    }

    /// How often something was written to it: as often as before, nothing was.
    pub(super) fn writes(&self) -> u64 {
        self.traffic.writes()
    }

    /// Whether it has ended because a reply was longer than may be read.
    pub(super) fn is_cut(&self) -> bool {
        self.traffic.is_cut()
    }
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

    fn lose(&self, number: u64) {
        self.number.fetch_max(number, Ordering::Relaxed);
        self.notify.notify_one();
    }
}

impl Connection {
    /// Connects, and from then on keeps connected.
    pub(super) async fn open(mut connector: Connector) -> RedisResult<Self> {
        let lost = Arc::new(Lost::default());
        let first = State::Ready(connect(&mut connector, &lost, FIRST).await?);
        Ok(Self::start(connector, first, lost))
    }

    /// Connects in the background.
    pub(super) fn lazy(connector: Connector) -> Self {
        Self::start(connector, State::Connecting, Arc::default())
    }

    fn start(connector: Connector, first: State, lost: Arc<Lost>) -> Self {
        let (sender, state) = watch::channel(first);
        let task = tokio::spawn(keep_connected(connector, sender, Arc::clone(&lost)));
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
            State::Failed(_) => true,
        };
        match state.wait_for(is_known).await.as_deref() {
            Ok(State::Ready(link)) => Ok(link.clone()),
            Ok(State::Failed(reason)) => Err(*reason),
            _ => Err(UnavailableReason::Disconnected),
        }
    }

    /// Has the connection made anew that this link is of.
    pub(super) fn replace(&self, link: &Link) {
        self.lost.lose(link.number);
    }

    /// Has the connection made anew, whichever it is.
    pub(super) fn replace_current(&self) {
        let current = match &*self.state.borrow() {
            State::Ready(link) => Some(link.clone()),
            State::Connecting | State::Failed(_) => None,
        };
        if let Some(link) = current {
            self.replace(&link);
        }
    }

    /// Whether the last attempt to connect failed.
    pub(super) fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), State::Failed(_))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_connected(mut connector: Connector, state: watch::Sender<State>, lost: Arc<Lost>) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut used = Used::of(&state.borrow());
    let mut number = used.as_ref().map_or(0, |used| used.number);
    loop {
        // A link that is in use stays until it is said to be lost.
        while lost.is_in_use(number) {
            lost.notify.notified().await;
        }
        let reason = if used.take().is_some_and(|link| link.was_of_no_use()) {
            UnavailableReason::Disconnected
        } else {
            if !matches!(&*state.borrow(), State::Failed(_)) {
                backoff.reset();
                state.send_replace(State::Connecting);
            }
            match connect(&mut connector, &lost, number + 1).await {
                Ok(link) => {
                    number += 1;
                    let ready = State::Ready(link);
                    used = Used::of(&ready);
                    state.send_replace(ready);
                    continue;
                }
                Err(error) => {
                    tracing::debug!(error = %describe(&error), "cannot connect to the rate limit store");
                    Failure::of(&error).into()
                }
            }
        };
        state.send_replace(State::Failed(reason));
        tokio::time::sleep(backoff.next()).await;
    }
}

/// What became of a link.
struct Used {
    number: u64,
    traffic: Traffic,
    /// How often something had been written to it when it was made.
    before: u64,
    since: Instant,
}

impl Used {
    fn of(state: &State) -> Option<Self> {
        let State::Ready(link) = state else { return None };
        let (number, traffic) = (link.number, link.traffic.clone());
        Some(Self { number, before: traffic.writes(), traffic, since: Instant::now() })
    }

    /// Whether it ended so soon, and with nothing sent, that the server did not let it live.
    fn was_of_no_use(&self) -> bool {
        self.traffic.writes() == self.before && self.since.elapsed() < BRIEF
    }
}

/// Makes the link of this number.
async fn connect(connector: &mut Connector, lost: &Arc<Lost>, number: u64) -> RedisResult<Link> {
    // On the heap: what the client does to connect is deep, and need not be part of each caller's
    // future.
    Ok(Link::new(Box::pin(connector.connect()).await?, number, lost))
}
