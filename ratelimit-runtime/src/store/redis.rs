//! Redis: one script on one sorted set per key, one round trip per decision, the server's clock.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use once_cell::sync::Lazy;
use redis::{
    Client, Cmd, ErrorKind, IntoConnectionInfo, RedisError, Script, ServerErrorKind,
    aio::{ConnectionManager, ConnectionManagerConfig},
    io::tcp::TcpSettings,
};

use super::{Outcome, Request};
use crate::{error::UnavailableReason, key::Key};

static SLIDING_WINDOW: Lazy<Script> = Lazy::new(|| Script::new(SLIDING_WINDOW_LUA));
const SLIDING_WINDOW_LUA: &str = include_str!("redis/sliding_window.lua");

/// How long connecting may take, name resolution and handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Why no connection could be made.
#[derive(Debug)]
pub(crate) enum OpenError {
    Malformed(String),
    Unreachable { address: String, cause: String },
}

#[derive(Clone)]
pub(crate) struct RedisStore {
    /// One multiplexed connection, shared by all calls, made anew in the background when lost.
    connection: ConnectionManager,
}

impl RedisStore {
    pub(crate) async fn open(url: &str) -> Result<Self, OpenError> {
        let malformed = |error: RedisError| {
            // What follows the words is the client's own classification.
            let why = describe(&error);
            OpenError::Malformed(why.split(" - ").next().unwrap_or_default().to_owned())
        };
        let settings = TcpSettings::default().set_nodelay(true);
        let info = url.into_connection_info().map_err(malformed)?.set_tcp_settings(settings);
        let address = info.addr().to_string();
        let client = Client::open(info).map_err(malformed)?;
        // The limiter's deadline bounds a call; a lost connection is reported at once.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None);
        let connecting = ConnectionManager::new_with_config(client, config);
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => Ok(Self { connection }),
            Ok(Err(error)) => Err(OpenError::Unreachable { address, cause: describe(&error) }),
            Err(_) => {
                let cause = format!("no answer within {CONNECT_TIMEOUT:?}");
                Err(OpenError::Unreachable { address, cause })
            }
        }
    }

    pub(crate) async fn decide(
        &self,
        key: &Key,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        let id = request.record.then(next_id);
        let arguments = |command: &mut Cmd| {
            command.arg(1).arg(key.as_bytes());
            match id {
                Some(id) => command.arg(id),
                None => command.arg(""),
            };
            command.arg(request.cost);
            for tier in request.policy.tiers() {
                command.arg(tier.micros()).arg(tier.threshold());
            }
        };
        let mut connection = self.connection.clone();
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha.arg(SLIDING_WINDOW.get_hash());
        arguments(&mut evalsha);
        let mut reply = evalsha.query_async(&mut connection).await;
        if reply.as_ref().is_err_and(is_noscript) {
            // The server does not know the script (any more): EVAL runs it and makes it known.
            let mut eval = redis::cmd("EVAL");
            eval.arg(SLIDING_WINDOW_LUA);
            arguments(&mut eval);
            reply = eval.query_async(&mut connection).await;
        }
        reply.map_err(|error| reason(&error)).and_then(decode)
    }

    pub(crate) async fn reset(&self, key: &Key) -> Result<(), UnavailableReason> {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(key.as_bytes());
        unlink.exec_async(&mut self.connection.clone()).await.map_err(|error| reason(&error))
    }
}

fn decode(reply: [i64; 5]) -> Result<Outcome, UnavailableReason> {
    let [admitted, tier, remaining, wait, reset] = reply;
    let outcome = || {
        Some(Outcome {
            admitted: admitted == 1,
            tier: tier.try_into().ok()?,
            remaining: remaining.try_into().ok()?,
            wait: wait.try_into().ok()?,
            reset: reset.try_into().ok()?,
        })
    };
    outcome().ok_or(UnavailableReason::StoreError)
}

/// A new member for the log: unlike any other of this or another process.
fn next_id() -> u64 {
    static SEED: Lazy<RandomState> = Lazy::new(RandomState::new);
    static CALLS: AtomicU64 = AtomicU64::new(0);
    // 52 bits: what a double in the script holds exactly, with room to count on from there.
    SEED.hash_one(CALLS.fetch_add(1, Ordering::Relaxed)) >> 12
}

fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

fn reason(error: &RedisError) -> UnavailableReason {
    let reason = match error.code() {
        Some("WRONGTYPE") => UnavailableReason::WrongType,
        Some(_) => UnavailableReason::StoreError,
        None => UnavailableReason::Disconnected,
    };
    tracing::warn!(%reason, error = %describe(error), "rate limit store failed");
    reason
}

/// The server's or the system's words, without what the client puts around them.
fn describe(error: &RedisError) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_exact_in_a_double_and_do_not_repeat() {
        let ids: HashSet<u64> = (0..100_000).map(|_| next_id()).collect();
        assert_eq!(ids.len(), 100_000);
        assert!(ids.iter().all(|id| *id < 1 << 52));
    }

    #[test]
    fn a_reply_out_of_range_is_an_error() {
        assert!(decode([1, 0, 1, 0, 0]).is_ok());
        assert_eq!(decode([1, 0, -1, 0, 0]), Err(UnavailableReason::StoreError));
    }
}
