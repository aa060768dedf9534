//! Short bytes as words: most callers are so short that they are two numbers, which are compared
//! and hashed at once.
//!
//! Bytes that are written one by one and read at once as a word make the processor wait until they
//! have left its store buffer. These functions never write single bytes.

/// The maximum length of bytes that are two words.
pub(super) const MAX_SHORT: usize = 16;

const ONES: u64 = u64::MAX / 0xff;
const LOW_BITS: u64 = 0x7f * ONES;
const HIGH_BITS: u64 = 0x80 * ONES;

/// The escaped parts of a caller, for a store that compares and hashes them. Equal bytes are equal
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerBytes<'a> {
    /// At most 16 bytes, padded by 0, which no escaped byte is.
    Short([u64; 2]),
    /// More bytes.
    Long(&'a [u8]),
}

impl<'a> From<&'a [u8]> for CallerBytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        debug_assert!(bytes.last() != Some(&0), "escaped bytes have no 0");
        if bytes.len() <= MAX_SHORT { Self::Short(halves(pack(bytes))) } else { Self::Long(bytes) }
    }
}

impl CallerBytes<'_> {
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut copy = Vec::new();
        self.with_bytes(|bytes| copy.extend_from_slice(bytes));
        copy
    }

    /// Calls `read` with the bytes.
    pub(super) fn with_bytes(self, read: impl FnOnce(&[u8])) {
        match self {
            Self::Short(words) => {
                let bytes = words.map(u64::to_le_bytes);
                let bytes = bytes.as_flattened();
                let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                read(&bytes[..length]);
            }
            Self::Long(bytes) => read(bytes),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves")]
pub(super) fn halves(packed: u128) -> [u64; 2] {
    [packed as u64, (packed >> 64) as u64]
}

/// Returns at most 16 bytes as one number, the first byte lowest.
#[inline]
pub(super) fn pack(bytes: &[u8]) -> u128 {
    let after = |start: usize| 8 * (bytes.len() - start);
    if let (Some(start), Some(end)) = (bytes.first_chunk(), bytes.last_chunk::<8>()) {
        // The two overlap, and are equal where they do.
        return u128::from(u64::from_le_bytes(*start))
            | u128::from(u64::from_le_bytes(*end)) << after(8);
    }
    pack_word(bytes).into()
}

/// Returns at most 7 bytes as one number, the first byte lowest.
#[inline]
fn pack_word(bytes: &[u8]) -> u64 {
    let after = |start: usize| 8 * (bytes.len() - start);
    if let (Some(start), Some(end)) = (bytes.first_chunk(), bytes.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*start))
            | u64::from(u32::from_le_bytes(*end)) << after(4);
    }
    match *bytes {
        [first, .., last] => {
            let middle = bytes[bytes.len() / 2];
            let outer = u64::from(first) | u64::from(last) << after(1);
            outer | u64::from(middle) << (8 * (bytes.len() / 2))
        }
        [byte] => byte.into(),
        [] => 0,
    }
}

/// Returns at most 15 bytes as one number, if none needs an escape.
#[inline]
pub(super) fn pack_plain(bytes: &[u8]) -> Option<u128> {
    let padding = u64::MAX << (8 * (bytes.len() % 8));
    if bytes.len() < 8 {
        let word = pack_word(bytes);
        return (marks(word | padding) == 0).then(|| word.into());
    }
    let packed = pack(bytes);
    let [low, high] = halves(packed);
    (marks(low) | marks(high | padding) == 0).then_some(packed)
}

/// Returns at most 7 bytes as one number, if all are from `0` to `z`, as those of most names are.
#[inline]
pub(super) fn pack_surely_plain(bytes: &[u8]) -> Option<u64> {
    let (word, padding) = (pack_word(bytes), u64::MAX << (8 * bytes.len()));
    is_surely_plain(word | padding & DIGITS).then_some(word)
}

/// Returns `true` if no byte needs an escape: the same rule as
/// [`needs_escape`](super::needs_escape).
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks();
    let padding = u64::MAX << (8 * rest.len());
    let marks = marks(pack_word(rest) | padding);
    words.iter().fold(marks, |all, word| all | self::marks(u64::from_le_bytes(*word))) == 0
}

/// Eight digits `0`.
const DIGITS: u64 = 0x30 * ONES;

