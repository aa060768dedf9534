//! Nothing is charged for nobody: when all calls have ended, Redis has the units of admitted calls,
//! and no others.

use super::{
    Audit, Findings, LIMITS, MIXED_DEADLINE, MixedRound, Reply, Rule, Span,
    call::MixedCall,
    micros, overlaps,
    round::{NOTICES, SLACK},
};

/// Units of a window that are certain, and units that are possible.
#[derive(Clone, Copy, Default)]
struct Units {
    least: u64,
    most: u64,
}

/// Returns the time after a call without a decision at which a lease for it ends at the latest: a
/// busy Redis grants it after the answer.
fn of_late_lease(call: &MixedCall) -> u64 {
    if call.is_leased { micros(LIMITS[call.limit].lease + MIXED_DEADLINE) } else { 0 }
}

impl MixedRound {
    /// Returns the limits whose units are not those of their calls, and processes that could not
    /// send all.
    pub(super) fn wrong_charges(&self) -> Findings {
        let mut findings = Findings::default();
        for audit in &self.audits {
            let it = &LIMITS[audit.limit];
            let (invariant, units) = match it.rule {
                Rule::Log => ("charged", self.of_log(audit)),
                Rule::Fixed => ("charged", Units { least: 0, ..self.of_log(audit) }),
                Rule::Counter => ("charged", self.of_counter(audit)),
                Rule::Permits => ("permit kept", self.of_permits(audit)),
                Rule::Bucket(_) => {
                    let (least, most) = self.of_bucket_at_end(audit);
                    ("charged", Units { least, most })
                }
            };
            if !(units.least..=units.most).contains(&audit.units) {
                let Units { least, most } = units;
                let counted = audit.units;
                findings.add(
                    invariant,
                    format!("{}: {counted} in Redis, {least} to {most} of calls", it.name),
                );
            }
        }
        if !self.left_over.is_empty() {
            findings.add("left over", self.left_over.join(", "));
        }
        for (process, at, unsent) in self.unsent.iter().filter(|(.., unsent)| *unsent > 0) {
            // A flush has the deadline of a call, and no server before a probe has found one.
            let span = (at.saturating_sub(2 * micros(MIXED_DEADLINE)), *at);
            let probed = self.with_probe(*process, span);
            let is_out = self.outages.iter().any(|outage| overlaps(*outage, probed));
            if is_out || self.may_miss_deadline(*process, span) {
                continue;
            }
            findings.add("unsent", format!("process {process}: {unsent} on a healthy Redis"));
        }
        findings
    }

    /// Returns `true` if a process perhaps lost the reply to a lease: its units are charged then,
    /// and not used.
    fn may_lose_lease(&self, limit: usize, (from, to): Span) -> bool {
        let span = (from.saturating_sub(micros(LIMITS[limit].lease)), to);
        self.of(limit)
            .filter(|call| call.is_leased && overlaps((call.asked, call.answered), span))
            .any(|call| self.may_miss_deadline(call.process, span))
    }

    fn of_permits(&self, audit: &Audit) -> Units {
        let most = self.perhaps_in_flight(audit.limit, audit.span);
        Units { least: 0, most: most as u64 }
    }

    fn of_log(&self, audit: &Audit) -> Units {
        let period = LIMITS[audit.limit].period_micros();
        let (from, to) = audit.span;
        self.units(audit, (from.saturating_sub(period), to - period))
    }

    fn of_counter(&self, audit: &Audit) -> Units {
        let period = LIMITS[audit.limit].period_micros();
        let (from, to) = audit.span;
        let start = to - to % period;
        if start > from {
            // Another window has begun meanwhile.
            return Units { least: 0, most: u64::MAX };
        }
        let since_start = self.units(audit, (start - 1, start - 1));
        let since_before = self.units(audit, (start - period - 1, start - period - 1));
        let shares = |units: u64, at: u64| units * (start + period - at) / period;
        let before = |all: u64, current: u64| all.saturating_sub(current);
        let is_clamped = self.was_lowered(audit.limit, (start - 2 * period, to));
        let least = shares(before(since_before.least, since_start.most), to) + since_start.least;
        let most = shares(before(since_before.most, since_start.least), from) + since_start.most;
        Units { least: if is_clamped { 0 } else { least.saturating_sub(1) }, most: most + 1 }
    }

    /// Returns the units that were charged after a time, which is between two.
    fn units(&self, audit: &Audit, after: Span) -> Units {
        let mut units = Units::default();
        let mut left = 0_u64;
        for call in self.of(audit.limit) {
            let is_young = call.stamp.1 > after.0;
            match call.reply {
                Some(Reply::Admitted { is_counted: true, .. }) => {
                    self.count(call, after, &mut units);
                }
                // One that waits may be charged at a turn ahead although its reply is lost, and a
                // lease until its end.
                None | Some(Reply::Undecided)
                    if call.stamp.1 + call.max_wait.max(of_late_lease(call)) > after.0 =>
                {
                    units.most += call.cost;
                }
                Some(Reply::Left) if is_young => left += call.cost,
                // One that waited when its caller was shut out, or when a pause came, has left its
                // place.
                Some(Reply::Denied | Reply::Refused) if is_young && call.promised.is_some() => {
                    left += call.cost;
                }
                _ => {}
            }
        }
        // A call may leave when its turn has just come, and a refund leaves one unit in a window
        // with a line.
        units.most += left.div_ceil(10) + if left > 0 { 3 } else { 0 };
        units.most += u64::from(LIMITS[audit.limit].rule == Rule::Fixed);
        if self.may_lose_lease(audit.limit, (after.0, audit.span.1)) {
            units.most = u64::MAX;
        }
        units
    }

    fn count(&self, call: &MixedCall, after: Span, units: &mut Units) {
        let resets =
            || self.resets.iter().filter(|(limit, _)| *limit == call.limit).map(|(_, at)| at);
        let lease = micros(LIMITS[call.limit].lease);
        // A call passes at a turn that is lost, if its process has not noticed.
        let unnoticed = if call.has_waited() { lease.max(NOTICES) } else { lease };
        let is_before = |at: &Span| call.stamp.0 <= at.1 + unnoticed + SLACK;
        let may_be_reset = resets().any(is_before) || self.losses.iter().any(is_before);
        let is_reset = resets().any(|at| call.stamp.1 < at.0);
        let kept = call.settle.map_or(call.cost, |settle| settle.to.min(call.cost));
        if call.stamp.0 > after.1 && !may_be_reset {
            units.least += kept.min(call.least);
        }
        // Units on lease count as used at its end, until they are given back, and a refund after it
        // does nothing.
        let (latest, most) = if call.is_leased {
            // A process that stands still exchanges them later.
            let end = call.stamp.1 + lease + SLACK;
            (end + self.late(call, (call.stamp.0, end)), call.cost)
        } else {
            (call.stamp.1, kept)
        };
        if latest > after.0 && !is_reset {
            units.most += most;
        }
        if let Some(settle) = call.settle
            && settle.to > call.cost
            && !is_reset
        {
            let excess = settle.to - call.cost;
            if settle.asked > after.1 && !may_be_reset {
                units.least += excess;
            }
            if settle.applied.is_none_or(|at| at > after.0) {
                units.most += excess;
            }
        }
    }
}
