//! The plain data of a backend, with and without the feature.

use std::time::Duration;

use crate::{
    key::KeyRef,
    request::{OnStoreError, Settle},
};

/// The settings of a limiter on Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedisOptions {
    /// `true` if calls, and permits that are held, are counted.
    pub(crate) is_instrumented: bool,
    pub(crate) deadline: Duration,
    pub(crate) on_store_error: OnStoreError,
    pub(crate) max_keys: usize,
    pub(crate) max_bytes: usize,
    pub(crate) deny_cache: usize,
    pub(crate) deny_cache_ttl: Duration,
}

/// The change that a posted command makes.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    Settle(Settle),
    /// The settle at 0 of a turn that no call takes.
    Leave(Settle),
    /// The release of a permit.
    Release {
        id: u64,
        timeout: Duration,
    },
}

/// A function that receives the key and the content of a command that has arrived.
pub(crate) type OnDelivery = Box<dyn Fn(KeyRef<'_>, Content) + Send + Sync>;

/// A hash as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HashContent {
    pub(crate) fields: Vec<(String, String)>,
    /// The server and the number of the connection; none if the program brought the connection.
    pub(crate) read_over: Option<(String, u64)>,
}
