//! Overrides in a hash on Redis: following it, and publishing to it. The only file here that imports
//! `redis`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    Enforcement, Fault, Layer, Override, OverrideError, OverrideProblem, OverrideSource, Overrides,
    Shared, document, validate,
};
use crate::{
    error::UnavailableReason,
    follow::{Logged, POLL_INTERVAL, next_poll},
    redis::{HashContent, RedisBackend, start},
    registry::{self, RegisteredPolicy},
};

/// The hash's key after the limiter's prefix.
const KEY: &str = "overrides";

/// The field of all limits. No function has this name.
const ALL_LIMITS: &str = "*";

/// The value of `*` that replaces nothing: it is written in place of the last field.
const NOTHING: (&str, Enforcement) = (ALL_LIMITS, Enforcement::On);

/// The pause after the Redis user was not permitted to read the hash. Each attempt enters its log.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(30);

/// The hash of overrides on a limiter's Redis.
pub(super) struct OverridesHash {
    backend: Arc<RedisBackend>,
    key: String,
    is_followed: AtomicBool,
    state: Mutex<HashState>,
}

/// The result of the latest poll.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum HashState {
    #[default]
    Read,
    /// Redis has lost the hash, and its overrides are kept.
    Lost,
    Unreadable(UnavailableReason),
}

impl OverridesHash {
    /// Returns the problem of the latest poll, if it had one.
    pub(super) fn problem(&self) -> Option<OverrideProblem> {
        match *self.state() {
            HashState::Read => None,
            HashState::Lost => Some(OverrideProblem::Lost { key: self.key.clone() }),
            HashState::Unreadable(reason) => Some(OverrideProblem::Unreadable { reason }),
        }
    }
}

impl Overrides {
    /// Returns a handle without overrides, for a limiter whose keys on this Redis start with `prefix`.
    pub(crate) fn on_redis(backend: Arc<RedisBackend>, prefix: &str) -> Self {
        let key = format!("{prefix}{KEY}");
        let (is_followed, state) = (AtomicBool::new(false), Mutex::default());
        let hash = OverridesHash { backend, key, is_followed, state };
        Self { shared: Arc::new(Shared { hash: Some(hash), ..Shared::default() }) }
    }

    /// Applies the overrides in a hash on the limiter's Redis and follows it. A write by any process
    /// takes effect within a second in all processes that follow it.
    ///
    /// Limiters that [`connect`](crate::Limiter::connect), `connect_lazy` or
    /// [`from_env`](crate::Limiter::from_env) builds follow it from the start, unless
    /// [`follow_overrides`](crate::LimiterBuilder::follow_overrides) is off. Call this for a limiter on a
    /// connection of the program's own. If the hash is followed already, nothing happens.
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
    /// While Redis does not answer, all of them stay in effect. [`problems`](Self::problems) returns both.
    ///
    /// # A Redis that loses the hash
    ///
    /// An empty hash removes all of its overrides if it is read over the same connection as before: then
    /// an operator has emptied it. Over a new connection, Redis may have lost it: by a restart without
    /// persistence, or a failover to a replica without it. Then its overrides stay in effect in this process
    /// until the hash has a field again, such as by `HSET ratelimit:overrides * on`, which changes no limit.
    /// [`publish`](Self::publish) and [`unpublish`](Self::unpublish) restore the hash with their change. A
    /// process that starts meanwhile has no overrides. A connection that the program brought is always the same one.
    ///
    /// # Cost
    ///
    /// Each process sends `HLEN` two or three times a second over the connection of decisions. While the
    /// hash is not empty, it also sends `HGETALL` over a second connection. Its Redis user needs `+hlen`
    /// and `+hgetall`, and read access to this key: `%R~ratelimit:overrides`, from Redis 7 on. Without them
    /// it polls twice a minute, and logs this once.
    ///
    /// The future is ready after the first poll, also if Redis did not answer. The hash is followed
    /// until the last clone of the limiter and of this handle is dropped.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if the limiter is in memory.
    pub async fn follow_redis(&self) -> Result<(), OverrideError> {
        self.hash()?;
        if let Some(first_poll) = self.start_following() {
            // Fails if the last clone of the limiter is dropped before.
            let _ = first_poll.await;
        }
        Ok(())
    }

