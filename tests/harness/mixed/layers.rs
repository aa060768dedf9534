//! The overrides of a limit in one process, and the numbers that follow from them.

use super::{CREDIT, FIRST_SHARE, LIMITS, OfCaller, Span};

/// The number of a limit in one process.
#[derive(Clone, Copy, Debug)]
pub struct NumberChange {
    /// The process.
    pub process: usize,
    /// The number of the limit.
    pub limit: usize,
    /// The threshold, or the calls in flight, before the factor; none while the limit is off, 0
    /// while its caller is shut out.
    pub number: Option<u64>,
    /// The factor of all numbers, in thousandths.
    pub factor: u64,
    /// `true` if the limit is enforced for a share of the callers that does not have this one.
    pub is_left_out: bool,
    /// The time in which it was perhaps in force.
    pub span: (u64, u64),
    /// The time in which it came into force.
    pub set: (u64, u64),
}

impl NumberChange {
    pub(super) fn in_force(&self) -> Option<u64> {
        self.number.map(|number| scaled(number, self.factor))
    }
}

/// A number times a factor in thousandths, rounded up.
pub(super) fn scaled(number: u64, factor: u64) -> u64 {
    (number * factor).div_ceil(1_000)
}

/// The overrides of a limit in one process.
pub(super) struct Layers {
    /// The number by the override of the limit; none while it is off.
    limit: Option<u64>,
    is_left_out: bool,
    factor: u64,
    /// The override of the caller, and the time in which it ends; 0 for never.
    caller: (OfCaller, Span),
    change: NumberChange,
    past: Vec<NumberChange>,
}

impl Layers {
    pub(super) fn new(process: usize, limit: usize) -> Self {
        let number = Some(LIMITS[limit].number().into());
        let (factor, is_left_out, set) = (1_000, false, (0, 0));
        let span = (0, u64::MAX);
        let change = NumberChange { process, limit, number, factor, is_left_out, span, set };
        let caller = (OfCaller::Removed, (0, 0));
        Self { limit: number, is_left_out, factor, caller, change, past: Vec::new() }
    }

    /// Sets the override of the limit in this time; none is off.
    pub(super) fn set(&mut self, number: Option<u64>, set: Span) {
        self.set_for_share(number, 100, set);
    }

    /// Sets the override of the limit in this time, for a share of the callers.
    pub(super) fn set_for_share(&mut self, number: Option<u64>, percent: u8, set: Span) {
        self.end_by(set.1);
        (self.limit, self.is_left_out) = (number, percent < FIRST_SHARE);
        self.change(set);
    }

    /// Sets the factor of all limits in this time. The nearest factor decides.
    pub(super) fn scale(&mut self, factor: u64, set: Span) {
        if self.change.limit != CREDIT {
            self.end_by(set.1);
            self.factor = factor;
            self.change(set);
        }
    }

    /// Sets the override of the caller in this time. A process takes the time of Redis for as old
    /// as its answer, so that the end is late by that much.
    pub(super) fn set_for_caller(&mut self, what: OfCaller, until: u64, late: u64, set: Span) {
        self.end_by(set.1);
        self.caller = (what, (until, until + late));
        self.change(set);
        self.end_by(set.1);
    }

    /// Ends the override of the caller, if its end has come by this time.
    fn end_by(&mut self, now: u64) {
        let (from, until) = self.caller.1;
        if (1..=now).contains(&from) {
            self.caller = (OfCaller::Removed, (0, 0));
            self.change((from, until.max(self.change.set.1)));
        }
    }

    fn change(&mut self, set: Span) {
        let number = match self.caller.0 {
            // A caller that is shut out has no units, and numbers of a limit that is off are none.
            OfCaller::Denied => Some(0),
            OfCaller::Number(number) => self.limit.map(|_| number),
            OfCaller::Off => None,
            OfCaller::Removed => self.limit,
        };
        // The caller's own enforcement comes before that of the limit.
        let has_own = matches!(self.caller.0, OfCaller::Denied | OfCaller::Off);
        let is_left_out = self.is_left_out && !has_own;
        let (factor, span) = (self.factor, (set.0, u64::MAX));
        let next = NumberChange { number, factor, is_left_out, span, set, ..self.change };
        let mut before = std::mem::replace(&mut self.change, next);
        before.span.1 = set.1;
        self.past.push(before);
    }

    /// Returns all changes until the end of the process.
    pub(super) fn changes(mut self, ended: u64) -> impl Iterator<Item = NumberChange> {
        self.end_by(ended);
        self.change.span.1 = ended;
        self.past.into_iter().chain([self.change])
    }
}
