//! Bytes that are inline while they are few: most callers need no allocation.

use std::{
    fmt::{self, Write},
    hash::{Hash, Hasher},
    ops::Deref,
};

use super::words::{
    CallerBytes, MAX_DIGITS, MAX_SHORT, digits, halves, is_plain, pack, pack_plain,
    pack_surely_plain,
};

/// Bytes, inline up to 48: most callers are shorter, and so is a UUID or an IPv6 address. All of it
/// is one cache line. With `smallvec` instead, a call on the embedded store takes 23 % more
/// instructions.
#[derive(Clone)]
pub(crate) struct InlineBytes {
    /// The inline bytes. Those of the first chunk are written as one word, and are 0 beyond
    /// `length`.
    inline: [[u8; MAX_SHORT]; INLINE / MAX_SHORT],
    /// The number of inline bytes.
    length: usize,
    /// All bytes, once they did not fit inline.
    #[expect(clippy::box_collection, reason = "one word, which most callers leave empty")]
    heap: Option<Box<Vec<u8>>>,
}

/// The inline capacity in bytes.
const INLINE: usize = 48;

impl InlineBytes {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { inline: [[0; MAX_SHORT]; INLINE / MAX_SHORT], length: 0, heap: None }
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() && self.fits_short(bytes.len()) {
            self.append_short(pack(bytes), bytes.len());
        } else if let Some(spare) = self.spare(bytes.len()) {
            spare.copy_from_slice(bytes);
            self.length += bytes.len();
        } else {
            self.append_on_heap(bytes);
        }
    }

    /// Appends `/` and the bytes, as most parts are: fewer than eight, and from `0` to `z`. Returns
    /// `false`, and appends nothing, if they are others or do not fit.
    #[inline(always)]
    pub(crate) fn append_word(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() < 8
            && self.fits_short(bytes.len() + 1)
            && let Some(word) = pack_surely_plain(bytes)
        {
            self.append_short(u128::from(word) << 8 | u128::from(b'/'), bytes.len() + 1);
            return true;
        }
        false
    }

    /// Appends `/` and the bytes. Returns `false`, and appends nothing, if they do not fit inline
    /// or one needs escaping.
    #[inline]
    pub(crate) fn append_part(&mut self, bytes: &[u8]) -> bool {
        if self.fits_short(bytes.len() + 1) {
            let Some(packed) = pack_plain(bytes) else { return false };
            self.append_short(packed << 8 | u128::from(b'/'), bytes.len() + 1);
            return true;
        }
        self.append_long_part(bytes)
    }

    #[inline(never)]
    fn append_long_part(&mut self, bytes: &[u8]) -> bool {
        if !is_plain(bytes) {
            return false;
        }
        let Some([slash, spare @ ..]) = self.spare(bytes.len() + 1) else { return false };
        *slash = b'/';
        spare.copy_from_slice(bytes);
        self.length += bytes.len() + 1;
        true
    }

    /// Appends `/` and the number: the part that its text would be. Returns `false`, and appends
    /// nothing, if it has more than eight digits.
    #[inline]
    pub(crate) fn append_number(&mut self, number: u32) -> bool {
        if number >= 10_u32.pow(MAX_DIGITS) {
            return false;
        }
        let (digits, count) = digits(number);
        if self.fits_short(count + 1) {
            self.append_short(u128::from(digits) << 8 | u128::from(b'/'), count + 1);
        } else {
            self.append_digits(digits, count);
        }
        true
    }

    #[cold]
    fn append_digits(&mut self, digits: u64, count: usize) {
        self.append(b"/");
        self.append(&digits.to_le_bytes()[..count]);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0 && self.heap.is_none()
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        if length < self.length {
            self.inline.as_flattened_mut()[length..self.length].fill(0);
            self.length = length;
        }
        if let Some(heap) = &mut self.heap {
            heap.truncate(length);
        }
    }

    /// Returns all bytes as two words if there are at most 16.
    #[inline]
    fn short(&self) -> Option<[u64; 2]> {
        self.fits_short(0).then(|| halves(u128::from_le_bytes(self.inline[0])))
    }

    /// Returns `true` if this many more are at most 16 in all.
    #[inline]
    fn fits_short(&self, more: usize) -> bool {
        self.length + more <= MAX_SHORT && self.heap.is_none()
    }

    /// Appends at least one byte and at most as many as fit.
    #[inline]
    fn append_short(&mut self, packed: u128, count: usize) {
        let [short, ..] = &mut self.inline;
        *short = (u128::from_le_bytes(*short) | packed << (8 * self.length)).to_le_bytes();
        self.length += count;
    }

    fn spare(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let end = self.length + bytes;
        self.inline.as_flattened_mut().get_mut(self.length..end).filter(|_| self.heap.is_none())
    }

    #[cold]
    fn append_on_heap(&mut self, bytes: &[u8]) {
        let length = std::mem::take(&mut self.length);
        let inline = std::mem::take(&mut self.inline);
        let heap = self.heap.get_or_insert_default();
        heap.extend_from_slice(&inline.as_flattened()[..length]);
        heap.extend_from_slice(bytes);
    }
}

