//! The reply to a decision that comes after its deadline.

use std::time::Duration;

use tokio::time::Instant;

use super::{options::Content, outbox::ExpectedReply, script::ScriptCall, transport::PendingReply};
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
    pub(super) reply: PendingReply,
    /// The number by which it names its call.
    pub(super) echo: u64,
    /// The permit that the call asked for.
    pub(super) permit: Option<u64>,
    /// A flush waits for the reply, and for what is posted then.
    pub(super) expected: ExpectedReply,
}

impl LateReply {
    /// Waits for the outcome of the request that it decides, and passes it on if it comes.
    pub(crate) async fn receive(
        mut self,
        key: &Key,
        request: Request<'_>,
        then: impl FnOnce(Outcome),
    ) {
        let reply = self.reply.wait(Instant::now() + PATIENCE).await;
        let decided = ScriptCall::decided(key, request, self.echo);
        let Some(outcome) = reply.ok().and_then(|reply| decided.decode(&reply)) else {
            return;
        };
        if let Some(id) = self.permit.filter(|_| outcome.admitted) {
            // The first release may have come before the call, over another connection.
            let timeout = request.policy.permit_timeout().into();
            self.expected.outbox.post(key.clone(), Content::Release { id, timeout });
        }
        then(outcome);
    }
}
