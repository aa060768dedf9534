//! The numbers of an answer, all derived from the room that a state has.

use super::{Answer, Rules, soonest::soonest, states::State};

/// The time until one unit can be had.
pub(super) fn until_one(state: &State, rules: &Rules, now: u64) -> u64 {
    let until = |index| soonest(|wait| state.has_room(rules, index, now + wait, 1));
    (0..rules.tiers.len()).map(until).max().unwrap_or(0)
}

/// The numbers of a decision.
pub(super) fn answer(state: &State, rules: &Rules, admitted: bool, now: u64, cost: u32) -> Answer {
    let until = |index, units| {
        soonest(|wait| units == 0 || state.has_room(rules, index, now + wait, units))
    };
    let tiers = rules.tiers.iter().enumerate().map(|(index, tier)| {
        let has_room = |units| units == 0 || state.has_room(rules, index, now, units);
        let usable = tier.capacity - rules.left(index);
        let remaining = most(usable, has_room);
        let wanted = if admitted { remaining + 1 } else { u64::from(cost) };
        let until = |units: u64| until(index, u32::try_from(units).unwrap_or(u32::MAX).min(usable));
        let remaining = u32::try_from(remaining).expect("at most the capacity");
        (index, remaining, until(wanted), until(usable.into()))
    });
    let tiers: Vec<_> = tiers.collect();
    // Of equals, the first one is reported.
    let speaks = tiers.iter().rev().max_by_key(|(_, remaining, wait, _)| {
        let fewest = if admitted { u32::MAX - remaining } else { 0 };
        (fewest, *wait)
    });
    let &(tier, remaining, wait, _) = speaks.expect("a policy has a tier");
    let reset = tiers.iter().map(|(_, _, _, reset)| *reset).max().unwrap_or(0);
    let units = remaining.saturating_add(1);
    let more = match units {
        _ if admitted => 0,
        _ if units >= cost => wait,
        _ => (0..tiers.len()).map(|index| until(index, units)).max().unwrap_or(0),
    };
    Answer { admitted, is_busy: false, tier, remaining, wait, reset, more }
}

/// The most units up to `capacity` for which there is room.
fn most(capacity: u32, has_room: impl Fn(u32) -> bool) -> u64 {
    let (mut fits, mut too_many) = (0, u64::from(capacity) + 1);
    while fits + 1 < too_many {
        let middle = u64::midpoint(fits, too_many);
        if has_room(u32::try_from(middle).expect("at most the capacity")) {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    fits
}
