//! A Redis Cluster.

use std::{collections::HashSet, iter, ops::RangeInclusive, process::Command};

use super::{
    RedisServer, free_port,
    redis_server::{Launch, program, url_of},
    wait_for,
};

/// All slots of a cluster.
const SLOTS: u16 = 16_384;

/// Three primaries with a third of the slots each, and up to three replicas. A node without an
/// answer for a second is failed over; the others keep working.
#[derive(Debug)]
pub struct Cluster {
    /// The primaries at the start, then the replica of each, if there are any.
    pub nodes: Vec<RedisServer>,
    ids: Vec<String>,
}

impl Cluster {
    /// Starts three primaries with a replica each.
    pub fn start() -> Self {
        Self::launch(true, &[])
    }

    /// Starts three primaries without replicas.
    pub fn without_replicas() -> Self {
        Self::launch(false, &[])
    }

    /// Starts three primaries without replicas, over TLS for nodes and clients, with these
    /// [arguments](crate::Authority::arguments).
    pub fn with_tls(tls: &[String]) -> Self {
        Self::launch(false, &[tls, &["--tls-cluster".to_owned(), "yes".to_owned()]].concat())
    }

    fn launch(has_replicas: bool, tls: &[String]) -> Self {
        let nodes: Vec<_> = (0..if has_replicas { 6 } else { 3 }).map(|_| node(tls)).collect();
        let ids: Vec<String> = nodes.iter().map(|node| node.command("CLUSTER MYID")).collect();
        let cluster = Self { nodes, ids };
        for (number, node) in cluster.nodes.iter().enumerate() {
            let () = node.command(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
        }
        for (number, slots) in thirds().enumerate() {
            let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
            let () =
                cluster.nodes[number].command(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
        }
        let first = cluster.nodes[0].public_port();
        for node in &cluster.nodes[1..] {
            let () = node.command(&format!("CLUSTER MEET 127.0.0.1 {first}"));
        }
        wait_for("nodes that know each other", || {
            cluster.nodes.iter().all(|node| cluster.is_complete(node)).then_some(())
        });
        for number in 3..cluster.nodes.len() {
            let primary = &cluster.ids[number - 3];
            let () = cluster.nodes[number].command(&format!("CLUSTER REPLICATE {primary}"));
        }
        wait_for("a cluster that is ready", || cluster.is_ready().then_some(()));
        cluster
    }

    /// Returns `true` if this node has all others in its table, and none on probation.
    fn is_complete(&self, node: &RedisServer) -> bool {
        let known: String = node.command("CLUSTER NODES");
        let known: HashSet<_> = known
            .lines()
            .filter(|line| !line.contains("handshake"))
            .filter_map(|line| line.split(' ').next())
            .collect();
        self.ids.iter().all(|id| known.contains(&**id))
    }

    fn is_ready(&self) -> bool {
        self.nodes.iter().enumerate().all(|(number, node)| {
            let state: String = node.command("CLUSTER INFO");
            let view: String = node.command("CLUSTER NODES");
            let replication: String = node.command("INFO replication");
            let replicas = view.lines().filter(|line| line.contains("slave")).count();
            state.contains("cluster_state:ok")
                && replicas == self.nodes.len() - 3
                && (number < 3 || replication.contains("master_link_status:up"))
        })
    }

    /// The URL of a limiter on the cluster, with the first three nodes.
    pub fn url(&self) -> String {
        url_of("cluster", &self.nodes[..3])
    }

    /// Returns `true` if the servers have databases in clusters: Valkey from 9.0 on.
    pub fn has_databases() -> bool {
        let version = Command::new(program()).arg("--version").output().expect("a server");
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let major = version.strip_prefix("Valkey server v=").and_then(|it| it.split('.').next());
        major.is_some_and(|it| it.parse::<u32>().expect("a number") >= 9)
    }

    /// The slot of a key without braces.
    pub fn slot(&self, key: &str) -> u16 {
        let crc = key.bytes().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            })
        });
        crc % SLOTS
    }

    /// The number of the primary that a key's slot was given to at the start.
    pub fn home(&self, key: &str) -> usize {
        let slot = self.slot(key);
        thirds().position(|slots| slots.contains(&slot)).expect("every slot has a place")
    }

    /// Moves a slot with its keys from one primary to another, a key at a time. `between` runs
    /// between any two steps.
    ///
    /// Returns when all primaries agree on the slot's owner and its epoch. The new owner claims the
    /// slot with a configuration epoch above all that it has received. Without the epoch of an
    /// earlier move, the last owner's claim would win, and the new owner would return the slot and
    /// drop its keys. On a machine that stands still this may happen: the result is `false` then.
    pub fn migrate(&self, slot: u16, from: usize, to: usize, mut between: impl FnMut()) -> bool {
        let mut has_kept = true;
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        self.begin_to_migrate(slot, from, to);
        between();
        loop {
            let keys: Vec<String> = source.command(&format!("CLUSTER GETKEYSINSLOT {slot} 1"));
            let [key] = &*keys else { break };
            let port = target.public_port();
            let _: String = source.command(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
            between();
        }
        self.set_owner(to, slot, to);
        self.set_owner(from, slot, to);
        wait_for("nodes that agree", || {
            let views: Vec<_> = (0..3).map(|number| self.view(&self.nodes[number])).collect();
            // A message under way may still have carried the old owner.
            for (number, view) in views.iter().enumerate() {
                if !has(&view[to].1, slot) {
                    has_kept &= number != to;
                    self.set_owner(number, slot, to);
                }
            }
            (views.iter().all(|view| *view == views[to]) && has(&views[to][to].1, slot))
                .then_some(())
        });
        has_kept
    }

    /// Begins to move a slot: calls without a key there are redirected to the other primary by
    /// `ASK`.
    pub fn begin_to_migrate(&self, slot: u16, from: usize, to: usize) {
        let set = |node: usize, what: &str, whom: usize| {
            let id = &self.ids[whom];
            let () = self.nodes[node].command(&format!("CLUSTER SETSLOT {slot} {what} {id}"));
        };
        set(to, "IMPORTING", from);
        set(from, "MIGRATING", to);
    }

    /// Sets the owner of a slot in the view of one node.
    pub fn set_owner(&self, node: usize, slot: u16, owner: usize) {
        let id = &self.ids[owner];
        let () = self.nodes[node].command(&format!("CLUSTER SETSLOT {slot} NODE {id}"));
    }

    /// The configuration epoch and the slots of each primary, in the view of this node.
    fn view(&self, node: &RedisServer) -> Vec<(u64, Vec<RangeInclusive<u16>>)> {
        let nodes: String = node.command("CLUSTER NODES");
        let of = |id: &String| {
            let line = nodes.lines().find(|line| line.starts_with(id)).expect("a node knows all");
            let words: Vec<_> = line.split(' ').collect();
            let ranges = words[8..].iter().filter_map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                Some(first.parse().ok()?..=last.parse().ok()?)
            });
            (words[6].parse().expect("an epoch"), ranges.collect())
        };
        self.ids[..3].iter().map(of).collect()
    }
}

