//! The name of a policy, with a hash of its text.

/// A name and its hash, computed once: a lookup does not read the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PolicyName {
    text: &'static str,
    hash: u64,
}

impl PolicyName {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self { text, hash: Self::hash_of(text) }
    }

    pub(crate) const fn text(self) -> &'static str {
        self.text
    }

    pub(crate) const fn hash(self) -> u64 {
        self.hash
    }

    /// Returns `true` if both are the same name: two policies of one name are rarely two texts.
    #[inline(always)]
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.text, other.text) || self.is_same_text(other)
    }

    #[cold]
    fn is_same_text(&self, other: &Self) -> bool {
        self.text == other.text
    }

    /// Returns the hash of the policy name with this text. It need not resist an attacker, because
    /// names are the program's own.
    pub(crate) const fn hash_of(text: &str) -> u64 {
        const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut bytes = text.as_bytes();
        let mut hash = bytes.len() as u64;
        while let Some((chunk, rest)) = bytes.split_first_chunk() {
            hash = (hash ^ u64::from_le_bytes(*chunk)).wrapping_mul(ODD).rotate_left(32);
            bytes = rest;
        }
        while let [byte, rest @ ..] = bytes {
            hash = (hash ^ *byte as u64).wrapping_mul(ODD).rotate_left(32);
            bytes = rest;
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_that_differ_have_hashes_that_differ() {
        const NAMES: [&str; 9] = [
            "",
            "a",
            "b",
            "ab",
            "ba",
            "app::mail::send",
            "app::mail::sent",
            "12345678",
            "123456789",
        ];
        let hashes: HashSet<u64> =
            NAMES.into_iter().map(|name| PolicyName::new(name).hash()).collect();
        assert_eq!(hashes.len(), NAMES.len());
    }
}
