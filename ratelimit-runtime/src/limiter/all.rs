//! Several calls, all or none: they are asked one after another, and what was taken is given back if one
//! is refused.

use std::{future::poll_fn, task::Poll, time::Duration};

use ratelimit_core::PolicyFault;

use super::{
    Limiter,
    check::{Call, Check, Options},
    pipeline::Started,
};
use crate::{
    caller::Caller,
    decision::{Answer, Decision},
    error::RateLimitError,
    policy::{InvalidPolicy, Policy},
    telemetry::PolicyCounters,
};

/// The answers to several calls, none of which is refused unless it is soft; or the refusal of one of
/// them, by its index.
pub(super) type Together<C> = Result<<C as JointChecks>::Answers, (usize, RateLimitError)>;

/// Several calls: an array, or a list whose length is known at run time.
pub trait JointChecks:
    AsRef<[JointCheck]> + AsMut<[JointCheck]> + IntoIterator<Item = JointCheck> + Send + 'static
{
    /// The answers to the calls.
    type Answers: Send;

    /// Returns the answers of calls that are answered.
    fn answers(self) -> Self::Answers;
}

impl<const N: usize> JointChecks for [JointCheck; N] {
    type Answers = [Answer<Decision>; N];

    fn answers(self) -> Self::Answers {
        self.map(JointCheck::answer)
    }
}

#[cfg(any(feature = "actix", feature = "tower"))]
impl JointChecks for Vec<JointCheck> {
    type Answers = Vec<Answer<Decision>>;

    fn answers(self) -> Self::Answers {
        self.into_iter().map(JointCheck::answer).collect()
    }
}

/// One of several calls. It is on the heap, because it is moved several times.
pub struct JointCheck(Box<JointCall>);

/// A call and its answer. Dropping it gives back what it has taken.
struct JointCall {
    /// The call, unless it is not checked.
    call: Option<OwnedCall>,
    answer: Option<Answer<Decision>>,
    /// `true` if the others are asked although this call is refused.
    is_soft: bool,
}

/// A call that is not answered yet.
pub(crate) struct OwnedCall {
    pub(crate) limiter: Limiter,
    pub(crate) policy: Policy,
    pub(crate) caller: Caller,
    /// On the heap: only layers set it.
    pub(crate) observed_as: Option<Box<Caller>>,
    pub(crate) counters: Option<&'static PolicyCounters>,
    pub(crate) options: Options,
}

/// Several calls.
struct AllCalls<C>(C);

impl JointCheck {
    pub(crate) fn new(call: OwnedCall) -> Self {
        Self(Box::new(JointCall { call: Some(call), answer: None, is_soft: false }))
    }

    /// A call that is not checked.
    #[must_use]
    pub fn skipped(decision: Decision) -> Self {
        Self(Box::new(JointCall { call: None, answer: Some(Ok(decision)), is_soft: false }))
    }

    /// Lets the other calls be asked although this one is refused.
    #[must_use]
    pub fn soft(mut self) -> Self {
        self.0.is_soft = true;
        self
    }

    fn answer(mut self) -> Answer<Decision> {
        self.0.answer.take().expect("every call is answered")
    }
}

impl JointCall {
    /// Returns the call if it is not answered yet.
    fn open(&self) -> Option<&OwnedCall> {
        self.call.as_ref().filter(|_| self.answer.is_none())
    }

    /// Returns the charge that is given back if another call is refused, and its limiter. An earlier call of
    /// a request id may have been charged: its units are not this call's.
    fn taken(&self) -> Option<(&Limiter, &Decision)> {
        let call = self.call.as_ref().filter(|call| call.options.id.is_none())?;
        let decision = self.answer.as_ref()?.as_ref().ok()?;
        Some((&call.limiter, decision))
    }

    /// Gives the charge and the permit back. If that fails, the drop of this part sends it again.
    async fn give_back(&self) {
        if let Some((limiter, decision)) = self.taken() {
            let _ = limiter.refund(decision).await;
            decision.give_permit_back().await;
        }
    }
}

impl Drop for JointCall {
    fn drop(&mut self) {
        if let Some((_, decision)) = self.taken() {
            decision.settle(0);
        }
    }
}

impl OwnedCall {
    pub(super) fn of(call: Call<'_>) -> Self {
        let Call { limiter, policy, caller, observed_as, options, .. } = call;
        Self {
            limiter: limiter.clone(),
            policy: *policy,
            caller: caller.clone(),
            observed_as: observed_as.cloned().map(Box::new),
            counters: None,
            options: *options,
        }
    }

    fn as_call(&self) -> Call<'_> {
        let Self { limiter, policy, caller, observed_as, counters, options } = self;
        let observed_as = observed_as.as_deref();
        Call { limiter, policy, caller, observed_as, counters: *counters, options }
    }

    fn waits(&self) -> bool {
        !self.options.max_wait.is_zero()
    }
}

impl<C: JointChecks> AllCalls<C> {
    fn parts(&self) -> impl Iterator<Item = &JointCall> {
        self.0.as_ref().iter().map(|check| &*check.0)
    }

    /// Returns the calls that are not answered yet, with their indices.
    fn open(&self) -> impl Iterator<Item = (usize, &OwnedCall)> {
        let parts = self.parts().enumerate();
        parts.filter_map(|(index, part)| part.open().map(|call| (index, call)))
    }

