//! Publishing to the hashes on Redis, and reading what is published.

use super::{
    super::{Enforcement, Fault, Override, OverrideError, OverrideSource, Overrides, validate},
    FleetHash,
    fields::{self, ALL_FIELD},
};
use crate::{key::IntoCaller, registry};

impl Overrides {
    /// Writes the override of a limit to the hash on Redis. It takes effect in all processes that
    /// [follow](Self::follow_redis) the hash. In a hash that is full, it replaces those that have ended.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if the policy of a callsite of this name would break a rule. It is also
    /// returned if the limiter is in memory, the hash has 10 000 other overrides, or Redis does not answer within
    /// the deadline.
    pub async fn publish(&self, name: &str, what: &Override) -> Result<(), OverrideError> {
        validate::named(name, what)?;
        self.write(name, Some(self.signed(what.clone()))).await
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
        let what = enforcement.map(|it| self.signed(Override::new().enforcement(it)));
        self.write(ALL_FIELD, what).await
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
        self.read(&self.hashes()?.limits, name, (name, None)).await
    }

    /// Reads the override of one caller from the hash of callers on Redis, as [`published`](Self::published).
    ///
    /// # Errors
    ///
    /// As [`unpublish`](Self::unpublish).
    pub async fn published_for<'a>(
        &self,
        limit: &str,
        caller: impl IntoCaller<'a>,
    ) -> Result<Option<Override>, OverrideError> {
        let caller = self.text_of(caller);
        let field = fields::of_caller(limit, &caller);
        self.read(&self.hashes()?.callers, &field, (limit, Some(&caller))).await
    }

    async fn read(
        &self,
        hash: &FleetHash,
        field: &str,
        (limit, caller): (&str, Option<&str>),
    ) -> Result<Option<Override>, OverrideError> {
        if hash.is_lost() {
            return Ok(self.layer(OverrideSource::Redis).get(limit, caller).cloned());
        }
        let value = hash.hash.field(field).await.map_err(Fault::Unavailable)?;
        let what: Option<Override> = value.and_then(|value| value.parse().ok());
        let snapshot = self.shared.snapshot.load();
        Ok(what.filter(|what| !snapshot.identities().has_ended(what)))
    }

    /// Writes the override of one caller to the hash of callers on Redis, in place of an earlier one. It takes
    /// effect in all processes that [follow](Self::follow_redis) the hash. A `limit` of `*` is all limits.
    ///
    /// With a [`caller_digest`](crate::LimiterBuilder::caller_digest), Redis keeps a digest of the caller. All
    /// processes of the fleet need the same secret.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish) and [`set_for`](Self::set_for).
    pub async fn publish_for<'a>(
        &self,
        limit: &str,
        caller: impl IntoCaller<'a>,
        what: &Override,
    ) -> Result<(), OverrideError> {
        validate::of_caller(&registry::policies(), limit, what)?;
        let (caller, what) = (self.text_of(caller), self.signed(what.clone()));
        self.write_for(limit, &caller, Some(&what)).await
    }

    /// Removes the override of one caller from the hash on Redis.
    ///
    /// # Errors
    ///
    /// As [`unpublish`](Self::unpublish).
    pub async fn unpublish_for<'a>(
        &self,
        limit: &str,
        caller: impl IntoCaller<'a>,
    ) -> Result<(), OverrideError> {
        let caller = self.text_of(caller);
        self.write_for(limit, &caller, None).await
    }

    async fn write_for(
        &self,
        limit: &str,
        caller: &str,
        what: Option<&Override>,
    ) -> Result<(), OverrideError> {
        let (hash, field) = (&self.hashes()?.callers, fields::of_caller(limit, caller));
        let value = what.map(ToString::to_string);
        self.write_signed(hash, &field, value, (limit, Some(caller))).await?;
        self.audit(limit, caller, what);
        Ok(())
    }

    async fn write(&self, field: &str, what: Option<Override>) -> Result<(), OverrideError> {
        let value = what.as_ref().map(|what| fields::value_of(field, what));
        self.write_signed(&self.hashes()?.limits, field, value, (field, None)).await?;
        let operator = self.operator();
        tracing::info!(policy = field, operator, overridden = ?what, "override written to Redis");
        Ok(())
    }

    /// Writes a field. Remembers who removes an override: the next poll finds a field less, and no name in it.
    async fn write_signed(
        &self,
        hash: &FleetHash,
        field: &str,
        value: Option<String>,
        (limit, caller): (&str, Option<&str>),
    ) -> Result<(), OverrideError> {
        let history = &self.shared.history;
        let is_read = || self.layer(OverrideSource::Redis).get(limit, caller).is_some();
        if let (Some(operator), None, true) = (&self.operator, &value, is_read()) {
            history.expect_removal(limit, caller, operator);
        }
        let written = hash.write(self, field, value).await;
        if !matches!(written, Ok(true)) {
            history.forget_removal(limit, caller);
        }
        written.map(drop)
    }
}
