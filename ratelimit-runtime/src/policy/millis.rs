//! A length of time that may be unset, in the room of four bytes.

use std::time::Duration;

/// Whole milliseconds; `u32::MAX` if unset.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Millis(u32);

impl Millis {
    pub(super) const UNSET: Self = Self(u32::MAX);

    /// Saturates: what does not fit is far beyond any maximum.
    pub(super) const fn new(length: Duration) -> Self {
        let (millis, largest) = (length.as_millis(), u32::MAX - 1);
        #[expect(clippy::cast_possible_truncation, reason = "compared just before")]
        let millis = if millis > largest as u128 { largest } else { millis as u32 };
        Self(millis)
    }

    #[inline]
    pub(super) const fn is_unset(self) -> bool {
        self.0 == u32::MAX
    }

    /// Returns the length in microseconds, if it is set.
    #[inline]
    pub(super) const fn micros(self) -> Option<u64> {
        if self.is_unset() { None } else { Some(self.0 as u64 * 1_000) }
    }
}
