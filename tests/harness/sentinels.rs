//! A primary, its replica, and three sentinels that watch them.

use super::{
    RedisServer, free_port,
    redis_server::{Launch, url_of},
    wait_for,
};

/// The primary's name in the sentinels.
const NAME: &str = "mymaster";

/// Starts a sentinel that watches nobody but a primary at this port, after so many failovers.
pub fn lone_sentinel(primary: u16, failovers: u32) -> RedisServer {
    RedisServer::launch(&Launch::sentinel_of(NAME, primary, failovers), free_port)
}

/// Returns the URL of a limiter that discovers the primary by these sentinels.
pub fn url_of_sentinels(sentinels: &[RedisServer]) -> String {
    format!("{}/{NAME}", url_of("sentinel", sentinels))
}

/// A primary, its replica, and three sentinels. A primary without an answer for half a second is
/// replaced once two of them agree.
#[derive(Debug)]
pub struct Sentinels {
    /// The first is the primary at the start.
    pub servers: Vec<RedisServer>,
    /// The three sentinels.
    pub sentinels: Vec<RedisServer>,
}

impl Sentinels {
    /// Starts all five, and waits until the sentinels have found each other and the replica.
    pub fn start() -> Self {
        Self::with_tls(&[])
    }

    /// Starts all five with TLS for servers and clients, with these
    /// [arguments](crate::Authority::arguments).
    pub fn with_tls(tls: &[String]) -> Self {
        let mut tls = tls.to_owned();
        if !tls.is_empty() {
            tls.extend(["--tls-replication".to_owned(), "yes".to_owned()]);
        }
        let server = || {
            let launch = Launch::server(&["--repl-diskless-sync-delay", "0"]);
            RedisServer::launch(&launch.with_tls(&tls, free_port), free_port)
        };
        let servers = vec![server(), server()];
        let primary = servers[0].public_port();
        let () = servers[1].command(&format!("REPLICAOF 127.0.0.1 {primary}"));
        wait_for("the replica", || {
            let info: String = servers[1].command("INFO replication");
            info.contains("master_link_status:up").then_some(())
        });
        let watch = |_| {
            let sentinel =
                RedisServer::launch(&Launch::sentinel().with_tls(&tls, free_port), free_port);
            let () = sentinel.command(&format!("SENTINEL MONITOR {NAME} 127.0.0.1 {primary} 2"));
            let () = sentinel.command(&format!("SENTINEL SET {NAME} down-after-milliseconds 500"));
            let () = sentinel.command(&format!("SENTINEL SET {NAME} failover-timeout 5000"));
            sentinel
        };
        let sentinels: Vec<_> = (0..3).map(watch).collect();
        for sentinel in &sentinels {
            wait_for("a sentinel that knows the others", || {
                let info: String = sentinel.command("INFO sentinel");
                info.contains("slaves=1,sentinels=3").then_some(())
            });
        }
        Self { servers, sentinels }
    }

    /// The URL of a limiter that discovers the primary by the sentinels.
    pub fn url(&self) -> String {
        url_of_sentinels(&self.sentinels)
    }

    /// The port of the primary in the view of this sentinel.
    pub fn primary_port(&self, sentinel: usize) -> u16 {
        let sentinel = &self.sentinels[sentinel];
        let command = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}");
        let (_, port): (String, String) = sentinel.command(&command);
        port.parse().expect("a port")
    }

    /// The index of the primary in the view of the first sentinel.
    pub fn primary(&self) -> usize {
        let port = self.primary_port(0);
        self.servers
            .iter()
            .position(|server| server.public_port() == port)
            .expect("one of the servers")
    }

    /// Starts a failover by the sentinels.
    pub fn fail_over(&self) {
        let () = self.sentinels[0].command(&format!("SENTINEL FAILOVER {NAME}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_takes_the_place_of_a_primary_that_is_gone() {
        let mut sentinels = Sentinels::start();
        assert_eq!(sentinels.primary(), 0);
        sentinels.servers[0].kill();
        wait_for("a failover", || (sentinels.primary() == 1).then_some(()));
        wait_for("its end", || {
            let info: String = sentinels.servers[1].command("INFO replication");
            info.contains("role:master").then_some(())
        });
    }
}
