//! A bucket lacks the units of its calls, less what has been refilled since, whatever rate was in
//! force meanwhile: a charge is taken from each bucket of the key, and is given back to the one
//! that it was taken from. A new bucket has no more than the emptiest one of the key, whose rate
//! may be lower.

use super::{
    Audit, LIMITS, MIXED_DEADLINE, MixedRound, Reply, Rule, Span, call::MixedCall, micros,
};

/// The time after which a command without an answer is certainly not executed any more.
const LATEST: u64 = 2_000_000;

/// Units that a bucket lacks from a time on.
type Charge = (u64, u64);

/// Tokens that come back in a period, until a time.
#[derive(Clone, Copy, Default)]
struct Refill {
    rate: u64,
    until: u64,
}

impl MixedRound {
    /// Returns the least and the most units that a bucket lacked when it was read.
    pub(super) fn of_bucket_at_end(&self, audit: &Audit) -> Span {
        let (mut least, mut most) = (Vec::new(), Vec::new());
        for call in self.of(audit.limit) {
            self.add_charges(call, audit, &mut least, &mut most);
        }
        let it = &LIMITS[audit.limit];
        let Rule::Bucket(burst) = it.rule else { return (0, u64::MAX) };
        let part = it.period_micros();
        let lacked = |charges: &mut Vec<Charge>, end: u64, others: Refill| {
            // No interval has both rates.
            charges.push((others.until, 0));
            charges.sort_unstable();
            let (mut missing, mut before) = (0_u64, 0);
            let rate = |at: u64| if at < others.until { others.rate } else { it.threshold.into() };
            for (at, units) in charges.iter().copied().chain([(end, 0)]) {
                let refilled = at.saturating_sub(before).saturating_mul(rate(before));
                missing = missing.saturating_sub(refilled) + units * part;
                before = at;
            }
            missing
        };
        let least = lacked(&mut least, audit.span.1, Refill::default()) / part;
        let most = lacked(&mut most, audit.span.0, self.of_others(audit)).div_ceil(part);
        // The buckets of other rates are emptier, or fuller, by the part of a token.
        (least.saturating_sub(1).min(burst.into()), most + 1)
    }

    /// Returns the lowest rate of a bucket of the key, until a call has certainly made the one that
    /// was read.
    fn of_others(&self, audit: &Audit) -> Refill {
        let declared = u64::from(LIMITS[audit.limit].threshold);
        let numbers = self.numbers.iter().filter(|it| it.limit == audit.limit);
        let rates = numbers.filter_map(|it| it.number.filter(|number| *number > 0));
        let is_own = |call: &&MixedCall| {
            !call.is_small && self.during(call).all(|it| it.number == Some(declared))
        };
        let resets = self.resets.iter().filter(|(limit, _)| *limit == audit.limit);
        let gone = resets.map(|(_, at)| at.1).chain(self.losses.iter().map(|at| at.1)).max();
        let after = self.of(audit.limit).filter(|call| Some(call.stamp.0) > gone);
        let own = after.filter(|call| call.is_admitted()).filter(is_own).map(|it| it.stamp.1);
        Refill {
            // That of the plan of half of the number.
            rate: rates.chain([declared / 2]).min().expect("one rate"),
            until: own.min().unwrap_or(u64::MAX).min(audit.span.0),
        }
    }

    /// Adds what a call has certainly taken, at the earliest, and what it has perhaps taken, at the
    /// latest.
    fn add_charges(
        &self,
        call: &MixedCall,
        audit: &Audit,
        least: &mut Vec<Charge>,
        most: &mut Vec<Charge>,
    ) {
        let resets =
            || self.resets.iter().filter(|(limit, _)| *limit == call.limit).map(|(_, at)| *at);
        let late = |at: &Span| at.1 + LATEST;
        let may_be_reset = resets().any(|at| call.stamp.0 <= late(&at));
        // One in an outage may have failed.
        let is_reset = resets().any(|at| call.stamp.1 < at.0 && self.is_calm(call.process, at));
        if !matches!(call.reply, Some(Reply::Admitted { is_counted: true, .. })) {
            if matches!(call.reply, None | Some(Reply::Undecided | Reply::Left)) && !is_reset {
                most.push((audit.span.0, call.cost));
            }
            return;
        }
        let Some(settle) = call.settle else {
            if !may_be_reset {
                least.push((call.stamp.0, call.least));
            }
            if !is_reset {
                most.push((call.stamp.1, call.cost));
            }
            return;
        };
        let span = (settle.asked, settle.applied.unwrap_or(settle.asked + LATEST));
        // A process that is killed may not have sent it, and a replica may not have got it.
        let is_sure =
            !self.was_lost(span) && (settle.applied.is_some() || !self.is_killed(call.process));
        let excess = settle.to.saturating_sub(call.cost);
        if !may_be_reset {
            least.push((call.stamp.0, settle.to.min(call.least)));
            if is_sure && settle.applied.is_some() {
                least.push((settle.asked, excess));
            }
        }
        if !is_reset {
            let kept = if is_sure { settle.to.min(call.cost) } else { call.cost };
            most.push((call.stamp.1, kept));
            most.push((settle.applied.unwrap_or(audit.span.0).min(audit.span.0), excess));
        }
    }

    /// Returns `true` if a command of this span has certainly been executed.
    fn is_calm(&self, process: usize, span: Span) -> bool {
        let long = span.1 - span.0 > micros(MIXED_DEADLINE) / 2;
        let is_out = self.outages.iter().any(|outage| super::overlaps(*outage, span));
        !long && !is_out && !self.was_lost(span) && !self.may_miss_deadline(process, span)
    }
}
