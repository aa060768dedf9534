//! The commands of lines. One advances the charge of a waiting call and reads its turn, one pauses
//! a key, and one reads all turns.

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

/// Builds the command of an attempt to advance the charge of a place.
pub(crate) fn advance_command(key: &Key, place: LinePlace<'_>, attempt: Attempt) -> Command {
    let LinePlace { policy, cost, mark, id } = place;
    let at = mark.at.get();
    // The id of a log's entry, or the time of the charge.
    let (charge, birth) = match mark.charged {
        Charged::Entry(entry) => (entry.id(), entry.birth()),
        charged => (at, charged.number()),
    };
    let script = &SCRIPTS[policy.state() as usize];
    let mode = if id.is_some() { Mode::Named } else { Mode::Plain };
    let mut command = script.text.start(attempt, &[key.as_bytes()]);
    let (mode, cost) = (mode as i64, cost.into());
    let (op, detail) = (ScriptOp::Advance, &[at, birth, id.unwrap_or_default()]);
    script.push(&mut command, Arguments { op, cost, mode, id: charge, detail }, policy);
    Command::echoed(command, charge)
}

/// Reads the reply to an advance of the charge with this mark. Only a pause, of a sliding window,
/// moves a turn to a later time.
#[expect(clippy::option_option, reason = "no turn, or no reply to an advance")]
pub(crate) fn decode_advance(mark: Mark, reply: &Value) -> Option<Option<Standing>> {
    let is_possible = |at| at <= mark.at || matches!(mark.charged, Charged::Entry(_));
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
    use crate::request::EntryMark;

    #[test]
    fn a_reply_that_is_no_turn_is_an_error() {
        let of = |charged, numbers: &[i64]| {
            let reply = Value::Array(numbers.iter().copied().map(Value::Int).collect());
            decode_advance(Mark { at: Timestamp::new(9), charged }, &reply)
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
