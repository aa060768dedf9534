//! A store that may be slow or gone: how long a call waits for it, when it is left alone, and what
//! a call gets when it cannot decide.

mod backoff;
mod breaker;
mod client;
mod cluster;
mod command;
mod connection;
mod connector;
mod deny_cache;
mod dial;
mod failure;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg(feature = "overrides")]
mod hash;
mod managed;
mod node;
mod script;
mod stream;
mod target;
mod tls;

use std::time::Duration;

use tokio::time::Instant;

use self::deny_cache::{DenyCache, Trip};
pub(crate) use self::{client::RedisClient, tls::Tls};
use crate::{
    error::UnavailableReason,
    key::Key,
    memory::MemoryStore,
    request::{DecidedBy, OnStoreError, Outcome, Refund, Request},
};

/// How a limiter deals with its store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedisOptions {
    pub(crate) deadline: Duration,
    pub(crate) on_store_error: OnStoreError,
    pub(crate) max_keys: usize,
    pub(crate) max_bytes: usize,
    pub(crate) deny_cache: usize,
    pub(crate) deny_cache_ttl: Duration,
}

/// A store in another process, with all that makes it safe to ask.
pub(crate) struct RedisBackend {
    store: RedisClient,
    refusals: DenyCache,
    local: MemoryStore,
    deadline: Duration,
    on_store_error: OnStoreError,
}

impl RedisBackend {
    pub(crate) fn new(store: RedisClient, settings: RedisOptions) -> Self {
        let RedisOptions { deadline, on_store_error, deny_cache, deny_cache_ttl, .. } = settings;
        Self {
            store,
            refusals: DenyCache::new(deny_cache, deny_cache_ttl),
            local: MemoryStore::new(settings.max_keys, settings.max_bytes),
            deadline,
            on_store_error,
        }
    }

    pub(crate) async fn decide(
        &self,
        key: &Key,
        request: Request<'_>,
        max_wait: Duration,
        on_store_error: Option<OnStoreError>,
    ) -> Result<Outcome, UnavailableReason> {
        let sent = Instant::now();
        if let Some(refusal) = self.refusals.find(key, request, max_wait, sent) {
            return Ok(refusal);
        }
        match self.store.decide(key, request, sent + self.deadline).await {
            Ok(outcome) => {
                let trip = Trip { sent, answered: Instant::now() };
                self.refusals.keep(key, request, outcome, trip);
                Ok(outcome)
            }
            // Not the store's failing, and no reason to count elsewhere.
            Err(UnavailableReason::WrongType) => Err(UnavailableReason::WrongType),
            Err(reason) => self.instead(key, request, on_store_error, reason),
        }
    }

    /// What the call gets that the store did not decide.
    fn instead(
        &self,
        key: &Key,
        request: Request<'_>,
        on_store_error: Option<OnStoreError>,
        reason: UnavailableReason,
    ) -> Result<Outcome, UnavailableReason> {
        match on_store_error.unwrap_or(self.on_store_error) {
            OnStoreError::Local => {
                let outcome = self.local.decide(key.subject(), request)?;
                Ok(Outcome { decided_by: DecidedBy::Fallback, ..outcome })
            }
            OnStoreError::Deny => Err(reason),
            OnStoreError::Allow => Ok(Outcome::unlimited(request)),
        }
    }

    /// The servers that are known, by name, and why those that are left alone are.
    pub(crate) fn servers(&self) -> Vec<(String, Option<UnavailableReason>)> {
        self.store.servers()
    }

    pub(crate) async fn reset(&self, key: &Key) -> Result<(), UnavailableReason> {
        self.local.reset(key.subject());
        self.changed(key, self.store.reset(key, Instant::now() + self.deadline)).await
    }

    /// Gives back what a call took where it was decided; `sent` is called before it may be done.
    pub(crate) async fn refund(
        &self,
        key: &Key,
        refund: Refund<'_>,
        decided_by: DecidedBy,
        sent: impl FnOnce(),
    ) -> Result<(), UnavailableReason> {
        match decided_by {
            DecidedBy::Nobody | DecidedBy::Limiter => Ok(()),
            DecidedBy::Fallback => {
                self.local.refund(key.subject(), refund);
                Ok(())
            }
            DecidedBy::Store | DecidedBy::DenyCache => {
                let deadline = Instant::now() + self.deadline;
                self.changed(key, self.store.refund(key, refund, deadline, sent)).await
            }
        }
    }

    /// Makes a change after which the store may admit what it has refused.
    async fn changed(
        &self,
        key: &Key,
        change: impl Future<Output = Result<(), UnavailableReason>>,
    ) -> Result<(), UnavailableReason> {
        // It may be made, and its answer lost or not waited for.
        self.refusals.forget(key, Instant::now());
        let answer = change.await;
        // Meanwhile calls may have been refused that came before it.
        self.refusals.forget(key, Instant::now());
        answer
    }

    /// All fields of a hash on the store, and their values.
    #[cfg(feature = "overrides")]
    pub(crate) async fn fields(
        &self,
        key: &[u8],
    ) -> Result<Vec<(String, String)>, UnavailableReason> {
        self.store.fields(key, self.deadline).await
    }

    /// Gives a field of a hash on the store this value, or removes it.
    #[cfg(feature = "overrides")]
    pub(crate) async fn set_field(
        &self,
        key: &[u8],
        field: &str,
        value: Option<&str>,
    ) -> Result<(), UnavailableReason> {
        self.store.set_field(key, field, value, self.deadline).await
    }
}
