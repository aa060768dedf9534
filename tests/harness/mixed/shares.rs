//! A call that leaves a share of a limit is admitted only if the others have that share afterwards,
//! and a call of a small plan only if its window has no more than the plan's units.

use super::{
    Findings, LIMITS, LONGEST_WAIT, MixedRound, Rule, Span,
    call::MixedCall,
    layers::scaled,
    micros,
    windows::{at_least, kept},
};

/// The units of this share, rounded up.
pub(super) fn units_of(share: u64, number: u64) -> u64 {
    (number * share).div_ceil(100)
}

impl MixedRound {
    /// Returns the calls that left less than their share, or that are beyond their plan.
    pub(super) fn used_shares(&self) -> Findings {
        let mut findings = Findings::default();
        // One that waits is admitted at its turn, with those that come after it.
        let has_part = |call: &&MixedCall| call.leave > 0 || call.is_small && !call.has_waited();
        for call in self.calls.iter().filter(|call| call.is_admitted()).filter(has_part) {
            let windows = match call.limit().rule {
                Rule::Log => self.of_window(call),
                Rule::Bucket(burst) => self.of_bucket(call, burst.into()),
                Rule::Fixed => self.of_two_windows(call),
                Rule::Counter => self.of_estimate(call),
                Rule::Permits => None,
            };
            for (units, most) in windows.into_iter().chain(self.of_held(call)) {
                if units > most {
                    let (share, is_small) = (call.leave, call.is_small);
                    let text = format!(
                        "{units} of {most}, {share} % are left, small {is_small}: {}",
                        call.text()
                    );
                    findings.add(if share > 0 { "share used" } else { "plan" }, text);
                }
            }
        }
        findings
    }

    /// The part of the highest number in force in the call's own process that the call may use.
    fn usable(&self, call: &MixedCall) -> u64 {
        let span = (call.asked, call.answered);
        let number = self.highest_of(call.process, call.limit, span, call.is_small);
        number - units_of(call.leave, number)
    }

    /// The admitted calls that were certainly charged in a span.
    fn charged(&self, limit: usize, (from, to): Span) -> impl Iterator<Item = &MixedCall> {
        self.of(limit).filter(move |other| {
            other.is_admitted() && other.stamp.0 >= from && other.stamp.1 <= to
        })
    }

    /// Returns the units of the window that ends with a call of a log, and the most of them.
    fn of_window(&self, call: &MixedCall) -> Option<(u64, u64)> {
        let start = call.answered.saturating_sub(call.limit().period_micros()) + 1;
        if self.restarts(call.limit, (start, call.answered)) > 0 {
            return None;
        }
        let others = self.charged(call.limit, (start, call.asked));
        let units = others.map(|other| at_least(other, call.answered)).sum::<u64>();
        Some((units + call.least, self.usable(call)))
    }

    /// Returns the units of the window of a call and of the one before, which may be full.
    fn of_two_windows(&self, call: &MixedCall) -> Option<(u64, u64)> {
        let start = call.answered.saturating_sub(call.limit().period_micros()) + 1;
        let span = (start.saturating_sub(micros(LONGEST_WAIT)), call.answered);
        if self.restarts(call.limit, (start, call.answered)) > 0 {
            return None;
        }
        let units = self.charged(call.limit, (start, call.asked)).map(kept).sum::<u64>();
        Some((units + call.least, self.highest(call.limit, span) + self.usable(call)))
    }

    /// Returns the units of both windows of a counter by their weights.
    fn of_estimate(&self, call: &MixedCall) -> Option<(u64, u64)> {
        let period = call.limit().period_micros();
        let start = call.answered - call.answered % period;
        let before = start.saturating_sub(period);
        if call.asked < start || self.restarts(call.limit, (before, call.answered)) > 0 {
            return None;
        }
        let units = |span| self.charged(call.limit, span).map(kept).sum::<u64>();
        let shares = units((before, start - 1)) * (start + period - call.answered) / period;
        Some((shares + units((start, call.asked)) + call.least, self.usable(call)))
    }

    /// Returns the tokens of the span in which the bucket was most overdrawn, and the most of them.
    fn of_bucket(&self, call: &MixedCall, burst: u64) -> Option<(u64, u64)> {
        let (period, burst) = (call.limit().period_micros(), scaled(burst, self.factor_of(call)));
        let since = call.answered.saturating_sub(period);
        if self.restarts(call.limit, (since, call.answered)) > 0 {
            return None;
        }
        let others: Vec<_> = self.charged(call.limit, (since, call.asked)).collect();
        let starts = others.iter().map(|other| other.stamp.0).chain([call.asked]);
        let of_span = |start: u64| {
            let within = others.iter().filter(|other| other.stamp.0 >= start);
            let units = within.map(|other| kept(other)).sum::<u64>() + call.least;
            let span = (start, call.answered);
            let earlier = (start.saturating_sub(micros(LONGEST_WAIT)), call.answered);
            let rate = self.highest(call.limit, earlier);
            let refilled = ((call.answered - start) * rate).div_ceil(period);
            let returned = self.of(call.limit).map(|other| self.refunded(other, span)).sum::<u64>();
            (units, burst - units_of(call.leave, burst) + refilled + returned)
        };
        starts.map(of_span).max_by_key(|(units, most)| units.saturating_sub(*most))
    }

    /// Returns the calls that certainly had a permit when a call got its own, and the most of them.
    fn of_held(&self, call: &MixedCall) -> Option<(u64, u64)> {
        let it = &LIMITS[call.limit];
        let most = if it.rule == Rule::Permits {
            self.usable(call)
        } else {
            let permits = scaled(it.permits.into(), self.factor_of(call));
            permits - units_of(call.leave, permits)
        };
        let is_held = |span: &Span| span.0 <= call.asked && call.answered <= span.1;
        let others = self.of(call.limit).flat_map(|other| &other.held);
        let held = others.filter(|span| is_held(span)).count() as u64;
        let has_lost = self.losses.iter().any(|loss| loss.0 <= call.answered);
        (it.permits > 0 && !has_lost).then_some((held + 1, most))
    }
}
