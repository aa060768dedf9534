//! The answers of callers under load, checked against the promise of a limiter.

mod log;

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use ratelimit_runtime::UnavailableReason;

pub use self::log::Log;
use self::log::unmatched;

/// One call of cost one. Times are microseconds of the machine's wall clock.
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

/// The promise of a limiter about a history.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    /// The length of a window, in microseconds.
    pub period: u64,
    /// The calls of one caller that one window admits.
    pub threshold: usize,
    /// The time after its answer in which an unavailable call may still be counted, in microseconds.
    pub late: u64,
    /// The times at which the store lost its state or its clock was set forward. A window that overlaps one
    /// may admit the threshold once more.
    pub losses: Vec<RangeInclusive<u64>>,
    /// The times from a step of the clock back until every caller has a new decision. For one period
    /// afterwards, expired units may count again.
    pub set_back: Vec<RangeInclusive<u64>>,
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

    /// Returns the answers that break the promise. Times are uncertain, and a doubtful answer is no fault.
    pub fn faults(&self, promise: &Promise) -> Vec<String> {
        let mut faults = self.overfull_windows(promise);
        faults.extend(self.unjust_refusals(promise));
        faults
    }

    /// Returns windows that certainly admitted too many calls.
    pub fn overfull_windows(&self, promise: &Promise) -> Vec<String> {
        let of_caller = |calls: &Vec<&Call>| -> Vec<String> {
            let admitted = of(calls, |outcome| outcome == Outcome::Admitted);
            admitted.iter().filter_map(|first| promise.overfull(first, &admitted)).collect()
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

    /// Returns the entries of the store's log that break the promise or contradict the answers: a window
    /// with too many units, an admitted call without a unit of its time, and a unit without a call. The
    /// log must be complete.
    pub fn faults_in(&self, log: &Log, promise: &Promise) -> Vec<String> {
        let mut faults = Vec::new();
        for (caller, calls) in self.by_caller() {
            let units = log.of(caller);
            let too_many = |ends: &&[u64]| ends[promise.threshold] - ends[0] < promise.period;
            faults.extend(units.windows(promise.threshold + 1).filter(too_many).map(|units| {
                format!("caller {caller}: {} units in one window from {}", units.len(), units[0])
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

impl Promise {
    /// Returns a fault if the window that opens with this call certainly has too many units.
    fn overfull(&self, first: &Call, admitted: &[&Call]) -> Option<String> {
        let end = first.asked + self.period;
        let from = admitted.partition_point(|call| call.asked < first.asked);
        let within = admitted[from..].iter().take_while(|call| call.asked < end);
        let held = within.filter(|call| call.answered < end).count();
        let is_within =
            |lost: &&RangeInclusive<u64>| *lost.start() < end && first.asked <= *lost.end();
        let lost = self.losses.iter().filter(is_within).count();
        let allowed = self.threshold * (1 + lost);
        (held > allowed).then(|| {
            let Call { caller, asked, .. } = first;
            format!("caller {caller}: {held} calls admitted in one window from {asked}")
        })
    }

    /// Returns a fault if this call was refused while its window certainly had room.
    fn unjust(&self, refused: &Call, counted: &[&Call]) -> Option<String> {
        let has_an_excuse = |time: &RangeInclusive<u64>| {
            *time.start() <= refused.answered && refused.asked <= *time.end() + self.period
        };
        if self.set_back.iter().any(has_an_excuse) {
            return None;
        }
        let since = refused.asked.saturating_sub(self.period);
        let may_count = |call: &&&Call| {
            let late = if call.outcome == Outcome::Admitted { 0 } else { self.late };
            call.asked <= refused.answered && call.answered + late > since
        };
        let counting = counted.iter().filter(may_count).count();
        (counting < self.threshold).then(|| {
            let Call { caller, asked, .. } = refused;
            format!("caller {caller}: refused at {asked} with {counting} calls in its window")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Promise =
        Promise { period: 100, threshold: 2, late: 0, losses: Vec::new(), set_back: Vec::new() };
    const LOST: Outcome = Outcome::Unavailable(UnavailableReason::Disconnected);

    /// Calls of one caller: asked, answered, what.
    fn history(calls: &[(u64, u64, Outcome)]) -> History {
        let call = |&(asked, answered, outcome)| Call { caller: 1, asked, answered, outcome };
        History::new(calls.iter().map(call).collect())
    }

    fn log(units: &[u64]) -> Log {
        let mut log = Log::default();
        for (name, at) in units.iter().enumerate() {
            log.add(1, &name.to_string(), *at);
        }
        log
    }

    const fn admitted(asked: u64, answered: u64) -> (u64, u64, Outcome) {
        (asked, answered, Outcome::Admitted)
    }

    const fn refused(asked: u64, answered: u64) -> (u64, u64, Outcome) {
        (asked, answered, Outcome::Refused)
    }

    #[test]
    fn a_window_that_certainly_admits_too_many_is_a_fault() {
        let calls = [admitted(1_000, 1_010), admitted(1_020, 1_030), admitted(1_080, 1_099)];
        assert_eq!(history(&calls).faults(&PROMISE).len(), 1);
        // The last one may have been decided when the first had left.
        let calls = [admitted(1_000, 1_010), admitted(1_020, 1_030), admitted(1_080, 1_100)];
        assert_eq!(history(&calls).faults(&PROMISE), [""; 0]);
        // After a loss as many again, and not one more.
        let calls: Vec<_> = (0..4).map(|n| admitted(1_000 + n, 1_001 + n)).collect();
        let lost = Promise { losses: vec![1_002..=1_002], ..PROMISE };
        assert!(!history(&calls).faults(&PROMISE).is_empty());
        assert_eq!(history(&calls).faults(&lost), [""; 0]);
        let calls: Vec<_> = (0..5).map(|n| admitted(1_000 + n, 1_001 + n)).collect();
        assert!(!history(&calls).faults(&lost).is_empty());
        // Another caller has a window of its own.
        let mut calls = history(&[admitted(1_000, 1_010), admitted(1_020, 1_030)]).calls;
        calls.push(Call { caller: 2, ..calls[0] });
        assert_eq!(History::new(calls).faults(&PROMISE), [""; 0]);
    }

    #[test]
    fn a_refusal_without_a_reason_is_a_fault() {
        let calls = [admitted(1_000, 1_010), refused(1_050, 1_060)];
        assert_eq!(history(&calls).faults(&PROMISE).len(), 1);
        let calls = [admitted(1_000, 1_010), admitted(1_001, 1_011), refused(1_111, 1_120)];
        assert_eq!(history(&calls).faults(&PROMISE).len(), 1);
        let calls = [admitted(1_000, 1_010), admitted(1_001, 1_011), refused(1_109, 1_120)];
        assert_eq!(history(&calls).faults(&PROMISE), [""; 0]);
        // An unavailable call may have been counted, and later still by a late store.
        let calls = [admitted(1_000, 1_010), (1_000, 1_005, LOST), refused(1_101, 1_110)];
        assert_eq!(history(&calls).faults(&PROMISE), [""; 0]);
        let calls = [admitted(1_050, 1_060), (1_000, 1_005, LOST), refused(1_120, 1_130)];
        assert_eq!(history(&calls).faults(&PROMISE).len(), 1);
        let late = Promise { late: 20, ..PROMISE };
        assert_eq!(history(&calls).faults(&late), [""; 0]);
    }

    #[test]
    fn a_clock_set_back_explains_refusals_for_a_period_from_then_on() {
        let calls = [admitted(1_000, 1_010), admitted(1_001, 1_011), refused(1_180, 1_181)];
        assert_eq!(history(&calls).faults(&PROMISE).len(), 1);
        for (set_back, faults) in [
            (1_170..=1_175, 0),
            (1_070..=1_080, 0),
            (1_181..=1_300, 0),
            // It was over by then, or came later.
            (1_070..=1_079, 1),
            (1_182..=1_300, 1),
        ] {
            let set_back = vec![set_back];
            let promise = Promise { set_back, ..PROMISE };
            assert_eq!(history(&calls).faults(&promise).len(), faults, "{promise:?}");
        }
    }

    #[test]
    fn a_window_of_the_log_with_too_many_units_is_a_fault() {
        let calls =
            history(&[admitted(1_000, 1_200), admitted(1_000, 1_200), admitted(1_000, 1_200)]);
        assert_eq!(calls.faults_in(&log(&[1_000, 1_010, 1_099]), &PROMISE).len(), 1);
        assert_eq!(calls.faults_in(&log(&[1_000, 1_010, 1_100]), &PROMISE), [""; 0]);
    }

    #[test]
    fn an_admitted_call_has_its_unit_and_a_unit_its_call() {
        let calls = history(&[admitted(1_000, 1_010), refused(1_020, 1_030)]);
        assert_eq!(calls.faults_in(&log(&[1_005]), &PROMISE), [""; 0]);
        assert_eq!(calls.faults_in(&log(&[]), &PROMISE).len(), 1);
        // Nothing is counted twice, and no refused call is.
        assert_eq!(calls.faults_in(&log(&[1_005, 1_006]), &PROMISE).len(), 1);
        assert_eq!(calls.faults_in(&log(&[1_005, 1_025]), &PROMISE).len(), 1);
        // A unit of another time is not the call's.
        assert_eq!(calls.faults_in(&log(&[1_011]), &PROMISE).len(), 2);
        let mut foreign = log(&[1_005]);
        foreign.add(7, "unit", 1_005);
        assert_eq!(calls.faults_in(&foreign, &PROMISE).len(), 1);
    }

    #[test]
    fn an_unavailable_call_may_have_its_unit_or_none() {
        let calls = history(&[admitted(1_000, 1_020), (1_000, 1_010, LOST)]);
        assert_eq!(calls.faults_in(&log(&[1_005]), &PROMISE), [""; 0]);
        assert_eq!(calls.faults_in(&log(&[1_005, 1_006]), &PROMISE), [""; 0]);
        assert_eq!(calls.faults_in(&log(&[1_005, 1_030]), &PROMISE).len(), 1);
        let late = Promise { late: 20, ..PROMISE };
        assert_eq!(calls.faults_in(&log(&[1_005, 1_030]), &late), [""; 0]);
    }
}
