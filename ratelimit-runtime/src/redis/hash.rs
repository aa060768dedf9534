//! Hashes: the overrides that a fleet shares.

use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use redis::Value;
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
        if self.oversize_until.lock().is_some_and(|until| Instant::now() < until) {
            return Err(UnavailableReason::OverridesTooLarge);
        }
        let length = read(remote, "HLEN", key, SHORT_REPLY, remote.deadline).await?;
        let node = remote.client.topology.node_for(key, remote.ends()).await?;
        let read_over = node.connection_number().map(|number| (node.name().to_owned(), number));
        let length: usize =
            redis::from_redis_value(length).map_err(|_| UnavailableReason::StoreError)?;
        if length > max_fields {
            return Err(UnavailableReason::OverridesTooLarge);
        }
        if length == 0 {
            return Ok(HashContent { fields: Vec::new(), read_over });
        }
        node.open_side().await;
        let deadline = remote.deadline.max(MIN_DEADLINE);
        let reply = read(remote, "HGETALL", key, LONG_REPLY, deadline).await;
        if matches!(reply, Err(UnavailableReason::UnexpectedReply)) {
            *self.oversize_until.lock() = Some(Instant::now() + OVERSIZE_PAUSE);
            return Err(UnavailableReason::OverridesTooLarge);
        }
        // Both protocols' forms. Invalid UTF-8 is replaced.
        let fields: Vec<(Vec<u8>, Vec<u8>)> =
            redis::from_redis_value(reply?).map_err(|_| UnavailableReason::StoreError)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let fields = fields.into_iter().map(|(field, value)| (text(field), text(value))).collect();
        Ok(HashContent { fields, read_over })
    }
}

/// Returns the value of a field of a hash, if it has one, and the time of its server.
pub(super) async fn field_and_time(
    remote: &Remote,
    key: &[u8],
    field: &str,
) -> Result<(Option<String>, SystemTime), UnavailableReason> {
    let get = redis::cmd("HGET").arg(key).arg(field).take();
    let ends = remote.ends();
    let value = remote.client.send(key, ends, SHORT_REPLY, |_| get.clone().into()).await?;
    let time = remote.client.send(key, ends, SHORT_REPLY, |_| redis::cmd("TIME").into()).await?;
    let decoded = redis::from_redis_value(value)
        .and_then(|value| Ok((value, redis::from_redis_value::<(u64, u32)>(time)?)));
    let (value, (seconds, micros)) = decoded.map_err(|_| UnavailableReason::StoreError)?;
    let since = Duration::new(seconds, micros.saturating_mul(1_000));
    Ok((value, SystemTime::UNIX_EPOCH + since))
}

async fn read(
    remote: &Remote,
    command: &str,
    key: &[u8],
    options: SendOptions,
    deadline: Duration,
) -> Result<Value, UnavailableReason> {
    let (command, ends) = (redis::cmd(command).arg(key).take(), Instant::now() + deadline);
    Ok(remote.client.send(key, ends, options, |_| command.clone().into()).await?)
}
