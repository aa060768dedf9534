//! The rules of windows of the calendar.

use super::{Argument, Draft, Violations};
use crate::{Algorithm, CalendarUnit, PolicyFault};

/// Finds the rules that a policy breaks by a window of the calendar, or by a zone without one.
pub(super) fn find(draft: &Draft<'_>, found: &mut Violations) {
    if draft.algorithm != Algorithm::CalendarWindow {
        return found.add(Argument::Zone, draft.zone.then_some(PolicyFault::ZoneWithoutCalendar));
    }
    for (index, tier) in draft.tiers.iter().enumerate() {
        found.add(Argument::Period(index), tier.period.and_then(period_fault));
    }
    for (place, argument, is_written) in [
        (Argument::Tier(1), "tier", draft.tiers.len() > 1),
        (Argument::CountRejected, "count_rejected", draft.count_rejected),
        (Argument::Lease, "lease", draft.lease.is_explicit()),
    ] {
        found.add(place, is_written.then_some(PolicyFault::CalendarWith { argument }));
    }
}

/// Returns a fault if this is no nominal length of a unit.
pub(super) const fn period_fault(period: u64) -> Option<PolicyFault> {
    match CalendarUnit::of_nominal(period) {
        Some(_) => None,
        None => Some(PolicyFault::PeriodOffCalendar),
    }
}
