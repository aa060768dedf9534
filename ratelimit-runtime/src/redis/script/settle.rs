//! The call of a script that settles a charge.

#[cfg(all(test, not(ratelimit_loom)))]
#[path = "../../../../tests/models/settles.rs"]
mod model;

use std::time::Duration;

use super::{Arguments, Attempt, Mode, SCRIPTS, ScriptOp, entry_id, permits::BLOCK};
use crate::{
    key::Key,
    redis::transport::Command,
    request::{Charged, EntryMark, Settle},
    time::Micros,
};

/// The suffix of the key with the numbers of applied settles.
const SETTLES: &str = "s";

/// The longest time for which the numbers of applied settles are kept. A state whose units have
/// names needs no numbers.
const KEPT: Duration = Duration::from_secs(60);

/// Returns the time after the first attempt within which a repetition changes nothing.
pub(crate) fn settle_is_known_for(settle: Settle) -> Duration {
    let lasts = settle.lasts().into();
    if settle.state.names_charges() { lasts } else { KEPT.min(lasts) }
}

/// Builds the command of an attempt to settle. The command may be sent more than once, and changes
/// something once.
pub(crate) fn settle_command(key: &Key, settle: Settle, attempt: Attempt) -> Command {
    let Settle { state, from, to, mark, id, number, .. } = settle;
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
    let entry = if let Charged::Entry(entry) = mark.charged { Some(entry) } else { None };
    let mode = match entry {
        Some(entry) if entry.is_joined() => Mode::Joined,
        Some(_) if id.is_some() => Mode::Named,
        _ => Mode::Plain,
    };
    let charged = match mark.charged.number() {
        // Units above those on lease are an entry of their own.
        0 if entry.is_some() => entry_id(number),
        charged => charged,
    };
    let birth = entry.map_or(charged, EntryMark::birth);
    let number = entry.map_or(number, |_| id.unwrap_or_default());
    let kept = Micros::from(settle_is_known_for(settle));
    let detail = [mark.at.get(), to.into(), birth, settle.ends().get(), number, kept.get()];
    let (mode, cost) = (mode as i64, from.into());
    let arguments = Arguments { op: ScriptOp::Settle, cost, mode, id: charged, detail: &detail };
    script.push(&mut command, arguments, &settle.policy(key.name));
    Command::echoed(command, charged)
}
