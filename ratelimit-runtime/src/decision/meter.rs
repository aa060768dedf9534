//! Meters: units that are counted while a call is served.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use super::Decision;

/// A count of the units that a call takes, made by [`Decision::meter`]. When its last clone is
/// dropped, the call is [settled](Decision::settle) at this count.
///
/// A stream counts its chunks and owns the meter. A client that leaves half-way drops the stream,
/// and pays for what it received.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Policy};
///
/// const TOKENS: Policy = Policy::token_bucket("tokens", Duration::from_secs(60), 1_000);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
/// let limiter = Limiter::in_memory();
/// let decision = limiter.check(&TOKENS, "alice").cost(100).await?;
/// let meter = decision.meter();
/// for chunk in ["Hello", "world"] {
///     meter.add(u32::try_from(chunk.len()).unwrap_or(u32::MAX));
/// }
/// drop(meter);
/// assert_eq!(limiter.peek(&TOKENS, "alice").cost(0).await?.remaining(), 990);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Meter(Arc<Metered>);

/// A call and its units so far.
struct Metered {
    decision: Decision,
    units: AtomicU32,
}

impl Meter {
    pub(super) fn new(decision: Decision) -> Self {
        Self(Arc::new(Metered { decision, units: AtomicU32::new(0) }))
    }

    /// Adds units. The count stops at `u32::MAX`.
    pub fn add(&self, units: u32) {
        let add = |before: u32| Some(before.saturating_add(units));
        // Never an error: there always is a next count.
        let _ = self.0.units.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Returns the units so far.
    #[must_use]
    pub fn units(&self) -> u32 {
        self.0.units.load(Ordering::Relaxed)
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.decision.settle(*self.units.get_mut());
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("units", &self.units()).finish_non_exhaustive()
    }
}
