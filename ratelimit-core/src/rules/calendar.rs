//! The rules of windows of the calendar.

use super::{Argument, Draft};
use crate::{Algorithm, CalendarUnit, PolicyFault};

/// Returns the rules that a policy breaks by a window of the calendar, or by a zone without one.
pub(super) fn faults(draft: &Draft<'_>) -> Vec<(Argument, PolicyFault)> {
    let mut faults = Vec::new();
    if draft.algorithm != Algorithm::CalendarWindow {
        let fault = draft.zone.then_some((Argument::Zone, PolicyFault::ZoneWithoutCalendar));
        faults.extend(fault);
        return faults;
    }
    for (index, tier) in draft.tiers.iter().enumerate() {
        let fault = tier.period.and_then(period_fault);
        faults.extend(fault.map(|fault| (Argument::Period(index), fault)));
    }
    for (place, argument, is_written) in [
        (Argument::Tier(1), "tier", draft.tiers.len() > 1),
        (Argument::CountRejected, "count_rejected", draft.count_rejected),
        (Argument::Lease, "lease", draft.lease.is_explicit()),
    ] {
        faults.extend(is_written.then(|| (place, calendar_violation(argument))));
    }
    faults
}

/// Returns a fault if this is no nominal length of a unit.
pub(super) const fn period_fault(period: u64) -> Option<PolicyFault> {
    match CalendarUnit::of_nominal(period) {
        Some(_) => None,
        None => Some(PolicyFault::PeriodOffCalendar),
    }
}

/// Returns the rule that an argument breaks beside a window of the calendar.
#[must_use]
pub const fn calendar_violation(argument: &'static str) -> PolicyFault {
    PolicyFault::CalendarWith { argument }
}
