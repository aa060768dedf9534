//! What came of all calls, by policy: kept from the moment on that someone wants to see it.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use once_cell::sync::Lazy;

use super::{Answer, by_name::ByName};
use crate::{
    policy::Policy,
    store::{Outcome, Source},
};

static IS_KEPT: AtomicBool = AtomicBool::new(false);
static TALLIES: Lazy<ByName<Tally>> = Lazy::new(ByName::default);

/// The calls of one policy since tallies are kept.
#[derive(Default)]
pub(crate) struct Tally {
    calls: [[AtomicU64; Source::ALL.len()]; Answer::ALL.len()],
    seen: Mutex<Seen>,
}

/// What the latest calls told.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    /// The limit that the latest call was decided by.
    pub(crate) policy: Option<Policy>,
    /// The smallest share of a limit's units that was left to any caller, since it was last looked
    /// at: 0 is none, 1 is all.
    pub(crate) least_left: Option<f64>,
}

impl Tally {
    /// How many calls got this answer from there.
    pub(crate) fn calls(&self, answer: Answer, source: Source) -> u64 {
        self.calls[answer as usize][source as usize].load(Ordering::Relaxed)
    }

    /// What the latest calls told; begins anew.
    pub(crate) fn take_seen(&self) -> Seen {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = seen.policy;
        std::mem::replace(&mut *seen, Seen { policy, least_left: None })
    }
}

/// Has tallies kept from now on.
pub(crate) fn keep() {
    IS_KEPT.store(true, Ordering::Relaxed);
}

#[inline]
pub(super) fn is_kept() -> bool {
    IS_KEPT.load(Ordering::Relaxed)
}

/// The policies that were called since, and their tallies.
pub(crate) fn all() -> Vec<(&'static str, &'static Tally)> {
    TALLIES.all()
}

pub(super) fn decided(policy: &Policy, answer: Answer, source: Source, outcome: Option<&Outcome>) {
    if !is_kept() {
        return;
    }
    let tally = TALLIES.of(policy.name());
    tally.calls[answer as usize][source as usize].fetch_add(1, Ordering::Relaxed);
    let left = outcome.map(|outcome| {
        let tier = policy.tiers()[usize::from(outcome.tier)];
        let most = policy.given_burst().unwrap_or(tier.threshold());
        f64::from(outcome.remaining) / f64::from(most.max(1))
    });
    let mut seen = tally.seen.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.policy != Some(*policy) {
        seen.policy = Some(*policy);
    }
    if let Some(left) = left {
        seen.least_left = Some(seen.least_left.map_or(left, |least| least.min(left)));
    }
}
