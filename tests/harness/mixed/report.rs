//! The report of a round: all that breaks a rule, and the answers in words.

use std::collections::BTreeMap;

use super::{Findings, MixedRound, Reply};

impl MixedRound {
    /// Returns all that breaks a rule.
    #[must_use]
    pub fn findings(&self) -> Findings {
        let mut findings = self.overfull_windows();
        findings.take_in(self.used_shares());
        findings.take_in(self.wrong_enforcement());
        findings.take_in(self.local_shares());
        findings.take_in(self.paused_calls());
        findings.take_in(self.wrong_blocks());
        findings.take_in(self.needless_refusals());
        findings.take_in(self.wrong_warnings());
        findings.take_in(self.wrong_permits());
        findings.take_in(self.wrong_turns());
        findings.take_in(self.wrong_charges());
        findings.take_in(self.wrong_candidates());
        findings
    }

    /// Describes the answers in words.
    #[must_use]
    pub fn answers(&self) -> String {
        let mut answers = BTreeMap::<&str, usize>::new();
        for call in &self.calls {
            let name = match call.reply {
                Some(Reply::Admitted { is_counted: false, .. }) => "uncounted",
                Some(Reply::Admitted { waited: 1.., .. }) => "admitted after a wait",
                Some(Reply::Admitted { .. }) => "admitted",
                Some(Reply::Refused) => "refused",
                Some(Reply::Busy) => "busy",
                Some(Reply::Denied) => "denied",
                Some(Reply::Undecided) => "undecided",
                Some(Reply::Left) => "left",
                Some(Reply::Spared) => "spared",
                None => "of the dead",
            };
            *answers.entry(name).or_default() += 1;
        }
        answers.extend([("warnings", self.warnings.len()), ("blocks", self.blocks().len())]);
        answers.extend([("alone", self.alone().count())]);
        let answers = answers.iter().filter(|(_, n)| **n > 0);
        let answers: Vec<_> = answers.map(|(name, n)| format!("{n} {name}")).collect();
        answers.join(", ")
    }
}
