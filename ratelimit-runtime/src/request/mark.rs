//! The mark of a charge, by which a settle finds it.

use std::fmt;

use crate::time::Timestamp;

/// The charge of an admitted call, by which a settle finds exactly its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The time of the charge; for a repeated request id, of its first charge.
    pub(crate) at: Timestamp,
    pub(crate) charged: Charged,
}

/// The counterpart of a settle in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charged {
    /// Nothing: no store counted the call.
    Nothing,
    /// The state of this generation. A state after a reset has another one.
    Generation(u64),
    /// An entry of a log.
    Entry(EntryMark),
}

/// The birth of a log, and the id of a charge in it: 54 and 41 bits in the room of a mark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryMark([u32; 3]);

impl EntryMark {
    /// Returns the mark of a charge. If it has joined the entry of others, its units cannot be
    /// given back.
    pub(crate) fn new(id: u64, birth: u64, is_joined: bool) -> Self {
        let words = u128::from(birth) << 42 | u128::from(id) << 1 | u128::from(is_joined);
        #[expect(clippy::cast_possible_truncation, reason = "one word each")]
        Self([words as u32, (words >> 32) as u32, (words >> 64) as u32])
    }

    fn words(self) -> u128 {
        let [low, middle, high] = self.0.map(u128::from);
        high << 64 | middle << 32 | low
    }

    #[expect(clippy::cast_possible_truncation, reason = "41 bits")]
    pub(crate) fn id(self) -> u64 {
        (self.words() >> 1) as u64 & ((1 << 41) - 1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "54 bits")]
    pub(crate) fn birth(self) -> u64 {
        (self.words() >> 42) as u64
    }

    pub(crate) fn is_joined(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Debug for EntryMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}, joined: {}", self.id(), self.birth(), self.is_joined())
    }
}

impl Charged {
    /// Returns its number in a script's arguments, 0 for nothing.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Generation(number) => number,
            Self::Entry(entry) => entry.id(),
        }
    }

    /// Returns `true` if the call had an entry of its own, which it finds until it is settled.
    pub(crate) fn has_entry(self) -> bool {
        matches!(self, Self::Entry(entry) if !entry.is_joined())
    }
}

impl Mark {
    /// The mark of a call without a charge.
    pub(crate) const NONE: Self = Self { at: Timestamp::new(0), charged: Charged::Nothing };
}