/// Returns `true` only if no byte needs an escape: all are from `0` to `z`, as those of most names
/// are.
#[inline]
fn is_surely_plain(word: u64) -> bool {
    // A byte below `0` borrows from the next one, and one after `z` sets its own high bit.
    let too_low = word.wrapping_sub(DIGITS);
    let too_high = word.wrapping_add(ONES * (0x80 - 0x7b));
    (word | too_low | too_high) & HIGH_BITS == 0
}

/// Returns a number with the high bit of each byte set that needs an escape.
#[inline]
fn marks(word: u64) -> u64 {
    // No sum of two bytes below carries into the next byte.
    let low = word & LOW_BITS;
    let is_not = |byte: u8| (low ^ (ONES * u64::from(byte))) + LOW_BITS;
    let is_printed = low + ONES * (0x80 - 0x21);
    // `{` and DEL differ in one bit; so do `}` and DEL.
    let closes = ((low | (ONES * u64::from(0x7f ^ b'{'))) + ONES)
        | ((low | (ONES * u64::from(0x7f ^ b'}'))) + ONES);
    let is_plain = is_printed & is_not(b'%') & is_not(b'/') & !closes;
    !is_plain & !word & HIGH_BITS
}

/// The number of digits that [`digits`] writes at most, as the numbers below `10^8` have.
pub(super) const MAX_DIGITS: u32 = 8;

/// Returns the decimal digits of a number below `10^8`, the first lowest, and how many they are.
#[inline]
pub(super) fn digits(number: u32) -> (u64, usize) {
    debug_assert!(number < 10_u32.pow(MAX_DIGITS));
    // Divides the number into two halves of four digits, these into pairs, and these into digits,
    // all of a step at once. A division by a constant is a multiplication and a shift.
    let number = u64::from(number);
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x7f_0000_007f;
    let pairs = hundreds | ((halves - 100 * hundreds) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | ((pairs - 10 * tens) << 8);
    // The last digit of 0 is one.
    let zeros = (digits | 1 << 56).trailing_zeros() / 8;
    ((digits | (ONES * u64::from(b'0'))) >> (8 * zeros), (MAX_DIGITS - zeros) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::needs_escape;

    #[test]
    fn a_byte_is_marked_if_it_needs_an_escape_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            for place in 0..8 {
                for other in [b'a', b'~', 0x80, 0xff] {
                    let mut bytes = [other; 8];
                    bytes[place] = byte;
                    let marked = u64::from(needs_escape(byte)) << (8 * place + 7);
                    assert_eq!(marks(u64::from_le_bytes(bytes)), marked, "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_plain_as_each_of_them_is() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut plain = 0;
        for _ in 0..200_000 {
            let mut bytes: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(b'0'..)).collect();
            if let (Some(byte), true) = (rng.choice(&mut bytes), rng.bool()) {
                *byte = rng.u8(..);
            }
            let expected = !bytes.iter().any(|byte| needs_escape(*byte));
            assert_eq!(is_plain(&bytes), expected, "{bytes:?}");
            if bytes.len() < MAX_SHORT {
                let mut padded = [0; MAX_SHORT];
                padded[..bytes.len()].copy_from_slice(&bytes);
                let packed = u128::from_le_bytes(padded);
                assert_eq!(pack(&bytes), packed, "{bytes:?}");
                assert_eq!(pack_plain(&bytes), expected.then_some(packed), "{bytes:?}");
            }
            plain += u32::from(expected);
        }
        assert!((10_000..190_000).contains(&plain), "{plain}");
    }

    #[test]
    fn digits_are_those_of_the_number() {
        let mut rng = fastrand::Rng::with_seed(7);
        let powers = (0..8).flat_map(|power| {
            let power = 10_u32.pow(power);
            [power - 1, power, power + 1, 10 * power - 1]
        });
        let random = (0..100_000).map(|_| rng.u32(..10_u32.pow(MAX_DIGITS)));
        for number in powers.chain(0..20_000).chain(random) {
            let (word, count) = digits(number);
            let bytes = word.to_le_bytes();
            assert_eq!(bytes[..count], *number.to_string().as_bytes());
            assert!(bytes[count..].iter().all(|byte| *byte == 0), "{number}");
        }
    }
}
