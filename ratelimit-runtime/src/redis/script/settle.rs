//! The call of a script that settles a charge.

#[cfg(all(test, not(ratelimit_loom)))]
mod model;

use std::time::Duration;

use super::{Attempt, Mode, SCRIPTS, ScriptOp, entry_id};
use crate::{
    key::Key,
    redis::echo::Command,
    request::{Charged, Settle},
    time::Micros,
};

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
    let Settle { state, from, to, mark, id, number, tier, .. } = settle;
    let script = &SCRIPTS[state as usize];
    let start = |keys| script.text.start(attempt, keys);
    if let Charged::Entry(entry) = mark.charged {
        let mode = match id {
            _ if entry.is_joined() => Mode::Joined,
            Some(_) => Mode::Named,
            None => Mode::Plain,
        };
        let mut command = start(&[key.as_bytes()]);
        command.arg(ScriptOp::Settle as u8).arg(from).arg(mode as u8);
        // Units above those on lease are an entry of their own.
        let entry_id = if entry.id() == 0 { entry_id(number) } else { entry.id() };
        command.arg(entry_id).arg(mark.at.get()).arg(to);
        command.arg(entry.birth()).arg(settle.ends().get()).arg(tier.micros().get()).arg(id);
        return Command::echoed(command, entry_id);
    }
    let kept = Micros::from(settle_is_known_for(settle));
    let mut command = start(&[key.as_bytes(), &key.companion("s")]);
    command.arg(ScriptOp::Settle as u8).arg(from).arg(to);
    command.arg(mark.charged.number()).arg(mark.at.get());
    command.arg(number).arg(kept.get()).arg(settle.ends().get());
    (script.push_tier)(&mut command, &settle.policy(key.name), &tier);
    Command::echoed(command, mark.charged.number())
}
