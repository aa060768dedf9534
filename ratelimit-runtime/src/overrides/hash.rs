//! Overrides in a hash on Redis: following it, and publishing to it. The only file here that imports
//! `redis`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    Enforcement, Fault, Layer, Override, OverrideError, OverrideSource, Overrides, Shared,
    document, validate,
};
use crate::{
    error::UnavailableReason,
    follow::{Logged, POLL_INTERVAL, next_poll},
    redis::RedisBackend,
    registry::{self, RegisteredPolicy},
};

/// The hash's key after the limiter's prefix.
const KEY: &str = "overrides";

/// The field of all limits. No function has this name.
const ALL_LIMITS: &str = "*";

/// The hash of overrides on a limiter's Redis.
pub(super) struct OverridesHash {
    backend: Arc<RedisBackend>,
    key: String,
    is_followed: AtomicBool,
}

impl Overrides {
    /// Returns a handle without overrides, for a limiter whose keys on this Redis start with `prefix`.
    pub(crate) fn on_redis(backend: Arc<RedisBackend>, prefix: &str) -> Self {
        let key = format!("{prefix}{KEY}");
        let hash = OverridesHash { backend, key, is_followed: AtomicBool::new(false) };
        Self { shared: Arc::new(Shared { hash: Some(hash), ..Shared::default() }) }
    }

    /// Applies the overrides in a hash on the limiter's Redis and follows it. A write by any process
    /// takes effect within a second in all processes that follow it.
    ///
    /// The hash is `ratelimit:overrides`, or another [prefix](crate::LimiterBuilder::prefix) in
    /// place of `ratelimit:`. Its fields are the limits' names, or `*` for all limits. Its values are
    /// JSON objects as in [files](Self::follow_file), or the word of an enforcement:
    ///
    /// ```text
    /// HSET ratelimit:overrides app::reply '{"threshold": 10, "period": "30s"}'
    /// HSET ratelimit:overrides search dry_run
    /// HSET ratelimit:overrides * off
    /// HDEL ratelimit:overrides search
    /// ```
    ///
    /// An invalid value is logged at `warn`; the previous override of this limit stays in effect.
    /// While Redis does not answer, all of them stay in effect.
    ///
    /// Each process polls two or three times a second. Its Redis user needs `+hlen` and `+hgetall`,
    /// and read access to this key: `%R~ratelimit:overrides`, from Redis 7 on.
    ///
    /// The future is ready after the first poll, also if Redis did not answer. The hash is followed
    /// until the last clone of the limiter and of this handle is dropped.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if the limiter is in memory.
    pub async fn follow_redis(&self) -> Result<(), OverrideError> {
        let hash = self.hash()?;
        let mut follower = HashFollower::default();
        follower.poll(hash, self).await;
        hash.is_followed.store(true, Ordering::Relaxed);
        let overrides = Arc::downgrade(&self.shared);
        tokio::spawn(async move {
            while let Some(shared) = next_poll(&overrides, POLL_INTERVAL).await {
                let overrides = Self { shared };
                let Ok(hash) = overrides.hash() else { return };
                follower.poll(hash, &overrides).await;
            }
        });
        Ok(())
    }

    /// Returns `true` if this process [follows](Self::follow_redis) the hash on Redis.
    #[must_use]
    pub fn follows_redis(&self) -> bool {
        self.hash().is_ok_and(|hash| hash.is_followed.load(Ordering::Relaxed))
    }

    /// Writes the override of a limit to the hash on Redis. It takes effect in all processes that
    /// [follow](Self::follow_redis) the hash.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if the policy of a callsite of this name would break a rule. It is also
    /// returned if the limiter is in memory, or Redis does not answer within the deadline.
    pub async fn publish(&self, name: &str, what: &Override) -> Result<(), OverrideError> {
        validate::named(name, what)?;
        self.write(name, Some(&what.to_string())).await
    }

    /// Removes the override of a limit from the hash on Redis.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if the limiter is in memory, or Redis does not answer within the deadline.
    pub async fn unpublish(&self, name: &str) -> Result<(), OverrideError> {
        self.write(name, None).await
    }

