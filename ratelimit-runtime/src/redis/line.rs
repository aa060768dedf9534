//! The turns of waiting calls on Redis.

use tokio::time::Instant;

use super::{RedisBackend, script::Turn};
use crate::{
    error::UnavailableReason,
    key::Key,
    request::{Place, Standing},
};

impl RedisBackend {
    /// Returns `true` if Redis has the charge of a place.
    #[expect(dead_code, reason = "the line of a process calls it")]
    pub(crate) async fn is_promised(
        &self,
        key: &Key,
        place: Place<'_>,
    ) -> Result<bool, UnavailableReason> {
        match Turn::new(key, place) {
            Some(turn) => self.client.confirm(&turn, Instant::now() + self.deadline).await,
            None => Ok(false),
        }
    }

    /// Moves the first turn that lies ahead forwards, if it is the one of this place and has room.
    /// Returns the turn, unless the charge is gone.
    #[expect(dead_code, reason = "the line of a process calls it")]
    pub(crate) async fn advance(
        &self,
        key: &Key,
        place: Place<'_>,
    ) -> Result<Option<Standing>, UnavailableReason> {
        match Turn::new(key, place) {
            Some(turn) => self.client.advance(&turn, Instant::now() + self.deadline).await,
            None => Ok(None),
        }
    }
}
