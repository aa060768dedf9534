//! The room without the feature `redis`: backend and client have no values, and connecting is an error
//! that names the feature. So the code of limiters and overrides is the same with and without it.
#![allow(clippy::unused_async, clippy::needless_pass_by_value, reason = "as with the feature")]

mod options;

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::time::Instant;

#[cfg(feature = "overrides")]
pub(crate) use self::options::HashContent;
pub(crate) use self::options::RedisOptions;
use crate::{
    algorithms::Straight,
    error::{ConnectFault, UnavailableReason},
    key::{Key, KeyRef},
    memory::MemoryStore,
    policy::Policy,
    request::{DecidedBy, OnStoreError, Outcome, PermitRequest, Place, Request, Settle, Standing},
    time::Micros,
};

pub(crate) struct RedisBackend(Infallible);

pub(crate) struct RedisClient(Infallible);

pub(crate) struct HeldPermit(Infallible);

impl HeldPermit {
    pub(crate) fn is_held(&self) -> bool {
        match self.0 {}
    }
}

/// The failure of a command that may be sent again.
pub(crate) struct Unanswered {
    pub(crate) reason: UnavailableReason,
}

/// The change that a command makes.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    Settle(Settle),
    Leave(Settle),
}

pub(crate) type OnDelivery = Box<dyn Fn(KeyRef<'_>, Content) + Send + Sync>;

/// Limiters in memory have no background work.
pub(crate) fn start(_: impl Future<Output = ()> + Send + 'static) {}

/// The settings of connections: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectOptions {}

impl RedisClient {
    pub(crate) async fn open(url: &str, options: &ConnectOptions) -> Result<Self, ConnectFault> {
        Self::open_lazy(url, options)
    }

    pub(crate) fn open_lazy(_: &str, _: &ConnectOptions) -> Result<Self, ConnectFault> {
        let why = "only memory:// is supported: this program is built without the feature `redis` of \
                   `ratelimit-runtime`";
        Err(ConnectFault::Refused(why.to_owned()))
    }
}

impl RedisBackend {
    pub(crate) fn new(client: RedisClient, _: RedisOptions) -> Self {
        match client.0 {}
    }

    pub(crate) fn on_delivery(&self, _: OnDelivery) {
        match self.0 {}
    }

    pub(crate) fn take_ahead<D>(&self, _: KeyRef<'_>, _: &Policy) -> (Straight<D>, DecidedBy) {
        match self.0 {}
    }

    pub(crate) fn cached_refusal(
        &self,
        _: KeyRef<'_>,
        _: Request<'_>,
        _: Duration,
    ) -> Option<Outcome> {
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

    pub(crate) fn leased(&self, _: KeyRef<'_>, _: Request<'_>) -> Option<Outcome> {
        match self.0 {}
    }

    pub(crate) fn give_back_to_lease(&self, _: KeyRef<'_>, _: Settle) {
        match self.0 {}
    }

    pub(crate) async fn decide(
        self: &Arc<Self>,
        _: &Key,
        _: Request<'_>,
        _: Option<OnStoreError>,
        _: Option<&mut PermitRequest>,
    ) -> Result<Outcome, UnavailableReason> {
        match self.0 {}
    }

    pub(crate) fn denies(&self, _: Option<OnStoreError>) -> bool {
        match self.0 {}
    }

    pub(crate) fn ask_for_permit(&self, _: &Key, _: Micros) -> PermitRequest {
        match self.0 {}
    }

    pub(crate) fn hold(
        self: &Arc<Self>,
        _: Key,
        _: u64,
        _: &Policy,
        _: Instant,
        _: DecidedBy,
    ) -> Arc<HeldPermit> {
        match self.0 {}
    }

    pub(crate) fn free(self: &Arc<Self>, _: &Arc<HeldPermit>) {
        match self.0 {}
    }

    pub(crate) async fn give_back(&self, _: &HeldPermit) {
        match self.0 {}
    }

    pub(crate) fn release(self: &Arc<Self>, _: Key, _: u64, _: Duration) {
        match self.0 {}
    }

    pub(crate) fn pause(&self, _: u32) -> Duration {
        match self.0 {}
    }

    pub(crate) fn servers(&self) -> Vec<(String, Option<UnavailableReason>)> {
        match self.0 {}
    }

    pub(crate) async fn reset(&self, _: &Key) -> Result<(), UnavailableReason> {
        match self.0 {}
    }

    pub(crate) fn fallback(&self) -> &MemoryStore {
        match self.0 {}
    }

    pub(crate) async fn advance(
        &self,
        _: &Key,
        _: Place<'_>,
    ) -> Result<Option<Standing>, UnavailableReason> {
        match self.0 {}
    }

    pub(crate) fn settle_in_fallback(&self, _: KeyRef<'_>, _: Settle) {
        match self.0 {}
    }

    pub(crate) async fn settle(&self, _: &Key, _: Settle) -> Result<(), Unanswered> {
        match self.0 {}
    }

    pub(crate) fn post(self: &Arc<Self>, _: Key, content: Content) {
        let (Content::Settle(_) | Content::Leave(_)) = content;
        match self.0 {}
    }

    pub(crate) async fn flush(&self) -> usize {
        match self.0 {}
    }

    #[cfg(feature = "overrides")]
    pub(crate) async fn fields(&self, _: &[u8]) -> Result<HashContent, UnavailableReason> {
        match self.0 {}
    }

    #[cfg(feature = "overrides")]
    pub(crate) async fn set_fields(
        &self,
        _: &[u8],
        _: &[(String, String)],
    ) -> Result<(), UnavailableReason> {
        match self.0 {}
    }

    #[cfg(feature = "overrides")]
    pub(crate) async fn remove_field(&self, _: &[u8], _: &str) -> Result<(), UnavailableReason> {
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