impl Write for InlineBytes {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.append(text.as_bytes());
        Ok(())
    }
}

impl<'a> From<&'a InlineBytes> for CallerBytes<'a> {
    #[inline]
    fn from(bytes: &'a InlineBytes) -> Self {
        bytes.short().map_or_else(|| Self::from(&**bytes), Self::Short)
    }
}

impl Deref for InlineBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.heap {
            None => &self.inline.as_flattened()[..self.length],
            Some(heap) => heap,
        }
    }
}

impl PartialEq for InlineBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for InlineBytes {}

impl Hash for InlineBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::needs_escape;

    #[test]
    fn it_is_what_was_appended_in_place_and_beyond() {
        for (pieces, piece) in [(0, 0), (1, 48), (1, 49), (48, 1), (49, 1), (3, 60), (5, 5)] {
            let (mut text, mut plain) = (InlineBytes::new(), Vec::new());
            for number in 1..=pieces {
                text.append(&vec![number; piece]);
                plain.extend(vec![number; piece]);
                assert_eq!(*text, plain);
            }
            for length in [63, 20, 16, 15, 2, 0] {
                text.truncate(length);
                plain.truncate(length);
                assert_eq!(*text, plain);
                assert_eq!(CallerBytes::from(&text), CallerBytes::from(&*plain));
            }
            text.append(b"again");
            assert_eq!(*text, *b"again");
        }
    }

    #[test]
    fn a_part_is_appended_as_a_whole_or_not_at_all() {
        let mut text = InlineBytes::new();
        assert!(text.append_part(b"plain"));
        for part in ["not %", "not % either", "and this, which is longer than a word, is not%"] {
            assert!(!text.append_part(part.as_bytes()));
        }
        assert!(!text.append_part(&[b'x'; 42]));
        assert_eq!(*text, *b"/plain");
        assert!(text.append_part(&[b'x'; 41]));
        assert_eq!(text.len(), 48);
    }

    /// Random parts of every length and kind, beside the bytes that they are.
    #[test]
    fn parts_and_numbers_are_appended_as_their_bytes_are() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let (mut text, mut plain) = (InlineBytes::new(), Vec::new());
            while plain.len() < 28 {
                let most = 10_u32.pow(rng.u32(..9));
                let number = rng.u32(..most);
                let part = match rng.u8(..4) {
                    0 => {
                        assert!(text.append_number(number));
                        number.to_string().into_bytes()
                    }
                    1 => {
                        let bytes: Vec<u8> = (0..rng.usize(..9)).map(|_| rng.u8(b'a'..)).collect();
                        text.append(b"/");
                        text.append(&bytes);
                        bytes
                    }
                    _ => {
                        let bytes: Vec<u8> = (0..rng.usize(..20)).map(|_| rng.u8(..)).collect();
                        let is_plain = !bytes.iter().any(|byte| needs_escape(*byte));
                        assert_eq!(text.append_part(&bytes), is_plain, "{bytes:?}");
                        if !is_plain {
                            continue;
                        }
                        bytes
                    }
                };
                plain.push(b'/');
                plain.extend(part);
                assert_eq!(*text, plain);
                assert_eq!(CallerBytes::from(&text), CallerBytes::from(&*plain));
            }
        }
        assert!(!InlineBytes::new().append_number(100_000_000));
    }
}
