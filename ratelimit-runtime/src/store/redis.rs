//! Redis: one script on one key per caller, one round trip per decision, the server's clock.

mod connection;
mod script;

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use redis::{
    Client, Cmd, FromRedisValue, IntoConnectionInfo, RedisError, Value,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::time::Instant;

use self::{connection::Connection, script::Call};
use super::{Outcome, Refund, Request};
use crate::{error::UnavailableReason, key::Key, rules::Algorithm};

/// Why no connection could be made.
#[derive(Debug)]
pub(crate) enum OpenError {
    Malformed(String),
    Unreachable { address: String, cause: String },
}

pub(crate) struct RedisStore {
    connection: Connection,
    /// Calls in a row that got no answer in time.
    unanswered: AtomicU32,
}

/// After so many calls without an answer the connection is made anew: a peer that vanished without
/// a word is noticed by nothing else.
const UNANSWERED: u32 = 3;

impl RedisStore {
    /// Connects.
    pub(crate) async fn open(url: &str) -> Result<Self, OpenError> {
        let (client, address) = client(url)?;
        match Connection::open(client).await {
            Ok(connection) => Ok(Self { connection, unanswered: AtomicU32::new(0) }),
            Err(error) => Err(OpenError::Unreachable { address, cause: describe(&error) }),
        }
    }

    /// Connects in the background.
    pub(crate) fn open_lazy(url: &str) -> Result<Self, OpenError> {
        let (client, _) = client(url)?;
        Ok(Self { connection: Connection::lazy(client), unanswered: AtomicU32::new(0) })
    }

    pub(crate) async fn decide(
        &self,
        key: &Key,
        request: Request<'_>,
        deadline: Instant,
    ) -> Result<Outcome, UnavailableReason> {
        let call = Call::decision(key, request);
        let reply = self.run(&call, deadline).await?;
        call.decode(&reply)
    }

    /// Gives back what an admitted call took.
    pub(crate) async fn refund(
        &self,
        key: &Key,
        refund: Refund<'_>,
        deadline: Instant,
    ) -> Result<(), UnavailableReason> {
        if refund.policy.algorithm() != Algorithm::SlidingWindow {
            return self.run(&Call::refund(key, refund), deadline).await.map(drop);
        }
        let mut zrem = redis::cmd("ZREM");
        zrem.arg(key.as_bytes());
        for unit in refund.mark..refund.mark + u64::from(refund.cost) {
            zrem.arg(unit);
        }
        self.send(&zrem, deadline).await?;
        Ok(())
    }

    async fn run(&self, call: &Call<'_>, deadline: Instant) -> Result<Vec<i64>, UnavailableReason> {
        let reply = match self.send(&call.evalsha(), deadline).await {
            // The server does not know the script (any more): EVAL runs it and makes it known.
            Err(Failure::UnknownScript) => self.send(&call.eval(), deadline).await,
            reply => reply,
        };
        FromRedisValue::from_redis_value(reply?).map_err(|_| UnavailableReason::StoreError)
    }

    pub(crate) async fn reset(
        &self,
        key: &Key,
        deadline: Instant,
    ) -> Result<(), UnavailableReason> {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(key.as_bytes());
        self.send(&unlink, deadline).await?;
        Ok(())
    }

    /// Sends a command, and waits for its reply no longer than until the deadline.
    async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        let sent = async {
            let mut link = self.connection.get().await?;
            let answer = link.connection.send_packed_command(command).await;
            self.unanswered.store(0, Ordering::Relaxed);
            answer.and_then(Value::extract_error).map_err(|error| {
                let failure = Failure::of(&error);
                if failure.is_of_the_connection() || error.is_unrecoverable_error() {
                    self.connection.replace(&link);
                }
                failure
            })
        };
        tokio::time::timeout_at(deadline, sent).await.unwrap_or_else(|_| {
            self.gave_up();
            Err(UnavailableReason::DeadlineExceeded.into())
        })
    }

    /// A call was given up that got no answer in time.
    fn gave_up(&self) {
        if self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= UNANSWERED {
            self.unanswered.store(0, Ordering::Relaxed);
            self.connection.replace_current();
        }
    }
}

/// A client for the URL, and the address for messages.
fn client(url: &str) -> Result<(Client, String), OpenError> {
    let malformed = |error: RedisError| {
        // What follows the words is the client's own classification.
        let why = describe(&error);
        OpenError::Malformed(why.split(" - ").next().unwrap_or_default().to_owned())
    };
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(3))
        .with_retries(3);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    let info = url.into_connection_info().map_err(malformed)?.set_tcp_settings(settings);
    let address = info.addr().to_string();
    Ok((Client::open(info).map_err(malformed)?, address))
}

/// What came of a command instead of a reply.
enum Failure {
    UnknownScript,
    Because(UnavailableReason),
}

impl Failure {
    fn of(error: &RedisError) -> Self {
        let reason = match error.code() {
            Some("NOSCRIPT") => return Self::UnknownScript,
            Some("WRONGTYPE") => UnavailableReason::WrongType,
            Some("READONLY") => UnavailableReason::ReadOnly,
            Some("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY") => {
                UnavailableReason::NotReady
            }
            Some("OOM" | "MISCONF" | "NOREPLICAS") => UnavailableReason::RefusesWrites,
            Some("NOPERM" | "NOAUTH" | "WRONGPASS") => UnavailableReason::NotPermitted,
            // A command that the user may not run inside a script.
            Some(_) if describe(error).contains("can't run this command") => {
                UnavailableReason::NotPermitted
            }
            Some(_) => UnavailableReason::StoreError,
            None => UnavailableReason::Disconnected,
        };
        tracing::debug!(%reason, error = %describe(error), "the rate limit store failed");
        Self::Because(reason)
    }

    /// Whether the connection is of no more use: it is broken, or leads to where nothing can be
    /// written.
    fn is_of_the_connection(&self) -> bool {
        let (lost, replica) = (UnavailableReason::Disconnected, UnavailableReason::ReadOnly);
        matches!(self, Self::Because(reason) if [lost, replica].contains(reason))
    }
}

impl From<UnavailableReason> for Failure {
    fn from(reason: UnavailableReason) -> Self {
        Self::Because(reason)
    }
}

impl From<Failure> for UnavailableReason {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Because(reason) => reason,
            Failure::UnknownScript => Self::StoreError,
        }
    }
}

/// The server's or the system's words, without what the client puts around them.
fn describe(error: &RedisError) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}
