//! Numbers in the fewest bytes that hold them: a key is to stay small.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{
    request::Charged,
    time::{Micros, Timestamp},
};

/// A number of so many bytes; a larger one is the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short<const BYTES: usize>([u8; BYTES]);

/// A [`Timestamp`], up to two thousand years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(Short<7>);

/// [`Micros`], up to nine years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period(Short<6>);

pub(crate) type Units = Short<4>;

impl Time {
    pub(crate) const ZERO: Self = Self(Short::ZERO);

    #[inline]
    pub(crate) fn new(at: Timestamp) -> Self {
        Self(Short::new(at.get()))
    }

    #[inline]
    pub(crate) fn get(self) -> Timestamp {
        Timestamp::new(self.0.get())
    }
}

impl Period {
    pub(crate) const ZERO: Self = Self(Short::ZERO);

    #[inline]
    pub(crate) fn new(length: Micros) -> Self {
        Self(Short::new(length.get()))
    }

    #[inline]
    pub(crate) fn get(self) -> Micros {
        Micros::new(self.0.get())
    }
}

impl<const BYTES: usize> Short<BYTES> {
    pub(crate) const ZERO: Self = Self([0; BYTES]);

    #[inline]
    pub(crate) fn new(number: u64) -> Self {
        let largest = (1 << (8 * BYTES)) - 1;
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(&number.min(largest).to_le_bytes()[..BYTES]);
        Self(bytes)
    }

    #[inline]
    pub(crate) fn get(self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..BYTES].copy_from_slice(&self.0);
        u64::from_le_bytes(bytes)
    }
}

impl Units {
    #[inline]
    pub(crate) fn count(self) -> u32 {
        u32::from_le_bytes(self.0)
    }
}

/// Tells a state from those that were in its place before, and from those that will be.
///
/// A number that is counted on: of two states of one key it is the same only if some multiple of
/// sixteen million states was created between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(Short<3>);

impl Generation {
    /// That of a new state.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self::of(NEXT.fetch_add(1, Ordering::Relaxed).into())
    }

    /// That of a state that begins anew at this time. Scattered rather than counted, because this
    /// may happen at every call.
    #[inline]
    pub(crate) fn renewed(self, now: Timestamp) -> Self {
        Self::of((now.get() ^ (self.number() << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40)
    }

    #[inline]
    pub(crate) fn charged(self) -> Charged {
        Charged::Generation(self.number())
    }

    #[inline]
    fn number(self) -> u64 {
        self.0.get()
    }

    fn of(number: u64) -> Self {
        Self(Short::new(number & 0xFF_FFFF))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_has_room_is_kept_and_a_larger_one_is_the_largest() {
        for number in [0, 1, 255, 256, (1 << 48) - 1] {
            assert_eq!(Short::<6>::new(number).get(), number);
        }
        assert_eq!(Short::<6>::new(1 << 48).get(), (1 << 48) - 1);
        assert_eq!(Units::new(u32::MAX.into()).count(), u32::MAX);
    }

    #[test]
    fn generations_differ() {
        let first = Generation::next();
        assert_ne!(first, Generation::next());
        let [one, two] = [1, 2].map(|now| first.renewed(Timestamp::new(now)));
        assert!(one != two && one != first);
    }
}
