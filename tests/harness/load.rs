//! Callers under constant load.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use ratelimit_runtime::{Limiter, Policy, RateLimitError};
use tokio::task::JoinHandle;

use super::{
    history::{Call, History, Outcome},
    wall_clock,
};

/// Tasks that call one limiter until they are stopped, and record the answers.
#[derive(Debug)]
pub struct Load {
    live: Arc<Live>,
    tasks: Vec<JoinHandle<Vec<Call>>>,
}

#[derive(Debug, Default)]
struct Live {
    is_over: AtomicBool,
    admitted: AtomicU64,
    refused: AtomicU64,
    unavailable: AtomicU64,
}

impl Load {
    /// Starts this many tasks; each calls as caller number task % `callers`, and pauses after each
    /// call for about this long.
    pub fn start(
        limiter: &Limiter,
        policy: Policy,
        tasks: u32,
        callers: u32,
        pause: Duration,
    ) -> Self {
        let limiter = limiter.clone();
        Self::calling(tasks, callers, pause, move |caller| {
            let limiter = limiter.clone();
            async move { limiter.check(&policy, caller).await.map(drop) }
        })
    }

    /// Starts the same with a limited function, which is called with the number of the caller.
    pub fn calling<F>(
        tasks: u32,
        callers: u32,
        pause: Duration,
        function: impl Fn(u32) -> F + Clone + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), RateLimitError>> + Send,
    {
        let live = Arc::new(Live::default());
        let call = |task: u32| {
            let (function, live) = (function.clone(), Arc::clone(&live));
            tokio::spawn(async move {
                let mut calls = Vec::new();
                while !live.is_over.load(Ordering::Relaxed) {
                    let (caller, asked) = (task % callers, wall_clock());
                    let outcome = outcome(&function(caller).await);
                    let (answered, cost, settled) = (wall_clock(), 1, None);
                    let call = Call { caller, asked, answered, outcome, cost, settled };
                    live.count(call.outcome);
                    calls.push(call);
                    tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                }
                calls
            })
        };
        let tasks = (0..tasks).map(call).collect();
        Self { live, tasks }
    }

    /// Returns the number of admitted calls so far.
    pub fn admitted(&self) -> u64 {
        self.live.admitted.load(Ordering::Relaxed)
    }

    /// Returns the number of refused calls so far.
    pub fn refused(&self) -> u64 {
        self.live.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of calls so far that the store did not decide.
    pub fn unavailable(&self) -> u64 {
        self.live.unavailable.load(Ordering::Relaxed)
    }

    /// Stops the tasks after their current call.
    pub async fn stop(self) -> History {
        self.live.is_over.store(true, Ordering::Relaxed);
        let mut calls = Vec::new();
        for task in self.tasks {
            calls.extend(task.await.expect("a task of the load"));
        }
        History::new(calls)
    }
}

impl Live {
    fn count(&self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Admitted => &self.admitted,
            Outcome::Refused => &self.refused,
            Outcome::Unavailable(_) => &self.unavailable,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn outcome(answer: &Result<(), RateLimitError>) -> Outcome {
    match answer {
        Ok(()) => Outcome::Admitted,
        Err(RateLimitError::Exceeded(_)) => Outcome::Refused,
        Err(RateLimitError::Unavailable(error)) => Outcome::Unavailable(error.reason()),
        Err(error) => panic!("{error}"),
    }
}
