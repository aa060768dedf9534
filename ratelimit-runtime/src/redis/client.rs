//! Redis: one script on one key per caller, one round trip per decision, the server's clock.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Value, aio::ConnectionLike};
use tokio::time::Instant;

use super::{
    breaker::Breaker,
    cluster::Cluster,
    command::Sending,
    connector::Connector,
    failure::{Failure, describe},
    node::{Lane, Node},
    script::Call,
    target::{Kind, Target},
    tls::Tls,
};
use crate::{
    error::{ConnectFault, UnavailableReason},
    key::Key,
    request::{Outcome, Refund, Request},
    telemetry,
};

pub(crate) struct RedisClient {
    pub(super) servers: Topology,
    #[cfg(feature = "overrides")]
    pub(super) too_large: super::hash::TooLarge,
}

pub(super) enum Topology {
    Single(Arc<Node>),
    Cluster(Cluster),
}

/// So often a cluster may send a call on to another node at once; after that with a pause, until
/// the call's deadline: nodes that send it in a circle have yet to agree on who has the slot.
const REDIRECTIONS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// Of a command that is sent again as it is: to take something away a second time takes nothing.
pub(super) const REPEATABLE: Manner = Manner { is_repeatable: true, lane: Lane::Main };

impl RedisClient {
    /// Connects.
    pub(crate) async fn open(url: &str, tls: &Tls) -> Result<Self, ConnectFault> {
        let target = Target::parse(url, tls)?;
        let addresses = target.addresses();
        let opened = match target.kind {
            Kind::Cluster => Cluster::open(target).await.map(Topology::Cluster),
            Kind::Single | Kind::Sentinel { .. } => {
                let connector = Connector::to_target(&target)?;
                let node = Node::open(&connector, addresses.clone()).await;
                node.map(Topology::one).map_err(|error| describe(&error))
            }
        };
        match opened {
            Ok(servers) => Ok(Self::on(servers)),
            Err(cause) => Err(ConnectFault::Unreachable { addresses, cause }),
        }
    }

    /// Connects in the background.
    pub(crate) fn open_lazy(url: &str, tls: &Tls) -> Result<Self, ConnectFault> {
        let target = Target::parse(url, tls)?;
        let servers = if matches!(target.kind, Kind::Cluster) {
            Topology::Cluster(Cluster::lazy(target))
        } else {
            let connector = Connector::to_target(&target)?;
            Topology::one(Node::lazy(&connector, target.addresses()))
        };
        Ok(Self::on(servers))
    }

