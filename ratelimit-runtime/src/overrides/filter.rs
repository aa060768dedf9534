//! The names that may be overridden, as bits: calls of most other limits look nothing up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::policy::PolicyName;

const WORDS: usize = 8;

/// A Bloom filter of names, each with two bits in one word. It seldom seems to contain a name that
/// it does not, and never lacks one that it contains. With one flag for all names instead, a call
/// of any limit takes 24 % more instructions while one override is set.
#[derive(Default)]
pub(super) struct NameFilter {
    /// `false` while the set is empty. Most programs override nothing, and read nothing else.
    is_used: AtomicBool,
    words: [AtomicU64; WORDS],
}

/// The bits of a [`NameFilter`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameBits([u64; WORDS]);

impl NameFilter {
    /// Returns `false` if the set does not contain the name. Otherwise everything is visible that
    /// was stored before the [`replace`](Self::replace) with it.
    #[inline]
    pub(super) fn may_contain(&self, name: PolicyName) -> bool {
        self.is_used.load(Ordering::Acquire) && {
            let (word, bits) = position(name.hash());
            self.words[word].load(Ordering::Acquire) & bits == bits
        }
    }

    /// Replaces the set. A name has its bits in one word, so that no call sees half of them.
    pub(super) fn replace(&self, bits: &NameBits) {
        for (word, bits) in self.words.iter().zip(bits.0) {
            word.store(bits, Ordering::Release);
        }
        self.is_used.store(*bits != NameBits::default(), Ordering::Release);
    }
}

impl NameBits {
    /// The bits of all names.
    pub(super) const ALL: Self = Self([u64::MAX; WORDS]);

    pub(super) fn insert(&mut self, hash: u64) {
        let (word, bits) = position(hash);
        self.0[word] |= bits;
    }
}

/// Returns the word and the bits of a hash, by its bits 17 to 31: those are mixed best.
fn position(hash: u64) -> (usize, u64) {
    ((hash >> 29) as usize % WORDS, 1 << ((hash >> 23) % 64) | 1 << ((hash >> 17) % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_any_byte_spread_over_all_bits() {
        // The last byte of eight is the highest of a number.
        for name in [|number| format!("{number:08}"), |number| format!("app::mail::send_{number}")]
        {
            let mut counts = [[0; 64]; WORDS];
            for number in 0..25_600 {
                let (word, bits) = position(PolicyName::hash_of(&name(number)));
                for (bit, count) in counts[word].iter_mut().enumerate() {
                    *count += bits >> bit & 1;
                }
            }
            // 99 each on average, with a standard deviation of 10.
            assert!(counts.iter().flatten().all(|count| (40..180).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn one_name_of_a_hundred_others_seems_to_be_contained_at_most() {
        let (filter, mut bits) = (NameFilter::default(), NameBits::default());
        for number in 0..20 {
            bits.insert(PolicyName::hash_of(&format!("overridden_{number}")));
        }
        filter.replace(&bits);
        let others = (0..10_000).map(|number| &*format!("other_{number}").leak());
        let seeming = others.filter(|name| filter.may_contain(PolicyName::new(name))).count();
        assert!(seeming <= 100, "{seeming} of 10 000");
    }

    #[test]
    fn a_replaced_set_contains_its_own_names_and_no_others() {
        let filter = NameFilter::default();
        let names = ["first", "second", "third"].map(PolicyName::new);
        let contained = || names.map(|name| filter.may_contain(name));
        assert_eq!(contained(), [false; 3]);
        let mut bits = NameBits::default();
        bits.insert(names[1].hash());
        filter.replace(&bits);
        assert_eq!(contained(), [false, true, false]);
        filter.replace(&NameBits::ALL);
        assert_eq!(contained(), [true; 3]);
        filter.replace(&NameBits::default());
        assert_eq!(contained(), [false; 3]);
    }
}
