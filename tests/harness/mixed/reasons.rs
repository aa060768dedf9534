//! A call is refused for a reason: its window has no room, its caller is in a block, or its key is
//! paused. A block ends with its length, whatever its window had, and a pause with a reset of which
//! the process has learnt. Units of two limits that are asked together are no reason once one of
//! them has refused: they are given back before the answer, and a block that began for lack of them
//! is lifted.

use super::{
    BLOCKS, Findings, LIMITS, MIXED_DEADLINE, MixedRound, Reply, Span, blocks::longest,
    call::MixedCall, layers::scaled, micros, overlaps, round::SLACK, shares::units_of,
};

/// The time after which a command without an answer is certainly not executed any more.
const LATEST: u64 = 2_000_000;

/// The time for which a process repeats a refusal without Redis.
const REMEMBERED: u64 = 1_000_000;

/// Returns `true` for a limit whose keys have neither turns nor leases, and pauses only if it is
/// decided here too.
fn is_checked(limit: usize) -> bool {
    matches!(LIMITS[limit].name, "barred" | "gate")
}

impl MixedRound {
    /// Returns the calls that were refused without a reason.
    pub(super) fn needless_refusals(&self) -> Findings {
        let mut findings = Findings::default();
        let refused = self.calls.iter().filter(|call| {
            is_checked(call.limit) && call.reply == Some(Reply::Refused) && !call.is_joint
        });
        for call in refused {
            let span = (call.asked.saturating_sub(LATEST), call.answered);
            // What was given back, or a reset, may be lost.
            let is_lost = self.was_lost(span) || self.losses.iter().any(|it| overlaps(*it, span));
            let has_reason = self.may_be_full(call, call)
                || self.may_be_remembered(call)
                || self.may_be_shut_out(call);
            if !is_lost && !has_reason {
                findings.add("refused", call.text());
            }
        }
        findings
    }

    /// Returns `true` if the window of a call perhaps had no room for it, by the units that are not
    /// given back when a later call is decided.
    fn may_be_full(&self, call: &MixedCall, later: &MixedCall) -> bool {
        let period = LIMITS[call.limit].period_micros();
        let span = (call.asked.saturating_sub(period), call.answered);
        let lowest = self.lowest_of(call, span);
        let units_of_other = |other| self.units_at_most(other, call, later);
        let units: u64 = self.of(call.limit).map(units_of_other).sum();
        units + call.cost > lowest - units_of(call.leave, lowest)
    }

    /// Returns `true` if the call's process perhaps repeats what an earlier refusal has told: it
    /// learns only later that another process has given units back.
    fn may_be_remembered(&self, call: &MixedCall) -> bool {
        let is_known = |first: &&MixedCall| {
            let until = first.refused_for.map_or(0, |wait| first.answered + wait.min(REMEMBERED));
            first.process == call.process && first.asked <= call.asked && call.asked < until
        };
        self.of(call.limit).filter(is_known).any(|first| {
            let (asked, answered) = (first.asked, first.answered);
            let then = MixedCall { asked, answered, ..call.clone() };
            self.may_be_full(&then, &then)
        })
    }

    /// Returns `true` if a block, or a pause, was perhaps in force when a call was decided.
    fn may_be_shut_out(&self, call: &MixedCall) -> bool {
        // A process may repeat the refusal of an equal call.
        let is_repeated = |first: &&MixedCall| {
            let is_equal = (first.process, first.blocks, first.cost)
                == (call.process, call.blocks, call.cost)
                && first.reply == Some(Reply::Refused);
            is_equal
                && overlaps((first.asked, first.asked + REMEMBERED), (call.asked, call.answered))
        };
        let mut decided = self.of(call.limit).filter(is_repeated);
        call.blocks > 0 && decided.any(|first| self.may_be_blocked(first))
            || self.may_be_paused(call)
    }

