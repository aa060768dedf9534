//! The hash of a key: a secret seed, the hash of the policy's name, and the caller's bytes.

use std::hash::{BuildHasher, Hasher};

use hashbrown::DefaultHashBuilder;

use crate::{key::KeyRef, policy::PolicyName};

/// The hasher of one store.
///
/// A short caller is two words, each under a secret seed, and their 128-bit product folded to 64 bits:
/// the step of wyhash and foldhash. Longer callers go through foldhash itself. Callers choose their
/// names; without the seeds they cannot choose names of one hash. A collision costs a comparison, and
/// never merges two callers.
pub(super) struct KeyHasher {
    seeds: [u64; 2],
    /// For callers of more than 16 bytes.
    long: DefaultHashBuilder,
}

/// A key with its hash, as it is looked up.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) key: KeyRef<'a>,
    pub(super) hash: u64,
    /// The caller's bytes as two numbers, if there are at most 16.
    words: Option<[u64; 2]>,
}

impl KeyHasher {
    pub(super) fn new() -> Self {
        let long = DefaultHashBuilder::default();
        Self { seeds: [0, 1].map(|seed: u64| long.hash_one(seed)), long }
    }

    #[inline]
    pub(super) fn lookup<'a>(&self, key: KeyRef<'a>) -> Lookup<'a> {
        let words = words(key.caller);
        Lookup { key, hash: self.hash_words(key.name, key.caller, words), words }
    }

    /// Returns the hash of a key. The algorithm is left out: one caller under one name and two
    /// algorithms is rare.
    pub(super) fn hash(&self, name: PolicyName, caller: &[u8]) -> u64 {
        self.hash_words(name, caller, words(caller))
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 16 bytes; halves of a product")]
    #[inline]
    fn hash_words(&self, name: PolicyName, caller: &[u8], words: Option<[u64; 2]>) -> u64 {
        let [first, second] = self.seeds.map(|seed| seed ^ name.hash());
        let Some([start, end]) = words else { return self.hash_long(first, caller) };
        // The words overlap, so the length has to be part of the hash.
        let second = second.rotate_left(caller.len() as u32);
        let product = u128::from(first ^ start) * u128::from(second ^ end);
        (product >> 64) as u64 ^ product as u64
    }

    #[inline(never)]
    fn hash_long(&self, seed: u64, caller: &[u8]) -> u64 {
        let mut hasher = self.long.build_hasher();
        hasher.write_u64(seed);
        hasher.write(caller);
        hasher.finish()
    }
}

impl Lookup<'_> {
    #[inline]
    pub(super) fn is_of_caller(&self, caller: &[u8]) -> bool {
        match self.words {
            Some(own) => caller.len() == self.key.caller.len() && words(caller) == Some(own),
            None => caller == self.key.caller,
        }
    }
}

/// Returns at most 16 bytes as two numbers: the first and the last ones, which overlap. Texts of one
/// length have the same numbers only if they are equal.
#[inline]
fn words(bytes: &[u8]) -> Option<[u64; 2]> {
    if bytes.len() > 16 {
        return None;
    }
    if let (Some(start), Some(end)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return Some([start, end].map(|bytes| u64::from_le_bytes(*bytes)));
    }
    if let (Some(start), Some(end)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return Some([start, end].map(|bytes| u32::from_le_bytes(*bytes).into()));
    }
    let byte = |index: usize| bytes.get(index).copied().map_or(0, u64::from);
    Some([byte(0), byte(1) << 8 | byte(2)])
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::Duration};

    use super::*;
    use crate::Policy;

    const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 1);

    /// Callers of every length, with equal and with different bytes.
    fn callers() -> Vec<Vec<u8>> {
        let mut rng = fastrand::Rng::with_seed(7);
        let random = (0..10_000).map(|_| (0..rng.usize(..40)).map(|_| rng.u8(..2)).collect());
        let equal = (1..40).map(|length| vec![7; length]);
        random.collect::<HashSet<Vec<u8>>>().into_iter().chain(equal).collect()
    }

    #[test]
    fn callers_that_differ_are_told_apart_by_words_as_by_bytes() {
        let hasher = KeyHasher::new();
        let callers = callers();
        for caller in &callers[..200] {
            let lookup = hasher.lookup(KeyRef::new(&POLICY, caller));
            for other in &callers {
                assert_eq!(lookup.is_of_caller(other), caller == other, "{caller:?} {other:?}");
            }
        }
    }

    #[test]
    fn keys_that_differ_have_hashes_that_differ() {
        let hasher = KeyHasher::new();
        let callers = callers();
        let other = POLICY.named("q");
        let distinct: HashSet<u64> = callers
            .iter()
            .flat_map(|caller| [KeyRef::new(&POLICY, caller), KeyRef::new(&other, caller)])
            .map(|key| hasher.lookup(key).hash)
            .collect();
        assert_eq!(distinct.len(), 2 * callers.len());
    }

    #[test]
    fn both_ends_of_a_hash_and_its_middle_are_spread_evenly() {
        let hasher = KeyHasher::new();
        for shift in [0, 32, 56] {
            let mut counts = [0; 256];
            for number in 0..25_600_u32 {
                let caller = format!("user-{number}");
                let hash = hasher.lookup(KeyRef::new(&POLICY, caller.as_bytes())).hash;
                let [byte, ..] = (hash >> shift).to_le_bytes();
                counts[usize::from(byte)] += 1;
            }
            // 100 each on average, with a standard deviation of 10.
            assert!(counts.iter().all(|count| (40..180).contains(count)), "{shift}: {counts:?}");
        }
    }
}
