//! Which node has which slot, as the nodes themselves tell.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    time::Duration,
};

use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion};
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
        failure::{Address, describe},
        node::{Lane, Node},
        target::Target,
        tls::Tls,
    },
};

/// How long one node may take to tell which slots are where.
const TELL: Duration = Duration::from_millis(500);

pub(super) struct SlotMap {
    /// The number of the node that has the slot.
    pub(super) slots: Box<[AtomicU16]>,
    nodes: RwLock<Vec<Option<Member>>>,
    /// Of slots that no node is known to have.
    nobody: RwLock<Arc<Breaker>>,
    /// The addresses in the URL.
    seeds: Vec<ConnectionInfo>,
    protocol: Option<ProtocolVersion>,
    tls: Tls,
    /// The map may be out of date.
    pub(super) stale: Notify,
    /// Rounds of asking that have come to an end.
    pub(super) rounds: watch::Sender<u64>,
}

#[derive(Clone)]
pub(super) struct Member {
    address: Address,
    pub(super) node: Arc<Node>,
}

/// The number of no node.
const UNASSIGNED: u16 = u16::MAX;

impl SlotMap {
    pub(super) fn new(target: Target) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| AtomicU16::new(UNASSIGNED)).collect(),
            nodes: RwLock::default(),
            nobody: RwLock::new(no_node()),
            seeds: target.servers,
            protocol: target.protocol,
            tls: target.tls,
            stale: Notify::new(),
            rounds: watch::Sender::new(0),
        }
    }

    pub(super) fn nobody(&self) -> Arc<Breaker> {
        Arc::clone(&self.nobody.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn member(&self, number: usize) -> Option<Member> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).get(number)?.clone()
    }

    pub(super) fn members(&self) -> Vec<Member> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.iter().flatten().cloned().collect()
    }

    pub(super) fn node(&self, slot: u16) -> Option<Arc<Node>> {
        let number = self.slots[usize::from(slot)].load(Ordering::Relaxed);
        Some(self.member(number.into())?.node)
    }

    pub(super) fn has_down(&self) -> bool {
        self.members().iter().any(|member| member.node.is_down())
    }

    /// The node at the address, which may be new, and its number.
    pub(super) fn join(&self, address: &Address) -> (u16, Arc<Node>) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let known =
            nodes.iter().position(|it| it.as_ref().is_some_and(|it| it.address == *address));
        let number = known.unwrap_or_else(|| {
            let member =
                Some(Member { address: address.clone(), node: Arc::new(self.connect(address)) });
            if let Some(free) = nodes.iter().position(Option::is_none) {
                nodes[free] = member;
                free
            } else {
                nodes.push(member);
                nodes.len() - 1
            }
        });
        let node = nodes[number].as_ref().map(|member| Arc::clone(&member.node));
        let number = u16::try_from(number).unwrap_or(UNASSIGNED);
        (number, node.expect("the node has just been found or made"))
    }

    fn connect(&self, address: &Address) -> Node {
        let Address { host, port } = address.clone();
        let name = format!("{host}:{port}");
        // As the seeds are connected to.
        let addr = match self.seeds[0].addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let info = self.seeds[0].clone().set_addr(addr);
        Node::lazy(&Connector::to_server(info, self.protocol, self.tls.clone()), name)
    }

    /// Asks which slots are where; or says why nobody tells.
    pub(super) async fn learn(&self) -> Result<(), String> {
        let ranges = self.told().await?;
        self.take_over(&ranges);
        Ok(())
    }

    /// What the first node tells that can, asked one after the other.
    async fn told(&self) -> Result<Vec<Range>, String> {
        let mut members = self.members();
        fastrand::shuffle(&mut members);
        let mut why = "no node is up".to_owned();
        for member in members.iter().filter(|member| !member.node.is_down()) {
            match Self::told_by(&member.node).await {
                Ok(ranges) => return Ok(ranges),
                Err(reason) => why = reason.to_string(),
            }
        }
        for seed in &self.seeds {
            // A seed need not be a node: its connection is not kept.
            let connector = Connector::to_server(seed.clone(), self.protocol, self.tls.clone());
            let node = match Node::open(&connector, seed.addr().to_string()).await {
                Ok(node) => node,
                Err(error) => {
                    why = describe(&error);
                    continue;
                }
            };
            match Self::told_by(&node).await {
                Ok(ranges) => return Ok(ranges),
                Err(UnavailableReason::StoreError) => {
                    why = format!("{} is no node of a cluster: write redis://", node.name());
                }
                Err(reason) => why = reason.to_string(),
            }
        }
        Err(why)
    }

    async fn told_by(node: &Node) -> Result<Vec<Range>, UnavailableReason> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let is_sent = AtomicBool::new(false);
        let reply = node.send(&command, false, Lane::Main, Instant::now() + TELL, &is_sent).await?;
        let ranges = ranges(&reply, host(node.name())).ok_or(UnavailableReason::StoreError)?;
        if ranges.is_empty() { Err(UnavailableReason::NotReady) } else { Ok(ranges) }
    }

    fn take_over(&self, ranges: &[Range]) {
        let mut numbers = HashMap::new();
        let mut slots = vec![UNASSIGNED; SLOTS.into()];
        for Range { first, last, primary } in ranges {
            let number = *numbers.entry(primary).or_insert_with(|| self.join(primary).0);
            slots[usize::from(*first)..=usize::from(*last)].fill(number);
        }
        let is_whole = !slots.contains(&UNASSIGNED);
        for (slot, number) in self.slots.iter().zip(slots) {
            slot.store(number, Ordering::Relaxed);
        }
        // Of what has left it is told outside of the locks.
        let mut left = Vec::new();
        if is_whole {
            // Nobody would find out by asking for them that all slots have a node.
            let mut nobody = self.nobody.write().unwrap_or_else(PoisonError::into_inner);
            left.push(mem::replace(&mut *nobody, no_node()));
        }
        // Nodes that have no slots any more are left.
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        for node in nodes.iter_mut() {
            let member = node.take_if(|it| !numbers.contains_key(&it.address));
            left.extend(member.map(|it| Arc::clone(it.node.breaker())));
        }
    }
}

fn no_node() -> Arc<Breaker> {
    Breaker::new("no node".to_owned())
}

/// The host in an address.
pub(super) fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}
