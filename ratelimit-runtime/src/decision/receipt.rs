//! The receipt of a counted call, and the one settle that it allows.

use std::{mem, sync::Arc};

use super::{Decision, limiters::LimiterId};
use crate::{
    calendar::Zone,
    caller::Caller,
    policy::StateKind,
    request::{Mark, Outcome, Request, Settle, next_id},
    sync::Mutex,
};

/// The receipt of an admitted call, by which it is settled.
#[derive(Clone)]
pub(crate) struct Receipt {
    pub(super) caller: Caller,
    pub(super) state: StateKind,
    pub(crate) cost: u32,
    /// The explicit burst of the policy, 0 without one.
    pub(super) burst: u32,
    /// The zone of windows of the calendar.
    pub(super) zone: Option<Zone>,
    pub(super) limiter: LimiterId,
    pub(super) id: Option<u64>,
    pub(super) mark: Mark,
    settlement: Settlement,
}

impl Decision {
    /// Returns the change of the call's charge that this settle is.
    #[inline]
    pub(crate) fn change(&self, receipt: &Receipt, settle: &SettleGuard<'_>) -> Settle {
        let Receipt { state, cost, mark, id, burst, zone, .. } = *receipt;
        Settle {
            state,
            from: cost,
            to: settle.to,
            mark,
            id,
            number: settle.number,
            period: self.period,
            threshold: self.threshold,
            burst: Some(burst).filter(|burst| *burst > 0),
            zone,
            reset_after: self.reset_after,
            lifts_block: false,
        }
    }
}

/// The settle of a call, shared by all clones. The first clone puts it on the heap: most decisions
/// have none.
struct Settlement(Mutex<SettleState>);

enum SettleState {
    Own(Progress),
    Shared(Arc<Mutex<Progress>>),
}

#[derive(Clone, Copy, Default)]
struct Progress {
    /// `true` while a task settles the call, and once it is settled.
    is_claimed: bool,
    first: Option<First>,
}

/// The units and the number of a call's first settle. Each repetition has the same.
#[derive(Clone, Copy)]
struct First {
    to: u32,
    number: u64,
}

/// The right to settle a call. One task has it at a time.
pub(crate) struct SettleGuard<'a> {
    settlement: &'a Settlement,
    /// The units that the call takes.
    pub(crate) to: u32,
    /// The number of the settle.
    pub(crate) number: u64,
    /// `true` if another task may settle the call after this one.
    pub(crate) release: bool,
}

impl Settlement {
    #[inline]
    fn with<T>(&self, change: impl FnOnce(&mut Progress) -> T) -> T {
        match &mut *self.0.lock() {
            SettleState::Own(progress) => change(progress),
            SettleState::Shared(shared) => change(&mut shared.lock()),
        }
    }
}

impl Clone for Settlement {
    fn clone(&self) -> Self {
        let mut state = self.0.lock();
        let shared = match &*state {
            SettleState::Own(progress) => Arc::new(Mutex::new(*progress)),
            SettleState::Shared(shared) => Arc::clone(shared),
        };
        *state = SettleState::Shared(Arc::clone(&shared));
        Self(Mutex::new(SettleState::Shared(shared)))
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
        let mark = outcome.mark;
        let (state, burst) = (policy.state(), policy.get_burst().unwrap_or(0));
        let caller = caller.clone();
        let settlement = Settlement(Mutex::new(SettleState::Own(Progress::default())));
        let zone = policy.get_zone().and_then(Zone::new);
        Self { caller, state, cost, burst, zone, limiter, id, mark, settlement }
    }

    /// Returns the units at which the call is settled, or about to be.
    #[inline]
    pub(super) fn settled_at(&self) -> Option<u32> {
        self.settlement.with(|progress| progress.first.map(|first| first.to))
    }

    /// Claims the settle of the call at `to` units, unless it is done or under way. A settle after
    /// one that failed has the units of the failed one, which may have been applied. Only a store
    /// that may see a settle twice needs its number.
    #[inline]
    pub(crate) fn claim(&self, to: u32, is_numbered: bool) -> Option<SettleGuard<'_>> {
        self.settlement.with(|progress| {
            if mem::replace(&mut progress.is_claimed, true) {
                return None;
            }
            let number = || if is_numbered { next_id() } else { 0 };
            let First { to, number } =
                *progress.first.get_or_insert_with(|| First { to, number: number() });
            Some(SettleGuard { settlement: &self.settlement, to, number, release: true })
        })
    }
}

impl Drop for SettleGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.release {
            self.settlement.with(|progress| progress.is_claimed = false);
        }
    }
}