    /// Writes the global enforcement to the hash on Redis, or removes it.
    ///
    /// # Errors
    ///
    /// As [`unpublish`](Self::unpublish).
    pub async fn publish_enforcement(
        &self,
        enforcement: Option<Enforcement>,
    ) -> Result<(), OverrideError> {
        self.write(ALL_LIMITS, enforcement.map(Enforcement::as_str)).await
    }

    /// Reads the override of a limit from the hash on Redis; none if it has no valid one.
    ///
    /// [`by_source`](Self::by_source) returns the value of the latest poll, without a request.
    ///
    /// # Errors
    ///
    /// As [`unpublish`](Self::unpublish).
    pub async fn published(&self, name: &str) -> Result<Option<Override>, OverrideError> {
        let fields = self.hash()?.read().await.map_err(Fault::Unavailable)?;
        let value = fields.into_iter().find_map(|(field, value)| (field == name).then_some(value));
        Ok(value.and_then(|value| value.parse().ok()))
    }

    async fn write(&self, field: &str, value: Option<&str>) -> Result<(), OverrideError> {
        let OverridesHash { backend, key, .. } = self.hash()?;
        let written = backend.set_field(key.as_bytes(), field, value).await;
        written.map_err(|reason| Fault::Unavailable(reason).into())
    }

    fn hash(&self) -> Result<&OverridesHash, Fault> {
        self.shared.hash.as_ref().ok_or(Fault::NoRedis)
    }
}

impl OverridesHash {
    async fn read(&self) -> Result<Vec<(String, String)>, UnavailableReason> {
        self.backend.fields(self.key.as_bytes()).await
    }
}

/// One process's view of the hash.
#[derive(Default)]
struct HashFollower {
    /// The fields of the latest poll. The same fields are not validated again.
    fields: Vec<(String, String)>,
    /// The errors of each invalid field, logged once until the field is valid.
    refused: BTreeMap<String, Logged>,
    /// The reasons why Redis did not answer, logged once until it does.
    unreachable: Logged,
}

impl HashFollower {
    async fn poll(&mut self, hash: &OverridesHash, overrides: &Overrides) {
        match hash.read().await {
            Ok(fields) => {
                self.unreachable = Logged::default();
                self.apply(fields, &hash.key, overrides);
            }
            Err(reason) => self.on_unreachable(reason),
        }
    }

    fn on_unreachable(&mut self, reason: UnavailableReason) {
        if self.unreachable.is_new(&reason) {
            tracing::warn!(%reason, "overrides on Redis unreadable; previous ones stay in effect");
        }
    }

    /// Applies the fields. An invalid one leaves the previous override of its limit in effect.
    fn apply(&mut self, fields: Vec<(String, String)>, key: &str, overrides: &Overrides) {
        if fields == self.fields {
            return;
        }
        let registered = registry::policies();
        let before = overrides.layer(OverrideSource::Redis);
        let mut layer = Layer::default();
        let mut refused = BTreeMap::new();
        for (field, value) in &fields {
            let Err(error) = apply_field(&mut layer, &registered, field, value) else { continue };
            if field == ALL_LIMITS {
                layer.enforcement = before.enforcement;
            } else if let Some(what) = before.limits.get(field) {
                layer.limits.insert(field.clone(), what.clone());
            }
            let mut logged = self.refused.remove(field).unwrap_or_default();
            let error = error.at(key);
            if logged.is_new(&error) {
                tracing::warn!(%error, "override refused; the previous one stays in effect");
            }
            refused.insert(field.clone(), logged);
        }
        self.refused = refused;
        self.fields = fields;
        overrides.change(OverrideSource::Redis, |before| *before = layer);
    }
}

fn apply_field(
    layer: &mut Layer,
    registered: &[RegisteredPolicy],
    field: &str,
    value: &str,
) -> Result<(), OverrideError> {
    let fault = |fault| OverrideError::of(field, fault);
    let what = document::parse_one(value).map_err(fault)?;
    if field == ALL_LIMITS {
        layer.enforcement = Some(what.enforcement_only().map_err(fault)?);
    } else {
        validate::against(registered, field, &what)?;
        layer.limits.insert(field.to_owned(), what);
    }
    Ok(())
}
