//! The length of a window of the calendar in memory, and which one of its zone it is.

use crate::time::Micros;

/// In microseconds.
const SECOND: u64 = 1_000_000;

/// A quarter of a day, in microseconds.
const QUARTER: u64 = 6 * 60 * 60 * SECOND;

/// The length of a window in seconds, which is whole in every zone; and in the ten highest bits the
/// quarters of a day from 1970 to its start, by which windows of one zone are told apart that are
/// at most 128 days apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span(pub(super) u32);

impl Span {
    const SECONDS_MASK: u32 = (1 << 22) - 1;

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lower bits of the quarters, and fewer than 32 days"
    )]
    pub(super) fn new(start: u64, end: u64) -> Self {
        Self(((start / QUARTER) as u32) << 22 | ((end - start) / SECOND) as u32)
    }

    pub(crate) fn length(self) -> Micros {
        Micros::new(u64::from(self.0 & Self::SECONDS_MASK) * SECOND)
    }

    /// Returns the window that starts `periods` periods later, and is one period long. It counts as
    /// starting a quarter later still, as it does if summer time ends meanwhile: otherwise the
    /// window of the calendar would be taken for the next one.
    #[expect(clippy::cast_possible_truncation, reason = "as in `new`")]
    pub(crate) fn later(self, periods: u64, period: Micros) -> Self {
        let quarters = (self.0 >> 22).wrapping_add((periods * (period.get() / QUARTER) + 1) as u32);
        Self(quarters << 22 | (period.get() / SECOND) as u32)
    }

    /// Returns `true` if the window starts later than the other one, on the calendar.
    pub(crate) fn is_after(self, other: Self) -> bool {
        let [own, other] = [self, other].map(|it| it.0 & !Self::SECONDS_MASK);
        own.wrapping_sub(other).cast_signed() > 0
    }
}
