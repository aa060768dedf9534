//! Several budgets, such as a plan and credits: the first one that admits a call pays for it.

use super::{
    Limiter,
    admission::{Admission, CallPermit, Deferred},
    call::Call,
    check::Check,
    start::Started,
};
use crate::{
    decision::{Answer, CallEnd, Decision},
    error::RateLimitError,
    time::Micros,
};

/// The answer of one of several budgets.
enum Tried {
    Paid(Decision),
    Refused(Deferred),
}

impl Admission for Tried {
    const READS: bool = true;

    const DEFERS: bool = true;

    fn new(permit: Option<CallPermit>, decision: impl FnOnce() -> Decision) -> Self {
        Self::Paid(Admission::new(permit, decision))
    }

    fn deferred(refusal: Deferred) -> Self {
        Self::Refused(refusal)
    }
}

impl Limiter {
    /// Decides a call that the first of several checks pays for which is admitted, such as that of
    /// a plan and then that of credits. This limiter decides them, whichever made them.
    ///
    /// They are asked one after another, until one is admitted. Its [`Decision`] has the name of
    /// the limit that has paid, and a settle or a refund goes to it. One limit pays for the whole
    /// call.
    ///
    /// If all refuse, the refusal is that of the limit which may admit the call the soonest.
    /// Metrics, events, and observers see one call: that of the limit which has paid, or whose
    /// refusal is returned.
    ///
    /// A limit passes the call on if it is [reached](RateLimitError::Exceeded),
    /// [busy](RateLimitError::Busy), or can [never](RateLimitError::TooLarge) admit a call of its
    /// cost. Any other error is returned at once: the next budget pays for no outage, and for no
    /// caller who is shut out. A check with a [`max_wait`](Check::max_wait) waits before it passes
    /// the call on. A [request id](Check::request_id) is known to the limit that has paid alone, so
    /// that a repetition may be paid by an earlier one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const PLAN: Policy = Policy::sliding_window("plan", Duration::from_secs(60), 1);
    /// const CREDITS: Policy = Policy::fixed_window("credits", Duration::from_secs(366 * 86_400), 50);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
    /// let limiter = Limiter::in_memory();
    /// let pay = || limiter.check_first([&PLAN, &CREDITS].map(|it| limiter.check(it, "alice")));
    /// assert_eq!(pay().await?.policy(), "plan");
    /// let paid = pay().await?;
    /// assert_eq!((paid.policy(), paid.remaining()), ("credits", 49));
    /// limiter.refund(&paid).await?;
    /// assert_eq!(limiter.peek(&CREDITS, "alice").cost(0).await?.remaining(), 50);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The guide has [credits](crate::guide::cookbook#a-plan-then-credits) that never come back.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub async fn check_first<const N: usize>(
        &self,
        checks: [Check<'_>; N],
    ) -> Result<Decision, RateLimitError> {
        const { assert!(N > 0, "a call needs one budget at least") }
        let mut refusals: Vec<(Call<'_>, Deferred)> = Vec::new();
        for check in &checks {
            let call = Call { limiter: self, ..check.as_call() };
            let tried = match call.start::<Tried>() {
                Started::Ready(answer) => answer?,
                Started::Pending(answer) => answer.await?,
            };
            match tried {
                Tried::Paid(decision) => {
                    try_passed_on(&refusals);
                    return Ok(decision);
                }
                Tried::Refused(refused) => refusals.push((call, refused)),
            }
        }
        // A permit may be free at once. What is never admitted comes last.
        let wait = |refused: &Deferred| {
            refused.refusal.as_ref().map_or(Micros::new(u64::MAX), |it| it.wait)
        };
        let soonest = (0..N).min_by_key(|index| wait(&refusals[*index].1)).unwrap_or_default();
        let (call, refused) = refusals.swap_remove(soonest);
        try_passed_on(&refusals);
        call.end_deferred(refused)
    }
}

/// Lets the candidates of limits that have passed a call on decide it.
fn try_passed_on(refusals: &[(Call<'_>, Deferred)]) {
    for (call, Deferred { refusal, .. }) in refusals {
        let effective = call.effective();
        match refusal {
            Ok(outcome) => drop(call.try_after(&effective, &Ok(*outcome), false)),
            Err(_) => call.try_too_large(&effective),
        }
    }
}

impl Call<'_> {
    /// Records a refusal that was deferred, and returns it.
    fn end_deferred(self, Deferred { recorder, refusal }: Deferred) -> Answer {
        let effective = self.effective();
        match refusal {
            Ok(outcome) => {
                self.finish(&effective, recorder, &Ok(outcome), None, CallEnd::default())
            }
            Err(error) => self.reject(&effective, recorder, error, CallEnd::default()),
        }
    }
}
