//! The overrides of the fleet, which limiters on Redis follow.

use tokio::sync::oneshot;

use super::LimiterBuilder;
use crate::limiter::{Limiter, backend::Store};

#[cfg(feature = "overrides")]
impl LimiterBuilder {
    /// Enables or disables the [overrides on Redis](crate::Overrides#method.follow_redis) of a limiter
    /// that [`connect`](Self::connect), [`connect_lazy`](Self::connect_lazy) or
    /// [`from_env`](Self::from_env) builds; enabled by default. They are the kill switch of a fleet.
    ///
    /// They cost two or three `HLEN`, `HGET` and `TIME` a second for each process, and `HGETALL` as often while
    /// the hash of limits is not empty. `connect` and `from_env` return after the first poll, which the
    /// [`deadline`](Self::deadline) bounds.
    ///
    /// ```no_run
    /// use ratelimit_runtime::Limiter;
    ///
    /// # async fn connect() -> Result<(), ratelimit_runtime::ConnectError> {
    /// let builder = Limiter::builder().follow_overrides(false);
    /// let limiter = builder.connect("redis://127.0.0.1").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow_overrides(mut self, follows: bool) -> Self {
        self.follows_overrides = follows;
        self
    }
}

impl LimiterBuilder {
    /// Builds the limiter after the first poll of the overrides.
    pub(super) async fn build_followed(self, store: Store) -> Limiter {
        let (limiter, first_poll) = self.start_following(store);
        if let Some(first_poll) = first_poll {
            // Fails if the runtime ends.
            let _ = first_poll.await;
        }
        limiter
    }

    /// Builds the limiter, which follows the overrides in the background. Returns their first poll as well.
    pub(super) fn start_following(self, store: Store) -> (Limiter, Option<oneshot::Receiver<()>>) {
        #[cfg(feature = "overrides")]
        if self.follows_overrides {
            let limiter = self.build(store);
            let first_poll = limiter.overrides().start_following();
            return (limiter, first_poll);
        }
        (self.build(store), None)
    }
}
