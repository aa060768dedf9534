//! The numbers in force in each process: those of a limit's overrides, and those of its caller
//! before them, times the factor of all limits.

use super::{
    Findings, LIMITS, MixedRound, NumberChange, Reply, Rule, Span, call::MixedCall, layers::scaled,
    overlaps,
};

impl MixedRound {
    /// Returns the highest number of a limit that was in force in a process in this span.
    pub(super) fn highest(&self, limit: usize, span: Span) -> u64 {
        let numbers = self.in_force(limit, span).filter_map(NumberChange::in_force);
        numbers.max().unwrap_or_else(|| LIMITS[limit].number().into())
    }

    /// Returns the lowest and the highest factor of a limit that were in force in a process in this
    /// span.
    pub(super) fn factors(&self, limit: usize, span: Span) -> (u64, u64) {
        let factors = || self.in_force(limit, span).map(|it| it.factor);
        (factors().min().unwrap_or(1_000), factors().max().unwrap_or(1_000))
    }

    /// Returns the highest factor that was in force in the process of a call.
    pub(super) fn factor_of(&self, call: &MixedCall) -> u64 {
        self.during(call).map(|it| it.factor).max().unwrap_or(1_000)
    }

    /// Returns the highest number of a limit, or of its small plan, that was in force in one
    /// process in this span.
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
        let numbers = within.filter_map(|it| Some(scaled(of_plan(it.number?), it.factor)));
        numbers.max().unwrap_or_else(|| of_plan(declared))
    }

    /// Returns the lowest number of a limit that was in force in a process in this span.
    pub(super) fn lowest(&self, limit: usize, span: Span) -> u64 {
        let numbers = self.in_force(limit, span).filter_map(NumberChange::in_force);
        numbers.min().unwrap_or_else(|| LIMITS[limit].number().into())
    }

    fn numbers_of(&self, process: usize, limit: usize) -> impl Iterator<Item = &NumberChange> {
        self.numbers.iter().filter(move |it| (it.process, it.limit) == (process, limit))
    }

    fn in_force(&self, limit: usize, span: Span) -> impl Iterator<Item = &NumberChange> {
        let of_limit = self.numbers.iter().filter(move |it| it.limit == limit);
        of_limit.filter(move |it| overlaps(it.span, span))
    }

    /// The numbers that were perhaps in force in the process of a call.
    pub(super) fn during(&self, call: &MixedCall) -> impl Iterator<Item = &NumberChange> {
        let span = (call.asked, call.answered);
        self.numbers_of(call.process, call.limit).filter(move |it| overlaps(it.span, span))
    }

    /// Returns `true` if a threshold was lowered in this span, a period doubled, or a limit
    /// switched on again, for all or this caller.
    pub(super) fn was_lowered(&self, limit: usize, span: Span) -> bool {
        if self.slowed.iter().any(|(it, at)| *it == limit && overlaps(*at, span)) {
            return true;
        }
        let number =
            |it: &NumberChange| it.in_force().filter(|_| !it.is_left_out).unwrap_or(u64::MAX);
        // Those of a limit in one process come one after another.
        self.numbers.windows(2).any(|pair| {
            let (before, it) = (pair[0], pair[1]);
            let is_next = (before.process, before.limit) == (it.process, limit);
            is_next && it.limit == limit && overlaps(it.set, span) && number(&before) > number(&it)
        })
    }

    /// Returns the answers that contradict the overrides: of a caller that is shut out, exempt, or
    /// left out.
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
            // A call of permits alone whose process stood still may have lost its own by its
            // answer.
            let may_be_lost = call.limit().rule == Rule::Permits;
            let may_pass = || self.during(call).any(|it| it.number.is_none() || it.is_left_out);
            let is_wrongly_exempt = is_exempt && !may_be_lost && !may_pass();
            if is_wrongly_exempt || has_passed && !is_exempt && self.certainly_has(call, None) {
                findings.add("off", call.text());
            }
            let is_refused = matches!(reply, Reply::Refused | Reply::Busy | Reply::Undecided);
            if is_refused && !call.is_joint && self.during(call).all(|it| it.is_left_out) {
                findings.add("left out", call.text());
            }
        }
        findings
    }

    /// Returns `true` if a number was perhaps in force in the call's process.
    fn may_have(&self, call: &MixedCall, number: Option<u64>) -> bool {
        self.during(call).any(|it| it.number == number)
    }

    /// Returns `true` if no other number was in force in the call's process.
    pub(super) fn certainly_has(&self, call: &MixedCall, number: Option<u64>) -> bool {
        self.may_have(call, number) && self.during(call).all(|it| it.number == number)
    }
}
