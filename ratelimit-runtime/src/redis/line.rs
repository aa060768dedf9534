//! The turns of waiting calls on Redis.

use tokio::time::Instant;

use super::{RedisBackend, script::Turn};
use crate::{
    error::UnavailableReason,
    key::Key,
    request::{Place, Standing},
};

impl RedisBackend {
    /// Moves the first turn that lies ahead forwards, if it is the one of this place and has room.
    /// Returns the turn, unless the charge is gone.
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
