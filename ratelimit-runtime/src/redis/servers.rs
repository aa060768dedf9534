//! The servers of a limiter: one, or the nodes of a cluster.
//!
//! A command goes to its key's server, past that server's circuit breaker, and follows redirects.
//! After some failures it is sent once more, but only if this cannot charge a call twice.

pub(super) mod breaker;
pub(super) mod cluster;
mod command;
mod node;

use std::{sync::Arc, time::Duration};

use redis::Value;
use tokio::time::Instant;

use self::cluster::Cluster;
pub(super) use self::{
    command::{IDEMPOTENT, SendOptions},
    node::{Lane, Node},
};
use super::{
    script::{Attempt, Grant, LeaseCall, ScriptCall},
    transport::{Command, ConnectOptions, Connector, Failure, Kind, PendingReply, Target},
};
use crate::{
    error::{Fault, Replied, ServerStatus, UnavailableReason},
    key::Key,
    request::{Outcome, PermitRequest, Request},
    telemetry,
    time::Micros,
};

/// The servers of a limiter.
pub(super) enum Servers {
    Single(Arc<Node>),
    Cluster(Cluster),
}

/// Redirects followed without a pause. Further ones wait [`REDIRECT_PAUSE`] each until the
/// deadline: nodes that redirect to each other have not agreed on the slot's owner yet. So does a
/// command whose keys are on two nodes, until the slot has moved.
const FAST_REDIRECTS: u32 = 5;
const REDIRECT_PAUSE: Duration = Duration::from_millis(10);

/// The failure of a command that may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) reason: UnavailableReason,
    /// `true` if the command may have been executed.
    pub(crate) may_have_run: bool,
}

impl Servers {
    /// Connects in the background.
    pub(super) fn open(url: &str, options: &ConnectOptions) -> Result<Self, Fault> {
        let target = Target::parse(url, &options.at_home())?;
        if matches!(target.kind, Kind::Cluster) {
            return Ok(Self::Cluster(Cluster::new(target)));
        }
        let (addresses, first) = (target.addresses(), target.servers[0].addr().clone());
        let node = Node::managed(Connector::new(&Arc::new(target), first), addresses);
        Ok(Self::Single(Arc::new(node)))
    }

    /// Waits for the end of the first attempt to connect.
    pub(super) async fn connected(&self) -> Result<(), Fault> {
        let (connected, addresses) = match self {
            Self::Single(node) => (node.connected().await, node.name().to_owned()),
            Self::Cluster(cluster) => (cluster.connected().await, cluster.addresses()),
        };
        connected.map_err(|cause| Fault::new(format!("cannot connect to {addresses}: {cause}")))
    }

    /// Returns the status of the known servers.
    pub(crate) fn statuses(&self) -> Vec<ServerStatus> {
        let breakers = match self {
            Self::Single(node) => vec![Arc::clone(&node.breaker)],
            Self::Cluster(cluster) => cluster.breakers(),
        };
        breakers.iter().map(|breaker| breaker.status()).collect()
    }

    /// Decides a request. A reply that does not come in time is passed on, with the number by which
    /// it names its call.
    pub(crate) async fn decide(
        &self,
        key: &Key,
        request: Request<'_>,
        mut permit: Option<&mut PermitRequest>,
        deadline: Instant,
        on_late: &(dyn Fn(PendingReply, u64) + Sync),
    ) -> Replied<Outcome> {
        let call = ScriptCall::decision(key, request, permit.as_deref().copied());
        let may_wait = request.max_wait > Micros::ZERO;
        let patience = may_wait.then(|| Instant::now() + Duration::from(request.max_wait));
        let is_idempotent = call.is_idempotent();
        let on_late = |reply| on_late(reply, call.echo);
        let options =
            SendOptions { is_idempotent, patience, on_late: Some(&on_late), ..IDEMPOTENT };
        let command = |attempt| {
            // Called only past the breaker: a permit that was not asked for need not be released.
            if let Some(permit) = &mut permit {
                permit.is_sent = true;
            }
            call.command(attempt)
        };
        let reply = self.send_timed(key, deadline, options, command).await?;
        call.decode(&reply).ok_or(UnavailableReason::StoreError)
    }

    /// Makes a change that nobody may be waiting for. Made again, it does nothing.
    pub(super) async fn change(
        &self,
        key: &Key,
        deadline: Instant,
        mut build: impl FnMut(Attempt) -> Command,
    ) -> Result<(), Unanswered> {
        let mut may_have_run = false;
        let command = |attempt: Attempt| {
            may_have_run |= attempt.may_have_run;
            build(attempt)
        };
        let Err(failure) = self.send(key.as_bytes(), deadline, IDEMPOTENT, command).await else {
            return Ok(());
        };
        // Without a connection nothing is sent.
        let is_unsent = matches!(
            failure,
            Failure::BreakerOpen(_) | Failure::Reason(UnavailableReason::Disconnected)
        );
        Err(Unanswered { may_have_run: may_have_run || !is_unsent, reason: failure.reason() })
    }

    /// Gives units on lease back, and takes others.
    pub(super) async fn exchange(
        &self,
        call: &LeaseCall<'_>,
        deadline: Instant,
    ) -> Replied<Option<Grant>> {
        let options = SendOptions { is_idempotent: false, ..IDEMPOTENT };
        let command = |attempt| call.command(attempt);
        call.decode(&self.send_timed(call.key, deadline, options, command).await?)
    }

    /// Sends the command of a decision, and records its duration.
    async fn send_timed(
        &self,
        key: &Key,
        deadline: Instant,
        options: SendOptions<'_>,
        build: impl FnMut(Attempt) -> Command,
    ) -> Result<Value, Failure> {
        let sent = Instant::now();
        let reply = self.send(key.as_bytes(), deadline, options, build).await;
        // Nothing was sent, so that there is no duration.
        if !matches!(reply, Err(Failure::BreakerOpen(_))) {
            telemetry::store_answered(&reply, sent);
        }
        reply
    }

