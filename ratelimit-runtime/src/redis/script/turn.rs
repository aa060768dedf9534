//! The commands of lines. One advances the charge of a waiting call and reads its turn, one pauses a key, and one
//! reads all turns.

use redis::Value;

use super::{Arguments, Attempt, Mode, SCRIPTS, ScriptOp, next_echo, number};
use crate::{
    key::Key,
    policy::{Policy, StateKind},
    redis::transport::Command,
    request::{Charged, LinePlace, Mark, Standing},
    time::{Micros, Timestamp},
};

/// The longest turn of another call that a reply may report, in microseconds: a year.
pub(super) const LONGEST_TURN: u64 = 366 * 86_400_000_000;

/// A charge that lies ahead.
pub(crate) struct Turn<'a> {
    pub(crate) key: &'a Key,
    place: LinePlace<'a>,
    /// The id of a log's entry, or the time of the charge.
    id: u64,
    /// The time of the charge, the birth of the state, and the request id.
    detail: [u64; 3],
}

impl<'a> Turn<'a> {
    /// Returns the turn of a place, if its state has turns.
    pub(crate) fn new(key: &'a Key, place: LinePlace<'a>) -> Option<Self> {
        let at = place.mark.at.get();
        let (id, birth) = match place.mark.charged {
            Charged::Entry(entry) => (entry.id(), entry.birth()),
            Charged::Generation(generation) => (at, generation),
            Charged::Nothing => return None,
        };
        Some(Self { key, place, id, detail: [at, birth, place.id.unwrap_or_default()] })
    }

    /// Builds the command of an attempt to advance the charge.
    pub(crate) fn advance(&self, attempt: Attempt) -> Command {
        let LinePlace { policy, cost, id, .. } = self.place;
        let script = &SCRIPTS[policy.state() as usize];
        let mode = if id.is_some() { Mode::Named } else { Mode::Plain };
        let mut command = script.text.start(attempt, &[self.key.as_bytes()]);
        let (mode, cost) = (mode as i64, cost.into());
        let (op, detail) = (ScriptOp::Advance, &self.detail);
        let advance = Arguments { op, cost, mode, id: self.id, detail };
        script.push(&mut command, advance, policy);
        Command::echoed(command, self.id)
    }

    /// Reads the reply to an advance. Only a pause, of a sliding window, moves a turn to a later time.
    #[expect(clippy::option_option, reason = "no turn, or no reply to an advance")]
    pub(crate) fn decode(&self, reply: &Value) -> Option<Option<Standing>> {
        let Mark { at: promised, charged } = self.place.mark;
        let is_possible = |at| at <= promised || matches!(charged, Charged::Entry(_));
        match reply.as_sequence()? {
            [Value::Int(0)] => Some(None),
            [Value::Int(1), at, turn, Value::Int(late @ 0..=1)] => {
                let turn = number(turn).filter(|turn| *turn <= LONGEST_TURN)?;
                let at = Some(Timestamp::new(number(at)?)).filter(|at| is_possible(*at))?;
                Some(Some(Standing { at, turn: Micros::new(turn), has_room: *late == 0 }))
            }
            _ => None,
        }
    }
}

/// Builds the command of an attempt to pause a key. A pause whose time `ends` has come is none.
pub(crate) fn pause_command(
    key: &Key,
    policy: &Policy,
    length: Micros,
    ends: Option<Timestamp>,
    attempt: Attempt,
) -> Command {
    let (script, echo) = (&SCRIPTS[StateKind::SlidingWindow as usize], next_echo());
    let mut command = script.text.start(attempt, &[key.as_bytes()]);
    let (cost, detail) = (ends.unwrap_or_default().get(), &[length.get()][..]);
    let pause = Arguments { cost, id: echo, detail, ..Arguments::of(ScriptOp::Pause) };
    script.push(&mut command, pause, policy);
    Command::echoed(command, echo)
}

/// Builds the command of an attempt to read the turns of places under one key.
pub(crate) fn turns_command(key: &Key, places: &[LinePlace<'_>], attempt: Attempt) -> Command {
    let echo = next_echo();
    let script = &SCRIPTS[StateKind::SlidingWindow as usize];
    let mut command = script.text.start(attempt, &[key.as_bytes()]);
    let charge = |it: &LinePlace<'_>| [it.mark.charged.number(), it.cost.into()];
    let detail = &places.iter().flat_map(charge).collect::<Vec<_>>()[..];
    Arguments { id: echo, detail, ..Arguments::of(ScriptOp::Turns) }.push(&mut command, 0);
    Command::echoed(command, echo)
}

/// Reads the reply to a pause. Returns `false` if it is none.
pub(crate) fn decode_pause(reply: &Value) -> Option<bool> {
    match reply.as_sequence()? {
        [Value::Int(1), _end] => Some(true),
        [Value::Int(0)] => Some(false),
        _ => None,
    }
}

/// Reads the turns; none of a charge that is gone.
pub(crate) fn decode_turns(reply: &Value) -> Option<Vec<Option<Timestamp>>> {
    let turn = |value| number(value).map(|at| Some(Timestamp::new(at)).filter(|_| at > 0));
    reply.as_sequence()?.get(1..)?.iter().map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{key::KeyRef, request::EntryMark};

    #[test]
    fn a_reply_that_is_no_turn_is_an_error() {
        let policy = Policy::fixed_window("p", std::time::Duration::from_secs(1), 1);
        let key = Key::compose("", KeyRef::new(&policy, &b""[..]));
        let of = |charged, numbers: &[i64]| {
            let mark = Mark { at: Timestamp::new(9), charged };
            let turn =
                Turn::new(&key, LinePlace { policy: &policy, cost: 1, mark, id: None }).unwrap();
            turn.decode(&Value::Array(numbers.iter().copied().map(Value::Int).collect()))
        };
        let decode = |numbers: &[i64]| of(Charged::Generation(7), numbers);
        let (at, turn) = (Timestamp::new(9), Micros::new(2));
        for (reply, has_room) in [(&[1, 9, 2, 0], true), (&[1, 9, 2, 1], false)] {
            assert_eq!(decode(reply), Some(Some(Standing { at, turn, has_room })));
        }
        assert_eq!(decode(&[0]), Some(None));
        for wrong in [
            &[][..],
            &[1],
            &[1, 9, 2],
            &[0, 9, 2, 0],
            &[1, 9, -1, 0],
            &[1, 9, i64::MAX, 0],
            &[1, 9, 2, 3],
            &[1, 9, 2, 1, 1],
        ] {
            assert_eq!(decode(wrong), None);
        }
        // Nothing moves the turn to a later time but a pause, which only a sliding window has.
        let later = [1, 10, 2, 0];
        assert_eq!(decode(&later), None);
        let of_entry = of(Charged::Entry(EntryMark::new(4, 7, false)), &later);
        assert_eq!(of_entry.unwrap().map(|it| it.at), Some(Timestamp::new(10)));
    }
}
