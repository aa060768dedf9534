//! A length of time that may be unset, in the room of four bytes.

use std::time::Duration;

/// Whole milliseconds. Above `LONGEST` it is unset, and has the share in percent that a call leaves of a bucket: no
/// policy has both.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Millis(u32);

/// Far beyond any maximum.
const LONGEST: u32 = u32::MAX - 256;

impl Millis {
    pub(super) const UNSET: Self = Self::of_share(0);

    /// Saturates: what does not fit is far beyond any maximum.
    pub(super) const fn new(length: Duration) -> Self {
        let millis = length.as_millis();
        #[expect(clippy::cast_possible_truncation, reason = "compared just before")]
        let millis = if millis > LONGEST as u128 { LONGEST } else { millis as u32 };
        Self(millis)
    }

    /// An unset length with a share, at most 100 percent.
    pub(super) const fn of_share(percent: u8) -> Self {
        Self(u32::MAX - percent as u32)
    }

    /// Returns the share; 0 without one.
    #[inline]
    pub(super) fn share(self) -> u8 {
        u8::try_from(u32::MAX - self.0).unwrap_or(0)
    }

    #[inline]
    pub(super) const fn is_unset(self) -> bool {
        self.0 > LONGEST
    }

    /// Returns `true` if both are as long, or unset.
    pub(super) const fn is_same(self, other: Self) -> bool {
        self.0 == other.0
    }

    /// Returns the length in microseconds, if it is set.
    #[inline]
    pub(super) const fn micros(self) -> Option<u64> {
        if self.is_unset() { None } else { Some(self.0 as u64 * 1_000) }
    }
}
