//! The escaped parts of a caller, which most calls write without an allocation.

use std::{
    hash::{Hash, Hasher},
    ops::Deref,
};

/// Most callers are no longer.
const IN_PLACE: usize = 64;

/// Bytes, in place as long as they fit there.
#[derive(Clone)]
pub(crate) struct InlineBytes {
    in_place: [u8; IN_PLACE],
    /// How many stand in place.
    length: usize,
    /// All of them, once they did not fit.
    heap: Vec<u8>,
}

impl InlineBytes {
    pub(crate) const fn new() -> Self {
        Self { in_place: [0; IN_PLACE], length: 0, heap: Vec::new() }
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        match self.room(bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            None => self.append_on_heap(bytes),
        }
    }

    /// Appends `/` and the bytes, and says whether it did: only where they fit in place and none
    /// of them is special.
    pub(crate) fn append_part(&mut self, bytes: &[u8], is_special: impl Fn(u8) -> bool) -> bool {
        let Some([slash, room @ ..]) = self.room(bytes.len() + 1) else { return false };
        *slash = b'/';
        for (place, byte) in room.iter_mut().zip(bytes) {
            if is_special(*byte) {
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

    fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let end = self.length + bytes;
        self.in_place.get_mut(self.length..end).filter(|_| self.heap.is_empty())
    }

    #[cold]
    fn append_on_heap(&mut self, bytes: &[u8]) {
        let in_place = std::mem::take(&mut self.length);
        self.heap.extend_from_slice(&self.in_place[..in_place]);
        self.heap.extend_from_slice(bytes);
    }
}

impl Deref for InlineBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.heap.is_empty() { &self.in_place[..self.length] } else { &self.heap }
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
