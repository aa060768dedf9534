//! Permits in scripts: the text around an algorithm's, and the renewal.

use redis::{Cmd, Value};

use super::{Attempt, ScriptCall, Text, sources};
use crate::{
    error::UnavailableReason,
    key::Key,
    policy::Policy,
    redis::echo::Command,
    request::{Mark, Outcome, PermitClaim, PermitRequest},
    time::Micros,
};

/// The suffix of the permits' key, beside the key of their caller.
const PERMITS: &str = "c";

/// Permits renewed by one command at most. A thousand take half a millisecond of the server.
pub(in super::super) const MAX_RENEWED: usize = 1_000;

/// The script of policies of `concurrency` alone.
pub(super) static WITHOUT_WINDOW: Text =
    Text { source: sources::WITHOUT_WINDOW[1], sha1: "552a130588522f368eb7223b35ffb0c1fbba6a4a" };

pub(super) static RENEW: Text =
    Text { source: sources::RENEW, sha1: "6b11cb356e8986de731f370b53adaa4524cd5075" };

/// Appends the keys, and the arguments before those of the algorithm. If no permit `is_needed`, the call
/// only looks at what is left.
pub(super) fn push<'c>(
    command: &'c mut Cmd,
    key: &Key,
    policy: &Policy,
    permit: PermitRequest,
    is_needed: bool,
) -> &'c mut Cmd {
    command.arg(2).arg(key.as_bytes()).arg(key.companion(PERMITS)).arg(permit.id);
    let permits = policy.max_in_flight().unwrap_or_default();
    command.arg(permits).arg(policy.permit_timeout().get());
    match permit.claim {
        Some(PermitClaim { process, held }) => command.arg(format!("1 {process} {held}")),
        None => command.arg(u8::from(is_needed)),
    }
}

impl ScriptCall<'_> {
    /// Reads the reply of a call with a permit, unless it is that of an algorithm.
    pub(super) fn decode_permit(
        &self,
        reply: &[Value],
    ) -> Option<Result<Outcome, UnavailableReason>> {
        let policy = self.permit.map(|_| self.request.policy)?;
        match reply {
            [Value::Int(0), Value::Int(pause)] => {
                let pause = u64::try_from(*pause).map_err(|_| UnavailableReason::StoreError);
                Some(pause.map(|pause| Outcome { more: Micros::new(pause), ..Outcome::busy() }))
            }
            [Value::Int(1), Value::Int(free)] if policy.tiers().is_empty() => {
                let free = u32::try_from(*free).map_err(|_| UnavailableReason::StoreError);
                let outcome =
                    |free| Outcome::admitted(free, Micros::ZERO, Micros::ZERO, Mark::NONE);
                Some(free.map(outcome))
            }
            _ if policy.tiers().is_empty() => Some(Err(UnavailableReason::StoreError)),
            _ => None,
        }
    }
}

/// Builds the command that frees a permit.
pub(in super::super) fn release(key: &Key, id: u64) -> Cmd {
    let mut command = redis::cmd("ZREM");
    command.arg(key.companion(PERMITS)).arg(id);
    command
}

/// The renewal of permits under one key, at most [`MAX_RENEWED`].
pub(in super::super) struct Renewal<'a> {
    pub(in super::super) key: &'a Key,
    pub(in super::super) timeout: Micros,
    /// The number of permits under the key.
    pub(in super::super) most: u32,
    pub(in super::super) ids: &'a [u64],
}

impl Renewal<'_> {
    /// Builds the command of an attempt.
    pub(in super::super) fn command(&self, attempt: Attempt) -> Command {
        let (name, text) = RENEW.command(attempt);
        let mut command = redis::cmd(name);
        command.arg(text).arg(1).arg(self.key.companion(PERMITS));
        command.arg(self.timeout.get()).arg(self.most).arg(self.ids);
        Command::echoed(command, self.ids.first().copied().unwrap_or_default())
    }

    /// Reads the ids of the permits that are lost.
    pub(in super::super) fn decode(reply: Value) -> Result<Vec<u64>, UnavailableReason> {
        let numbers: Vec<u64> =
            redis::from_redis_value(reply).map_err(|_| UnavailableReason::StoreError)?;
        let (_, lost) = numbers.split_first().ok_or(UnavailableReason::StoreError)?;
        Ok(lost.to_vec())
    }
}
