//! A cluster: the nodes, the slots they have, and the task that keeps both up to date.
//!
//! The client's own cluster connection is not used. It sends a command again after a timeout, and
//! `ASKING` apart from the command. Its calls wait while it searches for other nodes. A limiter
//! must not count twice, and waits for the key's node only.

pub(crate) mod slot;
mod slot_map;

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::Instant};

use self::{
    slot::slot,
    slot_map::{SlotMap, host},
};
use super::{breaker::Breaker, node::Node};
use crate::{
    background,
    error::UnavailableReason,
    redis::{
        backoff::Backoff,
        transport::{Address, Failure, Target},
    },
};

/// The pauses between refreshes of the slot map; they grow while a node is down, or a refresh
/// fails.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));

pub(crate) struct Cluster {
    map: Arc<SlotMap>,
    /// Refreshes the map until this is dropped.
    _task: JoinSet<()>,
}

impl Cluster {
    /// Fetches the slot map in the background, and keeps it up to date.
    pub(super) fn new(target: Target) -> Self {
        let map = Arc::new(SlotMap::new(target));
        // The first refresh waits for no call.
        map.stale.notify_one();
        let task = background::spawn_owned(refresh_loop(Arc::clone(&map)));
        Self { map, _task: task }
    }

    /// Waits for the first slot map. The error is the cause at the last node.
    pub(crate) async fn connected(&self) -> Result<(), String> {
        let mut refreshed = self.map.refreshed.subscribe();
        let first = refreshed.wait_for(Option::is_some).await;
        // The map keeps the sender, so that the wait does not fail.
        first.ok().and_then(|it| it.clone()).unwrap_or(Ok(()))
    }

    /// Returns the addresses in the URL, for messages.
    pub(crate) fn addresses(&self) -> String {
        self.map.target.addresses()
    }

    /// Returns the breakers of all nodes, and that of unassigned slots while it is open.
    pub(super) fn breakers(&self) -> Vec<Arc<Breaker>> {
        let unassigned = Arc::clone(&self.map.unassigned);
        let members = self.map.members();
        let breakers = members.iter().map(|member| Arc::clone(&member.node.breaker));
        breakers.chain(unassigned.failure().map(|_| unassigned)).collect()
    }

    /// Returns the key's node, if its slot is assigned.
    pub(crate) fn node(&self, key: &[u8]) -> Option<Arc<Node>> {
        self.map.node(slot(key))
    }

    /// Returns the key's node after a refresh of the slot map. A failure counts in the breaker of
    /// unassigned slots.
    pub(super) async fn find_node(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Node>, Failure> {
        let guard = self.map.unassigned.guard(false).map_err(Failure::BreakerOpen)?;
        // Before the refresh is asked for, whose end would otherwise be missed.
        let mut refreshed = self.map.refreshed.subscribe();
        self.mark_stale();
        let found = match tokio::time::timeout_at(deadline, refreshed.changed()).await {
            Ok(_) => self.node(key).ok_or(UnavailableReason::NotReady),
            Err(_) => Err(UnavailableReason::DeadlineExceeded),
        };
        match &found {
            Ok(_) => guard.succeeded(),
            Err(reason) => guard.failed(*reason),
        }
        Ok(found?)
    }

    /// Returns the node at the address that a redirect of the node `from` names; none if redirects
    /// have named too many. An address without a host has the host of `from`. The slot of a key
    /// that has `moved` is assigned to it.
    pub(super) fn redirected(
        &self,
        address: &Address,
        from: &Node,
        moved: Option<&[u8]>,
    ) -> Option<Arc<Node>> {
        let mut address = address.clone();
        if address.host.is_empty() {
            host(from.name()).clone_into(&mut address.host);
        }
        let node = self.map.add_node(&address, Some(Instant::now()))?;
        if let Some(key) = moved {
            self.map.assign(slot(key), &node);
            self.mark_stale();
        }
        Some(node)
    }

    /// Schedules a refresh of the slot map.
    pub(super) fn mark_stale(&self) {
        self.map.stale.notify_one();
    }
}

async fn refresh_loop(map: Arc<SlotMap>) {
    let (mut backoff, mut has_failed) = (BACKOFF, false);
    loop {
        // While a node is down its successor is searched for without waiting for a call.
        if !map.has_down() {
            if !has_failed {
                backoff.reset();
            }
            map.stale.notified().await;
        }
        let refreshed = map.fetch().await.map(|ranges| map.apply(&ranges));
        has_failed = refreshed.is_err();
        if let Err(cause) = &refreshed {
            tracing::debug!(%cause, "slot map refresh failed");
        }
        map.refreshed.send_replace(Some(refreshed));
        // Also after a success: each call that fails marks the map as stale.
        tokio::time::sleep(backoff.next()).await;
    }
}
