//! The command of a waiting call, which advances its charge and tells where it stands.

use redis::Value;

use super::{Attempt, LONGEST_TURN, Mode, SCRIPTS, ScriptOp};
use crate::{
    error::UnavailableReason,
    key::Key,
    redis::echo::Command,
    request::{Charged, Place, Standing},
    time::{Micros, Timestamp},
};

/// A charge that lies ahead.
pub(in super::super) struct Turn<'a> {
    pub(in super::super) key: &'a Key,
    place: Place<'a>,
    /// The numbers by which the script finds it: the id of a log's entry, and the request id, the time of the
    /// charge and the log's birth; or the time of the charge, and the generation.
    numbers: (u64, String),
}

impl<'a> Turn<'a> {
    /// Returns the turn of a place, if its state has turns.
    pub(in super::super) fn new(key: &'a Key, place: Place<'a>) -> Option<Self> {
        let at = place.mark.at.get();
        let numbers = match place.mark.charged {
            Charged::Entry(entry) => {
                let name = place.id.unwrap_or_default();
                (entry.id(), format!("{name} {at} {}", entry.birth()))
            }
            Charged::Generation(generation) => (at, generation.to_string()),
            Charged::Nothing | Charged::Units { .. } => return None,
        };
        Some(Self { key, place, numbers })
    }

    /// Builds the command of an attempt to advance the charge.
    pub(in super::super) fn advance(&self, attempt: Attempt) -> Command {
        let Place { policy, cost, id, .. } = self.place;
        let script = &SCRIPTS[policy.state() as usize];
        let (name, text) = script.text.command(attempt);
        let mode = if id.is_some() { Mode::Named } else { Mode::Plain };
        let mut command = redis::cmd(name);
        command.arg(text).arg(1).arg(self.key.as_bytes());
        command.arg(ScriptOp::Advance as u8).arg(cost).arg(mode as u8);
        command.arg(self.numbers.0).arg(&self.numbers.1).arg(policy.tiers().len());
        for tier in policy.tiers() {
            (script.push_tier)(&mut command, policy, tier);
        }
        Command::echoed(command, self.numbers.0)
    }

    /// Reads the reply to an advance.
    pub(in super::super) fn decode(reply: &Value) -> Result<Option<Standing>, UnavailableReason> {
        let number = |value: &Value| match value {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        match reply.as_sequence() {
            Some([_]) => Ok(None),
            Some([_, at, turn, late @ ..]) if matches!(late, [] | [Value::Int(1)]) => {
                match (number(at), number(turn)) {
                    (Some(at), Some(turn)) if turn <= LONGEST_TURN => {
                        let (at, turn) = (Timestamp::new(at), Micros::new(turn));
                        Ok(Some(Standing { at, turn, has_room: late.is_empty() }))
                    }
                    _ => Err(UnavailableReason::StoreError),
                }
            }
            _ => Err(UnavailableReason::StoreError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_is_no_turn_is_an_error() {
        let decode = |numbers: &[i64]| {
            Turn::decode(&Value::Array(numbers.iter().copied().map(Value::Int).collect()))
        };
        let (at, turn) = (Timestamp::new(9), Micros::new(2));
        for (reply, has_room) in [(&[0, 9, 2][..], true), (&[0, 9, 2, 1], false)] {
            assert_eq!(decode(reply), Ok(Some(Standing { at, turn, has_room })));
        }
        assert_eq!(decode(&[0]), Ok(None));
        for wrong in
            [&[][..], &[0, 9], &[0, 9, -1], &[0, 9, i64::MAX], &[0, 9, 2, 3], &[0, 9, 2, 1, 1]]
        {
            assert_eq!(decode(wrong), Err(UnavailableReason::StoreError));
        }
    }
}
