//! Several calls, all or none: they are asked one after another, and what was taken is given back
//! if one is refused.

use std::{array, future::poll_fn, task::Poll, time::Duration};

use ratelimit_core::PolicyFault;

use super::{
    Limiter,
    call::Call,
    check::Check,
    owned_call::Options,
    start::{PendingAnswer, Started},
};
use crate::{
    caller::Caller,
    decision::{Answer, CallEnd, Decision},
    error::RateLimitError,
    observe,
    policy::{InvalidPolicy, Policy},
    telemetry::{LimitCounters, Recorder},
};

/// The refusal of one of several calls, by its index.
type Refused = (usize, RateLimitError);

/// The values that are kept of all calls, or the refusal of one.
type JointAnswers<const N: usize, A> = Result<[A; N], Refused>;

/// The call, by its index, whose answer has to be awaited; none if all calls are answered.
type AskedCalls = Result<Option<(usize, PendingAnswer<Answer<Decision>>)>, Refused>;

/// One of several calls, and its answer. Dropping it gives back what it has taken.
pub struct JointCall<T: AsCall> {
    /// The call, unless it is not checked.
    call: Option<T>,
    answer: Option<Answer<Decision>>,
    /// `true` if the others are asked although this call is refused.
    is_soft: bool,
}

/// One of several calls of an annotated function.
pub type JointCheck = JointCall<FunctionCall>;

/// A call of an annotated function, with its limiter.
pub struct FunctionCall {
    pub(crate) limiter: Limiter,
    /// The policy of the callsite, and the one that comes with the call in its place.
    pub(crate) declared: &'static Policy,
    pub(crate) given: Option<Box<Policy>>,
    pub(crate) caller: Caller,
    /// The caller whose limit it is to a layer, if it is not the one that is counted.
    pub(crate) observed_as: Option<Box<Caller>>,
    pub(crate) counters: Option<&'static LimitCounters>,
    pub(crate) options: Options,
}

/// A call, borrowed while the checks live or owned.
pub trait AsCall {
    /// Returns the call.
    fn as_call(&self) -> Call<'_>;
}

impl AsCall for Call<'_> {
    fn as_call(&self) -> Call<'_> {
        *self
    }
}

impl AsCall for FunctionCall {
    #[inline]
    fn as_call(&self) -> Call<'_> {
        let Self { limiter, declared, given, caller, observed_as, counters, options } = self;
        let (policy, counters) = (given.as_deref().unwrap_or(declared), *counters);
        Call { limiter, policy, caller, observed_as: observed_as.as_deref(), counters, options }
    }
}

impl<T: AsCall> JointCall<T> {
    #[inline]
    pub(crate) fn new(call: T) -> Self {
        Self { call: Some(call), answer: None, is_soft: false }
    }

    /// Returns the call if it is not answered yet.
    #[inline]
    fn open(&self) -> Option<Call<'_>> {
        if self.answer.is_some() { None } else { self.call.as_ref().map(T::as_call) }
    }

    /// Returns the answer once all calls are admitted, and warns of the caller if it is to.
    #[inline]
    pub(super) fn take_answer(&mut self) -> Answer<Decision> {
        self.warn();
        self.answer.take().expect("every call is answered")
    }

    /// Ends the call once all are admitted, and warns of the caller if it is to.
    #[inline]
    fn admit(&mut self) {
        self.warn();
        self.answer = None;
    }

    #[inline]
    fn warn(&self) {
        if self.call.as_ref().is_some_and(|call| call.as_call().options.warn_at > 0) {
            self.warn_of_caller();
        }
    }

    #[cold]
    fn warn_of_caller(&self) {
        if let (Some(call), Some(Ok(decision))) = (&self.call, &self.answer) {
            let call = call.as_call();
            let effective = call.effective();
            let alone = call.alone(&effective, decision.decided_by());
            let effective = alone.as_ref().unwrap_or(&effective);
            call.warn(effective, &decision.outcome(effective.policy()));
        }
    }

    /// Returns the charge that is to be given back because another call is refused, and its call.
    /// An earlier call of a request id may have been charged: its units are not this call's.
    fn taken(&self) -> Option<(Call<'_>, &Decision)> {
        let decision = self.answer.as_ref()?.as_ref().ok()?;
        let call = self.call.as_ref()?.as_call();
        call.options.id.is_none().then_some((call, decision))
    }

    /// Returns `true` if the drop gives back at once what the call has taken.
    fn is_freed_at_once(&self) -> bool {
        self.taken().is_none_or(|(call, _)| call.limiter.is_in_memory())
    }

    /// Gives the charge and the permit back. If that fails, the drop of this part sends it again.
    async fn give_back(&self) {
        if let Some((call, decision)) = self.taken() {
            let inner = &call.limiter.inner;
            let _ = inner.backend.settle(decision, 0, call.policy.has_block()).await;
            inner.hurry_after(decision, 0);
            decision.give_permit_back().await;
        }
    }
}

