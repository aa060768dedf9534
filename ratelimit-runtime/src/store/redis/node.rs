//! One server: its connection, and commands to it.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use redis::{Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value, aio::ConnectionLike};
use tokio::{sync::Semaphore, time::Instant};

use super::{
    breaker::Breaker,
    connection::{Connection, Link},
    connector::Connector,
    failure::{Failure, describe},
};
use crate::error::UnavailableReason;

/// After so many calls without an answer the connection is made anew: a peer that vanished without
/// a word is noticed by nothing else.
const UNANSWERED: u32 = 3;

/// The answers to so many commands are waited for at one time whose callers have given up.
const GIVEN_UP: usize = 16;

pub(super) struct Node {
    line: Line,
    breaker: Arc<Breaker>,
    given_up: Arc<Semaphore>,
}

enum Line {
    /// One that we keep.
    Kept {
        connection: Connection,
        /// Calls in a row that got no answer in time.
        unanswered: AtomicU32,
    },
    /// One that the user keeps.
    Brought(Box<dyn Brought>),
}

impl Node {
    pub(super) async fn open(connector: Connector, name: String) -> RedisResult<Self> {
        Ok(Self::kept(Connection::open(connector).await?, name))
    }

    pub(super) fn lazy(connector: Connector, name: String) -> Self {
        Self::kept(Connection::lazy(connector), name)
    }

    fn kept(connection: Connection, name: String) -> Self {
        Self::new(Line::Kept { connection, unanswered: AtomicU32::new(0) }, name)
    }

    fn new(line: Line, name: String) -> Self {
        let given_up = Arc::new(Semaphore::new(GIVEN_UP));
        Self { line, breaker: Breaker::new(name), given_up }
    }

    pub(super) fn brought<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let name = "a connection of the program's own".to_owned();
        Self::new(Line::Brought(Box::new(connection)), name)
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
            Line::Kept { connection, .. } => connection.is_down(),
            Line::Brought(_) => false,
        }
    }

    /// Sends a command, and waits for its reply no longer than until the deadline. A command that
    /// is `asking` is one for a slot that moves to this node.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        asking: bool,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        let sent = tokio::time::timeout_at(deadline, async {
            match &self.line {
                Line::Kept { connection, unanswered } => loop {
                    let mut link = connection.get().await?;
                    let writes = link.writes();
                    let answer = if asking {
                        Box::pin(ask(&mut link, command)).await
                    } else {
                        link.connection.send_packed_command(command).await
                    };
                    unanswered.store(0, Ordering::Relaxed);
                    let error = match answer.and_then(Value::extract_error) {
                        Ok(reply) => return Ok(reply),
                        Err(error) => error,
                    };
                    let failure = explained(&error);
                    if failure.is_of_the_connection() || error.is_unrecoverable_error() {
                        connection.replace(&link);
                    }
                    // It had been closed before: the command is one for the next connection.
                    let was_sent = link.writes() > writes;
                    if was_sent || !matches!(failure, Failure::Lost) {
                        return Err(failure);
                    }
                },
                Line::Brought(own) => {
                    let answer = own.send(command).await.and_then(Value::extract_error);
                    answer.map_err(|error| explained(&error))
                }
            }
        });
        sent.await.unwrap_or_else(|_| {
            self.missed();
            Err(UnavailableReason::DeadlineExceeded.into())
        })
    }

    /// A command got no answer in time.
    fn missed(&self) {
        if let Line::Kept { connection, unanswered } = &self.line
            && unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= UNANSWERED
        {
            unanswered.store(0, Ordering::Relaxed);
            connection.replace_current();
        }
    }
}

/// What the error means; it is logged in the server's words, which messages do not hold.
fn explained(error: &RedisError) -> Failure {
    let failure = Failure::of(error);
    if !matches!(failure, Failure::UnknownScript) {
        tracing::debug!(error = %describe(error), "the rate limit store failed");
    }
    failure
}

/// Sends both commands as one: between them no other call's may come.
async fn ask(link: &mut Link, command: &Cmd) -> RedisResult<Value> {
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd("ASKING").ignore().add_command(command.clone());
    let mut replies = link.connection.send_packed_commands(&pipeline, 1, 1).await?;
    Ok(replies.pop().unwrap_or(Value::Nil))
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
