//! The assignment of slots to nodes, as the nodes themselves report it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::slot::{Range, SLOTS, ranges};
use crate::{
    error::UnavailableReason,
    redis::{
        breaker::Breaker,
        connector::Connector,
        failure::Address,
        node::{Lane, Node},
        target::{Target, beside},
    },
};

/// The most nodes that are known by redirects alone.
const MAX_REDIRECTED: usize = 16;

/// The time for which a node without slots is kept after a redirect to it. A node that fails has one breaker, and
/// one warning, while others redirect to it.
const REDIRECTED: Duration = Duration::from_secs(60);

/// The timeout of `CLUSTER SLOTS` at one node.
const SLOTS_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) struct SlotMap {
    /// The node number of each slot.
    pub(super) slots: Box<[AtomicU16]>,
    nodes: RwLock<Vec<Option<Member>>>,
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

/// The node number of a slot without a node.
const UNASSIGNED: u16 = u16::MAX;

impl SlotMap {
    pub(super) fn new(target: Target) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| AtomicU16::new(UNASSIGNED)).collect(),
            nodes: RwLock::default(),
            unassigned: Breaker::new("unassigned slots".to_owned()),
            target: Arc::new(target),
            stale: Notify::new(),
            refreshed: watch::Sender::new(None),
        }
    }

    pub(super) fn members(&self) -> Vec<Member> {
        let nodes = self.nodes.read();
        nodes.iter().flatten().cloned().collect()
    }

    pub(super) fn node(&self, slot: u16) -> Option<Arc<Node>> {
        let number = self.slots[usize::from(slot)].load(Ordering::Relaxed);
        let nodes = self.nodes.read();
        Some(Arc::clone(&nodes.get(usize::from(number))?.as_ref()?.node))
    }

    /// Returns `true` if the last attempt to connect to some node failed.
    pub(super) fn has_down(&self) -> bool {
        self.members().iter().any(|member| member.node.is_down())
    }

    /// Returns the number of the node at this address, and the node. A new one is added, unless it was
    /// `redirected` to and redirects have named too many.
    pub(super) fn add_node(
        &self,
        address: &Address,
        redirected: Option<Instant>,
    ) -> Option<(u16, Arc<Node>)> {
        let mut nodes = self.nodes.write();
        let is_known = |it: &Option<Member>| it.as_ref().is_some_and(|it| it.address == *address);
        let number = if let Some(number) = nodes.iter().position(is_known) {
            number
        } else {
            let of_redirects = nodes.iter().flatten().filter(|it| it.is_redirected_to()).count();
            if redirected.is_some() && of_redirects >= MAX_REDIRECTED {
                return None;
            }
            let new = || Member {
                address: address.clone(),
                node: Arc::new(self.connect(address)),
                redirected,
            };
            let free = nodes.iter().position(Option::is_none).unwrap_or(nodes.len());
            if free == nodes.len() {
                nodes.push(None);
            }
            nodes[free] = Some(new());
            free
        };
        let member = nodes[number].as_mut()?;
        // Its age starts anew, unless it is a node of the map.
        member.redirected = member.redirected.and(redirected).or(member.redirected);
        Some((u16::try_from(number).ok()?, Arc::clone(&member.node)))
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

    /// Fetches the assignment from one node after the other, up to the first reply. The error is the cause at the
    /// last node.
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
                Err(UnavailableReason::StoreError) => {
                    cause = format!("{} is no node of a cluster; write redis://", node.name());
                }
                Err(reason) => cause = reason.to_string(),
            }
        }
        Err(cause)
    }

    async fn fetch_from(node: &Node) -> Result<Vec<Range>, UnavailableReason> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let mut reply = node.start(command.into(), false, Lane::Main);
        let reply = reply.wait(Instant::now() + SLOTS_TIMEOUT).await?;
        let ranges = ranges(&reply, host(node.name())).ok_or(UnavailableReason::StoreError)?;
        if ranges.is_empty() { Err(UnavailableReason::NotReady) } else { Ok(ranges) }
    }

    pub(super) fn apply(&self, ranges: &[Range]) {
        let mut numbers = HashMap::new();
        let mut slots = vec![UNASSIGNED; SLOTS.into()];
        for Range { first, last, primary } in ranges {
            let number = *numbers
                .entry(primary)
                .or_insert_with(|| self.add_node(primary, None).map_or(UNASSIGNED, |it| it.0));
            slots[usize::from(*first)..=usize::from(*last)].fill(number);
        }
        let is_complete = !slots.contains(&UNASSIGNED);
        for (slot, number) in self.slots.iter().zip(slots) {
            slot.store(number, Ordering::Relaxed);
        }
        if is_complete {
            // No call would close it: only calls of unassigned slots use it.
            self.unassigned.close();
        }
        // Dropped outside the lock: the drop of a breaker calls recorders.
        let mut removed = Vec::new();
        // Nodes without slots are removed.
        let mut nodes = self.nodes.write();
        for node in nodes.iter_mut() {
            let member =
                node.take_if(|it| !numbers.contains_key(&it.address) && !it.is_redirected_to());
            removed.extend(member.map(|it| Arc::clone(&it.node.breaker)));
        }
    }
}

/// Returns the host of an address.
pub(super) fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}
