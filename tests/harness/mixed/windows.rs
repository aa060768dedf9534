//! No window has more units than the threshold in force.

use super::{
    Findings, LIMITS, LONGEST_WAIT, MIXED_DEADLINE, MixedLimit, MixedRound, Reply, Rule, Span,
    call::MixedCall, layers::scaled, micros,
};

/// The units of a call that certainly count at this time, beside an excess.
pub(super) fn at_least(call: &MixedCall, now: u64) -> u64 {
    let known = call.settle.filter(|settle| settle.asked <= now);
    known.map_or(call.least, |settle| settle.to.min(call.least))
}

/// The units of a call that are never given back.
pub(super) fn kept(call: &MixedCall) -> u64 {
    at_least(call, u64::MAX)
}

impl MixedRound {
    /// The tokens of a call from before a span that a bucket perhaps got back in it. Such a bucket
    /// may have been refilled meanwhile, so that the next calls have them beside a full bucket.
    pub(super) fn refunded(&self, call: &MixedCall, (start, end): Span) -> u64 {
        if call.stamp.0 >= start {
            return 0;
        }
        match call.reply {
            Some(Reply::Admitted { .. }) => call.settle.map_or(0, |settle| {
                let is_within = settle.asked <= end && settle.applied.is_none_or(|at| at >= start);
                if is_within { call.cost.saturating_sub(settle.to) } else { 0 }
            }),
            // Of limits that are asked together, one may have admitted the call before another
            // refused it.
            Some(Reply::Refused | Reply::Busy | Reply::Spared) if !call.is_joint => 0,
            Some(_) => {
                let sent = call.answered + micros(MIXED_DEADLINE);
                // A process that stands still sends later what gives the tokens back.
                let sent = sent + self.late(call, (call.answered, sent));
                if sent >= start { call.cost } else { 0 }
            }
            None => 0,
        }
    }

    /// Returns the windows that certainly have too many units.
    pub(super) fn overfull_windows(&self) -> Findings {
        let mut findings = Findings::default();
        for (limit, it) in LIMITS.iter().enumerate() {
            // Of what a process decides alone it has a share of its own.
            let is_its = |call: &&MixedCall| call.is_admitted() && !call.is_alone();
            let calls: Vec<_> = self.of(limit).filter(is_its).collect();
            let faults = match it.rule {
                Rule::Log => self.overfull_logs(limit, &calls),
                Rule::Bucket(burst) => self.overdrawn_buckets(limit, burst.into(), &calls),
                Rule::Fixed => self.overfull_fixed_windows(limit, &calls),
                Rule::Counter => self.overfull_counters(limit, &calls),
                Rule::Permits => Vec::new(),
            };
            for fault in faults {
                findings.add("window", format!("{}: {fault}", it.name));
            }
        }
        findings
    }

    /// Returns the most units of any window of a log, of its threshold: an idle limit proves
    /// nothing.
    #[must_use]
    pub fn fullest(&self) -> Vec<(&'static str, u64, u32)> {
        let of_limit = |(limit, it): (usize, &MixedLimit)| {
            let calls: Vec<_> = self.of(limit).filter(|call| call.is_admitted()).collect();
            let within = |start: u64| -> u64 {
                let end = start + it.period_micros();
                let is_within = |call: &&&MixedCall| call.stamp.0 >= start && call.stamp.1 < end;
                calls.iter().filter(is_within).map(|call| call.least).sum()
            };
            let most = calls.iter().map(|call| within(call.stamp.0)).max().unwrap_or(0);
            (it.name, most, it.threshold)
        };
        let windows = LIMITS.iter().enumerate().filter(|(_, it)| it.rule != Rule::Permits);
        windows.map(of_limit).collect()
    }

    /// The highest threshold of a span. Turns that were promised before it lie in it.
    fn bound(&self, limit: usize, span: Span) -> u64 {
        let since = (span.0.saturating_sub(micros(LONGEST_WAIT)), span.1);
        self.highest(limit, since) * (1 + self.restarts(limit, span))
    }

