//! A `redis-server` process.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use ratelimit_runtime::Limiter;
use tempfile::TempDir;

use super::{LONG_DEADLINE, connected, free_port, wait_for};

/// A `redis-server` process.
#[derive(Debug)]
pub struct RedisServer {
    process: Child,
    port: u16,
    directory: TempDir,
    launch: Launch,
}

/// The file of a server's log in its directory.
const LOG: &str = "log";

/// How a server is started, beside its port and directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launch {
    /// `true` for a sentinel of other servers.
    is_sentinel: bool,
    /// The text of the sentinel's file at its start.
    findings: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    tls_port: Option<u16>,
}

impl Launch {
    /// Returns the launch of a server with further arguments.
    pub(crate) fn server(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().copied().map(str::to_owned).collect();
        Self { arguments, ..Self::default() }
    }

    /// Returns the launch of a sentinel.
    pub(crate) fn sentinel() -> Self {
        Self { is_sentinel: true, ..Self::default() }
    }

    /// Returns the launch of a sentinel that has seen so many failovers of a primary at this port.
    pub(crate) fn sentinel_of(name: &str, port: u16, epoch: u32) -> Self {
        let findings = format!(
            "sentinel monitor {name} 127.0.0.1 {port} 2\nsentinel config-epoch {name} {epoch}\n"
        );
        Self { findings, ..Self::sentinel() }
    }

    /// With TLS on a port of its own, if there are arguments for it.
    pub(crate) fn with_tls(mut self, tls: &[String], port: impl Fn() -> u16) -> Self {
        if !tls.is_empty() {
            let port = port();
            self.arguments.extend(["--tls-port".to_owned(), port.to_string()]);
            self.arguments.extend_from_slice(tls);
            self.tls_port = Some(port);
        }
        self
    }
}

impl RedisServer {
    /// Starts a server that stores nothing on disk, and waits until it answers.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with further arguments, as `redis-server` takes them.
    pub fn with(arguments: &[&str]) -> Self {
        Self::with_environment(arguments, &[])
    }

    /// Starts a server with further arguments and environment variables.
    pub fn with_environment(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let environment = environment.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        Self::launch(&Launch { environment, ..Launch::server(arguments) }, free_port)
    }

    /// Starts a server with TLS too, with these [arguments](crate::Authority::arguments).
    pub fn with_tls(tls: &[String]) -> Self {
        Self::launch(&Launch::server(&[]).with_tls(tls, free_port), free_port)
    }

    /// Starts a server on this port.
    pub fn start_on(port: u16) -> Self {
        Self::try_start(port, Launch::server(&[])).expect("redis-server starts")
    }

    pub(crate) fn launch(launch: &Launch, port: impl Fn() -> u16) -> Self {
        // Between asking for a free port and using it, another process may take it.
        (0..10).find_map(|_| Self::try_start(port(), launch.clone())).expect("redis-server starts")
    }

    fn try_start(port: u16, launch: Launch) -> Option<Self> {
        // Sentinels and nodes stand still while they save what they know, on a busy disk for
        // seconds.
        let in_memory = TempDir::new_in("/dev/shm");
        let directory = in_memory.or_else(|_| TempDir::new()).expect("a directory for the server");
        let process = spawn(port, directory.path(), &launch);
        let mut server = Self { process, port, directory, launch };
        server.is_up().then_some(server)
    }

    /// Waits until the server answers, or has given up: on its port another may answer, which took
    /// it first.
    fn is_up(&mut self) -> bool {
        wait_for("redis-server", || {
            if self.process.try_wait().expect("the server's state").is_some() {
                return Some(false);
            }
            let mut connection = self.try_connect().ok()?;
            redis::cmd("PING").exec(&mut connection).ok()?;
            let info: String = redis::cmd("INFO").arg("server").query(&mut connection).ok()?;
            info.contains(&format!("process_id:{}\r\n", self.process.id())).then_some(true)
        })
    }

    /// The port that the server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port for other programs: that of TLS, if there is one.
    pub fn public_port(&self) -> u16 {
        self.launch.tls_port.unwrap_or(self.port)
    }

