//! The caller of an entry, in the room of two words.

use std::num::NonZeroU64;

use super::CallerBytes;

/// A caller's escaped bytes: two words if there are at most 16, otherwise on the heap.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(crate) enum StoredCaller {
    /// The first word is not 0, because no escaped byte is.
    Short(NonZeroU64, u64),
    Long(Box<LongCaller>),
}

/// More bytes. Most identities are short enough for one allocation.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(crate) enum LongCaller {
    Inline { length: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

/// With its length and its kind, 56 bytes, which the usual allocators give out without loss.
const INLINE: usize = 54;

impl StoredCaller {
    #[inline(always)]
    pub(crate) fn new(caller: CallerBytes<'_>) -> Self {
        let bytes = match caller {
            CallerBytes::Short([first, second]) => match NonZeroU64::new(first) {
                Some(first) => return Self::Short(first, second),
                None => &[],
            },
            CallerBytes::Long(bytes) => bytes,
        };
        Self::Long(Box::new(LongCaller::new(bytes)))
    }

    #[inline]
    pub(crate) fn bytes(&self) -> CallerBytes<'_> {
        match self {
            Self::Short(first, second) => CallerBytes::Short([first.get(), *second]),
            Self::Long(long) => long.as_slice().into(),
        }
    }

    /// Returns `true` if the bytes are these.
    #[inline]
    pub(crate) fn is(&self, bytes: &CallerBytes<'_>) -> bool {
        // By reference: a copy of the words would wait until they are written.
        match (self, bytes) {
            (Self::Short(first, second), CallerBytes::Short([start, end])) => {
                first.get() == *start && second == end
            }
            (Self::Long(long), bytes) => long.is(*bytes),
            (Self::Short(..), CallerBytes::Long(_)) => false,
        }
    }

    /// Returns the memory on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Short(..) => 0,
            Self::Long(long) => size_of::<LongCaller>() + long.heap_bytes(),
        }
    }
}

impl LongCaller {
    fn new(caller: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match (bytes.get_mut(..caller.len()), u8::try_from(caller.len())) {
            (Some(inline), Ok(length)) => {
                inline.copy_from_slice(caller);
                Self::Inline { length, bytes }
            }
            _ => Self::Heap(caller.into()),
        }
    }

    #[inline(never)]
    fn is(&self, bytes: CallerBytes<'_>) -> bool {
        CallerBytes::from(self.as_slice()) == bytes
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Heap(bytes) => bytes,
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Heap(bytes) => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_was_stored() {
        assert_eq!(size_of::<StoredCaller>(), 16);
        assert_eq!(size_of::<LongCaller>(), 56);
        for length in 0..200 {
            let bytes = vec![b'x'; length];
            let caller = StoredCaller::new(CallerBytes::from(&*bytes));
            assert_eq!(caller.bytes(), CallerBytes::from(&*bytes));
            let heap = match length {
                1..=16 => 0,
                0 | 17..=INLINE => 56,
                _ => 56 + length,
            };
            assert_eq!(caller.heap_bytes(), heap, "{length}");
        }
    }
}
