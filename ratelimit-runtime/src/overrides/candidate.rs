//! Candidates: numbers that are tried beside those of a limit, and refuse nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use super::{
    Override, OverrideError, Overrides,
    applied::{AppliedOverride, PLANS},
};
use crate::{
    key::Caller,
    policy::{OnStoreError, Policy, PolicyName},
};

/// The callers whose answers are kept: those with the lowest hashes, a fair sample.
const SAMPLED: usize = 1_024;

/// A candidate, and the answers that it would have given.
pub(crate) struct Candidate {
    numbers: AppliedOverride<PLANS>,
    /// The part of its keys that no other candidate of the limit has.
    generation: String,
    /// The name of its policies.
    name: OnceCell<&'static str>,
    since: SystemTime,
    /// The calls that the limit, and that the candidate, has refused (0) or admitted (1).
    calls: [[AtomicU64; 2]; 2],
    refused_otherwise: AtomicU64,
    /// By the hash of the caller, `true` if the candidate has refused it.
    callers: Mutex<BTreeMap<u64, bool>>,
    hashes: RandomState,
}

/// The answers that the candidate of a limit would have given in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CandidateStats {
    /// The name of the limit.
    pub limit: String,
    /// The numbers of the candidate.
    pub what: Override,
    /// The part of its keys that no other candidate of the limit has:
    /// `LIMIT~candidate/GENERATION/CALLER`. It is the same in the whole fleet.
    pub generation: String,
    /// The time from which its calls are counted.
    pub since: SystemTime,
    /// The calls that the limit and the candidate have decided.
    pub calls: u64,
    /// The calls that the candidate would have refused.
    pub refused: u64,
    /// Those of them that the limit has admitted.
    pub newly_refused: u64,
    /// The calls that the limit has refused and the candidate would have admitted.
    pub newly_admitted: u64,
    /// The calls, beside [`calls`](Self::calls), that the limit has refused for another reason than
    /// its numbers: a pause, a block, a line, no free permit, or no store. The candidate does not
    /// decide them.
    pub refused_otherwise: u64,
    /// The callers of these calls; of more than 1 024 a fair sample.
    pub callers: u64,
    /// Those of them of which the candidate would have refused a call.
    pub refused_callers: u64,
}

impl Candidate {
    pub(super) fn new(what: &Override, since: SystemTime) -> Self {
        Self {
            numbers: AppliedOverride::new(what.clone()),
            generation: generation_of(what),
            name: OnceCell::new(),
            since,
            calls: <[[AtomicU64; 2]; 2]>::default(),
            refused_otherwise: AtomicU64::default(),
            callers: Mutex::default(),
            hashes: RandomState::new(),
        }
    }

    pub(super) fn what(&self) -> &Override {
        self.numbers.what()
    }

    /// Returns the policy of the candidate, whose state is beside that of the limit. It has no
    /// permits: they are those of the limit. The factor and the answer without Redis are those of
    /// the call.
    pub(super) fn policy(
        &self,
        written: &Policy,
        scale: Option<u32>,
        on_store_error: Option<OnStoreError>,
    ) -> Option<Policy> {
        let policy = self.numbers.apply(written)?;
        let name = self.name.get_or_init(|| name_of(written.name()));
        let policy = policy.without_concurrency().named(name);
        let policy = scale.and_then(|scale| policy.scaled(scale).ok()).unwrap_or(policy);
        Some(on_store_error.map_or(policy, |answer| policy.with_overridden_answer(answer)))
    }

    /// Returns a caller as the candidate counts it.
    pub(crate) fn caller(&self, caller: &Caller) -> Caller {
        Caller::from(&self.generation).join(caller)
    }

