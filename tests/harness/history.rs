//! The answers of callers under load, checked against the promise of a limiter.

mod in_flight;
mod log;
mod promise;
mod recorded;
#[cfg(test)]
mod tests;
mod uses;

use std::{collections::BTreeMap, time::Duration};

use ratelimit_runtime::UnavailableReason;

use self::log::unmatched;
pub use self::{
    in_flight::{FlightFigures, InFlight, PermitPromise},
    log::Log,
    promise::Promise,
    uses::Uses,
};

/// One call. Times are microseconds of the machine's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The caller.
    pub caller: u32,
    /// The time of the call.
    pub asked: u64,
    /// The time of the answer; the decision lies between the two.
    pub answered: u64,
    /// The answer.
    pub outcome: Outcome,
    /// The units that the call reserves.
    pub cost: usize,
    /// The settle of the call, if it was told what it really took.
    pub settled: Option<Settled>,
}

/// The settle of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The units that the call really took.
    pub to: usize,
    /// The time of the settle.
    pub asked: u64,
    /// The time at which the store had certainly applied it; none of one that nobody awaited.
    pub applied: Option<u64>,
}

impl Call {
    /// Returns the units that certainly count at this time, beside an excess.
    fn at_least(&self, now: u64) -> usize {
        let is_known = |settled: &Settled| settled.asked <= now;
        self.settled.filter(is_known).map_or(self.cost, |settled| settled.to.min(self.cost))
    }

    /// Returns the most units that may count at this time, beside an excess.
    fn at_most(&self, now: u64) -> usize {
        let is_applied = |settled: &Settled| settled.applied.is_some_and(|at| at <= now);
        self.settled.filter(is_applied).map_or(self.cost, |settled| settled.to.min(self.cost))
    }

    /// Returns the units beyond the cost, and their settle.
    fn excess(&self) -> Option<(usize, Settled)> {
        let settled = self.settled?;
        (settled.to > self.cost).then(|| (settled.to - self.cost, settled))
    }
}

/// The answer of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call was admitted.
    Admitted,
    /// The limit was reached.
    Refused,
    /// The store did not decide in time; it may have counted the call nevertheless.
    Unavailable(UnavailableReason),
}

/// All calls of a span of time.
#[derive(Clone, Debug)]
pub struct History {
    calls: Vec<Call>,
}

impl History {
    /// Returns the history of these calls.
    pub fn new(mut calls: Vec<Call>) -> Self {
        calls.sort_by_key(|call| (call.asked, call.answered));
        Self { calls }
    }

    /// Returns the calls that count after this time: those not refused, and answered since.
    pub fn counting_since(&self, since: u64) -> Vec<Call> {
        let counts = |call: &&Call| call.outcome != Outcome::Refused && call.answered >= since;
        self.calls.iter().filter(counts).copied().collect()
    }

    /// All calls, in the order of their start.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Returns the number of calls with such an outcome.
    pub fn count(&self, is_such: impl Fn(Outcome) -> bool) -> usize {
        self.calls.iter().filter(|call| is_such(call.outcome)).count()
    }

    /// Returns the number of calls that the store did not decide.
    pub fn unavailable(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Unavailable(_)))
    }

    /// Returns the duration of the longest call.
    pub fn slowest(&self) -> Duration {
        let longest = self.calls.iter().map(|call| call.answered.saturating_sub(call.asked)).max();
        Duration::from_micros(longest.unwrap_or(0))
    }

    /// Returns the number of calls that took at least this long.
    pub fn slower_than(&self, duration: Duration) -> usize {
        let is_slow = |call: &&Call| {
            Duration::from_micros(call.answered.saturating_sub(call.asked)) >= duration
        };
        self.calls.iter().filter(is_slow).count()
    }

    /// Describes the answers in words.
    pub fn answers(&self) -> String {
        let mut answers = BTreeMap::<String, usize>::new();
        for call in &self.calls {
            let name = match call.outcome {
                Outcome::Unavailable(reason) => format!("{reason:?}"),
                decided => format!("{decided:?}"),
            };
            *answers.entry(name).or_default() += 1;
        }
        let answers: Vec<_> = answers.iter().map(|(name, n)| format!("{n} {name}")).collect();
        answers.join(", ")
    }

    /// Returns the answers that break the promise. Times are uncertain, and a doubtful answer is no
    /// fault.
    pub fn faults(&self, promise: &Promise) -> Vec<String> {
        let mut faults = self.overfull_windows(promise);
        faults.extend(self.unjust_refusals(promise));
        faults
    }

    /// Returns windows that certainly admitted too many units.
    pub fn overfull_windows(&self, promise: &Promise) -> Vec<String> {
        let of_caller = |calls: &Vec<&Call>| -> Vec<String> {
            let unavailable = of(calls, |outcome| matches!(outcome, Outcome::Unavailable(_)));
            promise.overfull(&of(calls, |outcome| outcome == Outcome::Admitted), &unavailable)
        };
        self.by_caller().values().flat_map(of_caller).collect()
    }

    /// Returns refused calls whose windows certainly had room.
    pub fn unjust_refusals(&self, promise: &Promise) -> Vec<String> {
        let of_caller = |calls: &Vec<&Call>| -> Vec<String> {
            let counted = of(calls, |outcome| outcome != Outcome::Refused);
            let refused = of(calls, |outcome| outcome == Outcome::Refused);
            refused.iter().filter_map(|call| promise.unjust(call, &counted)).collect()
        };
        self.by_caller().values().flat_map(of_caller).collect()
    }

    /// Returns the entries of the store's log that break the promise or contradict the answers: a
    /// window with too many units, an admitted call without a unit of its time, and a unit without
    /// a call. The log must be complete.
    pub fn faults_in(&self, log: &Log, promise: &Promise) -> Vec<String> {
        let mut faults = Vec::new();
        for (caller, calls) in self.by_caller() {
            let units = log.of(caller);
            let unavailable = of(&calls, |outcome| matches!(outcome, Outcome::Unavailable(_)));
            faults.extend((0..units.len()).filter_map(|first| {
                let start = units[first];
                let within = units[first..].partition_point(|at| *at < start + promise.period);
                // Those of unavailable calls are given back.
                let most = promise.threshold + promise.late_units(start, &unavailable);
                (within > most)
                    .then(|| format!("caller {caller}: {within} units in one window from {start}"))
            }));
            faults.extend(unmatched(&calls, &units, promise.late));
        }
        let callers = self.by_caller();
        let strangers = log
            .units
            .iter()
            .filter(|(caller, units)| !units.is_empty() && !callers.contains_key(caller));
        faults.extend(strangers.map(|(caller, _)| format!("caller {caller} has never called")));
        faults
    }

    fn by_caller(&self) -> BTreeMap<u32, Vec<&Call>> {
        let mut callers = BTreeMap::<_, Vec<_>>::new();
        for call in &self.calls {
            callers.entry(call.caller).or_default().push(call);
        }
        callers
    }
}

fn of<'a>(calls: &[&'a Call], is_such: impl Fn(Outcome) -> bool) -> Vec<&'a Call> {
    calls.iter().copied().filter(|call| is_such(call.outcome)).collect()
}
