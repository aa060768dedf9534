//! A cluster: which node has a key, learned from any of them and kept up to date.
//!
//! The client's own cluster connection is not used. It sends a call again when it gets no answer,
//! sends `ASKING` apart from the command it is for, and has a call wait while another node is
//! looked for; a limiter must not count twice, and waits for nothing but the node that has the key.

pub(super) mod slots;

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::Instant,
};

use self::slots::{Range, SLOTS, ranges, slot};
use super::{
    connector::Connector,
    failure::{Address, describe},
    node::Node,
    url::Target,
};
use crate::error::UnavailableReason;

/// How long one node may take to tell which slots are where.
const TELL: Duration = Duration::from_millis(500);

/// The pauses between rounds of asking: longer while a node is down that has no successor yet.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Cluster {
    map: Arc<Map>,
    task: JoinHandle<()>,
}

struct Map {
    /// The number of the node that has the slot.
    slots: Box<[AtomicU16]>,
    nodes: RwLock<Vec<Option<Member>>>,
    /// The addresses in the URL.
    seeds: Vec<ConnectionInfo>,
    protocol: Option<ProtocolVersion>,
    /// The map may be out of date.
    stale: Notify,
    /// Rounds of asking that have come to an end.
    rounds: watch::Sender<u64>,
}

#[derive(Clone)]
struct Member {
    address: Address,
    node: Arc<Node>,
}

/// The number of no node.
const NOBODY: u16 = u16::MAX;

impl Cluster {
    /// Learns the map, and from then on keeps it.
    pub(super) async fn open(target: Target) -> Result<Self, String> {
        let map = Map::new(target);
        map.learn().await?;
        Ok(Self::start(map))
    }

    /// Learns the map in the background.
    pub(super) fn lazy(target: Target) -> Self {
        let map = Map::new(target);
        map.stale.notify_one();
        Self::start(map)
    }

    fn start(map: Map) -> Self {
        let map = Arc::new(map);
        let task = tokio::spawn(keep_learning(Arc::clone(&map)));
        Self { map, task }
    }

    /// The number of the node that has the key, as far as is known: small, and another node's
    /// only after the first has left.
    pub(super) fn number(&self, key: &[u8]) -> usize {
        match self.map.slots[usize::from(slot(key))].load(Ordering::Relaxed) {
            NOBODY => 0,
            number => number.into(),
        }
    }

    /// What messages call the node of this number.
    pub(super) fn name(&self, number: usize) -> String {
        let member = self.map.member(number);
        member.map_or_else(|| "no node".to_owned(), |member| member.node.name().to_owned())
    }

    /// The node that has the key, if it is known.
    pub(super) fn node(&self, key: &[u8]) -> Option<Arc<Node>> {
        self.map.node(slot(key))
    }

    /// The node that has the key, after the map has been learned.
    pub(super) async fn learn_node(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Node>, UnavailableReason> {
        let mut rounds = self.map.rounds.subscribe();
        self.outdated();
        match tokio::time::timeout_at(deadline, rounds.changed()).await {
            Ok(_) => self.node(key).ok_or(UnavailableReason::NotReady),
            Err(_) => Err(UnavailableReason::DeadlineExceeded),
        }
    }

    /// The node at an address that a node `asked` has told. Where the key is moved for good, its
    /// slot is known to be there from now on.
    pub(super) fn at(&self, mut told: Address, asked: &Node, moved: Option<&[u8]>) -> Arc<Node> {
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

async fn keep_learning(map: Arc<Map>) {
    let mut pause = FIRST_PAUSE;
    loop {
        // As long as a node is down its successor is looked for, without waiting for a call.
        if map.has_down() {
            pause = (pause * 2).min(LONGEST_PAUSE);
        } else {
            pause = FIRST_PAUSE;
            map.stale.notified().await;
        }
        if let Err(cause) = map.learn().await {
            tracing::debug!(%cause, "no node of the cluster tells which slots are where");
        }
        map.rounds.send_modify(|rounds| *rounds += 1);
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }
}

impl Map {
    fn new(target: Target) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| AtomicU16::new(NOBODY)).collect(),
            nodes: RwLock::default(),
            seeds: target.servers,
            protocol: target.protocol,
            stale: Notify::new(),
            rounds: watch::Sender::new(0),
        }
    }

    fn member(&self, number: usize) -> Option<Member> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).get(number)?.clone()
    }

    fn members(&self) -> Vec<Member> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.iter().flatten().cloned().collect()
    }

    fn node(&self, slot: u16) -> Option<Arc<Node>> {
        let number = self.slots[usize::from(slot)].load(Ordering::Relaxed);
        Some(self.member(number.into())?.node)
    }

    fn has_down(&self) -> bool {
        self.members().iter().any(|member| member.node.is_down())
    }

    /// The node at the address, which may be new, and its number.
    fn join(&self, address: &Address) -> (u16, Arc<Node>) {
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
        let number = u16::try_from(number).unwrap_or(NOBODY);
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
        Node::lazy(Connector::to_server(info, self.protocol), name)
    }

    /// Asks which slots are where; or says why nobody tells.
    async fn learn(&self) -> Result<(), String> {
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
            let connector = Connector::to_server(seed.clone(), self.protocol);
            let node = match Node::open(connector, seed.addr().to_string()).await {
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
        let reply = node.send(&command, false, Instant::now() + TELL).await?;
        let ranges = ranges(&reply, host(node.name())).ok_or(UnavailableReason::StoreError)?;
        if ranges.is_empty() { Err(UnavailableReason::NotReady) } else { Ok(ranges) }
    }

    fn take_over(&self, ranges: &[Range]) {
        let mut numbers = HashMap::new();
        let mut slots = vec![NOBODY; SLOTS.into()];
        for Range { first, last, primary } in ranges {
            let number = *numbers.entry(primary).or_insert_with(|| self.join(primary).0);
            slots[usize::from(*first)..=usize::from(*last)].fill(number);
        }
        for (slot, number) in self.slots.iter().zip(slots) {
            slot.store(number, Ordering::Relaxed);
        }
        // Nodes that have no slots any more are left.
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        for node in nodes.iter_mut() {
            if node.as_ref().is_some_and(|it| !numbers.contains_key(&it.address)) {
                *node = None;
            }
        }
    }
}

/// The host in an address.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}
