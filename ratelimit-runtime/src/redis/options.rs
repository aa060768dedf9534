//! The settings of a backend.

use std::time::Duration;

use crate::request::OnStoreError;

/// The settings of a limiter on Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedisOptions {
    pub(crate) deadline: Duration,
    pub(crate) on_store_error: OnStoreError,
    pub(crate) max_keys: usize,
    pub(crate) max_bytes: usize,
    pub(crate) deny_cache: usize,
    pub(crate) deny_cache_ttl: Duration,
}

/// A hash as it was read.
#[cfg(feature = "overrides")]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HashContent {
    pub(crate) fields: Vec<(String, String)>,
    /// The server and the number of the connection; none if the program brought the connection.
    pub(crate) read_over: Option<(String, u64)>,
}
