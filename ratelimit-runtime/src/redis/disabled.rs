//! The room without the feature `redis`: a backend has no value, and opening one is an error that
//! names the feature. So the code of limiters and overrides is the same with and without it.
#![allow(clippy::unused_async, clippy::needless_pass_by_value, reason = "as with the feature")]

mod options;

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::time::Instant;

pub(crate) use self::options::{Content, HashContent, OnDelivery, RedisOptions};
use crate::{
    decision::Permit,
    error::{Fault, FlushError, Replied, ServerStatus},
    key::{Key, KeyRef},
    memory::Clock,
    policy::Policy,
    request::{
        CallerUsage, DecidedBy, LinePlace, OnStoreError, Outcome, Request, Settle, Standing,
    },
    time::{Micros, Timestamp},
};

/// Defines a type that has no value, and its methods, which nobody can call.
macro_rules! without_value {
    (
        $type:ident
        $(fn $name:ident($($argument:ty),*) -> $output:ty;)*
        $(async fn $question:ident($($part:ty),*) -> $reply:ty;)*
    ) => {
        pub(crate) struct $type(Infallible);

        impl $type {
            $(pub(crate) fn $name(&self, $(_: $argument),*) -> $output {
                match self.0 {}
            })*
            $(pub(crate) async fn $question(&self, $(_: $part),*) -> $reply {
                match self.0 {}
            })*
        }
    };
}

without_value! {
    RedisBackend
    fn on_delivery(OnDelivery) -> ();
    fn known_refusal(KeyRef<'_>, Request<'_>, Duration) -> Option<Micros>;
    fn clock() -> &Clock;
    fn decide_now(KeyRef<'_>, Request<'_>) -> Option<Outcome>;
    fn pause(u32) -> Duration;
    fn servers() -> Vec<ServerStatus>;
    fn settle_here(KeyRef<'_>, Settle, DecidedBy) -> bool;
    fn post(Key, Content) -> ();
    fn hash(&str) -> RedisHash;
    async fn connected() -> Result<(), Fault>;
    async fn decide(&Key, Request<'_>, Instant, OnStoreError, Option<OnLate<'_>>)
        -> (Replied<Outcome>, Option<Arc<dyn Permit>>);
    async fn usage(&Key, &Policy) -> Replied<CallerUsage>;
    async fn reset(&Key) -> Replied<()>;
    async fn pause_key(&Key, &Policy, Micros, Option<Timestamp>) -> Replied<bool>;
    async fn turns(&Key, &[LinePlace<'_>]) -> Replied<Vec<Option<Timestamp>>>;
    async fn advance(&Key, LinePlace<'_>) -> Replied<Option<Standing>>;
    async fn settle(&Key, Settle) -> Replied<()>;
    async fn send(Key, Content) -> ();
    async fn flush() -> Result<(), FlushError>;
}

without_value! {
    LateReply
    async fn receive(&Key, Request<'_>, impl FnOnce(Outcome)) -> ();
}

/// Receives the late reply to a decision.
pub(crate) type OnLate<'a> = &'a (dyn Fn(LateReply) + Sync);

without_value! {
    RedisHash
    async fn fields(usize) -> Replied<HashContent>;
    async fn field(&str) -> Replied<Option<String>>;
    async fn time() -> Replied<std::time::SystemTime>;
    async fn set(&[(String, String)], &[(String, String)], usize, Option<Duration>) -> Replied<bool>;
    async fn remove(&str) -> Replied<bool>;
}

impl RedisBackend {
    pub(crate) fn open(_: &str, _: &ConnectOptions, _: RedisOptions) -> Result<Self, Fault> {
        let why = "only memory:// is supported: this program is built without the feature `redis` of \
                   `ratelimit-runtime`";
        Err(Fault::new(why))
    }
}

/// The settings of connections: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectOptions {}

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
