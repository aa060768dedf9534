//! Properties of a policy, one bit each.

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Flags(u8);

impl Flags {
    pub(super) const NONE: Self = Self(0);
    /// Refused calls are recorded as well.
    pub(super) const COUNT_REJECTED: Self = Self(1);
    /// There is one tier and no `concurrency`, and no rule is broken.
    pub(super) const VALID_ALONE: Self = Self(1 << 1);
    /// Besides, nothing is weighted, and there is no lease.
    pub(super) const SIMPLE: Self = Self(1 << 2);

    #[inline]
    pub(super) const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    pub(super) const fn with(self, flag: Self, is_set: bool) -> Self {
        Self(if is_set { self.0 | flag.0 } else { self.0 & !flag.0 })
    }
}
