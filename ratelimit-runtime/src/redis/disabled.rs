//! The room without the feature `redis`: a backend has no value, and opening one is an error that names the
//! feature. So the code of limiters and overrides is the same with and without it.
#![allow(clippy::unused_async, clippy::needless_pass_by_value, reason = "as with the feature")]

mod options;

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::time::Instant;

pub(crate) use self::options::{Content, HashContent, OnDelivery, RedisOptions};
use crate::{
    decision::Permit,
    error::{ConnectFault, ServerStatus, UnavailableReason},
    key::{Key, KeyRef},
    memory::Clock,
    policy::Policy,
    request::{DecidedBy, OnStoreError, Outcome, Place, Request, Settle, Standing},
    time::{Micros, Timestamp},
};

/// The result of a command.
type Replied<T> = Result<T, UnavailableReason>;

pub(crate) struct RedisBackend(Infallible);

pub(crate) struct RedisHash(Infallible);

/// The settings of connections: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectOptions {}

/// Limiters in memory have no background work.
pub(crate) fn start(_: impl Future<Output = ()> + Send + 'static) {}

impl RedisBackend {
    pub(crate) fn open(_: &str, _: &ConnectOptions, _: RedisOptions) -> Result<Self, ConnectFault> {
        let why = "only memory:// is supported: this program is built without the feature `redis` of \
                   `ratelimit-runtime`";
        Err(ConnectFault::Refused(why.to_owned()))
    }

    pub(crate) async fn connected(&self) -> Result<(), ConnectFault> {
        match self.0 {}
    }

    pub(crate) fn on_delivery(&self, _: OnDelivery) {
        match self.0 {}
    }

    pub(crate) fn known_refusal(
        &self,
        _: KeyRef<'_>,
        _: Request<'_>,
        _: Duration,
    ) -> Option<Micros> {
        match self.0 {}
    }

    pub(crate) fn clock(&self) -> &Clock {
        match self.0 {}
    }

    pub(crate) fn decide_now(&self, _: KeyRef<'_>, _: Request<'_>) -> Option<Outcome> {
        match self.0 {}
    }

    pub(crate) async fn decide(
        &self,
        _: &Key,
        _: Request<'_>,
        _: Instant,
        _: OnStoreError,
    ) -> (Replied<Outcome>, Option<Arc<dyn Permit>>) {
        match self.0 {}
    }

    pub(crate) async fn usage(&self, _: &Key, _: &Policy) -> Replied<(Vec<Outcome>, u32)> {
        match self.0 {}
    }

    pub(crate) fn pause(&self, _: u32) -> Duration {
        match self.0 {}
    }

    pub(crate) fn servers(&self) -> Vec<ServerStatus> {
        match self.0 {}
    }

    pub(crate) async fn reset(&self, _: &Key, _: &Policy) -> Replied<()> {
        match self.0 {}
    }

    pub(crate) async fn pause_key(
        &self,
        _: &Key,
        _: &Policy,
        _: Micros,
        _: Option<Timestamp>,
    ) -> Replied<bool> {
        match self.0 {}
    }

    pub(crate) async fn turns(&self, _: &Key, _: &[Place<'_>]) -> Replied<Vec<Option<Timestamp>>> {
        match self.0 {}
    }

    pub(crate) async fn advance(&self, _: &Key, _: Place<'_>) -> Replied<Option<Standing>> {
        match self.0 {}
    }

    pub(crate) fn settle_here(&self, _: KeyRef<'_>, _: Settle, _: DecidedBy) -> bool {
        match self.0 {}
    }

    pub(crate) async fn settle(&self, _: &Key, _: Settle) -> Replied<()> {
        match self.0 {}
    }

    pub(crate) fn post(&self, _: Key, _: Content) {
        match self.0 {}
    }

    pub(crate) async fn flush(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn hash(&self, _: &str) -> RedisHash {
        match self.0 {}
    }
}

impl RedisHash {
    pub(crate) async fn fields(&self, _: usize) -> Replied<HashContent> {
        match self.0 {}
    }

    pub(crate) async fn field(&self, _: &str) -> Replied<Option<String>> {
        match self.0 {}
    }

    pub(crate) async fn time(&self) -> Replied<std::time::SystemTime> {
        match self.0 {}
    }

    pub(crate) async fn set(
        &self,
        _: &[(String, String)],
        _: &[(String, String)],
        _: usize,
        _: Option<Duration>,
    ) -> Replied<bool> {
        match self.0 {}
    }

    pub(crate) async fn remove(&self, _: &str) -> Replied<bool> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use crate::Limiter;

    #[tokio::test]
    async fn connecting_names_the_feature_and_memory_needs_none() {
        assert!(Limiter::connect("memory://").await.is_ok());
        let url = "redis://me:secret@127.0.0.1";
        let errors = [
            Limiter::connect(url).await.unwrap_err(),
            Limiter::builder().connect_lazy(url).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(
                error.to_string(),
                "rate limit store URL: only memory:// is supported: this program is built without \
                 the feature `redis` of `ratelimit-runtime`"
            );
        }
    }
}
