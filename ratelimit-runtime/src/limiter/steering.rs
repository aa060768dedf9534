//! Overrides from outside the program: a file, the environment, a hash on Redis.

mod file;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use self::file::OverridesFile;
use super::{Inner, Limiter};
use crate::{
    error::UnavailableReason,
    overrides::{Fault, Layer, Override, OverrideError, OverrideSource, document, judge},
    redis::RedisBackend,
};

/// How often files and hashes are looked at: what is said there holds everywhere within a second.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// How soon a file that says something else is read again: what is half written then is not taken
/// for what it says.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What the hash's key is called after the limiter's prefix.
const HASH: &str = "overrides";

/// The field of the hash that speaks of all limits. No function is called so.
const ALL_LIMITS: &str = "*";

impl Limiter {
    /// Has the overrides in a file hold, which is TOML, or JSON if it starts with a brace, and
    /// follows it: what is written there later holds within a second, in whole or, if something in
    /// it is wrong, not at all; that is logged at `warn`, as is a file that can no longer be read.
    ///
    /// What is written holds once the file reads the same twice, 200 ms apart: one that is emptied
    /// and then written, or written in pieces, is not taken for what it says in between. To be sure
    /// of it, write another file and rename it to this one.
    ///
    /// ```toml
    /// enforcement = "on"           # of all limits; "off" is the kill switch
    ///
    /// [limits."app::reply"]
    /// period = "30s"
    /// threshold = 10
    /// enforcement = "dry_run"
    ///
    /// [limits.mail]                # a limit of several tiers
    /// tiers = [{ period = "1m", threshold = 2 }, { period = "1h", threshold = 10 }]
    ///
    /// [limits]
    /// search = "off"               # short for { enforcement = "off" }
    /// ```
    ///
    /// The file is a regular one of at most 1 MiB. It is followed until the limiter and its clones are
    /// gone. Each fault is logged once, until what is read is right again.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] when the file cannot be read, or something in it is wrong; then it is not
    /// followed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn follow_overrides_file(&self, path: impl Into<PathBuf>) -> Result<(), OverrideError> {
        let mut file = OverridesFile::new(path.into());
        file.begin(self)?;
        tokio::spawn(file.follow(Arc::downgrade(&self.inner)));
        Ok(())
    }

    /// Has the overrides in a hash on the limiter's Redis hold, and follows it: what any process
    /// writes there holds in all that follow it within a second.
    ///
    /// The hash is `ratelimit:overrides`, or another [prefix](crate::LimiterBuilder::prefix) in
    /// place of `ratelimit:`. Its fields are the limits' names, or `*` for all limits; its values are
    /// JSON objects as in [files](Self::follow_overrides_file), or only a word for the enforcement:
    ///
    /// ```text
    /// HSET ratelimit:overrides app::reply '{"threshold": 10, "period": "30s"}'
    /// HSET ratelimit:overrides search dry_run
    /// HSET ratelimit:overrides * off
    /// HDEL ratelimit:overrides search
    /// ```
    ///
    /// Of a limit whose value is wrong, what was said before holds on; that is logged at `warn`.
    /// While Redis does not answer, all of it does. Each process asks two or three times a second;
    /// its user needs `+hlen` and `+hgetall`, and this key to read: `%R~ratelimit:overrides`, from
    /// Redis 7 on.
    ///
    /// It returns after the first look, also when that found no Redis, and follows until the limiter
    /// and its clones are gone.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] when the limiter is in memory.
    pub async fn follow_overrides(&self) -> Result<(), OverrideError> {
        let mut hash = OverridesHash::default();
        hash.look(self.remote()?, self).await;
        self.overrides().follow_redis();
        let limiter = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            while let Some(limiter) = next_look(&limiter, LOOK_EVERY).await {
                if let Ok(remote) = limiter.remote() {
                    hash.look(remote, &limiter).await;
                }
            }
        });
        Ok(())
    }

    /// Writes what shall hold for a limit to the hash that the fleet
    /// [follows](Self::follow_overrides), or takes it from there.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] when an annotated function of this name would have a limit that breaks a
    /// rule, the limiter is in memory, or Redis does not do it within the deadline.
    pub async fn publish_override(
        &self,
        name: &str,
        what: Option<&Override>,
    ) -> Result<(), OverrideError> {
        if let Some(what) = what {
            judge(name, what).map_err(|fault| OverrideError::of(name, fault))?;
        }
        self.publish(name, what.map(document::write_one)).await
    }

    /// Writes what the refusals of all limits are worth at the most to the hash that the fleet
    /// [follows](Self::follow_overrides), or takes it from there.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] when the limiter is in memory, or Redis does not do it within the deadline.
    pub async fn publish_enforcement(
        &self,
        enforcement: Option<crate::Enforcement>,
    ) -> Result<(), OverrideError> {
        self.publish(ALL_LIMITS, enforcement.map(|it| it.to_string())).await
    }

    /// What the hash says of a limit right now, if it can be read.
    #[cfg(feature = "dashboard")]
    pub(crate) async fn published_override(
        &self,
        name: &str,
    ) -> Result<Option<Override>, OverrideError> {
        let fields = self.remote()?.fields(self.overrides_key().as_bytes()).await;
        let fields = fields.map_err(|reason| OverrideError::from(Fault::Unavailable(reason)))?;
        let value = fields.into_iter().find_map(|(field, value)| (field == name).then_some(value));
        Ok(value.and_then(|value| document::read_one(&value).ok()))
    }

    async fn publish(&self, field: &str, value: Option<String>) -> Result<(), OverrideError> {
        let key = self.overrides_key();
        let written = self.remote()?.set_field(key.as_bytes(), field, value.as_deref()).await;
        written.map_err(|reason| Fault::Unavailable(reason).into())
    }

    fn overrides_key(&self) -> String {
        format!("{}{HASH}", self.inner.backend.prefix())
    }

    fn remote(&self) -> Result<&RedisBackend, OverrideError> {
        self.inner.backend.redis().map(|redis| &**redis).ok_or_else(|| Fault::NoRedis.into())
    }
}

