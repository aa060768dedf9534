//! The counts on Redis, and what stands for them in this process: the deny cache, and the fallback.
//!
//! The backend shares it with the tasks of its leases, permits, posted commands and hashes.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::{
    deny_cache::DenyCache,
    script::{Attempt, settle_command},
    servers::{IDEMPOTENT, Servers, Unanswered},
    transport::Command,
};
use crate::{
    error::{Replied, UnavailableReason},
    key::Key,
    memory::{Clock, MemoryStore},
    request::Settle,
};

pub(super) struct RedisStore {
    pub(super) servers: Servers,
    pub(super) deny_cache: DenyCache,
    /// Decides while Redis cannot, with [`OnStoreError::Local`](crate::OnStoreError::Local).
    pub(super) fallback: MemoryStore,
    pub(super) deadline: Duration,
}

impl RedisStore {
    /// The clock of the deny cache and of leases.
    pub(super) fn clock(&self) -> &Clock {
        self.fallback.clock()
    }

    /// Returns the time until which a command that is sent now may take.
    pub(super) fn deadline_from_now(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Sends a short idempotent command to the key's server, waits for its reply until the
    /// deadline, and decodes it.
    pub(super) async fn ask<T>(
        &self,
        key: &Key,
        build: impl FnMut(Attempt) -> Command,
        decode: impl FnOnce(&Value) -> Option<T>,
    ) -> Replied<T> {
        let sent = self.servers.send(key.as_bytes(), self.deadline_from_now(), IDEMPOTENT, build);
        decode(&sent.await?).ok_or(UnavailableReason::StoreError)
    }

    /// Changes the units of a call that Redis decided.
    pub(super) async fn settle(&self, key: &Key, settle: Settle) -> Result<(), Unanswered> {
        let command = |attempt| settle_command(key, settle, attempt);
        let change = self.servers.change(key, self.deadline_from_now(), command);
        // More units make no remembered wait too long.
        if settle.raised() > 0 { change.await } else { self.invalidating(key, change).await }
    }

    /// Awaits a reset or settle, and removes the key's refusals from the deny cache before and
    /// after it.
    pub(super) async fn invalidating<T>(&self, key: &Key, change: impl Future<Output = T>) -> T {
        // The change may take effect although its reply is lost, or nobody awaits it.
        self.deny_cache.invalidate(key.as_key_ref(), self.clock().now());
        let result = change.await;
        // A refusal from before the change may have arrived meanwhile.
        self.deny_cache.invalidate(key.as_key_ref(), self.clock().now());
        result
    }
}

#[cfg(test)]
impl RedisStore {
    /// Returns one whose commands all fail.
    pub(super) fn without_a_server() -> std::sync::Arc<Self> {
        let servers = Servers::open("redis://127.0.0.1:1", &super::ConnectOptions::default());
        std::sync::Arc::new(Self {
            servers: servers.unwrap(),
            deny_cache: DenyCache::new(0, Duration::ZERO),
            fallback: MemoryStore::new(1, 0),
            deadline: Duration::ZERO,
        })
    }
}
