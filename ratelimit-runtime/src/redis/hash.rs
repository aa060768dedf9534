//! Hashes: the overrides that a fleet shares.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use redis::{Cmd, FromRedisValue};
use tokio::time::Instant;

use super::{
    options::HashContent,
    servers::{IDEMPOTENT, Lane, SendOptions},
    store::RedisStore,
};
use crate::error::{Replied, UnavailableReason};

/// The minimum deadline of a long reply. It replaces a shorter deadline of the limiter.
const MIN_DEADLINE: Duration = Duration::from_secs(1);

/// The pause after a hash whose fields were too long: each attempt costs the server all of it.
const OVERSIZE_PAUSE: Duration = Duration::from_secs(30);

/// The options of a command with a short reply.
const SHORT_REPLY: SendOptions<'static> = SendOptions { is_of_hash: true, ..IDEMPOTENT };

/// The options of a command with a long reply.
const LONG_REPLY: SendOptions<'static> = SendOptions { lane: Lane::Side, ..SHORT_REPLY };

/// One hash.
pub(crate) struct RedisHash {
    store: Arc<RedisStore>,
    key: Box<[u8]>,
    /// The instant from which the hash may be read again, if it was too large.
    oversize_until: Mutex<Option<Instant>>,
}

impl RedisHash {
    pub(super) fn new(store: Arc<RedisStore>, key: &str) -> Self {
        Self { store, key: key.as_bytes().into(), oversize_until: Mutex::default() }
    }

    /// Returns the fields and their values; none if the key does not exist.
    ///
    /// They are read over the side connection, so that no decision waits behind them. It is made
    /// for the first hash that is not empty. More than `max_fields` are an error.
    pub(crate) async fn fields(&self, max_fields: usize) -> Replied<HashContent> {
        if self.oversize_until.lock().is_some_and(|until| Instant::now() < until) {
            return Err(UnavailableReason::OverridesTooLarge);
        }
        let store = &self.store;
        let length: usize = self.ask(&self.command("HLEN")).await?;
        let node = store.servers.node_for(&self.key, store.deadline_from_now()).await?;
        // Before the fields, so that a connection which is replaced meanwhile counts as a new one.
        let read_over = node.connection_number().map(|number| (node.name().to_owned(), number));
        if length > max_fields {
            return Err(UnavailableReason::OverridesTooLarge);
        }
        if length == 0 {
            return Ok(HashContent { fields: Vec::new(), read_over });
        }
        node.open_side().await;
        let deadline = store.deadline.max(MIN_DEADLINE);
        // Both protocols' forms. Invalid UTF-8 is replaced.
        let fields: Result<Vec<(Vec<u8>, Vec<u8>)>, _> =
            self.send(&self.command("HGETALL"), LONG_REPLY, deadline).await;
        if matches!(fields, Err(UnavailableReason::UnexpectedReply)) {
            *self.oversize_until.lock() = Some(Instant::now() + OVERSIZE_PAUSE);
            return Err(UnavailableReason::OverridesTooLarge);
        }
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let fields = fields?.into_iter().map(|(field, value)| (text(field), text(value))).collect();
        Ok(HashContent { fields, read_over })
    }

    /// Returns the value of a field.
    pub(crate) async fn field(&self, field: &str) -> Replied<Option<String>> {
        let get = self.command("HGET").arg(field).take();
        self.ask(&get).await
    }

    /// Returns the time of the server.
    pub(crate) async fn time(&self) -> Replied<SystemTime> {
        let (seconds, micros): (u64, u32) = self.ask(&redis::cmd("TIME")).await?;
        Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds, micros.saturating_mul(1_000)))
    }

    /// Sets fields, and removes others that are as they were read. Returns `false`, and sets none,
    /// if there would be more than `max_fields`. With an expiry, the hash ends that much later.
    pub(crate) async fn set(
        &self,
        fields: &[(String, String)],
        removed: &[(String, String)],
        max_fields: usize,
        expiry: Option<Duration>,
    ) -> Replied<bool> {
        let mut script = redis::cmd("EVAL");
        script.arg(include_str!("set_fields.lua")).arg(1).arg(&*self.key).arg(max_fields);
        script.arg(expiry.map_or(0, |expiry| expiry.as_secs()));
        script.arg(2 * removed.len()).arg(removed).arg(fields);
        self.ask(&script).await
    }

    /// Removes a field. Returns `false` if there is none.
    pub(crate) async fn remove(&self, field: &str) -> Replied<bool> {
        self.ask(self.command("HDEL").arg(field)).await
    }

    /// Returns a command about this hash.
    fn command(&self, name: &str) -> Cmd {
        redis::cmd(name).arg(&*self.key).take()
    }

    /// Sends a command also to a server that decides no calls.
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Replied<T> {
        self.send(command, SHORT_REPLY, self.store.deadline).await
    }

    async fn send<T: FromRedisValue>(
        &self,
        command: &Cmd,
        options: SendOptions<'_>,
        deadline: Duration,
    ) -> Replied<T> {
        let (ends, build) = (Instant::now() + deadline, |_| command.clone().into());
        let reply = self.store.servers.send(&self.key, ends, options, build).await?;
        redis::from_redis_value(reply).map_err(|_| UnavailableReason::StoreError)
    }
}