/// The limiter, after a while, if it is still in use.
async fn next_look(limiter: &Weak<Inner>, pause: Duration) -> Option<Limiter> {
    tokio::time::sleep(pause).await;
    limiter.upgrade().map(|inner| Limiter { inner })
}

/// Faults that were logged, each once until what is read is right again.
#[derive(Default)]
struct Logged(BTreeSet<String>);

impl Logged {
    /// The most faults that are remembered.
    const MOST: usize = 64;

    fn is_new(&mut self, fault: &impl fmt::Display) -> bool {
        if self.0.len() == Self::MOST {
            self.0.clear();
        }
        self.0.insert(fault.to_string())
    }
}

/// The hash of overrides.
#[derive(Default)]
struct OverridesHash {
    /// What it said last: what is the same is not judged again.
    fields: Vec<(String, String)>,
    /// What was wrong in it, by the fields, so that each is logged once until the field is right.
    refused: BTreeMap<String, Logged>,
    /// Why it could not be read, until it is.
    lost: Logged,
}

impl OverridesHash {
    async fn look(&mut self, remote: &RedisBackend, limiter: &Limiter) {
        match remote.fields(limiter.overrides_key().as_bytes()).await {
            Ok(fields) => {
                self.lost = Logged::default();
                self.take(fields, limiter);
            }
            Err(reason) => self.lose(reason),
        }
    }

    fn lose(&mut self, reason: UnavailableReason) {
        if self.lost.is_new(&reason) {
            tracing::warn!(%reason, "cannot look for overrides on Redis; those of before still hold");
        }
    }

    /// Has the fields hold, and of a wrong one what it said before.
    fn take(&mut self, fields: Vec<(String, String)>, limiter: &Limiter) {
        if fields == self.fields {
            return;
        }
        let before = limiter.overrides().layer(OverrideSource::Redis);
        let mut layer = Layer::default();
        let mut refused = BTreeMap::new();
        for (field, value) in &fields {
            let Err(error) = read_field(&mut layer, field, value) else { continue };
            if field == ALL_LIMITS {
                layer.enforcement = before.enforcement;
            } else if let Some(what) = before.limits.get(field) {
                layer.limits.insert(field.clone(), what.clone());
            }
            let mut logged = self.refused.remove(field).unwrap_or_default();
            let error = error.at(limiter.overrides_key());
            if logged.is_new(&error) {
                tracing::warn!(%error, "refused an override; the one of before still holds");
            }
            refused.insert(field.clone(), logged);
        }
        self.refused = refused;
        self.fields = fields;
        if let Err(error) = limiter.overrides().replace(OverrideSource::Redis, layer) {
            tracing::warn!(%error, "refused overrides; those of before still hold");
        }
    }
}

fn read_field(layer: &mut Layer, field: &str, value: &str) -> Result<(), OverrideError> {
    let fault = |fault| OverrideError::of(field, fault);
    let what = document::read_one(value).map_err(fault)?;
    if field == ALL_LIMITS {
        layer.enforcement = Some(what.only_enforcement().map_err(fault)?);
    } else {
        judge(field, &what).map_err(fault)?;
        layer.limits.insert(field.to_owned(), what);
    }
    Ok(())
}
