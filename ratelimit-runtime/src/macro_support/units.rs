//! Numbers of units, of any unsigned type.
//!
//! Method look-up finds `pick` of a `u32` first, so that a literal without a suffix is a `u32`. One
//! `Deref` further it finds that of every type, which [`Units`] converts.

use super::before::Before;

/// Wraps the value of a threshold, a burst or a cost.
pub const fn number<T>(number: T) -> Before<AnyNumber<T>> {
    Before(AnyNumber(number))
}

/// The last place where method look-up finds `pick`.
pub struct AnyNumber<T>(T);

impl Before<AnyNumber<u32>> {
    /// Returns the number.
    pub const fn pick(&self) -> &u32 {
        &self.0.0
    }
}

impl<T> AnyNumber<T> {
    /// Returns the number.
    pub const fn pick(&self) -> &T {
        &self.0
    }
}

/// An unsigned integer, as a number of units: a threshold, a burst or a cost.
///
/// A number above `u32::MAX` counts as `u32::MAX`. Compile errors name this trait for a value of
/// any other type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number of units",
    label = "expected an unsigned integer, found `{Self}`",
    note = "a threshold, a burst and a cost are of type `u32` or any other unsigned integer; numbers above `u32::MAX` count as `u32::MAX`",
    note = "convert a signed integer or a float where you know what its negative values mean, as by `u32::try_from(n).unwrap_or(0)`; write `*n` for a reference"
)]
pub trait Units {
    #[doc(hidden)]
    fn units(&self) -> u32;
}

macro_rules! unsigned {
    ($($number:ty)*) => {$(
        impl Units for $number {
            fn units(&self) -> u32 {
                u32::try_from(*self).unwrap_or(u32::MAX)
            }
        }
    )*};
}

unsigned!(u8 u16 u32 u64 u128 usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_too_large_for_u32_saturates() {
        assert_eq!(7_u8.units(), 7);
        assert_eq!(u64::from(u32::MAX).units(), u32::MAX);
        assert_eq!((u64::from(u32::MAX) + 1).units(), u32::MAX);
        assert_eq!((usize::MAX.units(), u128::MAX.units()), (u32::MAX, u32::MAX));
    }
}
