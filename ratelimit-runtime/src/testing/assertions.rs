//! Assertions about limits.

use std::{panic::Location, thread, time::Duration};

use tokio::time::{Instant, advance};

use crate::{
    decision::Answer,
    error::{Exceeded, RateLimitError},
    observe::observe,
    registry,
    telemetry::stats::{self, Verdict},
};

const MICRO: Duration = Duration::from_micros(1);

/// The time for which a paused clock stands still, and no other does.
const TICK: Duration = Duration::from_millis(2);

/// Asserts that a limit in memory admits `admitted` calls, refuses the next one, and keeps the wait
/// that it promises: one microsecond earlier the call is refused still, with that wait, and at its
/// end it is admitted. Where refusals [count](crate::Policy::count_rejected), the second one begins
/// a new wait.
///
/// The clock is to be paused, and is advanced. The answers are those of all checks inside the call,
/// whatever type it returns.
///
/// ```
/// use ratelimit_runtime::{RateLimitError, rate_limit, testing};
///
/// #[rate_limit(period = "1h", threshold = 5, key = user)]
/// async fn report(user: &str) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// testing::isolated(testing::assert_limited(5, || report("alice"))).await;
/// # }
/// ```
///
/// # Panics
///
/// If the limit does not behave so, with the answers so far. If the clock is not paused, or a call
/// makes no check.
#[track_caller]
pub fn assert_limited<F, C>(admitted: u32, mut call: C) -> impl Future<Output = ()>
where
    F: Future,
    C: FnMut() -> F,
{
    let place = Location::caller();
    async move {
        assert_paused(place);
        let mut calls = ObservedCalls { place, answers: Vec::new() };
        for number in 1..=admitted {
            let refusal = calls.refusal(call()).await;
            calls.assert(refusal.is_none(), &format!("call {number} of {admitted} was refused"));
        }
        let wait = calls.refused(call(), "was admitted").await.retry_after();
        advance(wait.saturating_sub(MICRO)).await;
        let last = calls.refused(call(), "was admitted before its wait was over").await;
        let rest = last.retry_after();
        calls.assert(
            rest == MICRO || last.counts_rejected(),
            &format!("the call was refused for {rest:?} when 1µs of its wait was left"),
        );
        advance(rest).await;
        let refusal = calls.refusal(call()).await;
        calls.assert(refusal.is_none(), "the call was refused when its wait was over");
    }
}

/// The answers of the calls of one assertion.
struct ObservedCalls {
    place: &'static Location<'static>,
    answers: Vec<Answer>,
}

impl ObservedCalls {
    /// Makes a call, and returns its refusal.
    async fn refusal<F: Future>(&mut self, call: F) -> Option<RateLimitError> {
        let (_, answers) = observe(call).await;
        self.assert(
            !answers.is_empty(),
            "the call asked no limit: it is switched off, or asked in a task of its own",
        );
        let refusal = answers.iter().find_map(|answer| answer.as_ref().err().cloned());
        self.answers.extend(answers);
        refusal
    }

    /// Makes a call that is to be refused by its quota.
    async fn refused<F: Future>(&mut self, call: F, admitted: &str) -> Exceeded {
        match self.refusal(call).await {
            Some(RateLimitError::Exceeded(refused)) => refused,
            Some(error) => {
                self.fail(&format!("the next call was not refused by its quota: {error}"))
            }
            None => self.fail(&format!("the next call {admitted}")),
        }
    }

    fn assert(&self, is_so: bool, failure: &str) {
        if !is_so {
            self.fail(failure);
        }
    }

    fn fail(&self, failure: &str) -> ! {
        let answers: Vec<_> = self.answers.iter().map(|answer| format!("  {answer:?}")).collect();
        panic!("{}: {failure}; the answers were:\n{}", self.place, answers.join("\n"))
    }
}

fn assert_paused(place: &Location<'_>) {
    let start = Instant::now();
    thread::sleep(TICK);
    assert!(
        start.elapsed().is_zero(),
        "{place}: the clock is not paused: write `#[tokio::test(start_paused = true)]`"
    );
}

/// Asserts that the calls of this process so far have covered each limit of an annotated function,
/// and each that was checked by hand or in a layer: it has admitted and refused a call, and none of
/// its calls came without a caller. In a dry run, a call counts as refused that would have been.
///
/// Calls count from the first [`isolated`](super::isolated) on. A test that asserts it makes the
/// calls itself, or is the last one of its process. Each of [`Plans`](crate::Plans) is a limit of
/// its own.
///
/// ```should_panic
/// // This program has no limit. An integration test names the library that has them.
/// ratelimit_runtime::testing::assert_covered();
/// ```
///
/// # Panics
///
/// With all that is missing, and in a program without a limit.
#[track_caller]
pub fn assert_covered() {
    assert_covered_but(&[]);
}

/// Asserts the same of all limits but those of these names. `api` is the limit with all its plans,
/// and `api@pro` one of them.
///
/// # Panics
///
/// As [`assert_covered`].
#[track_caller]
pub fn assert_covered_but(names: &[&str]) {
    let counts = stats::snapshot();
    let mut missing = Vec::new();
    let (mut limits, by_hand) = (registry::policies(), registry::policies_by_hand());
    let is_annotated = |name| limits.iter().any(|limit| limit.name() == name);
    let by_hand: Vec<_> = by_hand.into_iter().filter(|it| !is_annotated(it.name())).collect();
    limits.extend(by_hand);
    assert!(!limits.is_empty(), "{}", registry::NO_LIMIT);
    limits.retain(|limit| !names.iter().any(|name| limit.is_named(name)));
    for limit in &limits {
        let of_limit = counts.iter().find(|it| it.name() == limit.name());
        let has = |verdict| of_limit.is_some_and(|counts| counts.total(verdict) > 0);
        let refusals = [Verdict::Refused, Verdict::Busy, Verdict::WouldHaveRefused];
        let faults = [
            (!has(Verdict::Admitted), "has admitted no call"),
            (!refusals.into_iter().any(has), "has refused no call"),
            (
                of_limit.is_some_and(stats::PolicyStats::shares_one_bucket),
                "was called without a caller, so that all share one bucket: write `key = ..`",
            ),
        ];
        let place = if limit.is_by_hand() {
            "by hand or in a layer".to_owned()
        } else {
            format!("{}:{}", limit.file(), limit.line())
        };
        let broken = faults.iter().filter(|(is_broken, _)| *is_broken);
        missing.extend(broken.map(|(_, fault)| format!("  {} ({place}) {fault}", limit.name())));
    }
    assert!(missing.is_empty(), "not all limits are covered by tests:\n{}", missing.join("\n"));
}
