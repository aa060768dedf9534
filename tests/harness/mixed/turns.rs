//! Turns come in their order and when they were promised, and every call ends in time.

use super::{
    Findings, LIMITS, MIXED_DEADLINE, MixedRound, Reply, Rule, call::MixedCall, micros,
    round::SLACK,
};

/// The time between two calls of one process after which their order is known.
const APART: u64 = 5_000;

/// The time for which a turn counts as promised after it was last seen on Redis.
const SEEN: u64 = 1_000_000;

impl MixedRound {
    /// Returns the calls that were served out of turn, late, or not in time.
    pub(super) fn wrong_turns(&self) -> Findings {
        let mut findings = Findings::default();
        for limit in 0..LIMITS.len() {
            for fault in self.overtaken(limit) {
                findings.add("order", fault);
            }
        }
        for call in &self.calls {
            if let Some(fault) = self.broken_promise(call) {
                findings.add("promise", fault);
            }
            if let Some(fault) = self.late_end(call) {
                findings.add("end", fault);
            }
            if let Some(fault) = self.without_reason(call) {
                findings.add("undecided", fault);
            }
            if is_impatient(call) {
                findings.add("patience", call.text());
            }
        }
        findings
    }

    /// First come, first served within a process, for calls of one policy and cost. A plan is a
    /// policy of its own.
    fn overtaken(&self, limit: usize) -> Vec<String> {
        let it = &LIMITS[limit];
        if it.rule == Rule::Permits {
            return Vec::new();
        }
        let is_in_line = |call: &&MixedCall| call.has_waited() && call.id == 0 && !call.is_joint;
        let waited: Vec<_> = self.of(limit).filter(is_in_line).collect();
        let mut faults = Vec::new();
        for (index, first) in waited.iter().enumerate() {
            let later = waited[index + 1..].iter().find(|later| {
                // A question that is sent again comes later.
                let is_comparable = first.placed.is_some_and(|at| later.placed >= Some(at))
                    && later.process == first.process
                    && later.runtime == first.runtime
                    && later.cost == first.cost
                    && later.is_small == first.is_small
                    && later.leave == first.leave
                    && later.is_leased == first.is_leased;
                let span = (later.answered, first.answered);
                is_comparable
                    && later.asked > first.asked + APART
                    && later.answered + SLACK + 3 * self.late(first, span) < first.answered
                    && !self.was_disturbed(limit, (first.asked, first.answered))
            });
            if let Some(later) = later {
                faults.push(format!("{} before {}", later.text(), first.text()));
            }
        }
        faults
    }

    /// Nobody is served later than promised, or refused after a promise, whatever raises a limit.
    fn broken_promise(&self, call: &MixedCall) -> Option<String> {
        let promised = call.promised?;
        let span = (call.asked, call.answered);
        if self.was_disturbed(call.limit, (span.0.saturating_sub(SLACK), span.1 + SLACK)) {
            return None;
        }
        let is_kept = match call.reply {
            Some(Reply::Admitted { .. }) => {
                let late = self.late(call, (promised.saturating_sub(SLACK), call.answered));
                // A call with a permit holds it in time, or has none.
                call.answered <= promised + SLACK + 3 * late
            }
            None | Some(Reply::Left | Reply::Spared) => true,
            // A permit is not promised.
            Some(Reply::Busy) => LIMITS[call.limit].permits > 0,
            // Its process may have stood still.
            Some(Reply::Undecided) => self.without_reason(call).is_none(),
            // Who is shut out in between has a lowered number.
            Some(Reply::Denied) => false,
            // A promise that its process has not seen for a second counts no more.
            Some(Reply::Refused) => self.late(call, (promised, call.answered)) + SLACK >= SEEN,
        };
        (!is_kept).then(|| call.text())
    }

    /// Every call ends by its wait and its deadline. Two calls that are decided together have one
    /// each, and one in which what was taken is given back. Two budgets have one each.
    fn late_end(&self, call: &MixedCall) -> Option<String> {
        let deadlines = if call.is_joint { 3 } else { 1 + u64::from(call.budget > 0) };
        let until = call.asked + call.max_wait + deadlines * micros(MIXED_DEADLINE);
        let late = self.late(call, (call.asked, call.answered));
        let is_killed = call.reply.is_none() && self.is_killed(call.process);
        let is_late = call.answered > until + SLACK + 3 * late || call.reply.is_none();
        (is_late && !is_killed).then(|| call.text())
    }

    /// A call is decided while Redis can be reached.
    fn without_reason(&self, call: &MixedCall) -> Option<String> {
        let span = self.with_probe(call.process, (call.asked, call.answered));
        let is_excused =
            self.outages.iter().chain(&self.losses).any(|it| super::overlaps(*it, span))
                || 2 * self.late(call, span) > micros(MIXED_DEADLINE);
        (call.reply == Some(Reply::Undecided) && !is_excused).then(|| call.text())
    }
}

/// A call that may wait waits for Redis too.
fn is_impatient(call: &MixedCall) -> bool {
    let is_early = call.answered + SLACK < call.asked + call.max_wait;
    call.reply == Some(Reply::Undecided) && call.max_wait > 0 && !call.is_joint && is_early
}
