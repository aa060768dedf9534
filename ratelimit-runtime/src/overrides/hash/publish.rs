//! Publishing to the hashes on Redis, and reading what is published.

use super::{
    super::{Enforcement, Fault, Override, OverrideError, Overrides, layer::ALL_LIMITS},
    fields::{field_of, value_of},
};
use crate::key::IntoCaller;

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
        let mut what = self.validated(name, None, what.clone())?;
        if what.candidate.is_some() {
            what = self.started(what, self.published(name).await?.as_ref());
        }
        self.write(name, None, Some(what)).await
    }

    /// Removes the override of a limit from the hash on Redis.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if the limiter is in memory, or Redis does not answer within the deadline.
    pub async fn unpublish(&self, name: &str) -> Result<(), OverrideError> {
        self.write(name, None, None).await
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
        self.write(ALL_LIMITS, None, what).await
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
        self.read(name, None).await
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
        self.read(limit, Some(&self.text_of(caller))).await
    }

    async fn read(
        &self,
        limit: &str,
        caller: Option<&str>,
    ) -> Result<Option<Override>, OverrideError> {
        let hash = self.hashes()?.of(caller);
        if hash.is_lost() {
            return Ok(self.of_redis(|layer| layer.get(limit, caller).cloned()));
        }
        let value = hash.hash.field(&field_of(limit, caller)).await.map_err(Fault::unavailable)?;
        let what: Option<Override> = value.and_then(|value| value.parse().ok());
        Ok(what.filter(|what| !self.shared.identities.has_ended(what)))
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
        let caller = self.text_of(caller);
        let what = self.validated(limit, Some(&caller), what.clone())?;
        self.write(limit, Some(&caller), Some(what)).await
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
        self.write(limit, Some(&self.text_of(caller)), None).await
    }

    /// Writes a field, or removes it. Remembers who removes an override: the next poll finds a field less, and no
    /// name in it.
    async fn write(
        &self,
        limit: &str,
        caller: Option<&str>,
        what: Option<Override>,
    ) -> Result<(), OverrideError> {
        let hash = self.hashes()?.of(caller);
        let history = &self.shared.history;
        let is_read = || self.of_redis(|layer| layer.get(limit, caller).is_some());
        if let (Some(operator), None, true) = (&self.operator, &what, is_read()) {
            history.expect_removal(limit, caller, operator);
        }
        let value = what.as_ref().map(|what| value_of(limit, what));
        let written = hash.write(self, &field_of(limit, caller), value).await;
        if !matches!(written, Ok(true)) {
            history.forget_removal(limit, caller);
        }
        written?;
        if let Some(caller) = caller {
            self.audit(limit, caller, what.as_ref());
        } else {
            let operator = self.operator();
            tracing::info!(policy = limit, operator, overridden = ?what, "override written to Redis");
        }
        Ok(())
    }
}
