//! Hashes: the overrides that a fleet shares.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::{
    client::{IDEMPOTENT, RedisClient, SendOptions},
    node::Lane,
};
use crate::error::UnavailableReason;

/// The most fields of a hash that is read.
const MAX_FIELDS: usize = 10_000;

/// The minimum deadline of a long reply. It replaces a shorter deadline of the limiter.
const MIN_DEADLINE: Duration = Duration::from_secs(1);

/// The pause after a hash whose fields were too long: each attempt costs the server all of it.
const OVERSIZE_PAUSE: Duration = Duration::from_secs(30);

/// The options of a command with a long reply.
const LONG_REPLY: SendOptions = SendOptions { is_idempotent: true, lane: Lane::Side };

/// The reader of hashes.
#[derive(Default)]
pub(super) struct Hashes {
    /// The instant from which a hash that was too large may be read again.
    oversize_until: Mutex<Option<Instant>>,
}

impl Hashes {
    /// Returns the fields of a hash and their values; none if the key does not exist.
    ///
    /// They are read over the side connection, so that no decision waits behind them. More than
    /// [`MAX_FIELDS`] are an error.
    pub(super) async fn fields(
        &self,
        client: &RedisClient,
        key: &[u8],
        deadline: Duration,
    ) -> Result<Vec<(String, String)>, UnavailableReason> {
        if self.oversize_until().is_some_and(|until| Instant::now() < until) {
            return Err(UnavailableReason::OverridesTooLarge);
        }
        let node = client.topology.node_for(key, Instant::now() + deadline).await?;
        node.open_side().await;
        let length = read(client, "HLEN", key, Instant::now() + deadline).await?;
        let length: usize =
            redis::from_redis_value(length).map_err(|_| UnavailableReason::StoreError)?;
        if length > MAX_FIELDS {
            return Err(UnavailableReason::OverridesTooLarge);
        }
        if length == 0 {
            return Ok(Vec::new());
        }
        let deadline = Instant::now() + deadline.max(MIN_DEADLINE);
        let reply = read(client, "HGETALL", key, deadline).await;
        if matches!(reply, Err(UnavailableReason::OverridesTooLarge)) {
            *self.oversize_until() = Some(Instant::now() + OVERSIZE_PAUSE);
        }
        // Both protocols' forms. Invalid UTF-8 is replaced.
        let fields: Vec<(Vec<u8>, Vec<u8>)> =
            redis::from_redis_value(reply?).map_err(|_| UnavailableReason::StoreError)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(fields.into_iter().map(|(field, value)| (text(field), text(value))).collect())
    }

    fn oversize_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.oversize_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(
    client: &RedisClient,
    command: &str,
    key: &[u8],
    deadline: Instant,
) -> Result<Value, UnavailableReason> {
    let command: Cmd = redis::cmd(command).arg(key).take();
    Ok(client.send(key, deadline, LONG_REPLY, |_| command.clone()).await?)
}

/// Sets a field of a hash; removes the field if `value` is `None`.
pub(super) async fn set_field(
    client: &RedisClient,
    key: &[u8],
    field: &str,
    value: Option<&str>,
    deadline: Duration,
) -> Result<(), UnavailableReason> {
    let command = match value {
        Some(value) => redis::cmd("HSET").arg(key).arg(field).arg(value).take(),
        None => redis::cmd("HDEL").arg(key).arg(field).take(),
    };
    client.send(key, Instant::now() + deadline, IDEMPOTENT, |_| command.clone()).await?;
    Ok(())
}