    /// Returns `true` if a block was perhaps in force when Redis decided a call.
    fn may_be_blocked(&self, call: &MixedCall) -> bool {
        let steps = BLOCKS.map(<[u64]>::len).into_iter().max().unwrap_or(0);
        let since = call.asked.saturating_sub(longest(steps) + SLACK);
        let may_offend = |other: &MixedCall| {
            let is_open =
                matches!(other.reply, None | Some(Reply::Refused | Reply::Undecided | Reply::Left));
            // One that the enforcement leaves out may have exceeded the limit.
            other.blocks > 0 && (is_open || other.is_exempt())
        };
        let offended = |other: &MixedCall| {
            let late = if other.reply == Some(Reply::Refused) { 0 } else { LATEST };
            let is_near = overlaps((other.asked, other.answered + late), (since, call.answered));
            may_offend(other) && is_near && self.may_be_full(other, call)
        };
        self.of(call.limit).any(offended)
    }

    /// Returns `true` if a call of two limits that were asked together, one of which has refused,
    /// perhaps had its units still when a later call was decided.
    fn may_hold(&self, joint: &MixedCall, later: &MixedCall) -> bool {
        let refund = (joint.answered.saturating_sub(LATEST), joint.answered + LATEST);
        let is_late = self.outages.iter().any(|outage| overlaps(*outage, refund))
            || self.may_miss_deadline(joint.process, refund);
        later.asked <= joint.answered + if is_late { 2 * LATEST } else { 0 }
    }

    /// Returns `true` if the process of a call may take its key for paused.
    fn may_be_paused(&self, call: &MixedCall) -> bool {
        // An admission by Redis shows that every pause from before it is over.
        let shown = |other: &&MixedCall| {
            let is_of_redis = other.is_admitted() && !other.is_here && other.id == 0;
            is_of_redis && other.process == call.process && other.answered < call.asked
        };
        let shown = self.of(call.limit).filter(shown).map(|other| other.asked).max().unwrap_or(0);
        self.pauses.iter().filter(|pause| pause.limit == call.limit).any(|pause| {
            let applied = pause.applied.unwrap_or(pause.asked + LATEST);
            let is_in_time = pause.asked <= call.answered && applied + pause.length >= call.asked;
            is_in_time && applied + SLACK >= shown
        })
    }

    /// Returns the lowest number of a call's limit, or of its plan, that was perhaps in force in
    /// its process.
    fn lowest_of(&self, call: &MixedCall, span: Span) -> u64 {
        let (declared, factor) =
            (u64::from(LIMITS[call.limit].number()), self.factors(call.limit, span).0);
        let number = self.lowest(call.limit, span).min(scaled(declared, factor));
        // Overrides of the limit are those of its plans.
        if call.is_small { number.min(scaled(declared / 2, factor)) } else { number }
    }

    /// Returns the units of another call that perhaps count when a call is decided, and are not
    /// given back when a later one is.
    fn units_at_most(&self, other: &MixedCall, call: &MixedCall, later: &MixedCall) -> u64 {
        let is_charged = match other.reply {
            Some(Reply::Admitted { is_counted, .. }) => is_counted,
            Some(Reply::Refused | Reply::Busy | Reply::Denied | Reply::Spared) => {
                other.is_joint && self.may_hold(other, later)
            }
            None | Some(Reply::Undecided | Reply::Left) => true,
        };
        let settle = other.settle;
        let is_over = |at: u64| at + other.limit().period_micros() + SLACK < call.asked;
        let last = match (other.reply, settle) {
            (Some(Reply::Admitted { .. }), None) => other.answered,
            (Some(Reply::Admitted { .. }), Some(settle)) => {
                settle.applied.unwrap_or(settle.asked + LATEST).max(other.answered)
            }
            _ => other.answered + micros(MIXED_DEADLINE) + LATEST,
        };
        if !is_charged || other.asked > call.answered || is_over(last) {
            return 0;
        }
        match settle {
            Some(settle) if settle.applied.is_some_and(|at| at < call.asked) => settle.to,
            Some(settle) => settle.to.max(other.cost),
            None => other.cost,
        }
    }
}
