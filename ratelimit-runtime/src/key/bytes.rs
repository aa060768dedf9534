//! Bytes that are inline while they are few: most callers need no allocation.

use std::{
    hash::{Hash, Hasher},
    ops::Deref,
};

/// The inline capacity in bytes; most callers are shorter.
const INLINE: usize = 64;

/// Bytes, inline up to `INLINE`.
#[derive(Clone)]
pub(crate) struct InlineBytes {
    inline: [u8; INLINE],
    /// The number of inline bytes.
    length: usize,
    /// All bytes, once they did not fit inline.
    heap: Vec<u8>,
}

impl InlineBytes {
    pub(crate) const fn new() -> Self {
        Self { inline: [0; INLINE], length: 0, heap: Vec::new() }
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        match self.spare(bytes.len()) {
            Some(spare) => {
                spare.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.append_on_heap(bytes),
        }
    }

    /// Appends `/` and the bytes. Returns `false`, and appends nothing, if they do not fit inline or one
    /// needs escaping.
    pub(crate) fn append_part(&mut self, bytes: &[u8], needs_escape: impl Fn(u8) -> bool) -> bool {
        let Some([slash, spare @ ..]) = self.spare(bytes.len() + 1) else { return false };
        *slash = b'/';
        for (place, byte) in spare.iter_mut().zip(bytes) {
            if needs_escape(*byte) {
                return false;
            }
            *place = *byte;
        }
        self.length += bytes.len() + 1;
        true
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        self.heap.truncate(length);
    }

    fn spare(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let end = self.length + bytes;
        self.inline.get_mut(self.length..end).filter(|_| self.heap.is_empty())
    }

    #[cold]
    fn append_on_heap(&mut self, bytes: &[u8]) {
        let inline = std::mem::take(&mut self.length);
        self.heap.extend_from_slice(&self.inline[..inline]);
        self.heap.extend_from_slice(bytes);
    }
}

impl Deref for InlineBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.heap.is_empty() { &self.inline[..self.length] } else { &self.heap }
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

    #[test]
    fn it_is_what_was_appended_in_place_and_beyond() {
        for (pieces, piece) in [(0, 0), (1, 64), (1, 65), (64, 1), (65, 1), (3, 60)] {
            let (mut text, mut plain) = (InlineBytes::new(), Vec::new());
            for number in 0..pieces {
                text.append(&vec![number; piece]);
                plain.extend(vec![number; piece]);
                assert_eq!(*text, plain);
            }
            for length in [63, 2, 0] {
                text.truncate(length);
                plain.truncate(length);
                assert_eq!(*text, plain);
            }
            text.append(b"again");
            assert_eq!(*text, *b"again");
        }
    }

    #[test]
    fn a_part_is_appended_as_a_whole_or_not_at_all() {
        let mut text = InlineBytes::new();
        assert!(text.append_part(b"plain", |byte| byte == b'%'));
        assert!(!text.append_part(b"not %", |byte| byte == b'%'));
        assert!(!text.append_part(&[b'x'; 58], |_| false));
        assert_eq!(*text, *b"/plain");
        assert!(text.append_part(&[b'x'; 57], |_| false));
        assert_eq!(text.len(), 64);
    }
}
