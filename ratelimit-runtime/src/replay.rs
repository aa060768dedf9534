//! Recorded calls under a policy, decided as the memory store decides them, in the time of the
//! record (feature `replay`).
//!
//! Floor 6: imports `memory` and plain data.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    hash::Hash,
    time::Duration,
};

use crate::{
    decision::{Answer, Decision, LimiterId},
    error::{Exceeded, RateLimitError, Unavailable},
    key::{IntoCaller, KeyRef},
    memory::{EPOCH, MemoryStore},
    policy::{InvalidPolicy, Policy},
    request::{Op, Request},
    time::{Micros, Timestamp},
};

/// A time from which on the times of a record are since the UNIX epoch: two years, the longest of
/// two windows.
const UNIX_TIMES: Timestamp = Timestamp::new(2 * 366 * 24 * 3_600 * 1_000_000);

/// A recorded call: its time, its caller and its cost.
///
/// The caller is of any type that a check takes by reference, such as a `String` or a
/// [`Caller`](crate::Caller).
#[derive(Clone, Debug)]
pub struct Recorded<C> {
    at: Timestamp,
    caller: C,
    cost: u32,
    settle: Option<(Timestamp, u32)>,
}

impl<C> Recorded<C> {
    /// Creates a record of a call of `cost` units.
    ///
    /// The time is since the UNIX epoch, as Redis counts it, or else less than two years since the
    /// limiter in memory was made. The windows of a `sliding_counter` start at multiples of its
    /// period.
    #[must_use]
    pub fn new(at: Duration, caller: C, cost: u32) -> Self {
        Self { at: timestamp(at), caller, cost, settle: None }
    }

    /// Adds the time at which the call was settled, if it was admitted, and the units that it
    /// really took.
    #[must_use]
    pub fn settled(self, at: Duration, units: u32) -> Self {
        Self { settle: Some((timestamp(at), units)), ..self }
    }
}

fn timestamp(at: Duration) -> Timestamp {
    let at = Timestamp::new(Micros::from(at).get());
    if at < UNIX_TIMES { EPOCH + Micros::new(at.get()) } else { at }
}

/// Decides recorded calls under a policy, in the order of their times.
///
/// An idle machine replays over a million calls a second under each algorithm, as
/// `cargo bench -p ratelimit-benches --features replay --bench replay` measures.
///
/// Beforehand it shows the effect of a limit on the callers of an access log, and afterwards why a
/// call was refused: the record of a program's calls gives the decisions that it made. All is
/// decided by one process; [`concurrency`](Policy::concurrency), waits and overrides are not
/// replayed.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Policy, replay::{Recorded, replay}};
///
/// const SEARCH: Policy = Policy::sliding_window("search", Duration::from_secs(60), 10);
///
/// // Alice calls twice a second for ten seconds, Bob once.
/// let calls = (0..20).map(|call| Recorded::new(Duration::from_millis(500 * call), "alice", 1));
/// let calls = calls.chain([Recorded::new(Duration::from_secs(10), "bob", 1)]);
/// let replayed = replay(&SEARCH, calls)?;
/// assert_eq!((replayed.admitted(), replayed.refused()), (11, 10));
/// assert_eq!((replayed.callers(), replayed.refused_callers()), (2, 1));
/// let (caller, seen) = &replayed.hit_most(1)[0];
/// assert_eq!((*caller, seen.refused), ("alice", 10));
/// assert_eq!(replayed.longest_wait(), Duration::from_secs(55));
/// # Ok::<(), ratelimit_runtime::InvalidPolicy>(())
/// ```
///
/// # Errors
///
/// [`InvalidPolicy`] if the policy breaks a rule.
pub fn replay<C>(
    policy: &Policy,
    calls: impl IntoIterator<Item = Recorded<C>>,
) -> Result<Replay<C>, InvalidPolicy>
where
    C: Clone + Eq + Hash,
    for<'a> &'a C: IntoCaller<'a>,
{
    let mut replay = Replay::new(policy)?;
    for call in calls {
        let _ = replay.decide(call);
    }
    Ok(replay)
}

/// The calls that were replayed so far, and their store: see [`replay`].
pub struct Replay<C> {
    store: MemoryStore,
    policy: Policy,
    limiter: LimiterId,
    /// The calls that are settled later, by the times of their settles.
    settles: BTreeMap<Timestamp, Vec<(Decision, u32)>>,
    callers: HashMap<C, ReplayedCaller>,
}

