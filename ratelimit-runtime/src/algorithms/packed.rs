//! Numbers of few bytes, none of which is aligned: a state has no padding.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{request::Charged, time::Timestamp};

/// Three bytes; a larger number is the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short([u8; 3]);

impl Short {
    const LARGEST: u32 = (1 << 24) - 1;

    #[inline]
    pub(crate) fn new(number: u32) -> Self {
        let [low, middle, high, _] = number.min(Self::LARGEST).to_le_bytes();
        Self([low, middle, high])
    }

    #[inline]
    pub(crate) const fn get(self) -> u32 {
        let [low, middle, high] = self.0;
        u32::from_le_bytes([low, middle, high, 0])
    }
}

/// The identity of a state: a settle of units that another state counted changes nothing.
///
/// Two states of one key share it only if a multiple of 16 777 216 states was created between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(Short);

impl Generation {
    /// Returns the generation of a new state.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(Short::new(NEXT.fetch_add(1, Ordering::Relaxed) & Short::LARGEST))
    }

    /// Returns the generation of a state that is empty again at `now`. Hashed instead of counted,
    /// because every call of a full bucket needs one.
    #[inline]
    pub(crate) fn renewed(self, now: Timestamp) -> Self {
        let mixed = now.get() ^ u64::from(self.0.get()) << 40;
        // Fibonacci hashing: the high bytes of the product depend on all bits.
        let [.., low, middle, high] = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        Self(Short([low, middle, high]))
    }

    pub(crate) fn charged(self) -> Charged {
        Charged::Generation(self.number())
    }

    pub(crate) fn number(self) -> u64 {
        self.0.get().into()
    }
}

/// The fields that all counts of a state share.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct Header {
    pub(super) generation: Generation,
    /// The time of the last write.
    pub(super) written: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_fits_is_kept_and_a_larger_one_is_the_largest() {
        for number in [0, 1, 255, 256, (1 << 24) - 1] {
            assert_eq!(Short::new(number).get(), number);
        }
        assert_eq!(Short::new(1 << 24).get(), (1 << 24) - 1);
    }

    #[test]
    fn generations_differ() {
        let first = Generation::next();
        assert_ne!(first, Generation::next());
        let [one, two] = [1, 2].map(|now| first.renewed(Timestamp::new(now)));
        assert!(one != two && one != first);
    }
}
