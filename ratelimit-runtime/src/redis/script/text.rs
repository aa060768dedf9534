//! The text of a script, and the command that runs it.

use redis::Cmd;

use super::Attempt;

/// The text of a script.
pub(super) struct Text {
    pub(super) source: &'static str,
    /// The digest that `EVALSHA` names the script by.
    pub(super) sha1: &'static str,
}

impl Text {
    pub(super) const fn new(source: &'static str, sha1: &'static str) -> Self {
        Self { source, sha1 }
    }

    /// Returns the command of an attempt, and its argument that names the script.
    pub(super) fn command(&self, attempt: Attempt) -> (&'static str, &'static str) {
        if attempt.send_source { ("EVAL", self.source) } else { ("EVALSHA", self.sha1) }
    }

    /// Returns the command of an attempt up to the keys.
    pub(super) fn start(&self, attempt: Attempt, keys: &[&[u8]]) -> Cmd {
        let (name, text) = self.command(attempt);
        redis::cmd(name).arg(text).arg(keys.len()).arg(keys).take()
    }
}
