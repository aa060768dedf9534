//! What came of all calls, by policy: kept from the moment on that someone wants to see it.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use once_cell::sync::Lazy;
use tokio::time::Instant;

use super::{Verdict, by_name::ByName};
use crate::{
    policy::Policy,
    request::{DecidedBy, Outcome},
};

static IS_KEPT: AtomicBool = AtomicBool::new(false);
static TALLIES: Lazy<ByName<PolicyStats>> = Lazy::new(ByName::default);
static BEGINNING: Lazy<Instant> = Lazy::new(Instant::now);

/// The calls of one policy since tallies are kept.
#[derive(Default)]
pub(crate) struct PolicyStats {
    calls: [[AtomicU64; DecidedBy::ALL.len()]; Verdict::ALL.len()],
    latest: Mutex<Latest>,
}

/// What the latest calls told, kept so that each of several readers finds it.
#[derive(Default)]
struct Latest {
    policy: Option<Policy>,
    second: u64,
    least_left: Option<f64>,
    /// The same, of the second before.
    least_before: Option<f64>,
}

/// What the latest calls told.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    /// The limit that the latest call was decided by.
    pub(crate) policy: Option<Policy>,
    /// The smallest share of a limit's units that was left to any caller, in this second and the
    /// one before: 0 is none, 1 is all.
    pub(crate) least_left: Option<f64>,
}

impl Latest {
    /// The seconds that are over are forgotten, but for one.
    fn go_on(&mut self) {
        let second = BEGINNING.elapsed().as_secs();
        if second != self.second {
            self.least_before = self.least_left.take().filter(|_| second == self.second + 1);
            self.second = second;
        }
    }
}

fn least(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::min)
}

impl PolicyStats {
    /// How many calls got this answer from there.
    pub(crate) fn calls(&self, answer: Verdict, decided_by: DecidedBy) -> u64 {
        self.calls[answer as usize][decided_by as usize].load(Ordering::Relaxed)
    }

    /// What the latest calls told.
    pub(crate) fn seen(&self) -> Seen {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.go_on();
        let least_left = least(latest.least_left, latest.least_before);
        Seen { policy: latest.policy, least_left }
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
pub(crate) fn all() -> Vec<(&'static str, &'static PolicyStats)> {
    TALLIES.all()
}

pub(super) fn decided(
    policy: &Policy,
    answer: Verdict,
    decided_by: DecidedBy,
    outcome: Option<&Outcome>,
) {
    if !is_kept() {
        return;
    }
    let tally = TALLIES.of(policy.name());
    tally.calls[answer as usize][decided_by as usize].fetch_add(1, Ordering::Relaxed);
    let left = outcome.map(|outcome| {
        let tier = policy.tiers()[usize::from(outcome.tier)];
        let most = policy.explicit_burst().unwrap_or(tier.threshold());
        f64::from(outcome.remaining) / f64::from(most.max(1))
    });
    let mut latest = tally.latest.lock().unwrap_or_else(PoisonError::into_inner);
    latest.go_on();
    // One that breaks a rule decides nothing.
    if answer != Verdict::InvalidPolicy && latest.policy != Some(*policy) {
        latest.policy = Some(*policy);
    }
    latest.least_left = least(latest.least_left, left);
}
