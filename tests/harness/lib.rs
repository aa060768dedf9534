//! Real servers and clients for the tests. A server is started by the test that needs it, on a
//! free port and in a directory of its own, and stopped by its process when the test is done.

#![allow(clippy::missing_panics_doc, reason = "a test harness fails the test")]
#![allow(clippy::must_use_candidate, reason = "a server may be started for its side effects")]

pub mod model;
pub mod schedule;

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Once,
    thread,
    time::{Duration, Instant},
};

use ratelimit_runtime::{Exceeded, Limiter, RateLimitError};
use tempfile::TempDir;

/// How long anything may take to get ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `ready` returns something, and fails the test if that takes too long.
pub fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs the test in memory and on a Redis of its own.
pub async fn on_each_store(test: impl AsyncFn(&Limiter)) {
    test(&Limiter::in_memory()).await;
    let server = RedisServer::start();
    test(&server.limiter().await).await;
}

/// The refusal that an answer is.
pub fn exceeded<T: std::fmt::Debug>(answer: Result<T, RateLimitError>) -> Exceeded {
    match answer {
        Err(RateLimitError::Exceeded(exceeded)) => exceeded,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// A `redis-server` process.
#[derive(Debug)]
pub struct RedisServer {
    process: Child,
    port: u16,
    directory: TempDir,
}

impl RedisServer {
    /// Starts a server that stores nothing on disk, and waits until it answers.
    pub fn start() -> Self {
        // Between asking for a free port and using it, another process may take it.
        (0..10).find_map(|_| Self::try_start(free_port())).expect("redis-server starts")
    }

    /// Starts a server on this port.
    pub fn start_on(port: u16) -> Self {
        Self::try_start(port).expect("redis-server starts")
    }

    fn try_start(port: u16) -> Option<Self> {
        let directory = TempDir::new().expect("a directory for the server");
        let process = spawn(port, &directory);
        let mut server = Self { process, port, directory };
        server.is_up().then_some(server)
    }

    /// Waits until the server answers, or has given up.
    fn is_up(&mut self) -> bool {
        wait_for("redis-server", || {
            if self.process.try_wait().expect("the server's state").is_some() {
                return Some(false);
            }
            let mut connection = self.try_connect().ok()?;
            redis::cmd("PING").exec(&mut connection).ok().map(|()| true)
        })
    }

    /// The server's URL over TCP.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The server's URL over its unix socket.
    pub fn unix_url(&self) -> String {
        format!("unix://{}/redis.sock", self.directory.path().display())
    }

    /// A limiter on this server, with patience for a busy machine.
    pub async fn limiter(&self) -> Limiter {
        let builder = Limiter::builder().deadline(Duration::from_secs(10));
        builder.connect(&self.url()).await.expect("the server answers")
    }

    /// A connection of the test's own.
    pub fn connection(&self) -> redis::Connection {
        self.try_connect().expect("the server answers")
    }

    fn try_connect(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.url())?.get_connection()
    }

    /// Sends one command, written with spaces.
    pub fn command<T: redis::FromRedisValue>(&self, command: &str) -> T {
        let mut words = command.split(' ');
        let mut cmd = redis::cmd(words.next().expect("a command has a name"));
        cmd.arg(words.collect::<Vec<_>>());
        cmd.query(&mut self.connection()).expect(command)
    }

    /// All keys of the server, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.command("KEYS *");
        keys.sort();
        keys
    }

    /// How often each command was called, by clients and by scripts.
    pub fn calls(&self) -> HashMap<String, u64> {
        let info: String = self.command("INFO commandstats");
        info.lines()
            .filter_map(|line| {
                let (command, numbers) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
                Some((command.to_owned(), numbers.split(',').next()?.parse().ok()?))
            })
            .collect()
    }

    /// Stops the server at once, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill().expect("the server is ours to stop");
        self.process.wait().expect("the server has stopped");
    }

    /// Sends the server's process a signal, such as `STOP` or `CONT`.
    pub fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Starts a stopped server again, on its port and with nothing stored.
    pub fn restart(&mut self) {
        self.process = spawn(self.port, &self.directory);
        assert!(self.is_up(), "redis-server starts again");
    }
}

fn spawn(port: u16, directory: &TempDir) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--unixsocket", "redis.sock", "--save", "", "--appendonly", "no"])
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed (tests/run installs it)")
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program of ours that runs until it is dropped.
#[derive(Debug)]
pub struct Running {
    process: Child,
    first_line: String,
}

impl Running {
    /// Starts the program, and waits for the first line it prints.
    pub fn start(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut first_line = String::new();
        let stdout = process.stdout.take().expect("its output is piped");
        BufReader::new(stdout).read_line(&mut first_line).expect("it prints a line");
        Self { process, first_line: first_line.trim_end().to_owned() }
    }

    /// The first line it printed.
    pub fn first_line(&self) -> &str {
        &self.first_line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A port that nothing listens on right now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Runs an example as a reader would: from the workspace's root, by its documented command.
pub fn example(name: &str) -> Command {
    static BUILD: Once = Once::new();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    BUILD.call_once(|| {
        let build = cargo(&root).args(["build", "--quiet", "--examples"]).status();
        assert!(build.expect("cargo runs").success());
    });
    let mut command = cargo(&root);
    command.args(["run", "--quiet", "--example", name, "--"]);
    command
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).env_remove("RATELIMIT_URL");
    cargo
}
