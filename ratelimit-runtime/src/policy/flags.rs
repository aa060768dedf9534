//! Properties of a policy, one bit each, and above them the unit of its quota and its algorithm; and its plan.

use ratelimit_core::Algorithm;

use super::QuotaUnit;

/// The bits, and the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flags {
    bits: u8,
    plan: Option<PlanIndex>,
}

/// The index of a plan: with room left for the variants of an error that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PlanIndex {
    First,
    Second,
    Third,
    Fourth,
    Fifth,
    Sixth,
    Seventh,
    Eighth,
}

impl PlanIndex {
    const ALL: [Self; 8] = [
        Self::First,
        Self::Second,
        Self::Third,
        Self::Fourth,
        Self::Fifth,
        Self::Sixth,
        Self::Seventh,
        Self::Eighth,
    ];
}

/// One of the bits.
#[derive(Clone, Copy)]
pub(super) struct Flag(u8);

impl Flags {
    /// Refused calls are recorded as well.
    pub(super) const COUNT_REJECTED: Flag = Flag(1);
    /// There is one tier and no `concurrency`, and no rule is broken.
    pub(super) const VALID_ALONE: Flag = Flag(1 << 1);
    /// Besides, nothing is weighted, and there is no lease.
    pub(super) const SIMPLE: Flag = Flag(1 << 2);

    /// The lowest bits of the unit and of the algorithm.
    const UNIT: u32 = 3;
    const ALGORITHM: u32 = 6;

    /// The most plans of a limit.
    pub(super) const PLANS: usize = PlanIndex::ALL.len();

    /// A window of the calendar, which is known by its kind of state, is a fixed window here.
    pub(super) const fn of(algorithm: Algorithm) -> Self {
        let is_calendar = matches!(algorithm, Algorithm::CalendarWindow);
        let algorithm = if is_calendar { Algorithm::FixedWindow } else { algorithm };
        Self { bits: (algorithm as u8) << Self::ALGORITHM, plan: None }
    }

    pub(super) const fn algorithm(self) -> Algorithm {
        match self.bits >> Self::ALGORITHM {
            0 => Algorithm::SlidingWindow,
            1 => Algorithm::SlidingCounter,
            2 => Algorithm::FixedWindow,
            _ => Algorithm::TokenBucket,
        }
    }

    #[inline]
    pub(super) const fn has(self, flag: Flag) -> bool {
        self.bits & flag.0 != 0
    }

    pub(super) const fn with(mut self, flag: Flag, is_set: bool) -> Self {
        self.bits = if is_set { self.bits | flag.0 } else { self.bits & !flag.0 };
        self
    }

    pub(super) const fn with_unit(mut self, unit: QuotaUnit) -> Self {
        self.bits = self.bits & !(0b111 << Self::UNIT) | (unit as u8) << Self::UNIT;
        self
    }

    /// Sets the plan by its index.
    pub(super) const fn with_plan(mut self, index: usize) -> Self {
        self.plan = Some(PlanIndex::ALL[index]);
        self
    }

    /// Returns the index of the plan, if it is one.
    #[inline]
    pub(super) fn plan(self) -> Option<usize> {
        self.plan.map(|plan| plan as usize)
    }

    #[cfg(any(feature = "testing", feature = "tower"))]
    pub(crate) fn counts_rejected(self) -> bool {
        self.has(Self::COUNT_REJECTED)
    }

    #[inline]
    pub(crate) const fn unit(self) -> QuotaUnit {
        match self.bits >> Self::UNIT & 0b111 {
            1 => QuotaUnit::ContentBytes,
            2 => QuotaUnit::Tokens,
            3 => QuotaUnit::Rows,
            4 => QuotaUnit::Other,
            _ => QuotaUnit::Requests,
        }
    }
}
