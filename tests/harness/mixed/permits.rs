//! No more calls have a permit than may be in flight, none is idle while a call waits, and each
//! process gets its share.

use super::{
    Findings, LIMITS, MixedRound, Reply, Rule, Span, call::MixedCall, layers::scaled, micros,
    overlaps, round::SLACK,
};

/// The longest time in which a permit may be idle while a call waits: processes that free permits
/// notify none of another, which asks once a second.
const IDLE: u64 = 1_300_000;

/// The longest time in which a call that had its permit before the number was lowered still has it.
const BODIES: u64 = 1_500_000;

/// The fewest admitted calls that show a share.
const FEWEST: usize = 100;

impl MixedRound {
    /// Returns the times with too many permits, those at which some were idle, and processes
    /// without a share.
    pub(super) fn wrong_permits(&self) -> Findings {
        let mut findings = Findings::default();
        for (limit, it) in LIMITS.iter().enumerate().filter(|(_, it)| it.permits > 0) {
            for fault in self.too_many_permits(limit) {
                findings.add("permits", format!("{}: {fault}", it.name));
            }
            if it.rule == Rule::Permits {
                for fault in self.idle_permits(limit) {
                    findings.add("idle", format!("{}: {fault}", it.name));
                }
                for fault in self.unfair_shares(limit) {
                    findings.add("share", format!("{}: {fault}", it.name));
                }
            }
        }
        findings
    }

    /// The lowest and the highest number of permits of a span: overrides change that of a limit
    /// without a window, and the factor of all limits each.
    fn permits(&self, limit: usize, span: Span) -> (u64, u64) {
        let it = &LIMITS[limit];
        if it.rule == Rule::Permits {
            return (self.lowest(limit, span), self.highest(limit, span));
        }
        let (lowest, highest) = self.factors(limit, span);
        (scaled(it.permits.into(), lowest), scaled(it.permits.into(), highest))
    }

    fn too_many_permits(&self, limit: usize) -> Vec<String> {
        let spans: Vec<Span> = self.of(limit).flat_map(|call| call.held.iter().copied()).collect();
        let fault = |&(start, _): &Span| {
            let held =
                spans.iter().filter(|span| span.0 <= start && start <= span.1).count() as u64;
            let since = (start.saturating_sub(BODIES), start);
            let losses = self.losses.iter().filter(|loss| overlaps(**loss, since)).count() as u64;
            let most = self.permits(limit, since).1 * (1 + losses);
            (held > most).then(|| format!("{held} permits of {most} at {start}"))
        };
        spans.iter().filter_map(fault).collect()
    }

    fn idle_permits(&self, limit: usize) -> Vec<String> {
        // The changes of the calls that may have a permit, and of those that certainly wait.
        let mut changes = Vec::new();
        for call in self.of(limit) {
            if call.is_admitted() {
                changes.push((call.stamp.0, 1, 0));
                changes.push((
                    call.ended + SLACK + self.late(call, (call.ended, call.ended)),
                    -1,
                    0,
                ));
            } else if call.reply.is_none() {
                changes.push((call.asked, 1, 0));
                changes.push((call.ended + SLACK, -1, 0));
            }
            let waits_until = if call.is_admitted() { call.stamp.0 } else { call.answered };
            if call.max_wait > 0 && call.reply.is_some() && waits_until > call.asked {
                changes.push((call.asked, 0, 1));
                changes.push((waits_until, 0, -1));
            }
        }
        changes.sort_unstable();
        let (mut held, mut waiting, mut idle_since, mut faults) = (0_i64, 0, None, Vec::new());
        for (at, more_held, more_waiting) in changes {
            if let Some(since) = idle_since
                && at > since + IDLE
            {
                let span = (since, at);
                let excused: u64 =
                    self.gaps.iter().filter(|gap| overlaps(gap.span, span)).count() as u64;
                if excused == 0 && !self.was_disturbed(limit, span) {
                    faults
                        .push(format!("{held} permits taken from {since} to {at}, {waiting} wait"));
                }
            }
            held += more_held;
            waiting += more_waiting;
            let most = self.permits(limit, (at, at)).0;
            let is_idle = waiting > 0 && u64::try_from(held).unwrap_or(0) < most;
            idle_since = if is_idle { idle_since.or(Some(at)) } else { None };
            if idle_since.is_some_and(|since| at > since + IDLE) {
                idle_since = Some(at);
            }
        }
        faults
    }

    /// Returns the processes that got less than half of their share while all of them were alive
    /// and asked.
    fn unfair_shares(&self, limit: usize) -> Vec<String> {
        let is_alive = |number: usize| {
            self.processes.iter().any(|(it, span, is_killed)| {
                *it == number && !is_killed && span.0 <= self.started + 2 * SLACK
            })
        };
        // Each process finds Redis again in its own time.
        let is_healthy = |call: &&MixedCall| {
            let span = self.with_probe(call.process, (call.asked, call.answered));
            !self.outages.iter().any(|outage| overlaps(*outage, span))
        };
        let waited = |number: usize| {
            let of_number = |call: &&MixedCall| self.processes[call.process].0 == number;
            let waited = self.of(limit).filter(|call| call.has_waited());
            waited.filter(of_number).filter(is_healthy).count()
        };
        let still = |number: usize| -> u64 {
            let of_number = |process: usize| self.processes[process].0 == number;
            let gaps = self.gaps.iter().filter(|gap| gap.process.is_some_and(of_number));
            gaps.map(|gap| gap.span.1 - gap.span.0).sum()
        };
        let numbers: Vec<usize> = (0..4).filter(|number| is_alive(*number)).collect();
        let all: usize = numbers.iter().map(|number| waited(*number)).sum();
        let share = all / numbers.len().max(1);
        let unfair = |number: &usize| {
            // Who stood still for long has asked for less.
            let (got, length) = (waited(*number), self.ended.saturating_sub(self.started));
            let is_poor = 2 * got < share && all >= FEWEST && 4 * still(*number) < length;
            is_poor.then(|| format!("process {number} got {got}, where {share} were its share"))
        };
        numbers.iter().filter_map(unfair).collect()
    }

    /// Returns the calls that may have a permit in this span.
    pub(super) fn perhaps_in_flight(&self, limit: usize, span: Span) -> usize {
        let timeout = micros(super::PERMIT_TIMEOUT);
        let is_open = |call: &MixedCall| matches!(call.reply, None | Some(Reply::Undecided));
        // The permit of one without a decision was perhaps taken, by a busy Redis after the answer,
        // and is free after its time.
        let late = |call: &MixedCall| if is_open(call) { micros(super::MIXED_DEADLINE) } else { 0 };
        self.of(limit)
            .filter(|call| call.is_admitted() || is_open(call))
            .filter(|call| {
                let is_lost = self.is_killed(call.process) || is_open(call);
                let until = call.ended + late(call) + if is_lost { timeout } else { 0 };
                overlaps((call.asked, until), span)
            })
            .count()
    }
}
