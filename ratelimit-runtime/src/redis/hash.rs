//! Hashes: what a fleet of processes says to each other beside its counts.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::{
    client::{Manner, REPEATABLE, RedisClient},
    node::Lane,
};
use crate::error::UnavailableReason;

/// A hash with more fields is not read.
const MOST_FIELDS: usize = 10_000;

/// A long reply may take so long at least, whatever the limiter's deadline.
const READ: Duration = Duration::from_secs(1);

/// A hash whose fields were too long is not read again before this: each attempt costs the server
/// all of it.
const TOO_LARGE_FOR: Duration = Duration::from_secs(30);

const LONG: Manner = Manner { is_repeatable: true, lane: Lane::Side };

/// When a hash that was too large may be read again.
#[derive(Default)]
pub(super) struct TooLarge(Mutex<Option<Instant>>);

impl TooLarge {
    fn check(&self) -> Result<(), UnavailableReason> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(until) if Instant::now() < until => Err(UnavailableReason::OverridesTooLarge),
            _ => Ok(()),
        }
    }

    fn found(&self) {
        let until = Instant::now() + TOO_LARGE_FOR;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}

impl RedisClient {
    /// All fields of a hash, and their values; none of one that is not there.
    ///
    /// They are read on a connection of their own, so that no decision waits behind them, and only
    /// if they are no more than [`MOST_FIELDS`].
    pub(crate) async fn fields(
        &self,
        key: &[u8],
        deadline: Duration,
    ) -> Result<Vec<(String, String)>, UnavailableReason> {
        self.too_large.check()?;
        let node = self.servers.of(key, Instant::now() + deadline).await?;
        node.open_side().await;
        let length = self.read("HLEN", key, Instant::now() + deadline).await?;
        let length: usize =
            redis::from_redis_value(length).map_err(|_| UnavailableReason::StoreError)?;
        if length > MOST_FIELDS {
            return Err(UnavailableReason::OverridesTooLarge);
        }
        if length == 0 {
            return Ok(Vec::new());
        }
        let reply = self.read("HGETALL", key, Instant::now() + deadline.max(READ)).await;
        if matches!(reply, Err(UnavailableReason::OverridesTooLarge)) {
            self.too_large.found();
        }
        // Both protocols' forms, and bytes that are no text by replacing them.
        let fields: Vec<(Vec<u8>, Vec<u8>)> =
            redis::from_redis_value(reply?).map_err(|_| UnavailableReason::StoreError)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(fields.into_iter().map(|(field, value)| (text(field), text(value))).collect())
    }

    async fn read(
        &self,
        command: &str,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Value, UnavailableReason> {
        let command: Cmd = redis::cmd(command).arg(key).take();
        Ok(self.send(key, deadline, LONG, |_| command.clone()).await?)
    }

    /// Gives a field of a hash this value, or removes it.
    pub(crate) async fn set_field(
        &self,
        key: &[u8],
        field: &str,
        value: Option<&str>,
        deadline: Duration,
    ) -> Result<(), UnavailableReason> {
        let command = match value {
            Some(value) => redis::cmd("HSET").arg(key).arg(field).arg(value).take(),
            None => redis::cmd("HDEL").arg(key).arg(field).take(),
        };
        self.send(key, Instant::now() + deadline, REPEATABLE, |_| command.clone()).await?;
        Ok(())
    }
}