    /// Counts a call that the limit has refused for another reason than its numbers.
    pub(crate) fn count_refused_otherwise(&self) {
        self.refused_otherwise.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call of a caller, by the answers of the limit and of the candidate.
    pub(crate) fn count(&self, caller: &Caller, by_limit: bool, by_candidate: bool) {
        self.calls[usize::from(by_limit)][usize::from(by_candidate)]
            .fetch_add(1, Ordering::Relaxed);
        let hash = self.hashes.hash_one(caller.parts());
        let mut callers = self.callers.lock();
        *callers.entry(hash).or_default() |= !by_candidate;
        if callers.len() > SAMPLED {
            callers.pop_last();
        }
    }

    fn stats(&self, limit: &str) -> CandidateStats {
        let [[refused, newly_admitted], [newly_refused, admitted]] = self
            .calls
            .each_ref()
            .map(|calls| calls.each_ref().map(|it| it.load(Ordering::Relaxed)));
        let callers = self.callers.lock();
        let count = |calls: usize| u64::try_from(calls).unwrap_or(u64::MAX);
        CandidateStats {
            limit: limit.to_owned(),
            what: Override { since: None, ..self.what().clone() },
            generation: self.generation.clone(),
            since: self.since,
            calls: refused + newly_admitted + newly_refused + admitted,
            refused: refused + newly_refused,
            newly_refused,
            newly_admitted,
            refused_otherwise: self.refused_otherwise.load(Ordering::Relaxed),
            callers: count(callers.len()),
            refused_callers: count(callers.values().filter(|is_refused| **is_refused).count()),
        }
    }
}

/// Returns the name of the candidate of a limit. Limits are part of the program, and so are these
/// names.
fn name_of(limit: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let name = format!("{limit}~candidate");
    let mut names = NAMES.lock();
    let known = names.get(&*name).copied().unwrap_or_else(|| name.leak());
    names.insert(known);
    known
}

/// Returns the generation of a candidate. It follows from what is published, so that all processes
/// have the same.
fn generation_of(what: &Override) -> String {
    let Override { period, threshold, tiers, burst, since, .. } = what;
    let since = since.and_then(|since| since.duration_since(SystemTime::UNIX_EPOCH).ok());
    let text = format!("{period:?} {threshold:?} {tiers:?} {burst:?} {since:?}");
    format!("{:016x}", PolicyName::hash_of(&text))
}

impl Overrides {
    /// Tries numbers for a limit in this process: they decide each of its calls beside the limit,
    /// and refuse none. [`candidates`](Self::candidates) has the answers that they would have
    /// given.
    ///
    /// The candidate is part of the override that [`here`](Self::here) sets, whose other values
    /// stay. In the whole fleet it is tried by an override with an
    /// [`Override::candidate`](Override::candidate), and in a file by the field `candidate`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Override, Policy};
    ///
    /// const GREET: Policy = Policy::sliding_window("greet", Duration::from_secs(60), 50);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::in_memory();
    /// limiter.overrides().candidate("greet", Override::new().threshold(20))?;
    /// for _ in 0..30 {
    ///     limiter.check(&GREET, "alice").await?;
    /// }
    /// let tried = limiter.overrides().candidates().remove(0);
    /// assert_eq!((tried.calls, tried.newly_refused), (30, 10));
    ///
    /// limiter.overrides().apply_candidate("greet")?;
    /// assert!(limiter.check(&GREET, "alice").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Counts
    ///
    /// The candidate has counts of its own, which start empty, also after another candidate with
    /// the same numbers. They are under the name of the limit and `~candidate`, and its
    /// [generation](CandidateStats::generation). A candidate that is set again keeps its counts,
    /// and its [`since`](Override::since).
    ///
    /// Calls that the limit refuses by its numbers are decided as well, so a looser candidate shows
    /// whom it would admit. One that a pause, a block, a line, a lack of permits or of a store
    /// refuses is [counted as such](CandidateStats::refused_otherwise). Also not decided are peeks,
    /// calls of 0 units, calls while the limit is off, and those of a caller or a plan with numbers
    /// of its own. A call that waits is decided after its wait. One that
    /// [`check_first`](crate::Limiter::check_first) passes on is decided at its cost, whichever
    /// budget pays.
    ///
    /// # Cost
    ///
    /// Each call is decided twice. On Redis the call does not wait for the candidate, whose command
    /// follows its own. A limit without a candidate costs what it did.
    ///
    /// # Errors
    ///
    /// As [`set`](super::ProcessOverrides::set), and for any values but a period, a threshold,
    /// tiers and a burst.
    pub fn candidate(&self, name: &str, numbers: Override) -> Result<(), OverrideError> {
        self.here().set(name, self.here().get(name).unwrap_or_default().candidate(numbers))
    }

    /// Ends the trial that [`candidate`](Self::candidate) has started for this limit.
    pub fn end_candidate(&self, name: &str) {
        let tried = self.here().get(name).filter(|what| what.candidate.is_some());
        match tried.map(|what| Override { candidate: None, ..what }) {
            // What is left of a valid override is valid.
            Some(what) if !what.is_empty() => drop(self.here().set(name, what)),
            Some(_) => self.here().remove(name),
            None => {}
        }
    }

    /// Replaces the numbers of this limit by those that [`candidate`](Self::candidate) tries, and
    /// ends the trial.
    ///
    /// # Errors
    ///
    /// As [`set`](super::ProcessOverrides::set). Without a candidate nothing happens.
    pub fn apply_candidate(&self, name: &str) -> Result<(), OverrideError> {
        let tried = self.here().get(name).filter(|own| own.candidate.is_some());
        tried.map_or(Ok(()), |own| self.here().set(name, own.with_candidate_applied()))
    }

    /// Returns the answers that candidates would have given in this process so far, by the names of
    /// their limits.
    #[must_use]
    pub fn candidates(&self) -> Vec<CandidateStats> {
        let snapshot = self.current();
        let mut stats: Vec<_> =
            snapshot.candidates().map(|(limit, candidate)| candidate.stats(limit)).collect();
        stats.sort_by(|one, other| one.limit.cmp(&other.limit));
        stats
    }

    /// Returns an override whose candidate has a start: its own, that of a candidate `before` with
    /// the same numbers, or now.
    pub(super) fn started(&self, what: Override, before: Option<&Override>) -> Override {
        let before: Vec<_> = before.into_iter().flat_map(Override::parts).collect();
        let tried_before = || before.iter().filter_map(|part| part.candidate.as_deref());
        let start = |tried: Box<Override>| {
            let is_same = |it: &&Override| Override { since: None, ..(**it).clone() } == *tried;
            let same = tried_before().find(is_same);
            let since = same.map_or_else(|| Some(self.shared.identities.now()), |it| it.since);
            Box::new(Override { since: tried.since.or(since), ..*tried })
        };
        what.map_parts(|part| Override { candidate: part.candidate.map(start), ..part })
    }
}
