//! Properties of a policy, one bit each, and above them the unit of its quota; its algorithm; and
//! its plan.

use ratelimit_core::{Algorithm, CalendarUnit};

use super::{PolicyName, QuotaUnit};
use crate::time::Micros;

/// The bits, the algorithm and the plan, in four bytes: an error contains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flags {
    bits: u8,
    pub(super) algorithm: Algorithm,
    /// The plan; zeros for none.
    plan: [u8; 2],
}

/// A plan of a limit: a hash of its name. Another [`Plans`](super::Plans) of the limit may have
/// other plans.
pub(super) type PlanId = [u8; 2];

/// One of the bits.
#[derive(Clone, Copy)]
pub(crate) struct Flag(u8);

impl Flags {
    /// Refused calls are recorded as well.
    pub(crate) const COUNT_REJECTED: Flag = Flag(1);
    /// There is one tier, and no rule is broken.
    pub(super) const VALID_ALONE: Flag = Flag(1 << 1);
    /// In an error, several clients share the limit. No error reads the bit of a valid policy, and
    /// has no other free.
    pub(crate) const SHARED: Flag = Self::VALID_ALONE;
    /// Besides, there is no `concurrency`, and the window is none of the calendar.
    pub(super) const ONE_TIER: Flag = Flag(1 << 2);
    /// There is a lease.
    pub(super) const LEASED: Flag = Flag(1 << 3);
    /// Callers are shut out who exceed the limit.
    pub(crate) const BLOCKS: Flag = Flag(1 << 4);

    /// The lowest bit of the unit.
    const UNIT: u32 = 5;

    pub(super) const fn of(algorithm: Algorithm) -> Self {
        Self { bits: 0, algorithm, plan: [0; 2] }
    }

    pub(crate) const fn has(self, flag: Flag) -> bool {
        self.bits & flag.0 != 0
    }

    pub(crate) const fn with(mut self, flag: Flag, is_set: bool) -> Self {
        self.bits = if is_set { self.bits | flag.0 } else { self.bits & !flag.0 };
        self
    }

    pub(super) const fn with_unit(mut self, unit: QuotaUnit) -> Self {
        self.bits = self.bits & !(0b111 << Self::UNIT) | (unit as u8) << Self::UNIT;
        self
    }

    /// Sets the plan.
    pub(super) const fn with_plan(mut self, name: &str) -> Self {
        let [first, second, ..] = PolicyName::hash_of(name).to_le_bytes();
        self.plan = if first == 0 && second == 0 { [1, 0] } else { [first, second] };
        self
    }

    /// Returns `true` if a plan of this name has the hash of the plan.
    pub(super) const fn has_plan(self, name: &str) -> bool {
        let other = self.with_plan(name).plan;
        self.plan[0] == other[0] && self.plan[1] == other[1]
    }

    /// Returns the plan, if it is one.
    pub(super) fn plan(self) -> Option<PlanId> {
        (self.plan != [0; 2]).then_some(self.plan)
    }

    /// Returns the period as messages name it: `month` of a calendar, or a length of time.
    pub(crate) fn period_text(self, period: Micros) -> String {
        let unit = CalendarUnit::of_nominal(period.get())
            .filter(|_| self.algorithm == Algorithm::CalendarWindow);
        unit.map_or_else(|| period.as_period(), |unit| unit.as_str().to_owned())
    }

    #[inline]
    pub(crate) const fn unit(self) -> QuotaUnit {
        match self.bits >> Self::UNIT {
            1 => QuotaUnit::ContentBytes,
            2 => QuotaUnit::Tokens,
            3 => QuotaUnit::Rows,
            4 => QuotaUnit::Other,
            _ => QuotaUnit::Requests,
        }
    }
}
