//! Nobody is admitted under a key before the end of its pause.

use super::{Findings, LIMITS, MixedRound, overlaps};

impl MixedRound {
    /// Returns the calls that were admitted in a pause which was in force when they asked.
    pub(super) fn paused_calls(&self) -> Findings {
        let mut findings = Findings::default();
        for pause in &self.pauses {
            let Some(applied) = pause.applied else { continue };
            let end = pause.asked + pause.length;
            let is_forgotten = |until: u64| {
                let resets = self.resets.iter().filter(|(limit, _)| *limit == pause.limit);
                let mut forgotten = resets.map(|(_, at)| at).chain(&self.losses);
                forgotten.any(|at| overlaps(*at, (pause.asked, until)))
            };
            let within = self.of(pause.limit).filter(|call| {
                let is_within = call.asked > applied && call.answered < end;
                // A repeated id has the answer of its first call.
                let is_lost = is_forgotten(call.answered) || self.was_lost((pause.asked, applied));
                // A process that is cut off does not know the pauses of others.
                call.is_admitted() && !call.is_here && call.id == 0 && is_within && !is_lost
            });
            for call in within {
                let (name, length) = (LIMITS[pause.limit].name, pause.length);
                let text = format!("{name} paused at {applied} for {length}: {}", call.text());
                findings.add("paused", text);
            }
        }
        findings
    }
}
