//! A candidate never admits whom a pause refuses, and counts each of these calls as refused
//! otherwise. While the caller has numbers of its own, the candidate is in force for none of its
//! calls.

use super::{Findings, LIMITS, MixedRound, Reply};

impl MixedRound {
    /// Returns the processes whose candidate has counted other calls than the process has made.
    pub(super) fn wrong_candidates(&self) -> Findings {
        let mut findings = Findings::default();
        for (process, [admitted, otherwise]) in self.tried.iter().copied() {
            let refused: Vec<_> = self
                .calls
                .iter()
                .filter(|call| LIMITS[call.limit].name == "gate" && call.process == process)
                .filter(|call| matches!(call.reply, Some(Reply::Refused | Reply::Undecided)))
                .collect();
            let certain = refused.iter().filter(|call| {
                let declared = u64::from(LIMITS[call.limit].number());
                self.certainly_has(call, Some(declared))
            });
            let (least, most) = (certain.count() as u64, refused.len() as u64);
            if admitted > 0 || !(least..=most).contains(&otherwise) {
                findings.add(
                    "candidate",
                    format!(
                        "process {process}: {admitted} newly admitted, {otherwise} refused otherwise \
                         of {least} to {most}"
                    ),
                );
            }
        }
        findings
    }
}