    /// Starts to follow the hash, unless that was done or there is none. The receiver is ready after the
    /// first poll.
    pub(crate) fn start_following(&self) -> Option<oneshot::Receiver<()>> {
        let hash = self.shared.hash.as_ref()?;
        if hash.is_followed.swap(true, Ordering::Relaxed) {
            return None;
        }
        let (sender, first_poll) = oneshot::channel();
        start(follow(Arc::downgrade(&self.shared), sender));
        Some(first_poll)
    }

    /// Returns `true` if this process [follows](Self::follow_redis) the hash on Redis.
    #[must_use]
    pub fn follows_redis(&self) -> bool {
        self.hash().is_ok_and(|hash| hash.is_followed.load(Ordering::Relaxed))
    }

    /// Returns the reason why the latest poll of the hash on Redis failed, if it did.
    ///
    /// ```
    /// # fn main() {
    /// assert_eq!(ratelimit_runtime::Limiter::in_memory().overrides().redis_failure(), None);
    /// # }
    /// ```
    #[must_use]
    pub fn redis_failure(&self) -> Option<UnavailableReason> {
        match *self.hash().ok()?.state() {
            HashState::Unreadable(reason) => Some(reason),
            HashState::Read | HashState::Lost => None,
        }
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
        self.write(name, Some(what.to_string())).await
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
        self.write(ALL_LIMITS, enforcement.map(|it| it.as_str().to_owned())).await
    }

    /// Reads the override of a limit from the hash on Redis; none if it has no valid one. Of a hash that
    /// Redis has lost, it is the one in effect.
    ///
    /// [`by_source`](Self::by_source) returns the value of the latest poll, without a request.
    ///
    /// # Errors
    ///
    /// As [`unpublish`](Self::unpublish).
    pub async fn published(&self, name: &str) -> Result<Option<Override>, OverrideError> {
        let hash = self.hash()?;
        if *hash.state() == HashState::Lost {
            return Ok(self.layer(OverrideSource::Redis).limits.get(name).cloned());
        }
        let fields = hash.read().await.map_err(Fault::Unavailable)?.fields;
        let value = fields.into_iter().find_map(|(field, value)| (field == name).then_some(value));
        Ok(value.and_then(|value| value.parse().ok()))
    }

