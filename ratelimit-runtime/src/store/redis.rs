//! Redis: one script on one key per caller, one round trip per decision, the server's clock.

mod breaker;
mod cluster;
mod connection;
mod connector;
mod failure;
#[cfg(feature = "overrides")]
mod fields;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod node;
mod script;
mod tls;
mod url;

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Value, aio::ConnectionLike};
use tokio::time::Instant;

use self::{
    breaker::Breaker,
    cluster::Cluster,
    connector::Connector,
    failure::{Failure, describe},
    node::Node,
    script::Call,
    url::{Kind, Target},
};
pub(crate) use self::{breaker::Permit, tls::Tls};
use super::{Outcome, Refund, Request};
use crate::{error::UnavailableReason, key::Key, rules::Algorithm};

/// Why no connection could be made.
#[derive(Debug)]
pub(crate) enum OpenError {
    UnknownScheme(String),
    Malformed(String),
    Unreachable { addresses: String, cause: String },
}

pub(crate) struct RedisStore {
    servers: Servers,
}

enum Servers {
    One(Arc<Node>),
    Cluster(Cluster),
}

/// So often a cluster may send a call on to another node at once; after that with a pause, until
/// the call's deadline: nodes that send it in a circle have yet to agree on who has the slot.
const REDIRECTIONS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// A command that is sent again as it is: to take something away a second time takes nothing.
const REPEATABLE: bool = true;

impl RedisStore {
    /// Connects.
    pub(crate) async fn open(url: &str, tls: &Tls) -> Result<Self, OpenError> {
        let target = Target::parse(url, tls)?;
        let addresses = target.addresses();
        let opened = match target.kind {
            Kind::Cluster => Cluster::open(target).await.map(Servers::Cluster),
            Kind::Single | Kind::Sentinel { .. } => {
                let connector = Connector::to_target(&target, tls)?;
                let node = Node::open(connector, addresses.clone()).await;
                node.map(Servers::one).map_err(|error| describe(&error))
            }
        };
        match opened {
            Ok(servers) => Ok(Self { servers }),
            Err(cause) => Err(OpenError::Unreachable { addresses, cause }),
        }
    }

    /// Connects in the background.
    pub(crate) fn open_lazy(url: &str, tls: &Tls) -> Result<Self, OpenError> {
        let target = Target::parse(url, tls)?;
        let servers = if matches!(target.kind, Kind::Cluster) {
            Servers::Cluster(Cluster::lazy(target))
        } else {
            let connector = Connector::to_target(&target, tls)?;
            Servers::one(Node::lazy(connector, target.addresses()))
        };
        Ok(Self { servers })
    }

    /// On a connection of the program's own.
    pub(crate) fn brought<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self { servers: Servers::one(Node::brought(connection)) }
    }

    /// Leave to ask the server that has the key, or, while it is left alone, why.
    pub(crate) fn permit(&self, key: &Key) -> Result<Permit, UnavailableReason> {
        match &self.servers {
            Servers::One(node) => node.breaker().permit(),
            Servers::Cluster(cluster) => cluster.breaker(key.as_bytes()).permit(),
        }
    }

    /// The servers that are known, by name, and why those that are left alone are.
    pub(crate) fn servers(&self) -> Vec<(String, Option<UnavailableReason>)> {
        let breakers = match &self.servers {
            Servers::One(node) => vec![Arc::clone(node.breaker())],
            Servers::Cluster(cluster) => cluster.breakers(),
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
        let reply = self.run(key, &call, deadline).await?;
        call.decode(&reply)
    }

    /// Gives back what an admitted call took.
    pub(crate) async fn refund(
        &self,
        key: &Key,
        refund: Refund<'_>,
        deadline: Instant,
    ) -> Result<(), UnavailableReason> {
        if refund.policy.algorithm() != Algorithm::SlidingWindow {
            return self.run(key, &Call::refund(key, refund), deadline).await.map(drop);
        }
        let mut zrem = redis::cmd("ZREM");
        zrem.arg(key.as_bytes());
        for unit in refund.mark..refund.mark + u64::from(refund.cost) {
            zrem.arg(unit);
        }
        self.send(key.as_bytes(), deadline, REPEATABLE, |_| zrem.clone()).await?;
        Ok(())
    }

    async fn run(
        &self,
        key: &Key,
        call: &Call<'_>,
        deadline: Instant,
    ) -> Result<Value, UnavailableReason> {
        self.send(key.as_bytes(), deadline, call.is_repeatable(), |attempt| call.command(attempt))
            .await
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
    /// call under way, if the command then charges the call no second time.
    async fn send(
        &self,
        key: &[u8],
        deadline: Instant,
        is_repeatable: bool,
        command: impl Fn(Attempt) -> Cmd,
    ) -> Result<Value, UnavailableReason> {
        let mut attempt = Attempt::default();
        let mut redirections = 0;
        let mut redirected = None;
        loop {
            let (node, asking) = match redirected.take() {
                Some(to) => to,
                None => (self.servers.of(key, deadline).await?, false),
            };
            let failure = match node.send(&command(attempt), asking, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            match (failure, &self.servers) {
                (Failure::UnknownScript, _) if !attempt.with_text => {
                    // EVAL runs the script and makes it known.
                    attempt.with_text = true;
                    redirected = Some((node, asking));
                }
                (Failure::Moved(to), Servers::Cluster(cluster)) => {
                    redirections += 1;
                    may_go_on(redirections, deadline).await?;
                    redirected = Some((cluster.at(to, &node, Some(key)), false));
                }
                (Failure::Ask(to), Servers::Cluster(cluster)) => {
                    redirections += 1;
                    may_go_on(redirections, deadline).await?;
                    redirected = Some((cluster.at(to, &node, None), true));
                }
                (failure, _) => {
                    if let Servers::Cluster(cluster) = &self.servers {
                        cluster.outdated();
                    }
                    if attempt.again || !failure.may_be_repeated(is_repeatable) {
                        return Err(failure.into());
                    }
                    attempt.again = true;
                }
            }
        }
    }
}

impl Servers {
    fn one(node: Node) -> Self {
        Self::One(Arc::new(node))
    }

    /// The server that has the key.
    async fn of(&self, key: &[u8], deadline: Instant) -> Result<Arc<Node>, UnavailableReason> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => match cluster.node(key) {
                Some(node) => Ok(node),
                // Rare: on the heap, so that calls need not make room for it.
                None => Box::pin(cluster.learn_node(key, deadline)).await,
            },
        }
    }
}

/// Waits until a call that was redirected so often may be sent on, if there is time.
async fn may_go_on(redirections: u32, deadline: Instant) -> Result<(), UnavailableReason> {
    if redirections <= REDIRECTIONS {
        return Ok(());
    }
    let next = Instant::now() + PAUSE;
    // The node needs time to answer, too.
    if next + PAUSE > deadline {
        return Err(UnavailableReason::NotReady);
    }
    // Rare: on the heap, so that calls need not make room for it.
    Box::pin(tokio::time::sleep_until(next)).await;
    Ok(())
}

/// How a command is sent.
#[derive(Clone, Copy, Default)]
struct Attempt {
    /// The server does not know the script.
    with_text: bool,
    /// The call may have been executed before.
    again: bool,
}
