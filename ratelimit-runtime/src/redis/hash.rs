//! Hashes: the overrides that a fleet shares.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::{
    client::RedisClient,
    command::{IDEMPOTENT, SendOptions},
    node::Lane,
    options::HashContent,
};
use crate::error::UnavailableReason;

/// The most fields of a hash that is read.
const MAX_FIELDS: usize = 10_000;

/// The minimum deadline of a long reply. It replaces a shorter deadline of the limiter.
const MIN_DEADLINE: Duration = Duration::from_secs(1);

/// The pause after a hash whose fields were too long: each attempt costs the server all of it.
const OVERSIZE_PAUSE: Duration = Duration::from_secs(30);

/// The options of a read with a short reply.
const SHORT_REPLY: SendOptions = SendOptions { is_read: true, ..IDEMPOTENT };

/// The options of a read with a long reply.
const LONG_REPLY: SendOptions = SendOptions { lane: Lane::Side, ..SHORT_REPLY };

/// The reader of hashes.
#[derive(Default)]
pub(super) struct Hashes {
    /// The instant from which a hash that was too large may be read again.
    oversize_until: Mutex<Option<Instant>>,
}

impl Hashes {
    /// Returns the fields of a hash and their values; none if the key does not exist.
    ///
    /// They are read over the side connection, so that no decision waits behind them. It is made for the
    /// first hash that is not empty. More than [`MAX_FIELDS`] are an error.
    pub(super) async fn fields(
        &self,
        client: &RedisClient,
        key: &[u8],
        deadline: Duration,
    ) -> Result<HashContent, UnavailableReason> {
        if self.oversize_until().is_some_and(|until| Instant::now() < until) {
            return Err(UnavailableReason::OverridesTooLarge);
        }
        let length = read(client, "HLEN", key, SHORT_REPLY, Instant::now() + deadline).await?;
        let node = client.topology.node_for(key, Instant::now() + deadline).await?;
        let read_over = node.connection_number().map(|number| (node.name().to_owned(), number));
        let length: usize =
            redis::from_redis_value(length).map_err(|_| UnavailableReason::StoreError)?;
        if length > MAX_FIELDS {
            return Err(UnavailableReason::OverridesTooLarge);
        }
        if length == 0 {
            return Ok(HashContent { fields: Vec::new(), read_over });
        }
        node.open_side().await;
        let deadline = Instant::now() + deadline.max(MIN_DEADLINE);
        let reply = read(client, "HGETALL", key, LONG_REPLY, deadline).await;
        if matches!(reply, Err(UnavailableReason::UnexpectedReply)) {
            *self.oversize_until() = Some(Instant::now() + OVERSIZE_PAUSE);
            return Err(UnavailableReason::OverridesTooLarge);
        }
        // Both protocols' forms. Invalid UTF-8 is replaced.
        let fields: Vec<(Vec<u8>, Vec<u8>)> =
            redis::from_redis_value(reply?).map_err(|_| UnavailableReason::StoreError)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let fields = fields.into_iter().map(|(field, value)| (text(field), text(value))).collect();
        Ok(HashContent { fields, read_over })
    }

    fn oversize_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.oversize_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(
    client: &RedisClient,
    command: &str,
    key: &[u8],
    options: SendOptions,
    deadline: Instant,
) -> Result<Value, UnavailableReason> {
    let command: Cmd = redis::cmd(command).arg(key).take();
    Ok(client.send(key, deadline, options, |_| command.clone().into()).await?)
}

/// Sets fields of a hash.
pub(super) async fn set_fields(
    client: &RedisClient,
    key: &[u8],
    fields: &[(String, String)],
    deadline: Duration,
) -> Result<(), UnavailableReason> {
    write(client, key, redis::cmd("HSET").arg(key).arg(fields), deadline).await
}

/// Removes a field of a hash.
pub(super) async fn remove_field(
    client: &RedisClient,
    key: &[u8],
    field: &str,
    deadline: Duration,
) -> Result<(), UnavailableReason> {
    write(client, key, redis::cmd("HDEL").arg(key).arg(field), deadline).await
}

async fn write(
    client: &RedisClient,
    key: &[u8],
    command: &Cmd,
    deadline: Duration,
) -> Result<(), UnavailableReason> {
    client.send(key, Instant::now() + deadline, IDEMPOTENT, |_| command.clone().into()).await?;
    Ok(())
}
