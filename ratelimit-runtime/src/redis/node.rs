//! One server: its connections, and commands to it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
#[cfg(feature = "overrides")]
use std::{sync::OnceLock, time::Duration};

use redis::{Cmd, RedisError, RedisFuture, RedisResult, Value, aio::ConnectionLike};
use tokio::{sync::Semaphore, time::Instant};

use super::{
    breaker::Breaker,
    connection::Connection,
    connector::Connector,
    failure::{Failure, describe},
    managed::Kept,
};
use crate::error::UnavailableReason;

/// The answers to so many commands are waited for at one time whose callers have given up.
const GIVEN_UP: usize = 16;

/// A reply longer than this, in bytes, is not read to its end where long ones are read.
#[cfg(feature = "overrides")]
const LONGEST: usize = 4 << 20;

/// How long the first command for a long reply waits for the connection.
#[cfg(feature = "overrides")]
const SIDE_OPENS: Duration = Duration::from_secs(1);

pub(super) struct Node {
    line: Line,
    breaker: Arc<Breaker>,
    given_up: Arc<Semaphore>,
}

enum Line {
    /// Those that we keep.
    Kept {
        main: Kept,
        #[cfg(feature = "overrides")]
        side: Side,
    },
    /// One that the user keeps.
    Brought(Box<dyn Brought>),
}

/// Which of a server's connections a command goes over.
#[derive(Clone, Copy)]
pub(super) enum Lane {
    /// The one that decides.
    Main,
    /// The one for long replies, which no decision waits behind. A connection that the user keeps
    /// is both.
    #[cfg(feature = "overrides")]
    Side,
}

/// A connection for long replies, made when there is one to be read.
#[cfg(feature = "overrides")]
struct Side {
    connector: Connector,
    kept: OnceLock<Kept>,
}

#[cfg(feature = "overrides")]
impl Side {
    fn new(connector: &Connector) -> Self {
        Self { connector: connector.limited(LONGEST), kept: OnceLock::new() }
    }

    fn get(&self) -> &Kept {
        self.kept.get_or_init(|| Kept::new(Connection::lazy(self.connector.clone())))
    }
}

impl Line {
    fn kept(connection: Connection, connector: &Connector) -> Self {
        #[cfg(not(feature = "overrides"))]
        let _ = connector;
        Self::Kept {
            main: Kept::new(connection),
            #[cfg(feature = "overrides")]
            side: Side::new(connector),
        }
    }
}

impl Node {
    pub(super) async fn open(connector: &Connector, name: String) -> RedisResult<Self> {
        let connection = Connection::open(connector.clone()).await?;
        Ok(Self::new(Line::kept(connection, connector), name))
    }

    pub(super) fn lazy(connector: &Connector, name: String) -> Self {
        let connection = Connection::lazy(connector.clone());
        Self::new(Line::kept(connection, connector), name)
    }

    pub(super) fn brought<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let name = "a connection of the program's own".to_owned();
        Self::new(Line::Brought(Box::new(connection)), name)
    }

    fn new(line: Line, name: String) -> Self {
        let given_up = Arc::new(Semaphore::new(GIVEN_UP));
        Self { line, breaker: Breaker::new(name), given_up }
    }

    /// What messages for operators call it.
    pub(super) fn name(&self) -> &str {
        self.breaker.server()
    }

    pub(super) fn breaker(&self) -> &Arc<Breaker> {
        &self.breaker
    }

    /// Room to wait for the answers to commands whose callers have given up.
    pub(super) fn given_up(&self) -> &Arc<Semaphore> {
        &self.given_up
    }

    /// Whether the last attempt to connect failed.
    pub(super) fn is_down(&self) -> bool {
        match &self.line {
            Line::Kept { main, .. } => main.is_down(),
            Line::Brought(_) => false,
        }
    }

    /// Waits for the connection for long replies, if it has not been asked for before and the
    /// server is not left alone.
    #[cfg(feature = "overrides")]
    pub(super) async fn open_side(&self) {
        if let Line::Kept { side, .. } = &self.line
            && side.kept.get().is_none()
            && self.breaker.failure().is_none()
        {
            let _ = tokio::time::timeout(SIDE_OPENS, side.get().is_made()).await;
        }
    }

    /// Sends a command, which `is_sent` from then on, and waits for its reply no longer than until the
    /// deadline. A command that is `asking` is one for a slot that moves to this node.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        asking: bool,
        lane: Lane,
        deadline: Instant,
        is_sent: &AtomicBool,
    ) -> Result<Value, Failure> {
        let kept = match (&self.line, lane) {
            (Line::Kept { main, .. }, Lane::Main) => main,
            #[cfg(feature = "overrides")]
            (Line::Kept { side, .. }, Lane::Side) => side.get(),
            (Line::Brought(own), _) => {
                is_sent.store(true, Ordering::Relaxed);
                let answer = tokio::time::timeout_at(deadline, own.send(command)).await;
                let answer = answer.map_err(|_| UnavailableReason::DeadlineExceeded)?;
                return answer.and_then(Value::extract_error).map_err(|error| explained(&error));
            }
        };
        let answer = tokio::time::timeout_at(deadline, kept.send(command, asking, is_sent)).await;
        answer.unwrap_or_else(|_| {
            kept.missed();
            Err(UnavailableReason::DeadlineExceeded.into())
        })
    }
}

/// What the error means; it is logged in the server's words, which messages do not hold.
pub(super) fn explained(error: &RedisError) -> Failure {
    let failure = Failure::of(error);
    if !matches!(failure, Failure::UnknownScript) {
        tracing::debug!(error = %describe(error), "the rate limit store failed");
    }
    failure
}

/// A connection that calls share.
trait Brought: Send + Sync {
    fn send<'a>(&self, command: &'a Cmd) -> RedisFuture<'a, Value>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Brought for C {
    fn send<'a>(&self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_command(command).await })
    }
}