/// The calls of one caller in a [`Replay`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayedCaller {
    /// The calls that were admitted.
    pub admitted: u64,
    /// The calls that were refused, also those that the policy never admits.
    pub refused: u64,
    /// The longest wait until a refused call would have been admitted.
    pub longest_wait: Duration,
    /// The number of callers before its first call.
    before: usize,
}

impl<C> Replay<C>
where
    C: Clone + Eq + Hash,
    for<'a> &'a C: IntoCaller<'a>,
{
    /// Creates a replay of no calls yet.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] if the policy breaks a rule.
    pub fn new(policy: &Policy) -> Result<Self, InvalidPolicy> {
        policy.validate_shape()?;
        Ok(Self {
            store: MemoryStore::for_replay(),
            policy: policy.without_concurrency(),
            limiter: LimiterId::next(),
            settles: BTreeMap::new(),
            callers: HashMap::new(),
        })
    }

    /// Decides the next call. Of calls that are not in the order of their times, the later one has
    /// the time of the one before. A settle of the decision does nothing: [`Recorded::settled`] has
    /// its time.
    ///
    /// # Errors
    ///
    /// [`Exceeded`] if the limit refuses the call, and [`TooLarge`](crate::TooLarge) if it never
    /// admits it.
    pub fn decide(&mut self, call: Recorded<C>) -> Answer {
        self.settle_until(call.at);
        let decided = self.decide_in_store(&call);
        let before = self.callers.len();
        let seen = self.callers.entry(call.caller);
        let seen = seen.or_insert_with(|| ReplayedCaller { before, ..ReplayedCaller::default() });
        match &decided {
            Ok(decision) => {
                seen.admitted += 1;
                if let Some((at, units)) = call.settle {
                    self.settles.entry(at).or_default().push((decision.clone(), units));
                }
            }
            Err(error) => {
                seen.refused += 1;
                if let RateLimitError::Exceeded(exceeded) = error {
                    seen.longest_wait = seen.longest_wait.max(exceeded.retry_after());
                }
            }
        }
        decided
    }

    fn decide_in_store(&self, call: &Recorded<C>) -> Answer {
        let (policy, caller) = (&self.policy, call.caller.into_caller());
        if call.cost == 0 || !policy.has_window() {
            return Ok(Decision::of_skipped(policy));
        }
        // An invalid policy, or a cost that is too large.
        policy.validate_call(call.cost, 0)??;
        let request = Request::new(policy, Op::Take, call.cost);
        let key = KeyRef::new(policy, caller.parts());
        match self.store.decide_at(Some(call.at), key, request) {
            Ok(outcome) if outcome.admitted => {
                Ok(Decision::counted(self.limiter, &caller, request, outcome))
            }
            Ok(outcome) => Err(Exceeded::new(policy, outcome, false).into()),
            Err(reason) => Err(Unavailable::new(policy.name(), reason).into()),
        }
    }

    /// Settles the calls that were settled by then.
    fn settle_until(&mut self, now: Timestamp) {
        while let Some(due) = self.settles.first_entry()
            && *due.key() <= now
        {
            let (at, settled) = due.remove_entry();
            for (decision, units) in settled {
                if let Some((key, receipt)) = decision.charge()
                    && let Some(guard) = receipt.claim(units, false)
                {
                    self.store.settle_at(Some(at), key, &decision.change(receipt, &guard));
                }
            }
        }
    }

    /// Returns the calls that were admitted.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        self.callers.values().map(|caller| caller.admitted).sum()
    }

    /// Returns the calls that were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.callers.values().map(|caller| caller.refused).sum()
    }

    /// Returns the number of callers.
    #[must_use]
    pub fn callers(&self) -> usize {
        self.callers.len()
    }

    /// Returns the number of callers of whom a call was refused.
    #[must_use]
    pub fn refused_callers(&self) -> usize {
        self.callers.values().filter(|caller| caller.refused > 0).count()
    }

    /// Returns the callers with refused calls, those with the most first, at most `count`. Of equal
    /// ones, the one that called first comes first.
    #[must_use]
    pub fn hit_most(&self, count: usize) -> Vec<(C, ReplayedCaller)> {
        let refused = self.callers.iter().filter(|(_, seen)| seen.refused > 0);
        let mut hit: Vec<_> =
            refused.map(|(caller, seen)| (caller.clone(), seen.clone())).collect();
        hit.sort_by_key(|(_, seen)| (Reverse(seen.refused), seen.admitted, seen.before));
        hit.truncate(count);
        hit
    }

    /// Returns the longest wait until a refused call would have been admitted.
    #[must_use]
    pub fn longest_wait(&self) -> Duration {
        self.callers.values().map(|caller| caller.longest_wait).max().unwrap_or_default()
    }
}
