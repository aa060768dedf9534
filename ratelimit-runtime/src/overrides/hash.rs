//! Overrides in two hashes on Redis, those of limits and those of single callers. The only room
//! here that imports `redis`.

mod fields;
mod follower;
mod publish;
mod status;

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

pub use self::publish::FleetOverrides;
use self::{
    fields::{HashKind, REVISION},
    follower::follow,
    status::STATUS_KEY,
};
use super::{
    Enforcement, Fault, Layer, Override, OverrideError, OverrideProblem, OverrideSource, Overrides,
    Shared, Shown,
    callers::random,
    fleet::STARTED,
    layer::{ALL_LIMITS, WrittenPlace},
};
use crate::{
    background,
    error::{Replied, UnavailableReason},
    follow::POLL_INTERVAL,
    redis::{RedisBackend, RedisHash},
};

/// The keys of the hashes after the limiter's prefix.
const LIMITS_KEY: &str = "overrides";
const CALLERS_KEY: &str = "overrides:callers";

/// The pause after the Redis user was not permitted to read a hash. Each attempt enters its log.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(30);

/// The hashes of overrides on a limiter's Redis.
pub(super) struct FleetHashes {
    limits: FleetHash,
    callers: FleetHash,
    status: RedisHash,
    is_followed: AtomicBool,
}

/// A hash of overrides.
struct FleetHash {
    kind: HashKind,
    key: String,
    hash: RedisHash,
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

impl FleetHashes {
    /// Returns the hash of a place: that of limits, or that of callers.
    fn of(&self, place: &WrittenPlace) -> &FleetHash {
        if place.caller.is_some() { &self.callers } else { &self.limits }
    }

    /// Returns the problems of the latest polls.
    pub(super) fn problems(&self) -> impl Iterator<Item = OverrideProblem> {
        [&self.limits, &self.callers].into_iter().filter_map(|hash| match *hash.state.lock() {
            HashState::Read => None,
            HashState::Lost => Some(OverrideProblem::Lost { key: hash.key.clone() }),
            HashState::Unreadable(reason) => Some(OverrideProblem::Unreadable { reason }),
        })
    }
}

impl FleetHash {
    fn new(kind: HashKind, key: String, backend: &RedisBackend) -> Self {
        Self { kind, hash: backend.hash(&key), key, state: Mutex::default() }
    }

    fn is_lost(&self) -> bool {
        *self.state.lock() == HashState::Lost
    }

    /// Writes a field, or removes it; returns `false` if there is none to remove. A hash that was
    /// lost is restored with this change.
    async fn write(
        &self,
        overrides: &Overrides,
        field: &str,
        value: Option<String>,
    ) -> Result<bool, OverrideError> {
        let is_lost = self.is_lost();
        let twins = if is_lost { Vec::new() } else { self.twins(overrides, field).await? };
        let mut fields = Vec::new();
        let (mut is_known, mut max_fields) = (true, usize::MAX);
        // The hash would look whole with one field: all that were read before are written with it.
        if is_lost {
            fields = overrides.of_redis(|layer| self.kind.fields_of(layer));
            fields.retain(|(other, _)| other != field);
        } else if value.is_none() {
            let is_removed = self.hash.remove(field).await?;
            is_known = is_removed || !twins.is_empty();
        } else {
            max_fields = self.kind.max_fields();
        }
        fields.extend(value.map(|value| (field.to_owned(), value)));
        if self.kind == HashKind::Callers {
            fields.push((REVISION.to_owned(), format!("{:016x}", random())));
        } else if is_lost && fields.is_empty() {
            // There is always a field, and this one changes nothing.
            fields.push((ALL_LIMITS.to_owned(), Enforcement::On.as_str().to_owned()));
        }
        if !fields.is_empty() {
            let set = async |ended: Vec<_>| self.hash.set(&fields, &ended, max_fields, None).await;
            // A hash that is full has room again without those that have ended.
            let fits =
                set(twins.clone()).await? || set([self.ended().await?, twins].concat()).await?;
            if !fits {
                let key = &self.key;
                let full =
                    format!("`{key}` on Redis has its most fields, 10000; remove some first");
                return Err(Fault::new(full).into());
            }
        }
        if is_lost {
            // Every process reads the restored hash before the next change can empty it.
            tokio::time::sleep(2 * POLL_INTERVAL).await;
        }
        Ok(is_known)
    }

    /// Returns the other fields of the place of this one: under a secret, an operator may have
    /// written the caller itself in place of its digest.
    async fn twins(&self, overrides: &Overrides, field: &str) -> Replied<Vec<(String, String)>> {
        if self.kind == HashKind::Limits || !overrides.shared.identities.has_secret() {
            return Ok(Vec::new());
        }
        let place = |field: &str| self.kind.place_of(field, overrides).ok();
        let (own, mut fields) = (place(field), self.hash.fields(usize::MAX).await?.fields);
        fields.retain(|(other, _)| other != field && own.is_some() && place(other) == own);
        Ok(fields)
    }

