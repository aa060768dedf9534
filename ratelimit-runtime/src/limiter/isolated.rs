//! The limiter of one test, and the answers that the test has planned (feature `testing`).

use std::time::Duration;

use super::{Limiter, call::Call};
use crate::{
    caller::Caller, error::UnavailableReason, request::Outcome, sync::Mutex, time::Micros,
};

tokio::task_local! {
    static ISOLATED: Isolated;
}

/// The state that the calls of one test share.
struct Isolated {
    limiter: &'static Limiter,
    planned: Mutex<Vec<PlannedAnswer>>,
}

/// The answer to all calls of a limit or of one of its plans, or to those of one caller.
#[derive(Clone)]
pub(crate) struct PlannedAnswer {
    /// The name of the limit.
    pub(crate) limit: &'static str,
    /// None for all plans.
    pub(crate) plan: Option<&'static str>,
    pub(crate) caller: Option<Caller>,
    pub(crate) refusal: PlannedRefusal,
}

#[derive(Clone, Copy)]
pub(crate) enum PlannedRefusal {
    /// The quota is used up. It is back after this wait, or after the longest period.
    Exceeded(Option<Duration>),
    Busy,
    Unavailable,
}

/// Runs a future whose calls are decided by this limiter, where no other one is named.
pub(crate) fn run_isolated<F: Future>(
    limiter: Limiter,
    future: F,
) -> impl Future<Output = F::Output> {
    // As long as the process, like the installed one.
    let limiter = Box::leak(Box::new(limiter));
    ISOLATED.scope(Isolated { limiter, planned: Mutex::default() }, future)
}

/// Returns the limiter of the current test, if there is one.
pub(super) fn isolated_limiter() -> Option<&'static Limiter> {
    ISOLATED.try_with(|isolated| isolated.limiter).ok()
}

/// Sets the time of the calendar of the current test's limiter. Returns nothing outside of one in
/// memory.
#[cfg(feature = "calendar")]
pub(crate) fn set_calendar(unix: u64) -> Option<()> {
    let limiter = isolated_limiter()?;
    limiter.inner.backend.memory().map(|store| store.set_calendar(unix))
}

/// Changes the planned answers of the current test. Returns nothing outside of one.
pub(crate) fn change_planned<T>(change: impl FnOnce(&mut Vec<PlannedAnswer>) -> T) -> Option<T> {
    ISOLATED.try_with(|isolated| change(&mut isolated.planned.lock())).ok()
}

/// Returns `true` if the current test has planned an answer.
pub(super) fn has_planned() -> bool {
    change_planned(|planned| !planned.is_empty()).unwrap_or(false)
}

/// Returns the outcome that is planned for a call. One for its caller comes before one for all, and
/// then one for its plan before one for all plans.
pub(super) fn planned_outcome(call: Call<'_>) -> Option<Result<Outcome, UnavailableReason>> {
    let Call { policy, caller, options, .. } = call;
    let refusal = change_planned(|planned| {
        let is_caller = |it: &Caller| it == caller || it.digested() == *caller;
        let of_call = planned.iter().filter(|it| {
            it.limit == policy.name()
                && it.plan.is_none_or(|plan| policy.plan() == Some(plan))
                && it.caller.as_ref().is_none_or(is_caller)
        });
        of_call.min_by_key(|it| (it.caller.is_none(), it.plan.is_none())).map(|it| it.refusal)
    });
    let refusal = refusal??;
    // No limit refuses a call of 0 units.
    if options.cost == 0 && !matches!(refusal, PlannedRefusal::Unavailable) {
        return None;
    }
    Some(match refusal {
        // A limit of calls in flight alone has no quota that comes back.
        PlannedRefusal::Exceeded(_) if policy.tiers().is_empty() => Ok(Outcome::busy()),
        PlannedRefusal::Exceeded(wait) => {
            let wait = wait.map_or(policy.longest_period(), Into::into);
            // Messages and header fields are about the shortest tier that has such a wait, else the
            // longest.
            let tiers = (0..).zip(policy.tiers()).map(|(index, tier)| (index, tier.micros()));
            let fit =
                |(_, period): &(u8, Micros)| (*period < wait, period.get().abs_diff(wait.get()));
            let tier = tiers.min_by_key(fit).map_or(0, |(index, _)| index);
            Ok(Outcome { tier, ..Outcome::refused(wait, wait) })
        }
        PlannedRefusal::Busy => Ok(Outcome::busy()),
        PlannedRefusal::Unavailable => Err(UnavailableReason::Disconnected),
    })
}