    /// Returns the call to be asked next: one that may wait comes first, so that nothing is taken
    /// meanwhile.
    fn next(&self) -> Option<usize> {
        let next = self.open().find(|(_, call)| call.waits()).or_else(|| self.open().next());
        next.map(|(index, _)| index)
    }

    /// Returns the call whose refusal is known without asking, of several the one with the longest wait.
    fn known(&self) -> Option<usize> {
        let hard = self.open().filter(|(index, _)| !self.0.as_ref()[*index].0.is_soft);
        let waits = hard.filter_map(|(index, call)| Some((call.as_call().known_wait()?, index)));
        waits.max_by_key(|(wait, _)| *wait).map(|(_, index)| index)
    }

    /// Returns the second call that may wait. Each of two would hold what it has taken meanwhile.
    fn second_wait(&self) -> Option<(usize, &OwnedCall)> {
        self.open().filter(|(_, call)| call.waits()).nth(1)
    }

    fn ask(&self, index: usize) -> Started<Answer<Decision>> {
        let call = self.0.as_ref()[index].0.open().expect("a call is asked once");
        call.as_call().start()
    }

    /// Keeps the answer, unless it refuses all calls.
    fn receive(
        &mut self,
        index: usize,
        answer: Answer<Decision>,
    ) -> Result<(), (usize, RateLimitError)> {
        let part = &mut self.0.as_mut()[index].0;
        match answer {
            Err(error) if !part.is_soft => Err((index, error)),
            answer => {
                part.answer = Some(answer);
                Ok(())
            }
        }
    }

    /// Asks the calls until one has to be awaited.
    fn start(mut self) -> Started<Together<C>> {
        if let Some((index, call)) = self.second_wait() {
            let error = InvalidPolicy::new(call.policy.name(), PolicyFault::SeveralWaits);
            call.limiter.inner.notices.invalid_policy(&error);
            return Started::Ready(Err((index, error.into())));
        }
        let mut next = self.known().or_else(|| self.next());
        while let Some(index) = next {
            let refused = match self.ask(index) {
                Started::Ready(answer) => self.receive(index, answer),
                pending @ Started::Pending(_) => {
                    return Started::Pending(Box::pin(self.run(index, pending)));
                }
            };
            if let Err(refused) = refused {
                return self.refuse(refused);
            }
            next = self.next();
        }
        Started::Ready(Ok(self.0.answers()))
    }

    /// Asks the rest of the calls.
    async fn run(
        mut self,
        mut index: usize,
        mut started: Started<Answer<Decision>>,
    ) -> Together<C> {
        loop {
            let answer = match started {
                Started::Ready(answer) => answer,
                Started::Pending(answer) => answer.await,
            };
            if let Err(refused) = self.receive(index, answer) {
                self.give_back().await;
                return Err(refused);
            }
            let Some(next) = self.next() else { return Ok(self.0.answers()) };
            index = next;
            started = self.ask(next);
        }
    }

    /// Gives back what was taken. Memory needs no await for it.
    fn refuse(self, refused: (usize, RateLimitError)) -> Started<Together<C>> {
        if self.parts().filter_map(JointCall::taken).all(|(limiter, _)| limiter.is_in_memory()) {
            return Started::Ready(Err(refused));
        }
        Started::Pending(Box::pin(async move {
            self.give_back().await;
            Err(refused)
        }))
    }

    /// Gives back what was taken, all at once: each ends within its limiter's deadline.
    async fn give_back(self) {
        let mut refunds: Vec<_> = self.parts().map(|part| Box::pin(part.give_back())).collect();
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
        checks: impl Iterator<Item = Check<'_>>,
    ) -> Result<Vec<Decision>, RateLimitError> {
        let answers =
            self.ask_all(checks.map(|check| self.join(&check)).collect::<Vec<_>>()).await?;
        Ok(answers.into_iter().map(admitted).collect())
    }

    pub(super) fn join(&self, check: &Check<'_>) -> JointCheck {
        JointCheck::new(OwnedCall { limiter: self.clone(), ..OwnedCall::of(check.as_call()) })
    }

    pub(super) async fn ask_all<C: JointChecks>(
        &self,
        checks: C,
    ) -> Result<C::Answers, RateLimitError> {
        let answers = match all(checks) {
            Started::Ready(answers) => answers,
            Started::Pending(answers) => answers.await,
        };
        answers.map_err(|(_, error)| error)
    }
}

impl Call<'_> {
    /// Returns the wait of a refusal that is known without asking; the longest one for a call that is
    /// never admitted.
    fn known_wait(self) -> Option<Duration> {
        let effective = self.effective();
        if effective.is_off() || effective.is_dry_run() {
            return None;
        }
        if !self.options.is_validated
            && self.options.cost > 0
            && self.validate(effective.policy()).is_err()
        {
            return Some(Duration::MAX);
        }
        self.known_refusal(&effective).map(Duration::from)
    }
}

/// Starts several calls.
pub fn all<C: JointChecks>(parts: C) -> Started<Together<C>> {
    AllCalls(parts).start()
}

/// Returns the decision of a call that is not soft.
///
/// # Panics
///
/// If the call was refused, which [`all`] reports instead.
#[must_use]
pub fn admitted(answer: Answer<Decision>) -> Decision {
    answer.unwrap_or_else(|error| unreachable!("{error}"))
}