    /// Returns the fields of overrides that have ended, by the clock of Redis. They take the room
    /// of others.
    async fn ended(&self) -> Replied<Vec<(String, String)>> {
        let now = self.hash.time().await?;
        let mut fields = self.hash.fields(usize::MAX).await?.fields;
        // Most need not be parsed.
        let has_ended = |value: &str| {
            let what = value.contains("until").then(|| value.parse::<Override>().ok()).flatten();
            what.is_some_and(|what| what.has_ended(now))
        };
        fields.retain(|(_, value)| has_ended(value));
        Ok(fields)
    }
}

impl Overrides {
    /// Returns a handle without overrides, for keys on this Redis that start with `prefix`.
    pub(crate) fn on_redis(backend: &RedisBackend, prefix: &str, shown: Shown) -> Self {
        LazyLock::force(&STARTED);
        let hash = |kind, key| FleetHash::new(kind, format!("{prefix}{key}"), backend);
        let hashes = FleetHashes {
            limits: hash(HashKind::Limits, LIMITS_KEY),
            callers: hash(HashKind::Callers, CALLERS_KEY),
            status: backend.hash(&format!("{prefix}{STATUS_KEY}")),
            is_followed: AtomicBool::new(false),
        };
        Self::of(&Arc::new(Shared { hashes: Some(hashes), ..Shared::new(shown) }))
    }

    /// Applies the overrides in a hash on the limiter's Redis and follows it. A write by any
    /// process takes effect within a second in all processes that follow it.
    ///
    /// Limiters that [`connect`](crate::Limiter::connect), `connect_lazy` or
    /// [`from_env`](crate::Limiter::from_env) builds follow it from the start, unless
    /// [`follow_overrides`](crate::LimiterBuilder::follow_overrides) is off. Call this for a
    /// limiter on a connection of the program's own. If the hash is followed already, nothing
    /// happens.
    ///
    /// The hash is `ratelimit:overrides`, or another [prefix](crate::LimiterBuilder::prefix) in
    /// place of `ratelimit:`. Its fields are the limits' names, or `*` for all limits. Its values
    /// are JSON objects as in [files](Self::follow_file), or the word of an enforcement:
    ///
    /// ```text
    /// HSET ratelimit:overrides app::reply '{"threshold": 10, "period": "30s"}'
    /// HSET ratelimit:overrides search dry_run
    /// HSET ratelimit:overrides * off
    /// HDEL ratelimit:overrides search
    /// ```
    ///
    /// An invalid value is logged at `warn`; the previous override of this limit stays in effect.
    /// While Redis does not answer, all of them stay in effect. [`problems`](Self::problems)
    /// returns both.
    ///
    /// # A Redis that loses the hash
    ///
    /// An empty hash removes all of its overrides if it is read over the same connection as before:
    /// then an operator has emptied it. Over a new connection, Redis may have lost it: by a restart
    /// without persistence, or a failover to a replica without it. Then its overrides stay in
    /// effect in this process until the hash has a field again, such as by
    /// `HSET ratelimit:overrides * on`, which changes no limit. Each change by
    /// [`fleet`](Self::fleet) restores the hash with it. A process that starts meanwhile has no
    /// overrides. A connection that the program brought is always the same one.
    ///
    /// # Cost
    ///
    /// Each process sends `TIME`, `HLEN` and `HGET` two or three times a second over the connection
    /// of decisions. While the hash is not empty, it also sends `HGETALL` over a second connection.
    /// The hash of callers it reads so only after a change, and every 30 s. Every two seconds it
    /// sends one more `HGET`, to find out if somebody reads the [status of the
    /// fleet](crate::Limiter::fleet). Its Redis user needs `+hlen`, `+hget`, `+time` and
    /// `+hgetall`, and read access to both keys: `%R~ratelimit:overrides` and
    /// `%R~ratelimit:overrides:callers`, from Redis 7 on. Without them it polls twice a minute, and
    /// logs this once for each key.
    ///
    /// The future is ready after the first poll, also if Redis did not answer. The hash is followed
    /// until the last clone of the limiter and of this handle is dropped.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if the limiter is in memory.
    pub async fn follow_redis(&self) -> Result<(), OverrideError> {
        self.hashes()?;
        if let Some(first_poll) = self.start_following() {
            // Fails if the last clone of the limiter is dropped before.
            let _ = first_poll.await;
        }
        Ok(())
    }

    /// Starts to follow the hash, unless that was done or there is none. The receiver is ready
    /// after the first poll.
    pub(crate) fn start_following(&self) -> Option<oneshot::Receiver<()>> {
        let hashes = self.shared.hashes.as_ref()?;
        if hashes.is_followed.swap(true, Ordering::Relaxed) {
            return None;
        }
        let (sender, first_poll) = oneshot::channel();
        background::start(follow(Arc::downgrade(&self.shared), sender));
        Some(first_poll)
    }

    /// Returns `true` if this process [follows](Self::follow_redis) the hash on Redis.
    #[must_use]
    pub fn follows_redis(&self) -> bool {
        self.hashes().is_ok_and(|hashes| hashes.is_followed.load(Ordering::Relaxed))
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
        match *self.hashes().ok()?.limits.state.lock() {
            HashState::Unreadable(reason) => Some(reason),
            HashState::Read | HashState::Lost => None,
        }
    }

    /// Reads the overrides that this process has from Redis.
    fn of_redis<T>(&self, read: impl FnOnce(&Layer) -> T) -> T {
        read(&self.shared.layers.lock()[OverrideSource::Redis as usize])
    }

    fn hashes(&self) -> Result<&FleetHashes, Fault> {
        self.shared.hashes.as_ref().ok_or_else(|| {
            Fault::new(
                "a limiter in memory has no overrides on Redis; connect it, or set them `here()`",
            )
        })
    }
}
