//! The latest refusal of a shard: its caller is refused again without the lock.
//!
//! Until the end of its wait, a refused caller stays refused: a repeated refusal changes nothing,
//! and all else that changes a key locks the shard. Readers compare the version of a refusal before
//! and after, as in a sequence lock: Boehm, "Can seqlocks get along with programming language
//! memory models?" (2012).

use crate::{
    key::{CallerBytes, InlineBytes},
    policy::Policy,
    sync::atomic::{AtomicU64, Ordering, fence},
    time::{Micros, Timestamp},
};

/// The words of a caller, of the name of its policy and of the policy's numbers.
const WORDS: usize = 7;

/// The refusal of one unit to a short caller under a policy of one tier. It has cache lines of its
/// own, which processors share as long as they refuse. Writers hold the lock of the shard.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct LatestRefusal {
    /// Odd while the rest changes.
    version: AtomicU64,
    /// The hash of the key, made odd; 0 if no refusal is known.
    hash: AtomicU64,
    /// The end of the wait.
    ends: AtomicU64,
    /// The time at which the full quota is back.
    resets: AtomicU64,
    of: [AtomicU64; WORDS],
}

impl LatestRefusal {
    /// Returns `true` if a refusal of this hash is known. It may be that of another key, and may
    /// have ended.
    #[inline(always)]
    pub(super) fn is_known(&self, hash: u64) -> bool {
        self.hash.load(Ordering::Relaxed) == hash | 1
    }

    /// Returns the end of a caller's wait under this policy, and the time at which its full quota
    /// is back, if this refusal is the one that is known. It may have ended.
    #[inline(never)]
    pub(super) fn of(
        &self,
        hash: u64,
        caller: &InlineBytes,
        policy: &Policy,
    ) -> Option<[Timestamp; 2]> {
        let version = self.version.load(Ordering::Acquire);
        let times = [&self.ends, &self.resets].map(|time| time.load(Ordering::Relaxed));
        let words = words(caller, policy)?;
        let mut of = self.of.iter().zip(words);
        let is_own = of.all(|(kept, word)| kept.load(Ordering::Relaxed) == word);
        // After the times: it may have been forgotten since it was known.
        let is_known = self.is_known(hash);
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        (is_own && is_known && is_whole).then(|| times.map(Timestamp::new))
    }

