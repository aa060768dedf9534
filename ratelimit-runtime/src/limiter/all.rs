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

/// One of several calls.
pub struct JointCheck {
    state: Progress,
    /// `true` if the others are asked although this call is refused.
    is_soft: bool,
}

enum Progress {
    Open(OwnedCall),
    Taken(Taken),
    Answered(Answer<Decision>),
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

/// A charge that is given back on drop, unless it is kept.
struct Taken {
    limiter: Limiter,
    decision: Option<Decision>,
}

/// Several calls. Dropping them gives back what they have taken.
struct AllCalls<C>(C);

impl JointCheck {
    pub(crate) fn new(call: OwnedCall) -> Self {
        Self { state: Progress::Open(call), is_soft: false }
    }

    /// A call that is not checked.
    #[must_use]
    pub fn skipped(decision: Decision) -> Self {
        Self { state: Progress::Answered(Ok(decision)), is_soft: false }
    }

    /// Lets the other calls be asked although this one is refused.
    #[must_use]
    pub fn soft(self) -> Self {
        Self { is_soft: true, ..self }
    }

    fn open(&self) -> Option<&OwnedCall> {
        match &self.state {
            Progress::Open(call) => Some(call),
            Progress::Taken(_) | Progress::Answered(_) => None,
        }
    }

    fn answer(self) -> Answer<Decision> {
        match self.state {
            Progress::Taken(taken) => Ok(taken.keep()),
            Progress::Answered(answer) => answer,
            Progress::Open(_) => unreachable!("every call is answered"),
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

impl Taken {
    fn keep(mut self) -> Decision {
        self.decision.take().expect("a charge is kept once")
    }

    /// Gives the charge and the permit back. What fails is sent again after the drop.
    async fn give_back(self) {
        if let Some(decision) = &self.decision {
            let _ = self.limiter.refund(decision).await;
            decision.give_permit_back().await;
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(decision) = &self.decision {
            decision.settle(0);
        }
    }
}

impl<C: JointChecks> AllCalls<C> {
    /// Returns the calls that are not answered yet, with their indices.
    fn open(&self) -> impl Iterator<Item = (usize, &OwnedCall)> {
        let parts = self.0.as_ref().iter().enumerate();
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
        let hard = self.open().filter(|(index, _)| !self.0.as_ref()[*index].is_soft);
        let waits = hard.filter_map(|(index, call)| Some((call.as_call().known_wait()?, index)));
        waits.max_by_key(|(wait, _)| *wait).map(|(_, index)| index)
    }

    /// Returns the second call that may wait. Each of two would hold what it has taken meanwhile.
    fn second_wait(&self) -> Option<(usize, &OwnedCall)> {
        self.open().filter(|(_, call)| call.waits()).nth(1)
    }

    fn ask(&self, index: usize) -> Started<Answer<Decision>> {
        match &self.0.as_ref()[index].state {
            Progress::Open(call) => call.as_call().start(),
            Progress::Taken(_) | Progress::Answered(_) => unreachable!("a call is asked once"),
        }
    }

    /// Keeps the answer, unless it refuses all calls.
    fn receive(
        &mut self,
        index: usize,
        answer: Answer<Decision>,
    ) -> Result<(), (usize, RateLimitError)> {
        let part = &mut self.0.as_mut()[index];
        let state = match (answer, &part.state) {
            (Err(error), _) if !part.is_soft => return Err((index, error)),
            // An earlier call of this id may have been charged: its units are not this call's.
            (Ok(decision), Progress::Open(call)) if call.options.id.is_none() => {
                Progress::Taken(Taken { limiter: call.limiter.clone(), decision: Some(decision) })
            }
            (answer, _) => Progress::Answered(answer),
        };
        part.state = state;
        Ok(())
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
        let mut taken = self.0.as_ref().iter().filter_map(|part| match &part.state {
            Progress::Taken(taken) => Some(taken),
            Progress::Open(_) | Progress::Answered(_) => None,
        });
        if taken.all(|taken| taken.limiter.is_in_memory()) {
            return Started::Ready(Err(refused));
        }
        Started::Pending(Box::pin(async move {
            self.give_back().await;
            Err(refused)
        }))
    }

    /// Gives back what was taken, all at once: each ends within its limiter's deadline.
    async fn give_back(self) {
        let taken = self.0.into_iter().filter_map(|part| match part.state {
            Progress::Taken(taken) => Some(taken),
            Progress::Open(_) | Progress::Answered(_) => None,
        });
        let mut refunds: Vec<_> = taken.map(|taken| Box::pin(taken.give_back())).collect();
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
