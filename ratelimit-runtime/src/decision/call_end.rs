//! The values of a call that its decision has beside its numbers and its permit.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::Decision;

/// The time waited, and the charge of a candidate.
#[derive(Clone, Default)]
pub(crate) struct CallEnd {
    pub(crate) waited: Duration,
    pub(crate) candidate: Option<Arc<CandidateCharge>>,
}

/// The charge of a call under the candidate, which is settled as the call is: both come in any
/// order.
#[derive(Default)]
pub(crate) struct CandidateCharge(Mutex<ChargeState>);

#[derive(Default)]
pub(crate) struct ChargeState {
    pub(crate) charged: Option<Decision>,
    settled: Option<u32>,
}

impl CandidateCharge {
    /// Settles the charge, now or once it is there.
    pub(super) fn settle(&self, to: u32) {
        self.change(|state| _ = state.settled.get_or_insert(to));
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut ChargeState)) {
        let mut state = self.0.lock();
        change(&mut state);
        let both = state.settled.and_then(|to| Some((state.charged.take()?, to)));
        drop(state);
        if let Some((charged, to)) = both {
            charged.settle(to);
        }
    }
}

impl Decision {
    /// Sets the time waited and the charge of a candidate.
    #[inline]
    pub(crate) fn ended(self, end: CallEnd) -> Self {
        let is_plain = end.waited.is_zero() && end.candidate.is_none();
        Self { end: (!is_plain).then(|| Box::new(end)), ..self }
    }

    /// Returns the copy of observers, which holds no permit and settles no candidate.
    pub(crate) fn observed(&self) -> Self {
        let end = CallEnd { waited: self.waited(), candidate: None };
        Self { permit: None, end: None, ..self.clone() }.ended(end)
    }

    /// Settles the charge of the candidate.
    #[inline]
    pub(crate) fn settle_candidate(&self, to: u32) {
        if let Some(candidate) = self.end.as_ref().and_then(|end| end.candidate.as_ref()) {
            candidate.settle(to);
        }
    }
}