    /// The file of the server's log.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join(LOG)
    }

    /// The directory that the server runs in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
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
        connected(Limiter::builder().deadline(LONG_DEADLINE), &self.url()).await
    }

    /// A connection of the test's own.
    pub fn connection(&self) -> redis::Connection {
        self.try_connect().expect("the server answers")
    }

    /// Over the unix socket, which tells the tests' own connections from those of limiters.
    fn try_connect(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.unix_url())?.get_connection()
    }

    /// Sends one command, written with spaces.
    pub fn command<T: redis::FromRedisValue>(&self, command: &str) -> T {
        self.try_command(command).expect(command)
    }

    /// Sends one command, written with spaces, which the server may refuse.
    ///
    /// # Errors
    ///
    /// The server's answer, or that there is none.
    pub fn try_command<T: redis::FromRedisValue>(&self, command: &str) -> redis::RedisResult<T> {
        let mut words = command.split(' ');
        let mut cmd = redis::cmd(words.next().expect("a command has a name"));
        cmd.arg(words.collect::<Vec<_>>());
        cmd.query(&mut self.try_connect()?)
    }

    /// All keys of the server, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.command("KEYS *");
        keys.sort();
        keys
    }

    /// Returns the number of calls of each command, by clients and by scripts.
    pub fn calls(&self) -> HashMap<String, u64> {
        let info: String = self.command("INFO commandstats");
        info.lines()
            .filter_map(|line| {
                let (command, numbers) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
                Some((command.to_owned(), numbers.split(',').next()?.parse().ok()?))
            })
            .collect()
    }

    /// One number of `INFO`, such as `total_connections_received`.
    pub fn figure(&self, name: &str) -> u64 {
        let info: String = self.command("INFO");
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(key, _)| *key == name).expect(name);
        value.trim().parse().expect("a number")
    }

    /// Returns the number of open connections over TCP. Those of [`command`](Self::command) are not
    /// among them: a process that is just being started may hold one open for a moment.
    pub fn clients(&self) -> usize {
        let clients: String = self.command("CLIENT LIST TYPE normal");
        clients.lines().filter(|client| !client.contains("redis.sock:")).count()
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

    /// Starts a stopped server again, on its port and with what it has stored.
    pub fn restart(&mut self) {
        self.begin_restart();
        assert!(self.is_up(), "redis-server starts again");
    }

    /// Starts a stopped server again, and does not wait until it answers.
    pub fn begin_restart(&mut self) {
        let state = self.process.try_wait().expect("the server's state");
        assert!(state.is_some(), "a running server is stopped first");
        self.process = spawn(self.port, self.directory.path(), &self.launch);
    }
}

/// The program of the servers; `ci/compatibility` names others than the system's.
pub(crate) fn program() -> OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn spawn(port: u16, directory: &Path, launch: &Launch) -> Child {
    let mut command = Command::new(program());
    let log = File::options().create(true).append(true).open(directory.join(LOG));
    if launch.is_sentinel {
        // The sentinel writes its findings there.
        let file = directory.join("sentinel.conf");
        std::fs::write(&file, &launch.findings).expect("a file for the sentinel");
        command.arg(file).arg("--sentinel");
    } else {
        command.args(["--save", "", "--appendonly", "no"]);
    }
    command
        .args(&launch.arguments)
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--unixsocket", "redis.sock"])
        .current_dir(directory)
        .stdout(log.expect("a file for the log"))
        .spawn()
        .expect("redis-server is installed (tests/run installs it)")
}

/// The URL that names these servers together, as `kind` of them.
pub(crate) fn url_of(kind: &str, servers: &[RedisServer]) -> String {
    let transport = if servers[0].launch.tls_port.is_some() { "rediss" } else { "redis" };
    let addresses: Vec<_> =
        servers.iter().map(|server| format!("127.0.0.1:{}", server.public_port())).collect();
    format!("{transport}+{kind}://{}", addresses.join(","))
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
