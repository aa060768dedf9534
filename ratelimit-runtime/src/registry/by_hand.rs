//! The policies of checks by hand, each recorded at its first check.

use once_cell::race::OnceRef;
use parking_lot::Mutex;

use crate::{
    policy::{Policy, PolicyName},
    telemetry::{self, LimitCounters},
};

/// The number of policies that are recorded. Names are part of the program, so that there are few.
const CAPACITY: usize = 1_024;

/// One for each value of a fingerprint's first byte.
const SLOTS: usize = 256;

/// The slots in which a policy is looked for.
const PROBES: usize = 8;

/// A policy that was checked: the first one of its name, kind of state and time zone.
struct Checked {
    fingerprint: u64,
    policy: Policy,
    counters: &'static LimitCounters,
}

/// The checked policies by fingerprint, so that a check of one costs a load. Those that find no
/// slot are looked up in [`POLICIES`].
static SEEN: [OnceRef<'static, Checked>; SLOTS] = [const { OnceRef::new() }; SLOTS];

static POLICIES: Mutex<Vec<&'static Checked>> = Mutex::new(Vec::new());

/// Returns the counters of a policy that is checked by hand. `on_new` is called after the first
/// check of its name, kind and time zone.
#[inline]
pub(crate) fn counters(policy: &Policy, on_new: impl FnOnce()) -> &'static LimitCounters {
    let fingerprint = fingerprint(policy);
    match SEEN[first_slot(fingerprint)].get() {
        Some(checked) if checked.fingerprint == fingerprint => checked.counters,
        _ => counters_elsewhere(policy, fingerprint, on_new),
    }
}

/// Returns the counters of a policy that is not in its first slot, and records the first one of its
/// name, kind and time zone.
#[cold]
#[inline(never)]
fn counters_elsewhere(
    policy: &Policy,
    fingerprint: u64,
    on_new: impl FnOnce(),
) -> &'static LimitCounters {
    let mut others = slots(fingerprint).filter_map(OnceRef::get);
    if let Some(checked) = others.find(|checked| checked.fingerprint == fingerprint) {
        return checked.counters;
    }
    let mut policies = POLICIES.lock();
    if let Some(known) = policies.iter().find(|known| known.fingerprint == fingerprint) {
        return known.counters;
    }
    let counters = telemetry::counters_of(policy);
    if policies.len() < CAPACITY {
        let checked = &*Box::leak(Box::new(Checked { fingerprint, policy: *policy, counters }));
        policies.push(checked);
        slots(fingerprint).find(|slot| slot.set(checked).is_ok());
        // It may ask for the policies.
        drop(policies);
        on_new();
    }
    counters
}

/// Returns one policy of each name, kind and time zone that was checked by hand.
pub(super) fn policies() -> Vec<Policy> {
    POLICIES.lock().iter().map(|checked| checked.policy).collect()
}

fn first_slot(fingerprint: u64) -> usize {
    usize::from(fingerprint.to_be_bytes()[0])
}

fn slots(fingerprint: u64) -> impl Iterator<Item = &'static OnceRef<'static, Checked>> {
    let first = first_slot(fingerprint);
    (first..first + PROBES).map(|slot| &SEEN[slot % SLOTS])
}

/// Returns a number that is equal for policies of one name, kind of state and time zone.
#[inline]
fn fingerprint(policy: &Policy) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let kind = policy.state() as u64 + 1;
    let zone = if policy.is_calendar() { hash_of_zone(policy) } else { 0 };
    (policy.shown_name().hash() ^ kind).wrapping_mul(ODD) ^ zone
}

/// Returns a hash of the time zone. It is a function of its own, so that checks without one stay
/// short.
#[cold]
#[inline(never)]
fn hash_of_zone(policy: &Policy) -> u64 {
    PolicyName::hash_of(policy.zone_or_utc())
}