    /// On a connection of the program's own.
    pub(crate) fn brought<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::on(Topology::one(Node::brought(connection)))
    }

    fn on(servers: Topology) -> Self {
        Self {
            servers,
            #[cfg(feature = "overrides")]
            too_large: super::hash::TooLarge::default(),
        }
    }

    /// The servers that are known, by name, and why those that are left alone are.
    pub(crate) fn servers(&self) -> Vec<(String, Option<UnavailableReason>)> {
        let breakers = match &self.servers {
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
        deadline: Instant,
    ) -> Result<Outcome, UnavailableReason> {
        let call = Call::decision(key, request);
        let sent = Instant::now();
        let answer = self.run(key, &call, deadline, || {}).await;
        if !matches!(answer, Err(Failure::NotAsked(_))) {
            telemetry::store_answered(&answer, sent);
        }
        call.decode(&answer?)
    }

    /// Gives back what an admitted call took; `sent` is called before it may be done.
    pub(crate) async fn refund(
        &self,
        key: &Key,
        refund: Refund<'_>,
        deadline: Instant,
        sent: impl FnOnce(),
    ) -> Result<(), UnavailableReason> {
        self.run(key, &Call::refund(key, refund), deadline, sent).await?;
        Ok(())
    }

    async fn run(
        &self,
        key: &Key,
        call: &Call<'_>,
        deadline: Instant,
        sent: impl FnOnce(),
    ) -> Result<Value, Failure> {
        let mut sent = Some(sent);
        let command = |attempt| {
            if let Some(sent) = sent.take() {
                sent();
            }
            call.command(attempt)
        };
        let manner = Manner { is_repeatable: call.is_repeatable(), lane: Lane::Main };
        self.send(key.as_bytes(), deadline, manner, command).await
    }

    pub(crate) async fn reset(
        &self,
        key: &Key,
        deadline: Instant,
    ) -> Result<(), UnavailableReason> {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(key.as_bytes());
        self.send(key.as_bytes(), deadline, REPEATABLE, |_| unlink.clone()).await?;
        Ok(())
    }

    /// Sends a command to the server that has the key, and waits for its reply no longer than until
    /// the deadline.
    ///
    /// It is sent again where nothing was executed, and once where the connection was lost with the
    /// call under way, if the command then charges the call no second time. Each sending is recorded
    /// in the breaker of the server that it went to; of two to one server, the last.
    pub(super) async fn send(
        &self,
        key: &[u8],
        deadline: Instant,
        manner: Manner,
        mut command: impl FnMut(Attempt) -> Cmd,
    ) -> Result<Value, Failure> {
        let mut attempt = Attempt::default();
        let mut redirections = 0;
        let mut redirected = None;
        loop {
            let (node, asking) = match redirected.take() {
                Some(to) => to,
                None => (self.servers.of(key, deadline).await?, false),
            };
            let sending = Sending::new(&node, || command(attempt), asking, manner.lane, deadline);
            let failed = match sending.map_err(Failure::NotAsked)?.await {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            match (&failed.failure, &self.servers) {
                (Failure::UnknownScript, _) if !attempt.with_text => {
                    failed.record();
                    // EVAL runs the script and makes it known.
                    attempt.with_text = true;
                    redirected = Some((node, asking));
                }
                (Failure::Moved(to), Topology::Cluster(cluster)) => {
                    redirected = Some((cluster.at(to, &node, Some(key)), false));
                    failed.record();
                    redirections += 1;
                    may_go_on(redirections, deadline).await?;
                }
                (Failure::Ask(to), Topology::Cluster(cluster)) => {
                    redirected = Some((cluster.at(to, &node, None), true));
                    failed.record();
                    redirections += 1;
                    may_go_on(redirections, deadline).await?;
                }
                (failure, servers) => {
                    if let Topology::Cluster(cluster) = servers {
                        cluster.outdated();
                    }
                    if attempt.again || !failure.may_be_repeated(manner.is_repeatable) {
                        return Err(failed.recorded());
                    }
                    attempt.again = true;
                }
            }
        }
    }
}

impl Topology {
    fn one(node: Node) -> Self {
        Self::Single(Arc::new(node))
    }

    /// The server that has the key.
    pub(super) async fn of(&self, key: &[u8], deadline: Instant) -> Result<Arc<Node>, Failure> {
        match self {
            Self::Single(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => match cluster.node(key) {
                Some(node) => Ok(node),
                // Rare: on the heap, so that calls need not make room for it.
                None => Box::pin(cluster.learn_node(key, deadline)).await,
            },
        }
    }
}

/// Waits until a call that was redirected so often may be sent on, if there is time.
async fn may_go_on(redirections: u32, deadline: Instant) -> Result<(), Failure> {
    if redirections <= REDIRECTIONS {
        return Ok(());
    }
    let next = Instant::now() + PAUSE;
    // The node needs time to answer, too.
    if next + PAUSE > deadline {
        return Err(UnavailableReason::NotReady.into());
    }
    // Rare: on the heap, so that calls need not make room for it.
    Box::pin(tokio::time::sleep_until(next)).await;
    Ok(())
}

/// How a command is sent.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// To execute it a second time changes nothing.
    pub(super) is_repeatable: bool,
    pub(super) lane: Lane,
}

/// How it is sent this time.
#[derive(Clone, Copy, Default)]
pub(super) struct Attempt {
    /// The server does not know the script.
    pub(super) with_text: bool,
    /// The call may have been executed before.
    pub(super) again: bool,
}
