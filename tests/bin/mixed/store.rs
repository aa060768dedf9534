//! The Redis of a round: one server behind a proxy, a cluster, or a primary that sentinels watch.

use std::{thread, time::Duration};

use fastrand::Rng;
use harness::{Cluster, Network, Proxy, RedisServer, Sentinels, wait_for};

use crate::plan::Mix;

/// The times without an answer after which others fail a primary over: a busy machine stands still for less.
const NODE_TIMEOUT: &str = "CONFIG SET cluster-node-timeout 10000";
const DOWN_AFTER: &str = "SENTINEL SET mymaster down-after-milliseconds 10000";

pub(crate) enum Store {
    Server(RedisServer, Proxy),
    Cluster(Cluster),
    Sentinels(Sentinels),
}

impl Store {
    pub(crate) fn start(mix: &Mix) -> Self {
        if mix.has("sentinel") {
            let sentinels = Sentinels::start();
            sentinels.sentinels.iter().for_each(|sentinel| sentinel.command(DOWN_AFTER));
            return Self::Sentinels(sentinels);
        }
        if !mix.has_replicas() {
            let server = RedisServer::start();
            let proxy = Proxy::start(server.port());
            return Self::Server(server, proxy);
        }
        let cluster = Cluster::start();
        cluster.nodes.iter().for_each(|node| node.command(NODE_TIMEOUT));
        Self::Cluster(cluster)
    }

    /// The URL of the processes.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Server(_, proxy) => proxy.url(),
            Self::Cluster(cluster) => cluster.url(),
            Self::Sentinels(sentinels) => sentinels.url(),
        }
    }

    /// The URL of the round's own connections.
    pub(crate) fn own_url(&self) -> String {
        match self {
            Self::Server(server, _) => server.url(),
            Self::Cluster(_) | Self::Sentinels(_) => self.url(),
        }
    }

    pub(crate) fn servers(&self) -> &[RedisServer] {
        match self {
            Self::Server(server, _) => std::slice::from_ref(server),
            Self::Cluster(cluster) => &cluster.nodes,
            Self::Sentinels(sentinels) => &sentinels.servers,
        }
    }

    /// Returns all keys, each with the milliseconds for which it lasts. A node has none of the slots of others.
    pub(crate) fn keys(&self) -> Vec<(String, i64)> {
        let of_server = |server: &RedisServer| {
            let keys = server.try_command::<Vec<String>>("KEYS *").unwrap_or_default();
            let rest = |key: String| {
                let rest = server.try_command(&format!("PTTL {key}")).ok()?;
                Some((key, rest))
            };
            keys.into_iter().filter_map(rest).collect::<Vec<_>>()
        };
        self.servers().iter().flat_map(of_server).collect()
    }

    /// Sends a command to each server that runs.
    pub(crate) fn send(&self, command: &str) {
        for server in self.servers() {
            let _ = server.try_command::<redis::Value>(command);
        }
    }

    /// Loses what is sent in this time.
    pub(crate) fn lose(&self, time: Duration) {
        if let Self::Server(_, proxy) = self {
            proxy.set(Network::Swallows);
            thread::sleep(time);
            // No network loses a part of a stream and then delivers the rest.
            proxy.set(Network::Forgets);
        }
    }

    /// Moves the slot of a random key to another primary, while calls use it. Returns `false` if the cluster has
    /// deleted its keys.
    pub(crate) fn reshard(&self, random: &mut Rng) -> bool {
        let Self::Cluster(cluster) = self else { return true };
        let from = random.usize(..3);
        let Some(key) = random.choice(cluster.nodes[from].keys()) else { return true };
        let slot = cluster.nodes[from].command(&format!("CLUSTER KEYSLOT {key}"));
        cluster.migrate(slot, from, (from + random.usize(1..3)) % 3, || {
            thread::sleep(Duration::from_millis(random.u64(..8)));
        })
    }

    /// Kills a random primary, whose replica takes its place a moment later.
    pub(crate) fn fail_over(&mut self, random: &mut Rng) {
        let (shard, pause) = (random.usize(..3), Duration::from_millis(random.u64(..500)));
        let (replica, chief, takes_over) = match self {
            Self::Server(..) => return,
            Self::Cluster(cluster) => {
                cluster.nodes[shard].kill();
                let replica = &cluster.nodes[shard + 3];
                (replica, replica, "CLUSTER FAILOVER TAKEOVER")
            }
            Self::Sentinels(sentinels) => {
                sentinels.servers[0].kill();
                (&sentinels.servers[1], &sentinels.sentinels[0], "SENTINEL FAILOVER mymaster")
            }
        };
        thread::sleep(pause);
        wait_for("the replica", || {
            let _ = chief.try_command::<()>(takes_over);
            let role = replica.try_command::<String>("INFO replication").ok()?;
            role.contains("role:master").then_some(())
        });
        // Processes find it once a Sentinel names it, on a busy machine seconds later.
        if let Self::Sentinels(sentinels) = self {
            wait_for("a Sentinel that names it", || (sentinels.primary() == 1).then_some(()));
        }
    }
}
