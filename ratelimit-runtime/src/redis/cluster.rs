//! A cluster: which node has a key, learned from any of them and kept up to date.
//!
//! The client's own cluster connection is not used. It sends a call again when it gets no answer,
//! sends `ASKING` apart from the command it is for, and has a call wait while another node is
//! looked for; a limiter must not count twice, and waits for nothing but the node that has the key.

pub(super) mod slot;
mod slot_map;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};

use self::{
    slot::slot,
    slot_map::{SlotMap, host},
};
use super::{
    backoff::Backoff,
    breaker::Breaker,
    failure::{Address, Failure},
    node::Node,
    target::Target,
};
use crate::error::UnavailableReason;

/// The pauses between rounds of asking: longer while a node is down that has no successor yet.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Cluster {
    map: Arc<SlotMap>,
    task: JoinHandle<()>,
}

impl Cluster {
    /// Learns the map, and from then on keeps it.
    pub(super) async fn open(target: Target) -> Result<Self, String> {
        let map = SlotMap::new(target);
        map.learn().await?;
        Ok(Self::start(map))
    }

    /// Learns the map in the background.
    pub(super) fn lazy(target: Target) -> Self {
        let map = SlotMap::new(target);
        map.stale.notify_one();
        Self::start(map)
    }

    fn start(map: SlotMap) -> Self {
        let map = Arc::new(map);
        let task = tokio::spawn(keep_learning(Arc::clone(&map)));
        Self { map, task }
    }

    /// What is known of the nodes, and, as long as some slots have none, of those slots.
    pub(super) fn breakers(&self) -> Vec<Arc<Breaker>> {
        let nobody = self.map.nobody();
        let members = self.map.members();
        let breakers = members.iter().map(|member| Arc::clone(member.node.breaker()));
        breakers.chain(nobody.failure().map(|_| nobody)).collect()
    }

    /// The node that has the key, if it is known.
    pub(super) fn node(&self, key: &[u8]) -> Option<Arc<Node>> {
        self.map.node(slot(key))
    }

    /// The node that has the key, after the map has been learned. A slot without a node is charged
    /// to no node's breaker, but to one of such slots.
    pub(super) async fn learn_node(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Node>, Failure> {
        let trial = self.map.nobody().trial().map_err(Failure::NotAsked)?;
        let mut rounds = self.map.rounds.subscribe();
        self.outdated();
        let learned = match tokio::time::timeout_at(deadline, rounds.changed()).await {
            Ok(_) => self.node(key).ok_or(UnavailableReason::NotReady),
            Err(_) => Err(UnavailableReason::DeadlineExceeded),
        };
        match &learned {
            Ok(_) => trial.succeeded(),
            Err(reason) => trial.failed(*reason),
        }
        Ok(learned?)
    }

    /// The node at an address that a node `asked` has told. Where the key is moved for good, its
    /// slot is known to be there from now on.
    pub(super) fn at(&self, told: &Address, asked: &Node, moved: Option<&[u8]>) -> Arc<Node> {
        let mut told = told.clone();
        if told.host.is_empty() {
            host(asked.name()).clone_into(&mut told.host);
        }
        let (number, node) = self.map.join(&told);
        if let Some(key) = moved {
            let slot = usize::from(slot(key));
            self.map.slots[slot].store(number, Ordering::Relaxed);
            self.outdated();
        }
        node
    }

    /// Has the map learned anew.
    pub(super) fn outdated(&self) {
        self.map.stale.notify_one();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_learning(map: Arc<SlotMap>) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        // As long as a node is down its successor is looked for, without waiting for a call.
        if !map.has_down() {
            backoff.reset();
            map.stale.notified().await;
        }
        if let Err(cause) = map.learn().await {
            tracing::debug!(%cause, "no node of the cluster tells which slots are where");
        }
        map.rounds.send_modify(|rounds| *rounds += 1);
        tokio::time::sleep(backoff.next()).await;
    }
}
