//! The gates of a script, which a call passes before an algorithm decides, and the renewal of
//! permits.

use redis::{Cmd, Value};

use super::{Attempt, ScriptCall, number, sources, text::Text};
use crate::{
    key::Key,
    policy::Policy,
    redis::transport::Command,
    request::{CallerUsage, PermitClaim, PermitRequest},
    time::Micros,
};

/// The suffix of the permits' key, beside the key of their caller.
const PERMITS: &str = "c";

/// The suffix of a block's key.
pub(super) const BLOCK: &str = "b";

/// Permits renewed by one command at most. A thousand take half a millisecond of the server.
pub(crate) const MAX_RENEWED: usize = 1_000;

/// The script of policies of `concurrency` alone.
pub(super) static WITHOUT_WINDOW: Text =
    Text::new(sources::WITHOUT_WINDOW[1], "c7c0aa4f76d8fb8183b39cea51b42377c50d7cf1");

pub(super) static RENEW: Text =
    Text::new(sources::RENEW, "e42230f3ce6cb7b6689f78b4c1352dbbd0a6bc7f");

/// The gate that a call passes before an algorithm decides.
#[derive(Clone, Copy)]
pub(super) enum ScriptGate {
    Permit(PermitRequest),
    /// The gate of the block alone.
    Block,
    /// None: the call reads each tier by itself, the permits that are free, and the rest of a
    /// block.
    EachTier,
}

impl ScriptGate {
    /// Returns the gate of a call, if its policy has one.
    pub(super) fn of(policy: &Policy, permit: Option<PermitRequest>) -> Option<Self> {
        permit.map(Self::Permit).or(policy.has_block().then_some(Self::Block))
    }

    /// Appends the keys, and the arguments before those of the algorithm. If no permit `is_needed`,
    /// the call only reads what is left.
    pub(super) fn push<'c>(
        self,
        command: &'c mut Cmd,
        key: &Key,
        policy: &Policy,
        is_needed: bool,
    ) -> &'c mut Cmd {
        let (id, word) = match self {
            Self::Permit(PermitRequest { id, claim: Some(claim), .. }) => {
                let PermitClaim { process, held } = claim;
                (id, format!("1 {process} {held}"))
            }
            Self::Permit(PermitRequest { id, .. }) => (id, u8::from(is_needed).to_string()),
            Self::Block => (0, "0".to_owned()),
            Self::EachTier => (0, "each".to_owned()),
        };
        let keys = 2 + usize::from(policy.has_block());
        command.arg(keys).arg(key.as_bytes()).arg(key.companion(PERMITS));
        let mut lengths = String::new();
        if policy.has_block() {
            command.arg(key.companion(BLOCK));
            let all = policy.block_lengths();
            lengths = all.iter().map(|it| it.get().to_string()).collect::<Vec<_>>().join(" ");
        }
        let permits = policy.get_concurrency().unwrap_or_default();
        command.arg(id).arg(permits).arg(policy.permit_timeout().get()).arg(word).arg(lengths)
    }
}

impl ScriptCall<'_> {
    /// Reads the reply to a look at [each tier](ScriptGate::EachTier).
    pub(crate) fn decode_usage(&self, reply: &Value) -> Option<CallerUsage> {
        let [_, free, blocked, looks @ ..] = reply.as_sequence()? else { return None };
        let tiers: Vec<_> = looks.iter().map_while(|look| self.decode(look)).collect();
        let free = number(free)?.try_into().ok()?;
        let blocked = Micros::new(number(blocked)?);
        let is_whole = tiers.len() == self.request.policy.tiers().len();
        is_whole.then_some(CallerUsage { tiers, free, blocked })
    }
}

/// Builds the command that deletes a caller's counts, and its block, which may be that of another
/// plan.
pub(crate) fn reset(key: &Key) -> Cmd {
    redis::cmd("UNLINK").arg(key.as_bytes()).arg(key.companion(BLOCK)).take()
}

/// Builds the command that frees a permit.
pub(crate) fn release(key: &Key, id: u64) -> Cmd {
    redis::cmd("ZREM").arg(key.companion(PERMITS)).arg(id).take()
}

/// Builds the command of an attempt to renew permits, at most [`MAX_RENEWED`] of `most`.
pub(crate) fn renew(
    key: &Key,
    timeout: Micros,
    most: u32,
    ids: &[u64],
    attempt: Attempt,
) -> Command {
    let mut command = RENEW.start(attempt, &[&key.companion(PERMITS)]);
    command.arg(timeout.get()).arg(most).arg(ids);
    Command::echoed(command, ids.first().copied().unwrap_or_default())
}

/// Reads the ids of the permits that are lost.
pub(crate) fn decode_lost(reply: &Value) -> Option<Vec<u64>> {
    // The ids are strings, as they are members.
    let ids: Vec<u64> = redis::from_redis_value_ref(reply).ok()?;
    Some(ids.get(1..)?.to_vec())
}