    fn overfull_logs(&self, limit: usize, calls: &[&MixedCall]) -> Vec<String> {
        let it = &LIMITS[limit];
        let (period, lease) = (it.period_micros(), micros(it.lease));
        // The first time at which the units were perhaps taken: a lease takes them before they are
        // used.
        let taken = |call: &MixedCall| call.asked - if call.is_leased { lease } else { 0 };
        let fault = |start: u64| {
            let (end, bound) = (start + period, self.bound(limit, (start, start + period)));
            // One that takes nothing is admitted beside any debt.
            let is_within =
                |call: &&&MixedCall| call.least > 0 && call.stamp.0 >= start && call.stamp.1 < end;
            let mut within: Vec<_> = calls.iter().filter(is_within).collect();
            within.sort_by_key(|call| call.answered);
            let added = |call: &MixedCall, until: u64| {
                let settle =
                    call.settle.filter(|it| it.asked >= start && it.applied <= Some(until));
                let settle = settle.filter(|it| it.applied.is_some());
                settle.map_or(0, |settle| settle.to.saturating_sub(call.cost))
            };
            let most: u64 = within.iter().map(|call| call.least).sum::<u64>()
                + calls.iter().map(|call| added(call, end)).sum::<u64>();
            if most <= bound {
                return None;
            }
            // One of the first calls was decided last.
            let units = (1..=within.len()).map(|count| {
                let first = &within[..count];
                let latest = first.iter().map(|call| call.answered).max().unwrap_or(0);
                let earliest = first.iter().map(|call| taken(call)).max().unwrap_or(0);
                first.iter().map(|call| at_least(call, latest)).sum::<u64>()
                    + calls.iter().map(|call| added(call, earliest)).sum::<u64>()
            });
            let units = units.max().unwrap_or(0);
            (units > bound).then(|| format!("{units} units of {bound} in the window from {start}"))
        };
        calls.iter().filter_map(|call| fault(call.stamp.0)).collect()
    }

    fn overdrawn_buckets(&self, limit: usize, burst: u64, calls: &[&MixedCall]) -> Vec<String> {
        let period = LIMITS[limit].period_micros();
        let mut by_end = calls.to_vec();
        by_end.sort_by_key(|call| call.stamp.1);
        let fault = |start: u64| {
            let mut units = 0;
            by_end.iter().filter(|call| call.stamp.0 >= start).find_map(|call| {
                units += kept(call);
                let end = call.stamp.1;
                let since = (start.saturating_sub(micros(LONGEST_WAIT)), end);
                let full = scaled(burst, self.factors(limit, since).1);
                if units <= full {
                    return None;
                }
                let rate = self.highest(limit, since);
                let restarts = 1 + self.restarts(limit, (start, end));
                let refilled = (u128::from(end - start) * u128::from(rate)).div_ceil(period.into());
                // Turns that a restart has lost pass beside new ones until they are noticed.
                let most = restarts * (full + u64::try_from(refilled).unwrap_or(u64::MAX));
                if units <= most {
                    return None;
                }
                let returned = self.of(limit).map(|call| self.refunded(call, (start, end)));
                let most = most + returned.sum::<u64>();
                (units > most).then(|| format!("{units} tokens of {most} from {start} to {end}"))
            })
        };
        calls.iter().filter_map(|call| fault(call.stamp.0)).collect()
    }

    /// The starts of windows are not known: so many periods overlap one window more.
    fn overfull_fixed_windows(&self, limit: usize, calls: &[&MixedCall]) -> Vec<String> {
        let period = LIMITS[limit].period_micros();
        let fault = |start: u64| {
            (1..=4).find_map(|periods| {
                let end = start + periods * period;
                let is_within = |call: &&&MixedCall| call.stamp.0 >= start && call.stamp.1 < end;
                let units: u64 = calls.iter().filter(is_within).map(|call| kept(call)).sum();
                let since = (start.saturating_sub(micros(LONGEST_WAIT)), end);
                let most =
                    self.highest(limit, since) * (periods + 1 + self.restarts(limit, (start, end)));
                (units > most).then(|| format!("{units} units of {most} from {start} to {end}"))
            })
        };
        calls.iter().filter_map(|call| fault(call.stamp.0)).collect()
    }

    fn overfull_counters(&self, limit: usize, calls: &[&MixedCall]) -> Vec<String> {
        let period = LIMITS[limit].period_micros();
        let within = |from: u64, to: u64| -> u64 {
            let is_within = |call: &&&MixedCall| call.stamp.0 >= from && call.stamp.1 < to;
            calls.iter().filter(is_within).map(|call| kept(call)).sum()
        };
        let fault = |call: &&MixedCall| {
            let at = call.stamp.1;
            let start = at - at % period;
            let before = within(start.saturating_sub(period), start);
            let estimate = before * (start + period - at) / period + within(start, at + 1);
            let span = (start.saturating_sub(period), at);
            // A count above a lowered threshold is taken as the threshold.
            let lowered = u64::from(self.was_lowered(limit, span));
            let bound = self.bound(limit, span) * (1 + lowered);
            (estimate > bound).then(|| format!("{estimate} units of {bound} at {at}"))
        };
        calls.iter().filter_map(fault).collect()
    }
}
