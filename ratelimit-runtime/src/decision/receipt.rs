//! The receipt of a counted call, and the one settle that it allows.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use super::limiters::LimiterId;
use crate::{
    caller::Caller,
    policy::StateKind,
    request::{DecidedBy, Mark, Outcome, Request, next_id},
};

/// The receipt of an admitted call, by which it is settled.
#[derive(Clone)]
pub(crate) struct Receipt {
    pub(super) caller: Caller,
    pub(super) state: StateKind,
    pub(crate) decided_by: DecidedBy,
    pub(crate) cost: u32,
    /// The explicit burst of the policy, 0 without one.
    pub(super) burst: u32,
    pub(super) limiter: LimiterId,
    pub(super) id: Option<u64>,
    pub(super) mark: Mark,
    settlement: Settlement,
}

/// The settle of a call, shared by all clones. The first clone allocates it: most decisions have none.
#[derive(Default)]
struct Settlement(OnceLock<Arc<SharedSettlement>>);

#[derive(Default)]
struct SharedSettlement {
    /// `true` while a task settles the call, and once it is settled.
    is_claimed: AtomicBool,
    first: OnceLock<First>,
}

/// The units and the number of a call's first settle. Each repetition has the same.
#[derive(Clone, Copy)]
struct First {
    to: u32,
    number: u64,
}

/// The right to settle a call. One task has it at a time.
pub(crate) struct SettleGuard<'a> {
    is_claimed: &'a AtomicBool,
    /// The units that the call takes.
    pub(crate) to: u32,
    /// The number of the settle.
    pub(crate) number: u64,
    /// `true` if another task may settle the call after this one.
    pub(crate) release: bool,
}

impl Settlement {
    fn get(&self) -> &Arc<SharedSettlement> {
        self.0.get_or_init(Arc::default)
    }
}

impl Clone for Settlement {
    fn clone(&self) -> Self {
        Self(OnceLock::from(Arc::clone(self.get())))
    }
}

impl Receipt {
    #[inline]
    pub(super) fn new(
        limiter: LimiterId,
        caller: &Caller,
        request: Request<'_>,
        outcome: Outcome,
    ) -> Self {
        let Request { policy, cost, id, .. } = request;
        let Outcome { mark, decided_by, .. } = outcome;
        let (state, burst) = (policy.state(), policy.explicit_burst().unwrap_or(0));
        let (caller, settlement) = (caller.clone(), Settlement::default());
        Self { caller, state, decided_by, cost, burst, limiter, id, mark, settlement }
    }

    /// Claims the settle of the call at `to` units, unless it is done or under way. A settle after one
    /// that failed has the units of the failed one, which may have been applied.
    pub(crate) fn claim(&self, to: u32) -> Option<SettleGuard<'_>> {
        let SharedSettlement { is_claimed, first } = &**self.settlement.get();
        let is_free = !is_claimed.swap(true, Ordering::Relaxed);
        is_free.then(|| {
            let First { to, number } = *first.get_or_init(|| First { to, number: next_id() });
            SettleGuard { is_claimed, to, number, release: true }
        })
    }
}

impl Drop for SettleGuard<'_> {
    fn drop(&mut self) {
        if self.release {
            self.is_claimed.store(false, Ordering::Relaxed);
        }
    }
}
