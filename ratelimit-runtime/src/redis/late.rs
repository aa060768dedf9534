//! The reply to a decision that comes after its deadline.

use std::time::Duration;

use tokio::time::Instant;

use super::{script::ScriptCall, transport::PendingReply};
use crate::{
    key::Key,
    request::{Outcome, Request},
};

/// The time for which it is awaited.
const PATIENCE: Duration = Duration::from_secs(10);

/// Receives the late reply to a decision.
pub(crate) type OnLate<'a> = &'a (dyn Fn(LateReply) + Sync);

/// A late reply, which has not come yet.
pub(crate) struct LateReply {
    reply: PendingReply,
    /// The number by which it names its call.
    echo: u64,
}

impl LateReply {
    pub(super) fn new(reply: PendingReply, call: &ScriptCall<'_>) -> Self {
        Self { reply, echo: call.echo() }
    }

    /// Returns the outcome of the request that it decides; nothing if it does not come.
    pub(crate) async fn outcome(mut self, key: &Key, request: Request<'_>) -> Option<Outcome> {
        let reply = self.reply.wait(Instant::now() + PATIENCE).await.ok()?;
        ScriptCall::decided(key, request, self.echo).decode(&reply).ok()
    }
}