    /// Sends a command to the key's server, and waits for its reply until the deadline.
    ///
    /// Redirects are followed, also while a slot moves, and the source of an unknown script is
    /// sent. After a `READONLY` error, or a lost connection if the command is idempotent, it is
    /// sent once more. The breaker of each server records one result: that of the last attempt
    /// there.
    pub(super) async fn send(
        &self,
        key: &[u8],
        deadline: Instant,
        options: SendOptions<'_>,
        mut build: impl FnMut(Attempt) -> Command,
    ) -> Result<Value, Failure> {
        let (mut attempt, mut deadline) = (Attempt::default(), deadline);
        let time = deadline.saturating_duration_since(Instant::now());
        let mut redirects = 0;
        let mut next = None;
        loop {
            let refused = |failure| match failure {
                // Not sent now, but the attempt before may have been executed.
                Failure::BreakerOpen(reason) if attempt.may_have_run => match reason {
                    UnavailableReason::Disconnected => Failure::ConnectionLost,
                    reason => Failure::Reason(reason),
                },
                failure => failure,
            };
            let (node, asking) = match next.take() {
                Some(to) => to,
                None => (self.node_for(key, deadline).await.map_err(refused)?, false),
            };
            let reply = command::send(&node, || build(attempt), asking, options, deadline).await;
            let failed = match reply.map_err(Failure::BreakerOpen).map_err(refused)? {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            match (&failed.failure, self) {
                (Failure::UnknownScript, _) if !attempt.send_source => {
                    failed.record();
                    // EVAL also adds the script to the server's cache.
                    attempt.send_source = true;
                    next = Some((node, asking));
                }
                (Failure::Moved(to) | Failure::Ask(to), Self::Cluster(cluster)) => {
                    let is_moved = matches!(failed.failure, Failure::Moved(_));
                    let to = cluster.redirected(to, &node, is_moved.then_some(key));
                    // After `ASK`, only this command goes there, behind an `ASKING`.
                    next = Some((to.ok_or(UnavailableReason::NotReady)?, !is_moved));
                    failed.record();
                    redirects += 1;
                    pause_before_redirect(redirects, deadline).await?;
                }
                // Its next node is found anew: the slot may have moved meanwhile.
                (Failure::TryAgain, Self::Cluster(_)) => {
                    failed.record();
                    // With a pause at once: without one the node would answer the same.
                    redirects = redirects.max(FAST_REDIRECTS) + 1;
                    pause_before_redirect(redirects, deadline).await?;
                }
                (failure, _) => {
                    // The node may be gone, and another may have its slots.
                    if let Self::Cluster(cluster) = self {
                        cluster.mark_stale();
                    }
                    if attempt.may_have_run || !failure.is_retryable(options.is_idempotent) {
                        return Err(failed.record_final());
                    }
                    // Not recorded: the result of the retry counts.
                    attempt.may_have_run = true;
                    if options.patience.is_some() {
                        // The connection may have been lost long after the deadline.
                        deadline = Instant::now() + time;
                    }
                }
            }
        }
    }

    /// Returns the key's server.
    pub(super) async fn node_for(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Node>, Failure> {
        match self {
            Self::Single(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => match cluster.node(key) {
                Some(node) => Ok(node),
                // Rare, and therefore on the heap: the future of a call stays small.
                None => Box::pin(cluster.find_node(key, deadline)).await,
            },
        }
    }
}

/// Waits before a redirect is followed, if it is not one of the first.
///
/// # Errors
///
/// [`UnavailableReason::NotReady`] if no time is left until the deadline.
async fn pause_before_redirect(redirects: u32, deadline: Instant) -> Result<(), Failure> {
    if redirects <= FAST_REDIRECTS {
        return Ok(());
    }
    let next = Instant::now() + REDIRECT_PAUSE;
    // The node needs time to answer, too.
    if next + REDIRECT_PAUSE > deadline {
        return Err(UnavailableReason::NotReady.into());
    }
    // Rare, and therefore on the heap: the future of a call stays small.
    Box::pin(tokio::time::sleep_until(next)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;

    use redis::{Cmd, Pipeline, RedisFuture, aio::ConnectionLike};

    use super::*;
    use crate::{key::KeyRef, policy::Policy};

    /// A connection that is lost before each reply.
    #[derive(Clone)]
    struct LostConnection;

    impl ConnectionLike for LostConnection {
        fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
            Box::pin(async { Err(io::Error::from(io::ErrorKind::BrokenPipe).into()) })
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            _: &'a Pipeline,
            _: usize,
            _: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            unreachable!("no pipeline is sent")
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_was_sent_may_have_run_although_the_breaker_stops_its_repetition() {
        let node = Arc::new(Node::from_connection(LostConnection));
        let breaker = Arc::clone(&node.breaker);
        let servers = Servers::Single(node);
        let policy = Policy::fixed_window("p", Duration::from_secs(1), 1);
        let key = Key::compose("", KeyRef::new(&policy, &b"/alice"[..]));
        let command = |_| {
            // Other commands fail meanwhile.
            while let Ok(guard) = breaker.guard(false) {
                guard.failed(UnavailableReason::Disconnected);
            }
            redis::cmd("PING").into()
        };
        // The second one finds the breaker open, and is not sent at all.
        for may_have_run in [true, false] {
            let deadline = Instant::now() + Duration::from_secs(10);
            let failed = servers.change(&key, deadline, command).await.unwrap_err();
            let reason = UnavailableReason::Disconnected;
            assert_eq!(failed, Unanswered { reason, may_have_run });
        }
    }
}
