//! The outcome of a call, from the numbers of every tier.

use crate::{
    policy::Tier,
    request::{Mark, Outcome, OutcomeKind, Request},
    time::Micros,
};

/// Returns the outcome of a decided call. `numbers` returns the units left in the tier of an index,
/// and the time until its full quota is back; `until` returns the time until the tier has this many
/// units.
#[inline]
pub(super) fn outcome_of(
    request: Request<'_>,
    admitted: bool,
    mark: Mark,
    numbers: impl Fn(usize, &Tier) -> (u32, Micros),
    until: impl Fn(usize, &Tier, u32) -> Micros,
) -> Outcome {
    let Request { policy, cost, .. } = request;
    let (mark, zero) = (if admitted { mark } else { Mark::NONE }, Micros::ZERO);
    let mut outcome = Outcome { admitted, mark, ..Outcome::refused(zero, zero) };
    for (index, tier) in policy.tiers().iter().enumerate() {
        let (left, reset) = numbers(index, tier);
        let wait = until(index, tier, if admitted { left.saturating_add(1) } else { cost });
        let Outcome { remaining, wait: longest, .. } = outcome;
        // Shown is the tier with the fewest units left. A refusal is about the longest wait.
        let is_longer = wait > longest && (left == remaining || !admitted);
        if index == 0 || (admitted && left < remaining) || is_longer {
            let tier = u8::try_from(index).unwrap_or(u8::MAX);
            outcome = Outcome { tier, remaining: left, wait, ..outcome };
        }
        outcome.reset = outcome.reset.max(reset);
    }
    outcome.lasts = outcome.reset;
    outcome.more = match outcome.remaining.checked_add(1) {
        _ if admitted => zero,
        Some(units) if units < cost => {
            let tiers = policy.tiers().iter().enumerate();
            tiers.map(|(index, tier)| until(index, tier, units)).max().unwrap_or_default()
        }
        _ => outcome.wait,
    };
    outcome
}

/// Returns the outcome of a call behind others that wait for their turns, the last of them `ahead`
/// from now. One unit can be had `one` after that. The numbers of `outcome` are those of that turn.
pub(super) fn behind(outcome: Outcome, ahead: Micros, one: Micros) -> Outcome {
    let (one, reset) = (ahead + one, ahead + outcome.reset);
    let (wait, more) =
        if outcome.admitted { (one, Micros::ZERO) } else { (ahead + outcome.wait, one) };
    let kind = if outcome.admitted { outcome.kind } else { OutcomeKind::Gated };
    Outcome { remaining: 0, wait, more, reset, kind, ..outcome }
}