fn has(ranges: &[RangeInclusive<u16>], slot: u16) -> bool {
    ranges.iter().any(|range| range.contains(&slot))
}

/// The slots of each of the three primaries.
fn thirds() -> impl Iterator<Item = std::ops::Range<u16>> {
    [0, 5_461, 10_923, SLOTS]
        .windows(2)
        .map(|ends| ends[0]..ends[1])
        .collect::<Vec<_>>()
        .into_iter()
}

fn node(tls: &[String]) -> RedisServer {
    let arguments = [
        ["--cluster-enabled", "yes"],
        ["--cluster-node-timeout", "1000"],
        // A lost shard does not stop the others.
        ["--cluster-require-full-coverage", "no"],
        ["--repl-diskless-sync-delay", "0"],
    ];
    let databases = [["--cluster-databases", "16"]];
    let databases = if Cluster::has_databases() { &databases[..] } else { &[] };
    let arguments = [&arguments[..], databases].concat();
    // Nodes connect to each other on a second port, ten thousand above.
    let port = || iter::repeat_with(free_port).find(|port| *port < 55_000).expect("some are free");
    RedisServer::launch(&Launch::server(arguments.as_flattened()).with_tls(tls, port), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_moves_with_its_keys() {
        let cluster = Cluster::without_replicas();
        let (from, slot) = (cluster.home("key"), cluster.slot("key"));
        assert_eq!(cluster.nodes[0].command::<u16>("CLUSTER KEYSLOT key"), slot);
        let to = (from + 1) % 3;
        let () = cluster.nodes[from].command("SET key value");
        let mut steps = 0;
        cluster.migrate(slot, from, to, || steps += 1);
        assert_eq!(steps, 2);
        assert_eq!(cluster.nodes[to].command::<String>("GET key"), "value");
        let moved = cluster.nodes[from].try_command::<String>("GET key").unwrap_err();
        assert_eq!(moved.code(), Some("MOVED"));
    }

    #[test]
    fn a_replica_takes_the_place_of_a_primary_that_is_gone() {
        let mut cluster = Cluster::start();
        cluster.nodes[0].kill();
        wait_for("a failover", || {
            let role: String = cluster.nodes[3].command("INFO replication");
            role.contains("role:master").then_some(())
        });
    }
}
