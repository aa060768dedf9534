//! Hashes: what a fleet of processes says to each other beside its counts.

use redis::Value;
use tokio::time::Instant;

use super::{REPEATABLE, RedisStore};
use crate::error::UnavailableReason;

impl RedisStore {
    /// All fields of a hash, and their values; none of one that is not there.
    pub(crate) async fn fields(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Vec<(String, String)>, UnavailableReason> {
        let mut hgetall = redis::cmd("HGETALL");
        hgetall.arg(key);
        let reply = self.send(key, deadline, REPEATABLE, |_| hgetall.clone()).await?;
        // Both protocols' forms, and bytes that are no text by replacing them.
        let fields: Vec<(Vec<u8>, Vec<u8>)> =
            redis::from_redis_value(reply).map_err(|_| UnavailableReason::StoreError)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(fields.into_iter().map(|(field, value)| (text(field), text(value))).collect())
    }

    /// Gives a field of a hash this value, or removes it.
    pub(crate) async fn set_field(
        &self,
        key: &[u8],
        field: &str,
        value: Option<&str>,
        deadline: Instant,
    ) -> Result<(), UnavailableReason> {
        let command = match value {
            Some(value) => redis::cmd("HSET").arg(key).arg(field).arg(value).take(),
            None => redis::cmd("HDEL").arg(key).arg(field).take(),
        };
        let reply: Value = self.send(key, deadline, REPEATABLE, |_| command.clone()).await?;
        drop(reply);
        Ok(())
    }
}