    /// Keeps a refusal with its wait, and the time until the full quota is back. That of another
    /// caller stays until its wait is over, and mostly beyond one in 16 refusals: many callers that
    /// are refused in turn do not write each time.
    #[inline(never)]
    pub(super) fn keep(
        &self,
        hash: u64,
        caller: &InlineBytes,
        policy: &Policy,
        now: Timestamp,
        times: [Micros; 2],
    ) {
        let is_other = self.hash.load(Ordering::Relaxed) != 0 && !self.is_known(hash);
        if is_other
            && self.ends.load(Ordering::Relaxed) > now.get()
            && !now.get().is_multiple_of(16)
        {
            return;
        }
        let Some(words) = words(caller, policy) else { return };
        let [ends, resets] = times.map(|time| (now + time).get());
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.hash.store(hash | 1, Ordering::Relaxed);
        self.ends.store(ends, Ordering::Relaxed);
        self.resets.store(resets, Ordering::Relaxed);
        for (kept, word) in self.of.iter().zip(words) {
            kept.store(word, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }

    /// Forgets the refusal, before anything of the shard may change.
    #[inline]
    pub(super) fn forget(&self) {
        // Loom tries no reader behind a store that comes after a load (tokio-rs/loom#392).
        if cfg!(all(test, ratelimit_loom)) || self.hash.load(Ordering::Relaxed) != 0 {
            self.hash.store(0, Ordering::Release);
        }
    }
}

/// Returns the words of a refusal; nothing for a long caller.
#[inline]
fn words(caller: &InlineBytes, policy: &Policy) -> Option<[u64; WORDS]> {
    let CallerBytes::Short([start, end]) = caller.into() else { return None };
    let name = policy.full_name().text();
    let [period, quota, kind] = policy.numbers_of_one_tier();
    Some([start, end, name.as_ptr().addr() as u64, name.len() as u64, period, quota, kind])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fastrand::Rng;

    use super::*;
    use crate::{
        caller::Caller,
        key::KeyRef,
        memory::MemoryStore,
        request::{DecidedBy, Op, Outcome, PlainAnswer, PlainOutcome, Request, Settle},
    };

    const SECOND: Duration = Duration::from_secs(1);
    const ALGORITHMS: [fn(&'static str, Duration, u32) -> Policy; 4] = [
        Policy::sliding_window,
        Policy::sliding_counter,
        Policy::fixed_window,
        Policy::token_bucket,
    ];

    /// Decides a call as a plain one. Returns `true` if the answer was known.
    fn take(store: &MemoryStore, policy: &Policy, caller: &Caller) -> (Outcome, bool) {
        let request = Request::new(policy, Op::Take, 1);
        let (parts, key) = (caller.parts(), KeyRef::new(policy, caller.parts()));
        let lookup = store.hasher.lookup(key);
        let known = store.shard(&lookup).refusal.of(lookup.hash, parts, policy);
        let is_known = known.is_some_and(|[ends, _]| store.clock().now() < ends);
        let answered = store.take_units::<PlainOutcome>(parts, request, false);
        let Some(answer) = answered.answer else {
            return (store.decide(key, request).unwrap(), false);
        };
        assert!(!is_known || answer.refusal().is_some());
        (answer.outcome(DecidedBy::Store, answered.at), is_known)
    }

    /// Two stores have the same calls: one of them decides all under the lock.
    #[tokio::test(start_paused = true)]
    async fn a_known_refusal_is_the_one_that_the_state_gives() {
        let seed = fastrand::u64(..);
        let mut rng = Rng::with_seed(seed);
        let callers = ["alice", "bob", "a caller with a long name"].map(Caller::from);
        let mut known = 0;
        for new in ALGORITHMS {
            let policies = [
                new("p", SECOND, 5),
                new("p", SECOND, 9),
                new("p", 3 * SECOND, 5),
                new("q", SECOND, 3),
                new("p", SECOND, 5).count_rejected(),
            ];
            let [quick, slow] = [(); 2].map(|()| MemoryStore::with_shards(100, usize::MAX, 1));
            let mut charges = Vec::new();
            for step in 0..5_000 {
                tokio::time::advance(Duration::from_micros(rng.u64(..40_000))).await;
                let (caller, policy) =
                    (rng.choice(&callers).unwrap(), rng.choice(&policies[..]).unwrap());
                let policy = if rng.u8(..10) > 0 { &policies[0] } else { policy };
                let case = format!("seed {seed}, step {step}: {policy:?}");
                let key = KeyRef::new(policy, caller.parts());
                match rng.u8(..40) {
                    0 => [&quick, &slow].map(|store| store.reset(key)).into_iter().collect(),
                    1 if !charges.is_empty() => {
                        let (policy, caller, marks): (Policy, Caller, [_; 2]) =
                            charges.swap_remove(rng.usize(..charges.len()));
                        let to = rng.u32(..3);
                        for (store, mark) in [&quick, &slow].into_iter().zip(marks) {
                            let settle = Settle::of_one_tier(&policy, 1, to, mark);
                            store.settle(KeyRef::new(&policy, caller.parts()), &settle);
                        }
                    }
                    2 => {
                        let request = Request::new(policy, Op::Take, 2);
                        let [one, other] =
                            [&quick, &slow].map(|store| store.decide(key, request).unwrap());
                        assert_eq!(one.admitted, other.admitted, "{case}");
                    }
                    _ => {
                        let (answer, is_known) = take(&quick, policy, caller);
                        let expected = slow.decide(key, Request::new(policy, Op::Take, 1)).unwrap();
                        let numbers = |outcome: &Outcome| {
                            (
                                outcome.admitted,
                                outcome.remaining,
                                outcome.wait,
                                outcome.reset,
                                outcome.more,
                            )
                        };
                        assert_eq!(numbers(&answer), numbers(&expected), "{case}");
                        known += u32::from(is_known);
                        if answer.admitted {
                            charges.push((*policy, caller.clone(), [answer.mark, expected.mark]));
                        }
                    }
                }
            }
        }
        assert!(known > 500, "{known}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_refusal_needs_no_lock() {
        static POLICY: Policy = Policy::token_bucket("p", SECOND, 1);
        let store = MemoryStore::with_shards(100, usize::MAX, 1);
        let alice = Caller::from("alice");
        let answers = [(); 3].map(|()| take(&store, &POLICY, &alice).0.admitted);
        assert_eq!(answers, [true, false, false]);
        let _locked = store.shards[0].table.lock();
        assert_eq!(take(&store, &POLICY, &alice).0.wait, Micros::new(1_000_000));
    }
}
