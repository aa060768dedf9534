//! The policies of checks by hand, each recorded at its first check.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crate::policy::Policy;

/// The number of policies that are recorded. Names are part of the program, so that there are few.
const CAPACITY: usize = 1_024;

const SLOTS: usize = 256;

/// The fingerprints of checked policies, so that a check of a recorded one costs a load. Two policies of
/// one slot are looked up in [`POLICIES`] in turn.
static SEEN: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

/// One policy of each name and kind of state: its first.
static POLICIES: Mutex<Vec<Policy>> = Mutex::new(Vec::new());

/// Records the policy of a check by hand. Returns `true` for the first one of its name and kind.
#[inline]
pub(crate) fn is_new(policy: &Policy) -> bool {
    let fingerprint = fingerprint(policy);
    let slot = &SEEN[usize::try_from(fingerprint >> 56).unwrap_or(0) % SLOTS];
    slot.load(Ordering::Relaxed) != fingerprint && record(policy, slot, fingerprint)
}

/// Returns one policy of each name and kind that was checked by hand.
pub(super) fn policies() -> Vec<Policy> {
    lock().clone()
}

#[cold]
fn record(policy: &Policy, slot: &AtomicU64, fingerprint: u64) -> bool {
    let mut policies = lock();
    slot.store(fingerprint, Ordering::Relaxed);
    let is_known = policies.iter().any(|known| is_same_state(known, policy));
    let is_new = !is_known && policies.len() < CAPACITY;
    if is_new {
        policies.push(*policy);
    }
    is_new
}

/// Returns `true` if callers have one history under both policies.
fn is_same_state(one: &Policy, other: &Policy) -> bool {
    one.name() == other.name() && one.state() == other.state()
}

/// Never 0, which is an empty slot.
#[inline]
fn fingerprint(policy: &Policy) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let kind = policy.state() as u64 + 1;
    (policy.full_name().hash() ^ kind).wrapping_mul(ODD) | 1
}

fn lock() -> MutexGuard<'static, Vec<Policy>> {
    POLICIES.lock().unwrap_or_else(PoisonError::into_inner)
}
