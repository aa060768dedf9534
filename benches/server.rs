//! Redis servers of a benchmark's own, each on a free port, and their statistics.

use std::{
    error::Error,
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use redis::{Client, Connection};
use tempfile::TempDir;

/// The result of a benchmark; any error ends it.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A `redis-server` process without persistence; it ends with this value.
pub struct Server {
    process: Child,
    /// The port that it listens on.
    pub port: u16,
    _directory: TempDir,
}

impl Server {
    /// Starts a server, and waits until it answers.
    ///
    /// # Errors
    ///
    /// When there is no `redis-server`, or it does not answer within seconds.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let directory = TempDir::new()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .args(arguments)
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server, which has to be installed: {error}"))?;
        let server = Self { process, port, _directory: directory };
        let start = Instant::now();
        while let Err(error) = server.command::<String>(&["PING"]) {
            if start.elapsed() > Duration::from_secs(10) {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Starts a cluster of so many primaries, and waits until it is in order.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn cluster(primaries: usize) -> Result<Vec<Self>> {
        // A node's second port is its first and 10 000.
        let start = || loop {
            let server = Self::start(&["--cluster-enabled", "yes"]);
            match server {
                Ok(server) if server.port < 55_000 => return Ok(server),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        };
        let nodes: Vec<Self> = (0..primaries).map(|_| start()).collect::<Result<_>>()?;
        let slots = 16_384 / primaries + 1;
        for (index, node) in nodes.iter().enumerate() {
            let first = index * slots;
            let last = (first + slots).min(16_384) - 1;
            let (first, last) = (first.to_string(), last.to_string());
            node.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
            node.command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port.to_string()])?;
        }
        for node in &nodes {
            let is_ready = || -> Result<bool> {
                let info: String = node.command(&["CLUSTER", "INFO"])?;
                let known = format!("cluster_known_nodes:{primaries}\r");
                Ok(info.contains("cluster_state:ok") && info.contains(&known))
            };
            while !is_ready()? {
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(nodes)
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A connection to it.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn connect(&self) -> Result<Connection> {
        Ok(Client::open(self.url())?.get_connection()?)
    }

    /// Sends one command on a connection of its own.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or answers with an error.
    pub fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        let mut command = redis::Cmd::new();
        command.arg(words);
        Ok(command.query(&mut self.connect()?)?)
    }

    /// A number of `INFO`.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or has no such number.
    pub fn info(&self, name: &str) -> Result<f64> {
        let info: String = self.command(&["INFO", "everything"])?;
        let number = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(number.ok_or_else(|| format!("INFO has no {name}"))?.parse()?)
    }

    /// The microseconds of processor time that each call of a command has taken since the
    /// statistics were reset.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or there was no such call.
    pub fn micros_per_call(&self, command: &str) -> Result<f64> {
        let figure = self.statistic(command, "usec_per_call=")?;
        figure.ok_or_else(|| format!("{command} was not called").into())
    }

    /// The number of calls of a command since the statistics were reset.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub fn calls(&self, command: &str) -> Result<f64> {
        Ok(self.statistic(command, "calls=")?.unwrap_or(0.))
    }

    fn statistic(&self, command: &str, name: &str) -> Result<Option<f64>> {
        let info: String = self.command(&["INFO", "commandstats"])?;
        let prefix = format!("cmdstat_{command}:");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
        let figure = line.and_then(|line| line.split(',').find_map(|it| it.strip_prefix(name)));
        Ok(figure.map(str::parse).transpose()?)
    }

    /// The seconds of processor time that its main thread has taken.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub fn cpu(&self) -> Result<f64> {
        Ok(self.info("used_cpu_user_main_thread")? + self.info("used_cpu_sys_main_thread")?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to save, and nobody waits for it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
