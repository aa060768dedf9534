//! A caller is warned of a limit at most once in a period, over all processes, and only after an
//! admitted call.

use super::{Findings, LIMITS, MixedRound, Reply, call::MixedCall, overlaps};

impl MixedRound {
    /// Returns the warnings that came too soon after another one, and those without a call.
    pub(super) fn wrong_warnings(&self) -> Findings {
        let mut findings = Findings::default();
        for &(process, limit, at) in &self.warnings {
            let it = &LIMITS[limit];
            let earliest = at.saturating_sub(self.delay(process, at));
            let has_reason = |call: &MixedCall| {
                // One that waits is warned of at its promise.
                let is_refused =
                    matches!(call.reply, Some(Reply::Refused | Reply::Busy | Reply::Denied));
                call.process == process
                    && call.warn_at > 0
                    && (!is_refused || call.promised.is_some())
                    && overlaps((call.asked, call.answered), (earliest, at))
            };
            if !self.of(limit).any(has_reason) {
                findings.add("warned", format!("{}: at {at} without a call", it.name));
            }
            let next = self.warnings.iter().find(|(_, other, later)| {
                // This one was decided earlier than its process had it, and the next one rather
                // later.
                let is_soon = *other == limit && *later > at;
                is_soon && *later + self.delay(process, at) < at + it.period_micros()
            });
            let next = next.filter(|_| !self.was_lost((earliest, at)));
            // Under another period, the caller is warned once more.
            let changes = self.slowed.iter().filter(|(other, _)| *other == limit);
            let next = next.filter(|next| {
                changes.clone().all(|(_, change)| !overlaps(*change, (earliest, next.2)))
            });
            if let Some((other, _, later)) =
                next.filter(|it| !self.began_anew(limit, (earliest, it.2)))
            {
                let text = format!("{}: process {process} at {at}, {other} at {later}", it.name);
                findings.add("warned", text);
            }
        }
        findings
    }
}
