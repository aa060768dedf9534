//! The assignment of slots to nodes, as the nodes themselves report it.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use parking_lot::RwLock;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::slot::{Range, SLOTS, ranges};
use crate::{
    error::{Replied, UnavailableReason},
    redis::{
        servers::{
            breaker::Breaker,
            node::{Lane, Node},
        },
        transport::{Address, Connector, Target, beside},
    },
};

/// The most nodes that are known by redirects alone.
const MAX_REDIRECTED: usize = 16;

/// The time for which a node without slots is kept after a redirect to it. A node that fails has
/// one breaker, and one warning, while others redirect to it.
const REDIRECTED: Duration = Duration::from_secs(60);

/// The timeout of `CLUSTER SLOTS` at one node.
const SLOTS_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) struct SlotMap {
    /// The node of each slot; none of an unassigned one.
    slots: RwLock<Vec<Option<Arc<Node>>>>,
    members: RwLock<Vec<Member>>,
    /// The breaker of unassigned slots.
    pub(super) unassigned: Arc<Breaker>,
    pub(super) target: Arc<Target>,
    /// Notified when the map may be out of date.
    pub(super) stale: Notify,
    /// The result of the last refresh; none before the first one.
    pub(super) refreshed: watch::Sender<Option<Result<(), String>>>,
}

#[derive(Clone)]
pub(super) struct Member {
    address: Address,
    pub(super) node: Arc<Node>,
    /// The time of the last redirect to it.
    redirected: Option<Instant>,
}

impl Member {
    fn is_redirected_to(&self) -> bool {
        self.redirected.is_some_and(|at| at.elapsed() < REDIRECTED)
    }
}

impl SlotMap {
    pub(super) fn new(target: Target) -> Self {
        Self {
            slots: RwLock::new(vec![None; SLOTS.into()]),
            members: RwLock::default(),
            unassigned: Breaker::new("unassigned slots".to_owned()),
            target: Arc::new(target),
            stale: Notify::new(),
            refreshed: watch::Sender::new(None),
        }
    }

    pub(super) fn members(&self) -> Vec<Member> {
        self.members.read().clone()
    }

    pub(super) fn node(&self, slot: u16) -> Option<Arc<Node>> {
        self.slots.read()[usize::from(slot)].clone()
    }

    /// Assigns one slot, until the next refresh.
    pub(super) fn assign(&self, slot: u16, node: &Arc<Node>) {
        let before = self.slots.write()[usize::from(slot)].replace(Arc::clone(node));
        // Without the lock, because the drop of a breaker calls recorders.
        drop(before);
    }

    /// Returns `true` if the last attempt to connect to some node failed.
    pub(super) fn has_down(&self) -> bool {
        self.members().iter().any(|member| member.node.is_down())
    }

    /// Returns the node at this address. A new one is added, unless it was `redirected` to and
    /// redirects have named too many.
    pub(super) fn add_node(
        &self,
        address: &Address,
        redirected: Option<Instant>,
    ) -> Option<Arc<Node>> {
        let mut members = self.members.write();
        if let Some(member) = members.iter_mut().find(|it| it.address == *address) {
            // Its age starts anew, unless it is a node of the map.
            member.redirected = member.redirected.and(redirected).or(member.redirected);
            return Some(Arc::clone(&member.node));
        }
        let of_redirects = members.iter().filter(|it| it.is_redirected_to()).count();
        if redirected.is_some() && of_redirects >= MAX_REDIRECTED {
            return None;
        }
        let node = Arc::new(self.connect(address));
        let address = address.clone();
        members.push(Member { address, node: Arc::clone(&node), redirected });
        Some(node)
    }

    fn connect(&self, address: &Address) -> Node {
        let Address { host, port } = address.clone();
        let name = format!("{host}:{port}");
        let (host, port) = match &self.target.options.address_map {
            Some(map) => map(&host, port),
            None => (host, port),
        };
        let address = beside(self.target.servers[0].addr(), host, port);
        Node::managed(Connector::new(&self.target, address), name)
    }

    /// Fetches the assignment from one node after the other, up to the first reply. The error is
    /// the cause at the last node.
    pub(super) async fn fetch(&self) -> Result<Vec<Range>, String> {
        let mut members = self.members();
        fastrand::shuffle(&mut members);
        let mut cause = "no node is up".to_owned();
        for member in members.iter().filter(|member| !member.node.is_down()) {
            match Self::fetch_from(&member.node).await {
                Ok(ranges) => return Ok(ranges),
                Err(reason) => cause = reason.to_string(),
            }
        }
        for seed in &self.target.servers {
            // A seed may be a load balancer, so that its connection is not kept.
            let connector = Connector::new(&self.target, seed.addr().clone());
            let node = Node::managed(connector, seed.addr().to_string());
            if let Err(why) = node.connected().await {
                cause = why;
                continue;
            }
            match Self::fetch_from(&node).await {
                Ok(ranges) => return Ok(ranges),
                // A server without cluster mode answers `CLUSTER SLOTS` with an error.
                Err(UnavailableReason::StoreError) => {
                    cause = format!("{} is no node of a cluster; write redis://", node.name());
                }
                Err(reason) => cause = reason.to_string(),
            }
        }
        Err(cause)
    }

    async fn fetch_from(node: &Node) -> Replied<Vec<Range>> {
        let command = redis::cmd("CLUSTER").arg("SLOTS").take();
        let mut reply = node.start(command.into(), false, Lane::Main);
        let reply = reply.wait(Instant::now() + SLOTS_TIMEOUT).await?;
        let ranges = ranges(&reply, host(node.name())).ok_or(UnavailableReason::StoreError)?;
        // A node that has not joined its cluster yet knows no slots, and would empty the map.
        if ranges.is_empty() { Err(UnavailableReason::NotReady) } else { Ok(ranges) }
    }

    pub(super) fn apply(&self, ranges: &[Range]) {
        let mut nodes = HashMap::new();
        let mut slots = vec![None; SLOTS.into()];
        for Range { first, last, primary } in ranges {
            let node = nodes.entry(primary).or_insert_with(|| self.add_node(primary, None));
            slots[usize::from(*first)..=usize::from(*last)].fill(node.clone());
        }
        let is_complete = slots.iter().all(Option::is_some);
        // What is replaced is dropped outside the locks: the drop of a breaker calls recorders.
        let _before = mem::replace(&mut *self.slots.write(), slots);
        if is_complete {
            // No call would close it: only calls of unassigned slots use it.
            self.unassigned.close();
        }
        let is_without_slots =
            |it: &mut Member| !nodes.contains_key(&it.address) && !it.is_redirected_to();
        let _removed: Vec<_> = self.members.write().extract_if(.., is_without_slots).collect();
    }
}

/// Returns the host of an address.
pub(super) fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}
