//! The calls of a process, of which it prints what happens.

use std::{
    cmp::Ordering,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use fastrand::Rng;
use harness::{
    Promises,
    mixed::{
        CallNote, LIMITS, LOCAL_SHARE, MIXED_CALLER, MixedLimit, Note, NoteLine, Reply, SMALL_PLAN,
        SPARE,
    },
    wall_clock,
};
use ratelimit_runtime::{
    DecidedBy, Decision, Limiter, OnStoreError, Plans, Policy, RateLimitError,
};
use tokio::time::{sleep, timeout};

use crate::plan::{GATE, Mix, Plan};

tokio::task_local! {
    /// The number of the task's call.
    static CALL: u64;
}

/// The limits with plans.
static PLANS: LazyLock<[Option<Plans>; LIMITS.len()]> =
    LazyLock::new(|| LIMITS.each_ref().map(MixedLimit::plans));

/// The interval at which a body asks for its permit.
const ASKS: Duration = Duration::from_millis(5);

/// The state that the calls of a process share.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) limiter: Limiter,
    pub(crate) mix: Arc<Mix>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) number: usize,
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) calls: Arc<AtomicU64>,
    /// The number of the tokio runtime.
    pub(crate) runtime: u8,
}

/// A question.
#[derive(Clone, Copy, Default)]
pub(crate) struct Question {
    pub(crate) limit: usize,
    pub(crate) cost: u32,
    pub(crate) max_wait: Duration,
    pub(crate) is_leased: bool,
    pub(crate) id: u64,
    /// The share of the limit that the call leaves, in percent.
    pub(crate) leave: u32,
    /// `true` under the plan of half of the number.
    pub(crate) is_small: bool,
    /// The choice of lengths of blocks.
    pub(crate) blocks: usize,
    /// The share of which its caller is warned, in percent.
    pub(crate) warn_at: u32,
    /// `true` if the call is probably given back.
    pub(crate) is_trial: bool,
    /// The time after which the caller gives up.
    pub(crate) leaves: Option<Duration>,
    /// Its place among the budgets of a call, from 1 on.
    pub(crate) budget: u8,
}

/// Prints an event. It is one write.
pub(crate) fn note(call: u64, note: Note) {
    println!("{}", NoteLine { call, at: wall_clock(), note });
}

/// Notes the first promise of the task's call.
pub(crate) fn promised(turn: u64) {
    let _ = CALL.try_with(|call| note(*call, Note::Promised(turn)));
}

