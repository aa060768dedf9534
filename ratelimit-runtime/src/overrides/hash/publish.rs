//! Overrides of the fleet: reading, writing and removing the fields of the hashes on Redis.

use super::{
    super::{Override, OverrideError, Overrides, Place, layer::WrittenPlace},
    fields::{field_of, value_of},
};

/// The overrides of the whole fleet, as [`Overrides::fleet`] returns them.
#[derive(Clone, Copy, Debug)]
pub struct FleetOverrides<'a>(&'a Overrides);

impl FleetOverrides<'_> {
    /// Reads the override of a place from the hash on Redis; none if it has no valid one. Of a hash
    /// that Redis has lost, it is the one in effect.
    ///
    /// [`by_source`](Overrides::by_source) returns the value of the latest poll, without a request.
    ///
    /// # Errors
    ///
    /// As [`remove`](Self::remove).
    pub async fn get(&self, place: impl Into<Place>) -> Result<Option<Override>, OverrideError> {
        self.read(&self.0.written(place)).await
    }

    /// Writes the override of a place to the hash on Redis, instead of an earlier one. It takes
    /// effect in all processes that [follow](Overrides::follow_redis) the hash, as
    /// [`ProcessOverrides::set`](super::super::ProcessOverrides::set) describes. In a hash that is
    /// full, it replaces those that have ended.
    ///
    /// With a [`caller_digest`](crate::LimiterBuilder::caller_digest), Redis keeps a digest of the
    /// caller. All processes of the fleet need the same secret.
    ///
    /// ```no_run
    /// use ratelimit_runtime::{Enforcement, Limiter, Override, overrides::Place};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::connect("redis://127.0.0.1/").await?;
    /// let fleet = limiter.overrides().fleet();
    /// fleet.set(("search", "acme"), Override::new().threshold(500)).await?;
    /// fleet.set(Place::all(), Enforcement::Off).await?;
    /// fleet.remove(Place::all()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`OverrideError`] as from `ProcessOverrides::set`. It is also returned if the limiter is in
    /// memory, the hash has 10 000 other overrides, or Redis does not answer within the deadline.
    pub async fn set(
        &self,
        place: impl Into<Place>,
        what: impl Into<Override>,
    ) -> Result<(), OverrideError> {
        let place = self.0.written(place);
        let mut what = self.0.validated(&place, what.into())?;
        if what.parts().iter().any(|part| part.candidate.is_some()) {
            what = self.0.started(what, self.read(&place).await?.as_ref());
        }
        self.write(&place, Some(what)).await
    }

    /// Removes the override of a place from the hash on Redis.
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if the limiter is in memory, or Redis does not answer within the deadline.
    pub async fn remove(&self, place: impl Into<Place>) -> Result<(), OverrideError> {
        self.write(&self.0.written(place), None).await
    }

    async fn read(&self, place: &WrittenPlace) -> Result<Option<Override>, OverrideError> {
        let Self(overrides) = self;
        let hash = overrides.hashes()?.of(place);
        if hash.is_lost() {
            return Ok(overrides.of_redis(|layer| layer.get(place).cloned()));
        }
        let field = field_of(place);
        let mut value = hash.hash.field(&field).await?;
        if value.is_none() {
            let twin = hash.twins(overrides, &field).await?.pop();
            value = twin.map(|(_, value)| value);
        }
        let what: Option<Override> = value.and_then(|value| value.parse().ok());
        Ok(what.filter(|what| !what.has_ended(overrides.shared.identities.now())))
    }

    /// Writes a field, or removes it. Remembers who removes an override: the next poll finds a
    /// field less, and no name in it.
    async fn write(
        &self,
        place: &WrittenPlace,
        what: Option<Override>,
    ) -> Result<(), OverrideError> {
        let Self(overrides) = self;
        let hash = overrides.hashes()?.of(place);
        let history = &overrides.shared.history;
        let is_read = || overrides.of_redis(|layer| layer.get(place).is_some());
        if let (Some(operator), None, true) = (&overrides.operator, &what, is_read()) {
            history.expect_removal(place, operator);
        }
        let value = what.as_ref().map(|what| value_of(place, what));
        let written = hash.write(overrides, &field_of(place), value).await;
        if !matches!(written, Ok(true)) {
            history.forget_removal(place);
        }
        written?;
        if place.caller.is_none() {
            let operator = overrides.operator();
            tracing::info!(policy = place.limit, operator, overridden = ?what, "override written to Redis");
        }
        overrides.audit(place, what.as_ref());
        Ok(())
    }
}

impl Overrides {
    /// Returns the overrides of the whole fleet, which are in hashes on Redis. See
    /// [`follow_redis`](Self::follow_redis).
    #[must_use]
    pub fn fleet(&self) -> FleetOverrides<'_> {
        FleetOverrides(self)
    }
}
