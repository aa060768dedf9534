//! The hash of a key: a secret seed, the hash of the policy's name, and the caller's bytes.

use std::hash::{BuildHasher, Hasher};

use super::{CallerBytes, KeyRef};
use crate::policy::PolicyName;

/// The hasher of one store, with secret seeds. Callers choose their names; without the seeds they
/// cannot choose names of one hash. A collision costs a comparison, and never merges two callers.
#[cfg_attr(test, derive(Clone))]
pub(crate) struct KeyHasher(foldhash::quality::RandomState);

/// A key with its hash, as it is looked up.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) key: KeyRef<'a>,
    pub(crate) hash: u64,
}

impl KeyHasher {
    pub(crate) fn new() -> Self {
        // Loom repeats a schedule in another store, where the keys have to be in the same shards.
        #[cfg(all(test, ratelimit_loom))]
        let seeds = {
            static SEEDS: once_cell::sync::Lazy<foldhash::quality::RandomState> =
                once_cell::sync::Lazy::new(Default::default);
            SEEDS.clone()
        };
        #[cfg(not(all(test, ratelimit_loom)))]
        let seeds = foldhash::quality::RandomState::default();
        Self(seeds)
    }

    #[inline]
    pub(crate) fn lookup<'a>(&self, key: KeyRef<'a>) -> Lookup<'a> {
        Lookup { key, hash: self.hash(key.name, key.caller) }
    }

    /// Returns the hash of a key. The algorithm is left out: one caller under one name and two
    /// algorithms is rare.
    #[inline(always)]
    pub(crate) fn hash(&self, name: PolicyName, caller: CallerBytes<'_>) -> u64 {
        let mut hasher = self.0.build_hasher();
        match caller {
            CallerBytes::Short([start, end]) => {
                hasher.write_u64(start ^ name.hash());
                hasher.write_u64(end);
            }
            CallerBytes::Long(bytes) => {
                hasher.write_u64(name.hash());
                hasher.write(bytes);
            }
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::Duration};

    use super::*;
    use crate::{Policy, key::StoredCaller};

    const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 1);

    /// Callers of every length, with equal and with different bytes.
    fn callers() -> Vec<Vec<u8>> {
        let mut rng = fastrand::Rng::with_seed(7);
        let random =
            (0..10_000).map(|_| (0..rng.usize(..40)).map(|_| rng.u8(b'a'..b'c')).collect());
        let equal = (1..40).map(|length| vec![b'x'; length]);
        random.collect::<HashSet<Vec<u8>>>().into_iter().chain(equal).collect()
    }

    fn hash(hasher: &KeyHasher, policy: &Policy, caller: &[u8]) -> u64 {
        hasher.hash(policy.full_name(), caller.into())
    }

    #[test]
    fn callers_that_differ_are_told_apart_as_they_are_stored() {
        let callers = callers();
        for caller in &callers[..200] {
            let stored = StoredCaller::new(CallerBytes::from(&**caller));
            for other in &callers {
                let is_same = stored.bytes() == CallerBytes::from(&**other);
                assert_eq!(is_same, caller == other, "{caller:?} {other:?}");
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
            .flat_map(|caller| [&POLICY, &other].map(|policy| hash(&hasher, policy, caller)))
            .collect();
        assert_eq!(distinct.len(), 2 * callers.len());
    }

    #[test]
    fn both_ends_of_a_hash_and_its_middle_are_spread_evenly() {
        let callers: Vec<_> = (0..25_600).map(|number| format!("user-{number}")).collect();
        for hasher in std::iter::repeat_with(KeyHasher::new).take(20) {
            let mut counts = [[0; 256]; 3];
            for caller in &callers {
                let hash = hash(&hasher, &POLICY, caller.as_bytes());
                for (counts, shift) in counts.iter_mut().zip([0, 32, 56]) {
                    counts[usize::from((hash >> shift).to_le_bytes()[0])] += 1;
                }
            }
            // 100 each on average, with a standard deviation of 10.
            let counts = counts.as_flattened();
            assert!(counts.iter().all(|count| (30..200).contains(count)), "{counts:?}");
        }
    }
}