    /// Writes a field, or removes it. A hash that was lost is restored with this change.
    async fn write(&self, field: &str, value: Option<String>) -> Result<(), OverrideError> {
        let hash = self.hash()?;
        let (backend, key) = (&hash.backend, hash.key.as_bytes());
        let is_lost = *hash.state() == HashState::Lost;
        let written = match value {
            _ if is_lost => backend.set_fields(key, &self.restored(field, value)).await,
            Some(value) => backend.set_fields(key, &[(field.to_owned(), value)]).await,
            None => backend.remove_field(key, field).await,
        };
        written.map_err(Fault::Unavailable)?;
        if is_lost {
            // Every process reads the restored hash before the next change can empty it.
            tokio::time::sleep(2 * POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Returns the fields of a hash that was lost, after a change of one. There is always a field.
    fn restored(&self, field: &str, value: Option<String>) -> Vec<(String, String)> {
        let mut fields = fields_of(&self.layer(OverrideSource::Redis));
        fields.remove(field);
        fields.extend(value.map(|value| (field.to_owned(), value)));
        if fields.is_empty() {
            fields.insert(NOTHING.0.to_owned(), NOTHING.1.as_str().to_owned());
        }
        fields.into_iter().collect()
    }

    fn hash(&self) -> Result<&OverridesHash, Fault> {
        self.shared.hash.as_ref().ok_or(Fault::NoRedis)
    }
}

/// Polls the hash until the overrides are dropped.
async fn follow(overrides: Weak<Shared>, first_poll: oneshot::Sender<()>) {
    let (mut follower, mut first_poll) = (HashFollower::default(), Some(first_poll));
    let mut next = overrides.upgrade();
    while let Some(shared) = next {
        let overrides = Overrides { shared };
        let Ok(hash) = overrides.hash() else { return };
        let pause = follower.poll(hash, &overrides).await;
        if let Some(first_poll) = first_poll.take() {
            let _ = first_poll.send(());
        }
        let target = Arc::downgrade(&overrides.shared);
        drop(overrides);
        next = next_poll(&target, pause).await;
    }
}

/// Returns the fields of a hash with these overrides.
fn fields_of(layer: &Layer) -> BTreeMap<String, String> {
    let limits = layer.limits.iter().map(|(name, what)| (name.clone(), what.to_string()));
    let global = layer.enforcement.map(|it| (ALL_LIMITS.to_owned(), it.as_str().to_owned()));
    limits.chain(global).collect()
}

impl OverridesHash {
    async fn read(&self) -> Result<HashContent, UnavailableReason> {
        self.backend.fields(self.key.as_bytes()).await
    }

    fn state(&self) -> MutexGuard<'_, HashState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process's view of the hash.
#[derive(Default)]
struct HashFollower {
    /// The fields that are in effect. The same fields are not validated again.
    fields: Vec<(String, String)>,
    /// The connection over which these fields were read.
    read_over: Option<(String, u64)>,
    /// `true` while Redis has lost the hash.
    is_lost: bool,
    /// The errors of each invalid field, logged once until the field is valid.
    refused: BTreeMap<String, Logged>,
    /// The reasons why Redis did not answer, logged once until it does.
    unreachable: Logged,
}

impl HashFollower {
    /// Applies the hash. Returns the pause before the next poll.
    async fn poll(&mut self, hash: &OverridesHash, overrides: &Overrides) -> Duration {
        let (state, pause) = match hash.read().await {
            Ok(content) => {
                self.unreachable = Logged::default();
                (self.on_content(content, hash, overrides), POLL_INTERVAL)
            }
            Err(reason) => {
                self.on_unreachable(reason, &hash.key);
                let is_forbidden = reason == UnavailableReason::NotPermitted;
                let pause = if is_forbidden { FORBIDDEN_PAUSE } else { POLL_INTERVAL };
                (HashState::Unreadable(reason), pause)
            }
        };
        *hash.state() = state;
        overrides.report_problems();
        pause
    }

    fn on_unreachable(&mut self, reason: UnavailableReason, key: &str) {
        if self.unreachable.is_new(&reason) {
            let advice = reason.advice();
            tracing::warn!(key, %reason, advice, "overrides on Redis unreadable; previous ones stay in effect");
        }
    }

    fn on_content(
        &mut self,
        content: HashContent,
        hash: &OverridesHash,
        overrides: &Overrides,
    ) -> HashState {
        let HashContent { fields, read_over } = content;
        if fields.is_empty() && !self.fields.is_empty() && read_over != self.read_over {
            if !std::mem::replace(&mut self.is_lost, true) {
                let problem = OverrideProblem::Lost { key: hash.key.clone() };
                tracing::warn!(%problem, "overrides on Redis lost; previous ones stay in effect");
            }
            return HashState::Lost;
        }
        (self.read_over, self.is_lost) = (read_over, false);
        self.apply(fields, &hash.key, overrides);
        HashState::Read
    }

    /// Applies the fields. An invalid one leaves the previous override of its limit in effect.
    fn apply(&mut self, fields: Vec<(String, String)>, key: &str, overrides: &Overrides) {
        if fields == self.fields {
            return;
        }
        let registered = registry::policies();
        let before = overrides.layer(OverrideSource::Redis);
        let mut layer = Layer::default();
        let (mut refused, mut errors) = (BTreeMap::new(), Vec::new());
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
            errors.push(error);
        }
        self.refused = refused;
        self.fields = fields;
        overrides.change(OverrideSource::Redis, |before| *before = layer);
        overrides.reject(OverrideSource::Redis, errors);
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
