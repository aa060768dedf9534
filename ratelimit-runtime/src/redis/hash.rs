//! Hashes: the overrides that a fleet shares.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use redis::{Cmd, FromRedisValue, Value};
use tokio::time::Instant;

use super::{
    command::{IDEMPOTENT, SendOptions},
    node::Lane,
    options::HashContent,
    remote::Remote,
};
use crate::error::UnavailableReason;

/// The minimum deadline of a long reply. It replaces a shorter deadline of the limiter.
const MIN_DEADLINE: Duration = Duration::from_secs(1);

/// The pause after a hash whose fields were too long: each attempt costs the server all of it.
const OVERSIZE_PAUSE: Duration = Duration::from_secs(30);

/// The options of a read with a short reply.
const SHORT_REPLY: SendOptions = SendOptions { is_read: true, ..IDEMPOTENT };

/// The options of a read with a long reply.
const LONG_REPLY: SendOptions = SendOptions { lane: Lane::Side, ..SHORT_REPLY };

/// The reader of one hash.
#[derive(Default)]
pub(crate) struct HashReader {
    /// The instant from which the hash may be read again, if it was too large.
    oversize_until: Mutex<Option<Instant>>,
}

impl HashReader {
    /// Returns the fields of a hash and their values; none if the key does not exist.
    ///
    /// They are read over the side connection, so that no decision waits behind them. It is made for the
    /// first hash that is not empty. More than `max_fields` are an error.
    pub(super) async fn fields(
        &self,
        remote: &Remote,
        key: &[u8],
        max_fields: usize,
    ) -> Result<HashContent, UnavailableReason> {
        if self.oversize_until().is_some_and(|until| Instant::now() < until) {
            return Err(UnavailableReason::OverridesTooLarge);
        }
        let of_key = |name: &str| redis::cmd(name).arg(key).take();
        let length = read(remote, &of_key("HLEN"), key, SHORT_REPLY, remote.deadline).await?;
        let node = remote.client.topology.node_for(key, remote.ends()).await?;
        let read_over = node.connection_number().map(|number| (node.name().to_owned(), number));
        let length: usize = decoded(length)?;
        if length > max_fields {
            return Err(UnavailableReason::OverridesTooLarge);
        }
        if length == 0 {
            return Ok(HashContent { fields: Vec::new(), read_over });
        }
        node.open_side().await;
        let deadline = remote.deadline.max(MIN_DEADLINE);
        let reply = read(remote, &of_key("HGETALL"), key, LONG_REPLY, deadline).await;
        if matches!(reply, Err(UnavailableReason::UnexpectedReply)) {
            *self.oversize_until() = Some(Instant::now() + OVERSIZE_PAUSE);
            return Err(UnavailableReason::OverridesTooLarge);
        }
        // Both protocols' forms. Invalid UTF-8 is replaced.
        let fields: Vec<(Vec<u8>, Vec<u8>)> = decoded(reply?)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let fields = fields.into_iter().map(|(field, value)| (text(field), text(value))).collect();
        Ok(HashContent { fields, read_over })
    }

    fn oversize_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.oversize_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the value of a field of a hash, if it has one.
pub(super) async fn field(
    remote: &Remote,
    key: &[u8],
    field: &str,
) -> Result<Option<String>, UnavailableReason> {
    let get = redis::cmd("HGET").arg(key).arg(field).take();
    decoded(read(remote, &get, key, SHORT_REPLY, remote.deadline).await?)
}

/// Returns the time of the server that has this key.
pub(super) async fn time(remote: &Remote, key: &[u8]) -> Result<SystemTime, UnavailableReason> {
    let time = read(remote, &redis::cmd("TIME"), key, SHORT_REPLY, remote.deadline).await?;
    let (seconds, micros): (u64, u32) = decoded(time)?;
    Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds, micros.saturating_mul(1_000)))
}

fn decoded<T: FromRedisValue>(reply: Value) -> Result<T, UnavailableReason> {
    redis::from_redis_value(reply).map_err(|_| UnavailableReason::StoreError)
}

async fn read(
    remote: &Remote,
    command: &Cmd,
    key: &[u8],
    options: SendOptions,
    deadline: Duration,
) -> Result<Value, UnavailableReason> {
    let ends = Instant::now() + deadline;
    Ok(remote.client.send(key, ends, options, |_| command.clone().into()).await?)
}
