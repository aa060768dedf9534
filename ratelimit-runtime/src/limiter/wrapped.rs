//! The permit of a call with what goes beside it: the time waited, and the charge of a candidate.

use std::{future::ready, pin::Pin, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::decision::{Decision, Permit};

/// The charge of a call under the candidate, which is settled as the call is: both come in any order.
#[derive(Default)]
pub(super) struct CandidateCharge(Mutex<ChargeState>);

#[derive(Default)]
pub(super) struct ChargeState {
    pub(super) charged: Option<Decision>,
    settled: Option<u32>,
}

impl CandidateCharge {
    pub(super) fn settle(&self, to: u32) {
        self.change(|state| _ = state.settled.get_or_insert(to));
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut ChargeState)) {
        let mut state = self.0.lock();
        change(&mut state);
        let both = state.settled.and_then(|to| Some((state.charged.take()?, to)));
        drop(state);
        if let Some((charged, to)) = both {
            charged.settle(to);
        }
    }
}

/// The permit of a call around its own, if it has one: with the time waited, and the charge of a candidate.
pub(super) struct Wrapped {
    permit: Option<Arc<dyn Permit>>,
    waited: Duration,
    candidate: Option<Arc<CandidateCharge>>,
}

impl Wrapped {
    pub(super) fn around(
        permit: Option<Arc<dyn Permit>>,
        waited: Duration,
        candidate: Option<Arc<CandidateCharge>>,
    ) -> Arc<dyn Permit> {
        Arc::new(Self { permit, waited, candidate })
    }

    /// Returns a permit with the charge of a candidate, if there is one.
    pub(super) fn with_candidate(
        permit: Option<Arc<dyn Permit>>,
        candidate: Option<Arc<CandidateCharge>>,
    ) -> Option<Arc<dyn Permit>> {
        if candidate.is_none() {
            return permit;
        }
        let waited = permit.as_ref().map_or(Duration::ZERO, |permit| permit.waited());
        Some(Self::around(permit, waited, candidate))
    }
}

impl Permit for Wrapped {
    fn is_held(&self) -> bool {
        self.permit.as_ref().is_some_and(|permit| permit.is_held())
    }

    fn give_back(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        match &self.permit {
            Some(permit) => permit.give_back(),
            None => Box::pin(ready(())),
        }
    }

    fn settle(&self, to: u32) {
        if let Some(candidate) = &self.candidate {
            candidate.settle(to);
        }
    }

    fn waited(&self) -> Duration {
        self.waited
    }

    fn wait_alone(&self) -> Option<Arc<dyn Permit>> {
        (!self.waited.is_zero()).then(|| Self::around(None, self.waited, None))
    }
}
