//! While Redis is away, each process admits no more than its share of a limit.

use super::{
    Findings, LIMITS, LOCAL_SHARE, MixedRound, SPARE, call::MixedCall, shares::units_of,
    windows::kept,
};

impl MixedRound {
    /// Returns the calls that their processes admitted alone.
    pub(super) fn alone(&self) -> impl Iterator<Item = &MixedCall> + Clone {
        self.of(SPARE).filter(|call| call.is_alone() && call.is_admitted())
    }

    /// Returns the windows in which a process admitted more than its share.
    pub(super) fn local_shares(&self) -> Findings {
        let mut findings = Findings::default();
        for first in self.alone() {
            let (start, end) = (first.stamp.0, first.stamp.0 + LIMITS[SPARE].period_micros());
            let is_within = |call: &&MixedCall| {
                let is_its = call.process == first.process;
                is_its && call.stamp.0 >= start && call.stamp.1 < end
            };
            let units = self.alone().filter(is_within).map(kept).sum::<u64>();
            let number = self.highest_of(first.process, SPARE, (start, end), false);
            let most =
                units_of(LOCAL_SHARE.into(), number) * (1 + self.restarts(SPARE, (start, end)));
            if units > most {
                let process = first.process;
                findings.add(
                    "local share",
                    format!("process {process}: {units} units of {most} from {start}"),
                );
            }
        }
        findings
    }
}
