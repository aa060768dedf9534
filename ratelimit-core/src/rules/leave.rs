//! The rules of shares: of a call that leaves one to others, and of a warning at one.

use super::Draft;
use crate::PolicyFault;

/// The maximum share that a call leaves, in percent.
const MAX_SHARE: u64 = 99;

/// Returns the units that stay of a quota if at most 100 percent are left, rounded up.
#[must_use]
pub const fn units_left(quota: u32, percent: u8) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "at most the quota")]
    let left = (quota as u64 * percent as u64).div_ceil(100) as u32;
    left
}

/// Returns the rule that a share breaks, whatever its policy.
#[must_use]
pub fn share_fault(share: u64) -> Option<PolicyFault> {
    (share > MAX_SHARE).then_some(PolicyFault::LeaveTooLarge { share })
}

/// Returns the rule by which no call that leaves this share is ever admitted.
pub(super) fn fault(draft: &Draft<'_>) -> Option<PolicyFault> {
    let share = draft.leave?;
    let Some(percent) = u8::try_from(share).ok().filter(|_| share_fault(share).is_none()) else {
        return share_fault(share);
    };
    let usable = |quota: &u32| quota - units_left(*quota, percent);
    let units = |number: u64| u32::try_from(number).ok();
    let quotas: Vec<u32> = draft.quotas().filter_map(units).collect();
    let permits = draft.concurrency.number().filter(|permits| *permits > 0).and_then(units);
    if let Some(quota) = quotas.iter().copied().chain(permits).find(|quota| usable(quota) == 0) {
        return Some(PolicyFault::LeavesNothing { share, quota: quota.into() });
    }
    let cost = draft.cost?;
    let fits = |quota: &u32| u64::from(*quota) >= cost && u64::from(usable(quota)) < cost;
    let quota = quotas.into_iter().find(fits)?;
    let usable = usable(&quota).into();
    Some(PolicyFault::CostOverUsable { cost, usable, quota: quota.into() })
}

/// Returns the rule that a warning breaks under this many tiers: a reply has the numbers of one.
#[must_use]
pub const fn warning_violation(tiers: usize) -> Option<PolicyFault> {
    match tiers {
        0 => Some(PolicyFault::NothingToCount { argument: "warn_at" }),
        1 => None,
        _ => Some(PolicyFault::WarnAtWithTiers),
    }
}

/// Returns the rule that the mark of a warning breaks, in percent.
#[must_use]
pub fn mark_fault(percent: u64) -> Option<PolicyFault> {
    (!(1..=100).contains(&percent)).then_some(PolicyFault::WarnAtOutOfRange { percent })
}
