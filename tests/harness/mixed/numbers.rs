//! The numbers in force in each process: those of a limit's overrides, and those of its caller before them.

use super::{Findings, LIMITS, MixedRound, Reply, Rule, Span, call::MixedCall, overlaps};

/// An override of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfCaller {
    /// The limit has this number.
    Number(u64),
    /// The caller is exempt.
    Off,
    /// The caller is shut out.
    Denied,
    /// There is no override.
    Removed,
}

/// The number of a limit in one process.
#[derive(Clone, Copy, Debug)]
pub struct NumberChange {
    /// The process.
    pub process: usize,
    /// The number of the limit.
    pub limit: usize,
    /// The threshold, or the calls in flight; none while the limit is off, 0 while its caller is shut out.
    pub number: Option<u64>,
    /// The time in which it was perhaps in force.
    pub span: (u64, u64),
    /// The time in which it came into force.
    pub set: (u64, u64),
}

/// The overrides of a limit in one process.
pub(super) struct Layers {
    /// The number by the override of the limit; none while it is off.
    limit: Option<u64>,
    /// The override of the caller, and the time in which it ends; 0 for never.
    caller: (OfCaller, Span),
    change: NumberChange,
    past: Vec<NumberChange>,
}

impl Layers {
    pub(super) fn new(process: usize, limit: usize) -> Self {
        let number = Some(LIMITS[limit].number().into());
        let change = NumberChange { process, limit, number, span: (0, u64::MAX), set: (0, 0) };
        let caller = (OfCaller::Removed, (0, 0));
        Self { limit: number, caller, change, past: Vec::new() }
    }

    /// Sets the override of the limit in this time; none is off.
    pub(super) fn set(&mut self, number: Option<u64>, set: Span) {
        self.end_by(set.1);
        self.limit = number;
        self.change(set);
    }

    /// Sets the override of the caller in this time. A process takes the time of Redis for as old as its answer,
    /// so that the end is late by that much.
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
        let next = NumberChange { number, span: (set.0, u64::MAX), set, ..self.change };
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

impl MixedRound {
    /// Returns the highest number of a limit that was in force in a process in this span.
    pub(super) fn highest(&self, limit: usize, span: Span) -> u64 {
        self.in_force(limit, span).max().unwrap_or_else(|| LIMITS[limit].number().into())
    }

    /// Returns the highest number of a limit, or of its small plan, that was in force in one process in this span.
    pub(super) fn highest_of(
        &self,
        process: usize,
        limit: usize,
        span: Span,
        is_small: bool,
    ) -> u64 {
        let declared = u64::from(LIMITS[limit].number());
        // Overrides of the limit are those of its plans.
        let of_plan = |it| if is_small && it == declared { declared / 2 } else { it };
        let within = self.numbers_of(process, limit).filter(|it| overlaps(it.span, span));
        within.filter_map(|it| it.number).map(of_plan).max().unwrap_or_else(|| of_plan(declared))
    }

    /// Returns the lowest number of a limit that was in force in a process in this span.
    pub(super) fn lowest(&self, limit: usize, span: Span) -> u64 {
        self.in_force(limit, span).min().unwrap_or_else(|| LIMITS[limit].number().into())
    }

    fn numbers_of(&self, process: usize, limit: usize) -> impl Iterator<Item = &NumberChange> {
        self.numbers.iter().filter(move |it| (it.process, it.limit) == (process, limit))
    }

    fn in_force(&self, limit: usize, span: Span) -> impl Iterator<Item = u64> {
        let of_limit = self.numbers.iter().filter(move |it| it.limit == limit);
        of_limit.filter(move |it| overlaps(it.span, span)).filter_map(|it| it.number)
    }

    /// Returns `true` if a threshold was lowered in this span, a period doubled, or a limit switched on again.
    pub(super) fn was_lowered(&self, limit: usize, span: Span) -> bool {
        if self.slowed.iter().any(|(it, at)| *it == limit && overlaps(*at, span)) {
            return true;
        }
        let number = |it: &NumberChange| it.number.unwrap_or(u64::MAX);
        // Those of a limit in one process come one after another.
        self.numbers.windows(2).any(|pair| {
            let (before, it) = (pair[0], pair[1]);
            let is_next = (before.process, before.limit) == (it.process, limit);
            is_next && it.limit == limit && overlaps(it.set, span) && number(&before) > number(&it)
        })
    }

    /// Returns the answers that contradict the overrides: of a caller that is shut out, or exempt.
    pub(super) fn wrong_enforcement(&self) -> Findings {
        let mut findings = Findings::default();
        for call in &self.calls {
            let Some(reply) = call.reply else { continue };
            let is_admitted = matches!(reply, Reply::Admitted { .. });
            let is_exempt = matches!(reply, Reply::Admitted { is_counted: false, .. });
            // Of two limits together, the answer is that of one.
            let has_passed =
                is_admitted || matches!(reply, Reply::Refused | Reply::Busy) && !call.is_joint;
            let is_wrongly_denied =
                reply == Reply::Denied && !call.is_joint && !self.may_have(call, Some(0));
            if is_wrongly_denied || has_passed && self.certainly_has(call, Some(0)) {
                findings.add("denied", call.text());
            }
            // A call of permits alone whose process stood still may have lost its own by its answer.
            let may_be_lost = call.limit().rule == Rule::Permits;
            let is_wrongly_exempt = is_exempt && !may_be_lost && !self.may_have(call, None);
            if is_wrongly_exempt || has_passed && !is_exempt && self.certainly_has(call, None) {
                findings.add("off", call.text());
            }
        }
        findings
    }

    /// Returns `true` if a number was perhaps in force in the call's process.
    fn may_have(&self, call: &MixedCall, number: Option<u64>) -> bool {
        let mut numbers = self.numbers_of(call.process, call.limit);
        numbers.any(|it| it.number == number && overlaps(it.span, (call.asked, call.answered)))
    }

    /// Returns `true` if no other number was in force in the call's process.
    pub(super) fn certainly_has(&self, call: &MixedCall, number: Option<u64>) -> bool {
        let mut numbers = self.numbers_of(call.process, call.limit);
        let span = (call.asked, call.answered);
        self.may_have(call, number)
            && numbers.all(|it| it.number == number || !overlaps(it.span, span))
    }
}