impl JointCheck {
    /// A call that is not checked.
    #[must_use]
    pub fn skipped(decision: Decision) -> Self {
        Self { call: None, answer: Some(Ok(decision)), is_soft: false }
    }

    /// Lets the other calls be asked although this one is refused.
    #[must_use]
    pub fn soft(mut self) -> Self {
        self.is_soft = true;
        self
    }
}

impl<T: AsCall> Drop for JointCall<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some((call, decision)) = self.taken() {
            decision.settle_as(0, call.policy.has_block());
        }
    }
}

/// Several calls. If they are `UNREAD`, nobody reads their decisions, and of the last admission
/// none is kept.
struct AllCalls<'c, T: AsCall, const UNREAD: bool>(&'c mut [JointCall<T>]);

impl<T: AsCall, const UNREAD: bool> AllCalls<'_, T, UNREAD> {
    /// Returns the calls that are not answered yet, with their indices.
    fn open(&self) -> impl Iterator<Item = (usize, Call<'_>)> {
        let parts = self.0.iter().enumerate();
        parts.filter_map(|(index, part)| Some((index, part.open()?)))
    }

    /// Returns the calls that may wait and are not answered yet, with their indices.
    fn waiting(&self) -> impl Iterator<Item = (usize, Call<'_>)> {
        self.open().filter(|(_, call)| {
            !call.options.max_wait.is_zero() && call.may_wait(&call.effective())
        })
    }

    /// Returns the call whose refusal is known without asking, of several the one with the longest
    /// wait.
    fn known(&self) -> Option<usize> {
        // The refusal of a soft call ends nothing, so that no call is spared by asking it first.
        let hard = self.open().filter(|(index, _)| !self.0[*index].is_soft);
        let waits = hard.filter_map(|(index, call)| Some((call.known_wait()?, index)));
        waits.max_by_key(|(wait, _)| *wait).map(|(_, index)| index)
    }

    /// Keeps the answer. The result is a refusal that refuses all calls.
    #[inline(always)]
    fn receive(&mut self, index: usize, answer: Answer<Decision>) -> Result<(), Refused> {
        let part = &mut self.0[index];
        match answer {
            Err(error) if !part.is_soft => Err((index, error)),
            answer => {
                part.answer = Some(answer);
                Ok(())
            }
        }
    }

    /// Asks the calls until one has to be awaited.
    fn start(&mut self) -> AskedCalls {
        // Memory remembers no refusals.
        if self.open().all(|(_, call)| call.limiter.is_in_memory() && call.takes_one_unit()) {
            let read = self.0.len().saturating_sub(usize::from(UNREAD));
            let asked = self.ask::<true>(0..read)?;
            debug_assert!(asked.is_none(), "memory decides at once");
            return if UNREAD { self.ask_unread(read) } else { Ok(None) };
        }
        if self.open().all(|(_, call)| call.takes_units_in_memory()) {
            return self.ask::<false>(0..self.0.len());
        }
        // Each of two that may wait would hold what it has taken meanwhile.
        if let Some((index, call)) = self.waiting().nth(1) {
            let error = InvalidPolicy::new(call.policy.name(), PolicyFault::SeveralWaits).into();
            let (recorder, end) = (Recorder::new(call.counters), CallEnd::default());
            let answer = call.reject::<Decision>(&call.effective(), recorder, error, end);
            return Err((index, answer.expect_err("no dry run waits")));
        }
        self.ask_after(self.known())
    }

    /// Asks the calls until one has to be awaited, this one first. The call that may wait is asked
    /// before the others, so that nothing is taken meanwhile.
    fn ask_after(&mut self, first: Option<usize>) -> AskedCalls {
        let waiting = self.waiting().next().map(|(index, _)| index);
        // A call that comes twice in this order is answered by then, and skipped.
        self.ask::<false>(first.into_iter().chain(waiting).chain(0..self.0.len()))
    }

    /// Asks the calls in this order until one has to be awaited.
    #[inline(always)]
    fn ask<const IS_SINGLE: bool>(&mut self, order: impl Iterator<Item = usize>) -> AskedCalls {
        for index in order {
            let Some(call) = self.0[index].open() else { continue };
            match if IS_SINGLE { call.take_units::<_, true>() } else { call.start() } {
                Started::Ready(answer) => self.receive(index, answer)?,
                Started::Pending(answer) => return Ok(Some((index, answer))),
            }
        }
        Ok(None)
    }

    /// Asks a call of memory that no other one follows: what it takes is not given back.
    fn ask_unread(&self, index: usize) -> AskedCalls {
        let Some(part) = self.0.get(index) else { return Ok(None) };
        match part.open().map(Call::take_units::<(), true>) {
            Some(Started::Ready(Err(error))) if !part.is_soft => Err((index, error)),
            Some(Started::Pending(_)) => unreachable!("memory decides at once"),
            Some(Started::Ready(_)) | None => Ok(None),
        }
    }

    /// Awaits the answers. After a refusal what was taken is given back.
    async fn finish(mut self, mut asked: AskedCalls) -> Result<(), Refused> {
        loop {
            match asked {
                Ok(None) => return Ok(()),
                Ok(Some((index, answer))) => {
                    let received = self.receive(index, answer.await);
                    // A call whose refusal is known was asked first, by `start`.
                    asked = received.and_then(|()| self.ask_after(None));
                }
                Err(refused) => {
                    self.give_back().await;
                    return Err(refused);
                }
            }
        }
    }

    /// Gives back what was taken, all at once: each ends within its limiter's deadline.
    async fn give_back(&self) {
        let mut refunds: Vec<_> = self.0.iter().map(|part| Box::pin(part.give_back())).collect();
        poll_fn(|context| {
            refunds.retain_mut(|refund| refund.as_mut().poll(context).is_pending());
            if refunds.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Limiter {
    /// Decides checks whose number is known at run time, as [`check_all`](Self::check_all).
    #[cfg(any(feature = "actix", feature = "tower"))]
    pub(crate) async fn check_list(
        &self,
        checks: &[Check<'_>],
    ) -> Result<Vec<Decision>, RateLimitError> {
        let mut calls: Vec<_> = checks.iter().map(|check| self.join(check)).collect();
        ask_all(&mut calls).await?;
        Ok(calls.iter_mut().map(|call| admitted(call.take_answer())).collect())
    }

    #[inline]
    pub(super) fn join<'a>(&'a self, check: &'a Check<'_>) -> JointCall<Call<'a>> {
        // A check may come from another limiter. The one that is asked for all decides it.
        JointCall::new(Call { limiter: self, ..check.as_call() })
    }
}

/// Decides several calls. Each has an answer then, unless one is refused.
pub(super) async fn ask_all(calls: &mut [JointCall<Call<'_>>]) -> Result<(), RateLimitError> {
    let mut calls = AllCalls::<_, false>(calls);
    match calls.start() {
        Ok(None) => Ok(()),
        asked => calls.finish(asked).await.map_err(|(_, error)| error),
    }
}

impl Call<'_> {
    /// Returns the wait of a refusal that is known without asking; the longest one for a call that
    /// is never admitted, or whose caller is shut out.
    fn known_wait(self) -> Option<Duration> {
        let effective = self.effective();
        if effective.answer().is_some() {
            return Some(Duration::MAX);
        }
        if effective.is_off() || effective.is_dry_run() {
            return None;
        }
        if !self.options.is_validated
            && self.options.cost > 0
            && self.validate(effective.whole()).is_err()
        {
            return Some(Duration::MAX);
        }
        let Self { limiter, caller, options, .. } = self;
        let request = self.request(&effective);
        let wait = limiter.inner.backend.known_refusal(request, caller, options.max_wait)?;
        Some(wait.into())
    }
}

/// Starts several calls. The result has the answers, none of which is a refusal unless its call is
/// soft; or the refusal of one of them, by its index.
pub fn decide_all<const N: usize>(parts: [JointCheck; N]) -> Started<JointAnswers<N, Answer>> {
    start_all::<N, false, _>(parts, JointCall::take_answer)
}

/// Starts several calls of which no answer is kept, as [`decide_all`].
pub fn admit_all<const N: usize>(parts: [JointCheck; N]) -> Started<JointAnswers<N, ()>> {
    start_all::<N, true, _>(parts, JointCall::admit)
}

/// Starts several calls. Each is passed to `end` once all are admitted.
#[inline]
fn start_all<const N: usize, const UNREAD: bool, A: 'static>(
    mut parts: [JointCheck; N],
    end: fn(&mut JointCall<FunctionCall>) -> A,
) -> Started<JointAnswers<N, A>> {
    let end_all = move |parts: &mut [JointCheck; N]| array::from_fn(|index| end(&mut parts[index]));
    match AllCalls::<_, UNREAD>(&mut parts).start() {
        Ok(None) => Started::Ready(Ok(end_all(&mut parts))),
        // Memory needs no await to be given back what was taken: the drop of the parts does it.
        Err(refused) if parts.iter().all(JointCall::is_freed_at_once) => {
            free(parts);
            Started::Ready(Err(refused))
        }
        asked => Started::Pending(Box::pin(async move {
            let finished = AllCalls::<_, UNREAD>(&mut parts).finish(asked).await;
            if let Err(refused) = finished {
                free(parts);
                return Err(refused);
            }
            Ok(end_all(&mut parts))
        })),
    }
}

/// Drops the parts of a refused function. A layer keeps the permits of functions until their
/// response has been sent, and this one has not run.
fn free<const N: usize>(parts: [JointCheck; N]) {
    drop(parts);
    observe::free_ended();
}

/// Returns the decision of a call that is not soft.
///
/// # Panics
///
/// If the call was refused, which [`decide_all`] reports instead.
#[inline]
#[must_use]
pub fn admitted(answer: Answer<Decision>) -> Decision {
    answer.unwrap_or_else(|error| unreachable!("{error}"))
}