fn reply(answer: Result<&Decision, &RateLimitError>) -> Reply {
    match answer {
        Ok(decision) => {
            let waited = decision.waited().as_micros().try_into().expect("some minutes");
            let is_counted = decision.is_counted() || decision.has_permit();
            Reply::Admitted { is_counted, waited }
        }
        Err(RateLimitError::Exceeded(_) | RateLimitError::TooLarge(_)) => Reply::Refused,
        Err(RateLimitError::Busy(_)) => Reply::Busy,
        Err(RateLimitError::Denied(_)) => Reply::Denied,
        Err(RateLimitError::Unavailable(_)) => Reply::Undecided,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn policy_of(question: &Question) -> Policy {
    let limit = &LIMITS[question.limit];
    let plans = PLANS[question.limit].as_ref().filter(|_| question.is_small);
    let plan = plans.map(|plans| *plans.of(SMALL_PLAN));
    if question.blocks > 0 {
        return MixedLimit::barring(plan.unwrap_or_else(|| limit.policy()), question.blocks);
    }
    if let Some(plan) = plan {
        return plan;
    }
    let leased = question.is_leased.then(|| limit.leased()).flatten();
    leased.unwrap_or_else(|| limit.policy())
}

impl Caller {
    pub(crate) fn is_over(&self) -> bool {
        wall_clock() >= self.until
    }

    pub(crate) fn has(&self, feature: &str) -> bool {
        self.mix.has(feature)
    }

    fn asks(&self, question: &Question, is_joint: bool) -> u64 {
        let call = self.calls.fetch_add(1, Relaxed);
        let asks = CallNote {
            limit: question.limit,
            cost: question.cost.into(),
            max_wait: question.max_wait.as_micros().try_into().expect("some seconds"),
            runtime: self.runtime,
            id: question.id,
            is_leased: question.is_leased,
            is_joint,
            leave: question.leave.into(),
            is_small: question.is_small,
            blocks: question.blocks,
            warn_at: question.warn_at.into(),
            budget: question.budget,
        };
        note(call, Note::Asks(asks));
        call
    }

    /// Asks, and runs a body if the call is admitted. Returns `true` if it was admitted without Redis.
    pub(crate) async fn call(&self, question: Question, random: &mut Rng, body: Duration) -> bool {
        let policy = policy_of(&question);
        let mut check = self.limiter.check(&policy, MIXED_CALLER).cost(question.cost);
        check = check.warn_at(question.warn_at);
        if !question.max_wait.is_zero() {
            check = check.max_wait(question.max_wait);
        }
        if question.leave > 0 {
            check = check.leave(question.leave);
        }
        if question.id > 0 {
            check = check.request_id(question.id);
        }
        if question.limit == GATE {
            check = check.on_store_error(OnStoreError::Local);
        } else if question.limit == SPARE {
            check = check.on_store_error(OnStoreError::local::<LOCAL_SHARE>());
        }
        let call = self.asks(&question, false);
        let answer = CALL.scope(call, Promises::scope(check.into_future()));
        let answer = match question.leaves {
            None => answer.await,
            Some(patience) => {
                let Ok(answer) = timeout(patience, answer).await else {
                    note(call, Note::Answered(Reply::Left));
                    return false;
                };
                answer
            }
        };
        if let Err(RateLimitError::Exceeded(refused)) = &answer {
            let wait = refused.retry_after().as_micros().try_into().expect("some seconds");
            note(call, Note::RefusedFor(wait));
        }
        let is_here = answer.as_ref().is_ok_and(|it| it.decided_by() != DecidedBy::Store);
        if is_here {
            note(call, Note::Here);
        }
        note(call, Note::Answered(reply(answer.as_ref())));
        if let Ok(decision) = answer {
            self.run(call, &question, decision, random, body).await;
        }
        is_here
    }

    /// Asks two budgets, of which the first one that admits the call pays for it.
    pub(crate) async fn call_first(
        &self,
        mut questions: [Question; 2],
        random: &mut Rng,
        body: Duration,
    ) {
        (questions[0].budget, questions[1].budget) = (1, 2);
        let policies = questions.map(|question| policy_of(&question));
        let checks = [0, 1]
            .map(|at| self.limiter.check(&policies[at], MIXED_CALLER).cost(questions[at].cost));
        let calls = questions.map(|question| self.asks(&question, false));
        let answer = self.limiter.check_first(checks).await;
        let last = match &answer {
            Ok(decision) => Some(decision.policy()),
            // All have refused, and the error is that of one.
            Err(RateLimitError::Exceeded(_) | RateLimitError::TooLarge(_)) => None,
            Err(error) => Some(error.policy()),
        };
        let last = last.map_or(1, |name| usize::from(policies[0].name() != name));
        for (at, call) in calls.into_iter().enumerate() {
            let reply = match at.cmp(&last) {
                Ordering::Less => Reply::Refused,
                Ordering::Equal => reply(answer.as_ref()),
                Ordering::Greater => Reply::Spared,
            };
            note(call, Note::Answered(reply));
        }
        if let Ok(decision) = answer {
            self.run(calls[last], &questions[last], decision, random, body).await;
        }
    }

    /// Asks two limits together.
    pub(crate) async fn call_both(
        &self,
        questions: [Question; 2],
        random: &mut Rng,
        body: Duration,
    ) {
        let policies = questions.map(|question| policy_of(&question));
        let checks = [0, 1].map(|at| {
            let Question { cost, max_wait, warn_at, .. } = questions[at];
            let check = self.limiter.check(&policies[at], MIXED_CALLER).cost(cost).warn_at(warn_at);
            if max_wait.is_zero() { check } else { check.max_wait(max_wait) }
        });
        let waits = questions.iter().map(|it| it.max_wait).max().unwrap_or_default();
        let calls =
            questions.map(|question| self.asks(&Question { max_wait: waits, ..question }, true));
        match self.limiter.check_all(checks).await {
            Ok(decisions) => {
                for (call, decision) in calls.into_iter().zip(&decisions) {
                    note(call, Note::Answered(reply(Ok(decision))));
                }
                let [one, other] = decisions;
                self.run(calls[0], &questions[0], one, random, body).await;
                self.run(calls[1], &questions[1], other, random, Duration::ZERO).await;
            }
            Err(error) => {
                for call in calls {
                    note(call, Note::Answered(reply(Err(&error))));
                }
            }
        }
    }

    /// Runs a body, and settles the call or not.
    async fn run(
        &self,
        call: u64,
        question: &Question,
        decision: Decision,
        random: &mut Rng,
        body: Duration,
    ) {
        if LIMITS[question.limit].permits > 0 {
            let until = tokio::time::Instant::now() + body;
            loop {
                // Held later is held now.
                let at = wall_clock();
                let held = if decision.has_permit() { Note::Held } else { Note::Lost };
                println!("{}", NoteLine { call, at, note: held });
                let left = until.saturating_duration_since(tokio::time::Instant::now());
                if left.is_zero() {
                    break;
                }
                sleep(left.min(ASKS)).await;
            }
        } else {
            sleep(body).await;
        }
        let to = self.settled_at(question, random);
        let is_elsewhere = self.has("threads") && random.u8(..5) == 0;
        if let Some(to) = to.filter(|_| decision.is_counted()) {
            note(call, Note::Settles(to.into()));
            if !is_elsewhere && random.bool() {
                if self.limiter.settle(&decision, to).await.is_ok() {
                    note(call, Note::Settled);
                }
                drop(decision);
                return note(call, Note::Ended);
            }
        }
        let end = move || {
            if let Some(to) = to {
                decision.settle(to);
            }
            drop(decision);
        };
        if is_elsewhere {
            // A thread without tokio.
            let thread = thread::spawn(end);
            while !thread.is_finished() {
                sleep(Duration::from_millis(1)).await;
            }
        } else {
            end();
        }
        note(call, Note::Ended);
    }

    /// The units at which a call is settled.
    fn settled_at(&self, question: &Question, random: &mut Rng) -> Option<u32> {
        if question.id > 0 {
            return None;
        }
        let cost = question.cost;
        match random.u8(..20) {
            0..12 if question.is_trial && self.has("refund") => Some(0),
            0..3 if self.has("refund") => Some(0),
            3..6 if self.has("settle") && !question.is_leased => Some(random.u32(..=cost)),
            6..8 if self.has("settle") && !question.is_leased => Some(cost + random.u32(1..=2)),
            _ => None,
        }
    }
}
