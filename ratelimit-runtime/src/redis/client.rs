//! The client: one script on one key per caller, one round trip per decision, the server's clock.
//!
//! It routes a command to the key's server and follows redirects. After some failures it sends a
//! command once more, but only if this cannot charge a call twice.

use std::{sync::Arc, time::Duration};

use redis::{Value, aio::ConnectionLike};
use tokio::time::Instant;

use super::{
    breaker::Breaker,
    cluster::Cluster,
    command::{self, IDEMPOTENT, SendOptions},
    connect_options::ConnectOptions,
    connector::Connector,
    echo::Command,
    failure::{Failure, message},
    node::Node,
    script::{Attempt, Grant, LeaseCall, Renewal, ScriptCall, SettleCall, Turn, release},
    target::{Kind, Target},
};
use crate::{
    error::{ConnectFault, UnavailableReason},
    key::Key,
    request::{Outcome, PermitRequest, Request, Settle, Standing},
    telemetry,
    time::Micros,
};

pub(crate) struct RedisClient {
    pub(super) topology: Topology,
}

/// The servers of a limiter.
pub(super) enum Topology {
    Single(Arc<Node>),
    Cluster(Cluster),
}

/// Redirects followed without a pause. Further ones wait [`REDIRECT_PAUSE`] each until the deadline:
/// nodes that redirect to each other have not agreed on the slot's owner yet.
const FAST_REDIRECTS: u32 = 5;
const REDIRECT_PAUSE: Duration = Duration::from_millis(10);

/// The failure of a command that may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) reason: UnavailableReason,
    /// `true` if the command may have been executed.
    pub(crate) may_have_run: bool,
}

impl RedisClient {
    /// Connects.
    pub(crate) async fn open(url: &str, options: &ConnectOptions) -> Result<Self, ConnectFault> {
        let target = Target::parse(url, &options.at_home())?;
        let addresses = target.addresses();
        let opened = match target.kind {
            Kind::Cluster => Cluster::open(target).await.map(Topology::Cluster),
            Kind::Single | Kind::Sentinel { .. } => {
                let connector = Connector::to_target(&target)?;
                let node = Node::open(&connector, addresses.clone()).await;
                node.map(Topology::single).map_err(|error| message(&error))
            }
        };
        match opened {
            Ok(topology) => Ok(Self::new(topology)),
            Err(cause) => Err(ConnectFault::Unreachable { addresses, cause }),
        }
    }

    /// Connects in the background.
    pub(crate) fn open_lazy(url: &str, options: &ConnectOptions) -> Result<Self, ConnectFault> {
        let target = Target::parse(url, &options.at_home())?;
        let topology = if matches!(target.kind, Kind::Cluster) {
            Topology::Cluster(Cluster::lazy(target))
        } else {
            let connector = Connector::to_target(&target)?;
            Topology::single(Node::lazy(&connector, target.addresses()))
        };
        Ok(Self::new(topology))
    }

