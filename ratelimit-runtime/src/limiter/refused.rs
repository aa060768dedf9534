//! The callers that were refused most, for operators.

use std::borrow::Cow;

use super::Limiter;
use crate::{
    key::{Caller, IntoCaller},
    telemetry::{self, RefusalCount, stats::TimeWindow},
};

/// A caller with the number of its refused calls.
///
/// It is passed in place of the caller, also if its name is not shown: to a look-up, a reset or an
/// override of its own.
#[derive(Clone, Debug)]
pub struct RefusedCaller {
    caller: Caller,
    is_shown: bool,
    name: Option<String>,
    count: RefusalCount,
}

impl<'a> IntoCaller<'a> for &'a RefusedCaller {
    fn into_caller(self) -> Cow<'a, Caller> {
        Cow::Borrowed(&self.caller)
    }
}

impl RefusedCaller {
    /// Returns the caller, if [`show_callers`](crate::LimiterBuilder::show_callers) is set.
    #[must_use]
    pub fn caller(&self) -> Option<&Caller> {
        Some(&self.caller).filter(|_| self.is_shown)
    }

    /// Returns the name of the caller for people: the text of its key with
    /// [`show_callers`](crate::LimiterBuilder::show_callers), otherwise its
    /// [`digest`](crate::LimiterBuilder::caller_digest), if there is a secret for it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the number of refused calls, which may be too large by
    /// [`at_most_wrong`](Self::at_most_wrong).
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.count.calls
    }

    /// Returns the maximum by which [`calls`](Self::calls) is too large.
    #[must_use]
    pub fn at_most_wrong(&self) -> u64 {
        self.count.at_most_wrong
    }
}

impl Limiter {
    /// Returns the counts of all processes of the fleet: those that
    /// [follow](crate::Overrides::follow_redis) the overrides on this limiter's Redis.
    ///
    /// A process reports every two seconds for ten seconds after each call of this, from the thread
    /// that polls the overrides. The first call finds no reports. Nothing is written while nobody
    /// reads, and no call is slower. The counts are those since the start of each process; subtract
    /// those of an earlier call to get rates.
    ///
    /// A report contains the eight callers that the process refused most under each limit in each
    /// window of time, in the form of [`refused_callers`](Self::refused_callers): shown, as
    /// digests, or not at all.
    ///
    /// ```no_run
    /// # async fn print(limiter: &ratelimit_runtime::Limiter) -> Result<(), ratelimit_runtime::fleet::FleetError> {
    /// for limit in limiter.fleet().await?.limits() {
    ///     println!("{}: {} refused in the last hour", limit.name, limit.refused_within[2]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`FleetError`](crate::fleet::FleetError) if the limiter is in memory, or Redis does not
    /// answer within the deadline.
    #[cfg(feature = "overrides")]
    pub async fn fleet(&self) -> Result<crate::fleet::FleetStatus, crate::fleet::FleetError> {
        self.inner.overrides.fleet_status().await
    }

    /// Returns the callers that this process refused most often under a limit, the most often
    /// refused first.
    ///
    /// The limit is a name, of a plan `api@pro`. Calls with the verdicts `Refused`, `Busy`,
    /// `Denied` and `TooLarge` count, of all limiters of the process.
    ///
    /// The list is a sample in bounded memory. The threads of the process count in eight groups,
    /// each of which lists at most 64 callers of the current minute, and 16 of each minute before.
    /// A caller of more than a 64th of the current minute's refusals is always in it, and so is one
    /// of more than a 16th of a past minute's. Its refusals by groups that do not list it are
    /// missing, and so may be those that two threads counted at the same moment.
    ///
    /// Callers have no name unless [`show_callers`](crate::LimiterBuilder::show_callers) or
    /// [`caller_digest`](crate::LimiterBuilder::caller_digest) is set.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy, stats::TimeWindow};
    ///
    /// const LOGIN: Policy = Policy::sliding_window("login by account", Duration::from_secs(60), 1);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limiter = Limiter::builder().show_callers().in_memory();
    /// for _ in 0..3 {
    ///     let _ = limiter.check(&LOGIN, "mallory").await;
    /// }
    /// let refused = limiter.refused_callers("login by account", TimeWindow::Minute);
    /// assert_eq!((refused[0].name(), refused[0].calls()), (Some("mallory"), 2));
    /// # }
    /// ```
    #[must_use]
    pub fn refused_callers(&self, limit: &str, window: TimeWindow) -> Vec<RefusedCaller> {
        let counted = telemetry::refused_within(limit, window);
        let named = counted.into_iter().map(|(caller, count)| {
            let is_shown = self.overrides().shown().callers;
            let name = if is_shown { Some(caller.text()) } else { self.caller_digest(&caller) };
            RefusedCaller { caller, is_shown, name, count }
        });
        named.collect()
    }
}
