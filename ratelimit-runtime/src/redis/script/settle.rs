//! The call of a script that settles a charge.

#[cfg(all(test, not(ratelimit_loom)))]
mod model;

use std::time::Duration;

use super::{Attempt, Mode, SCRIPTS, ScriptOp, entry_id, permits::BLOCK};
use crate::{
    key::Key,
    redis::transport::Command,
    request::{Charged, Settle},
    time::Micros,
};

/// The suffix of the key with the numbers of applied settles.
const SETTLES: &str = "s";

/// The longest time for which the numbers of applied settles are kept. A state whose units have names needs no
/// numbers.
const KEPT: Duration = Duration::from_secs(60);

/// Returns the time after the first attempt within which a repetition changes nothing.
pub(crate) fn settle_is_known_for(settle: Settle) -> Duration {
    let lasts = settle.lasts().into();
    if settle.state.names_charges() { lasts } else { KEPT.min(lasts) }
}

/// Builds the command of an attempt to settle. The command may be sent more than once, and changes something
/// once.
pub(crate) fn settle_command(key: &Key, settle: Settle, attempt: Attempt) -> Command {
    let Settle { state, from, to, mark, id, number, period, .. } = settle;
    let script = &SCRIPTS[state as usize];
    let (settles, block) = (key.companion(SETTLES), key.companion(BLOCK));
    let keys = [key.as_bytes(), &settles, &block];
    let mut command = if settle.lifts_block {
        let mut command = script.gated.start(attempt, &keys);
        // There is neither a permit nor a block to come.
        command.arg(&[0; 4]).arg("");
        command
    } else {
        script.text.start(attempt, if state.names_charges() { &keys[..1] } else { &keys[..2] })
    };
    command.arg(ScriptOp::Settle as u8).arg(from);
    if let Charged::Entry(entry) = mark.charged {
        let mode = match id {
            _ if entry.is_joined() => Mode::Joined,
            Some(_) => Mode::Named,
            None => Mode::Plain,
        };
        // Units above those on lease are an entry of their own.
        let entry_id = if entry.id() == 0 { entry_id(number) } else { entry.id() };
        command.arg(mode as u8).arg(entry_id).arg(mark.at.get()).arg(to);
        command.arg(entry.birth()).arg(settle.ends().get()).arg(period.get()).arg(id);
        return Command::echoed(command, entry_id);
    }
    let (charged, kept) = (mark.charged.number(), Micros::from(settle_is_known_for(settle)));
    command.arg(to).arg(charged).arg(mark.at.get());
    command.arg(number).arg(kept.get()).arg(settle.ends().get());
    (script.push_tier)(&mut command, &settle.policy(key.name), &settle.tier());
    Command::echoed(command, charged)
}