    /// Uses a connection of the program's own.
    pub(crate) fn from_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::new(Topology::single(Node::from_connection(connection)))
    }

    fn new(topology: Topology) -> Self {
        Self { topology }
    }

    /// Returns the names of the known servers. One with an open breaker comes with the reason of its
    /// last failure.
    pub(crate) fn servers(&self) -> Vec<(String, Option<UnavailableReason>)> {
        let breakers = match &self.topology {
            Topology::Single(node) => vec![Arc::clone(node.breaker())],
            Topology::Cluster(cluster) => cluster.breakers(),
        };
        let state = |breaker: &Arc<Breaker>| (breaker.server().to_owned(), breaker.failure());
        breakers.iter().map(state).collect()
    }

    pub(crate) async fn decide(
        &self,
        key: &Key,
        request: Request<'_>,
        permit: Option<&mut PermitRequest>,
        deadline: Instant,
    ) -> Result<Outcome, UnavailableReason> {
        let call = ScriptCall::decision(key, request, permit.as_deref().copied());
        let sent = Instant::now();
        let may_wait = request.max_wait > Micros::ZERO;
        let patience = may_wait.then(|| sent + Duration::from(request.max_wait));
        let is_idempotent = call.is_idempotent();
        let options = SendOptions { is_idempotent, patience, ..IDEMPOTENT };
        let mut permit = permit;
        let command = |attempt| {
            if let Some(permit) = &mut permit {
                permit.is_sent = true;
            }
            call.command(attempt)
        };
        let reply = self.send(key.as_bytes(), deadline, options, command).await;
        if !matches!(reply, Err(Failure::BreakerOpen(_))) {
            telemetry::store_answered(&reply, sent);
        }
        call.decode(&reply?)
    }

    /// Changes the units of an admitted call.
    pub(crate) async fn settle(
        &self,
        key: &Key,
        settle: Settle,
        deadline: Instant,
    ) -> Result<(), Unanswered> {
        let (call, mut may_have_run) = (SettleCall::new(key, settle), false);
        let command = |attempt: Attempt| {
            may_have_run |= attempt.may_have_run;
            call.command(attempt)
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

    /// Advances the charge of a waiting call, if it is the next one and has room.
    pub(super) async fn advance(
        &self,
        turn: &Turn<'_>,
        deadline: Instant,
    ) -> Result<Option<Standing>, UnavailableReason> {
        let command = |attempt| turn.advance(attempt);
        let reply = self.send(turn.key.as_bytes(), deadline, IDEMPOTENT, command).await?;
        Turn::decode(&reply)
    }

    /// Gives units on lease back, and takes others.
    pub(super) async fn exchange(
        &self,
        call: &LeaseCall<'_>,
        deadline: Instant,
    ) -> Result<Option<Grant>, UnavailableReason> {
        let sent = Instant::now();
        let options = SendOptions { is_idempotent: false, ..IDEMPOTENT };
        let command = |attempt| call.command(attempt);
        let reply = self.send(call.key.as_bytes(), deadline, options, command).await;
        if !matches!(reply, Err(Failure::BreakerOpen(_))) {
            telemetry::store_answered(&reply, sent);
        }
        call.decode(&reply?)
    }

    /// Frees a permit.
    pub(crate) async fn release(
        &self,
        key: &Key,
        id: u64,
        deadline: Instant,
    ) -> Result<(), Unanswered> {
        let released =
            self.send(key.as_bytes(), deadline, IDEMPOTENT, |_| release(key, id).into()).await;
        // A repeated release does nothing.
        let unanswered = |it: Failure| Unanswered { may_have_run: false, reason: it.reason() };
        released.map(drop).map_err(unanswered)
    }

    /// Renews permits, and returns the ids of those that are lost.
    pub(super) async fn renew(
        &self,
        renewal: &Renewal<'_>,
        deadline: Instant,
    ) -> Result<Vec<u64>, UnavailableReason> {
        let command = |attempt| renewal.command(attempt);
        let reply = self.send(renewal.key.as_bytes(), deadline, IDEMPOTENT, command).await?;
        Renewal::decode(reply)
    }

    /// Deletes the key.
    pub(crate) async fn reset(
        &self,
        key: &Key,
        deadline: Instant,
    ) -> Result<(), UnavailableReason> {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(key.as_bytes());
        self.send(key.as_bytes(), deadline, IDEMPOTENT, |_| unlink.clone().into()).await?;
        Ok(())
    }

    /// Sends a command to the key's server, and waits for its reply until the deadline.
    ///
    /// Redirects are followed, and the source of an unknown script is sent. After a `READONLY`
    /// error, or a lost connection if the command is idempotent, it is sent once more. The breaker
    /// of each server records one result: that of the last attempt there.
    pub(super) async fn send(
        &self,
        key: &[u8],
        deadline: Instant,
        options: SendOptions,
        mut build: impl FnMut(Attempt) -> Command,
    ) -> Result<Value, Failure> {
        let (mut attempt, mut deadline) = (Attempt::default(), deadline);
        let time = deadline.saturating_duration_since(Instant::now());
        let mut redirects = 0;
        let mut next = None;
        loop {
            let (node, asking) = match next.take() {
                Some(to) => to,
                None => (self.topology.node_for(key, deadline).await?, false),
            };
            let reply = command::send(&node, || build(attempt), asking, options, deadline).await;
            let failed = match reply.map_err(Failure::BreakerOpen)? {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            match (&failed.failure, &self.topology) {
                (Failure::UnknownScript, _) if !attempt.send_source => {
                    failed.record();
                    // EVAL also adds the script to the server's cache.
                    attempt.send_source = true;
                    next = Some((node, asking));
                }
                (Failure::Moved(to), Topology::Cluster(cluster)) => {
                    let to = cluster.moved_to(to, &node, key);
                    next = Some((to.ok_or(UnavailableReason::NotReady)?, false));
                    failed.record();
                    redirects += 1;
                    pause_before_redirect(redirects, deadline).await?;
                }
                (Failure::Ask(to), Topology::Cluster(cluster)) => {
                    let to = cluster.node_at(to, &node);
                    next = Some((to.ok_or(UnavailableReason::NotReady)?.1, true));
                    failed.record();
                    redirects += 1;
                    pause_before_redirect(redirects, deadline).await?;
                }
                (failure, topology) => {
                    if let Topology::Cluster(cluster) = topology {
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
}

impl Topology {
    fn single(node: Node) -> Self {
        Self::Single(Arc::new(node))
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
