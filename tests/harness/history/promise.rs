//! The windows of a history against the promise of a limiter.

use std::ops::RangeInclusive;

use super::{Call, Outcome, Settled};

/// The promise of a limiter about a history.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    /// The length of a window, in microseconds.
    pub period: u64,
    /// The units of one caller that one window admits.
    pub threshold: usize,
    /// The time after its answer in which an unavailable call may still be counted, in
    /// microseconds.
    pub late: u64,
    /// `true` if the units of an unavailable call that was counted may come back to a bucket that
    /// has been refilled meanwhile: they are admitted beside the threshold.
    pub refills: bool,
    /// The times at which the store lost its state or its clock was set forward. A window that
    /// overlaps one may admit the threshold once more.
    pub losses: Vec<RangeInclusive<u64>>,
    /// The times from a step of the clock back until every caller has a new decision. For one
    /// period afterwards, expired units may count again.
    pub set_back: Vec<RangeInclusive<u64>>,
}

impl Promise {
    /// Returns the windows that certainly have too many units.
    pub(super) fn overfull(&self, admitted: &[&Call], unavailable: &[&Call]) -> Vec<String> {
        let mut excesses: Vec<_> = admitted.iter().filter_map(|call| call.excess()).collect();
        excesses.sort_by_key(|(_, settled)| settled.asked);
        let settles = excesses.iter().map(|(_, settled)| settled.asked);
        let starts = admitted.iter().map(|call| call.asked).chain(settles);
        let fault = |start: u64| {
            let held = self.held(start, admitted, &excesses);
            let is_within = |lost: &&RangeInclusive<u64>| {
                *lost.start() < start + self.period && start <= *lost.end()
            };
            let lost = self.losses.iter().filter(is_within).count();
            let returned = if self.refills { self.late_units(start, unavailable) } else { 0 };
            let caller = admitted[0].caller;
            (held > self.threshold * (1 + lost) + returned).then(|| {
                format!("caller {caller}: {held} units admitted in one window from {start}")
            })
        };
        starts.filter_map(fault).collect()
    }

    /// Returns the units of unavailable calls that a window perhaps has, or has got back.
    pub(super) fn late_units(&self, start: u64, unavailable: &[&Call]) -> usize {
        let is_near =
            |call: &&&Call| call.asked < start + self.period && call.answered + self.late >= start;
        unavailable.iter().filter(is_near).map(|call| call.cost).sum()
    }

    /// Returns the units that the last admission in a window has certainly had counted, its own
    /// included.
    ///
    /// Calls count with what they reserved, or with less from the settle on that says so. What a
    /// settle adds counts from when the store has it.
    fn held(&self, start: u64, admitted: &[&Call], excesses: &[(usize, Settled)]) -> usize {
        let end = start + self.period;
        let from = admitted.partition_point(|call| call.asked < start);
        let within = admitted[from..].iter().take_while(|call| call.asked < end);
        let mut within: Vec<_> = within.filter(|call| call.answered < end).collect();
        within.sort_by_key(|call| call.answered);
        let excesses = &excesses[excesses.partition_point(|(_, it)| it.asked < start)..];
        let held = |count: usize| -> usize {
            // One of these was decided last.
            let calls = &within[..count];
            let latest = calls.iter().map(|call| call.answered).max().unwrap_or(0);
            let earliest = calls.iter().map(|call| call.asked).max().unwrap_or(0);
            let is_applied =
                |(_, it): &&(usize, Settled)| it.applied.is_some_and(|at| at <= earliest);
            let added =
                excesses.iter().take_while(|(_, it)| it.asked <= earliest).filter(is_applied);
            calls.iter().map(|call| call.at_least(latest)).sum::<usize>()
                + added.map(|(units, _)| units).sum::<usize>()
        };
        // Without settles, all of a window are the most.
        let has_settles = within.iter().any(|call| call.settled.is_some());
        let fewest = if has_settles { 0 } else { within.len() };
        (fewest..=within.len()).map(held).max().unwrap_or(0)
    }

    /// Returns a fault if this call was refused while its window certainly had room.
    pub(super) fn unjust(&self, refused: &Call, counted: &[&Call]) -> Option<String> {
        let Call { caller, asked, answered, cost, .. } = *refused;
        let has_an_excuse = |time: &RangeInclusive<u64>| {
            *time.start() <= answered && asked <= *time.end() + self.period
        };
        if self.set_back.iter().any(has_an_excuse) {
            return None;
        }
        let since = asked.saturating_sub(self.period);
        let may_count = |call: &&&Call| {
            let late = if call.outcome == Outcome::Admitted { 0 } else { self.late };
            call.asked <= answered && call.answered + late > since
        };
        let may_be_added = |(_, it): &(usize, Settled)| {
            it.asked <= answered && it.applied.is_none_or(|at| at > since)
        };
        let taken = counted.iter().filter(may_count).map(|call| call.at_most(asked));
        let added = counted.iter().filter_map(|call| call.excess()).filter(may_be_added);
        let counting = taken.sum::<usize>() + added.map(|(units, _)| units).sum::<usize>();
        (counting + cost <= self.threshold).then(|| {
            format!(
                "caller {caller}: {cost} refused at {asked} with {counting} units in its window"
            )
        })
    }
}
