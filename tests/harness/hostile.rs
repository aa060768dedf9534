//! A server that is hostile or faulty, or behind a proxy that is: it decides each call well until
//! its mode has it do something else.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// A mode of a [`HostileServer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hostility {
    /// A text of 2 GB is announced, and some of it comes.
    HugeText,
    /// A text of more than `u64::MAX` bytes is announced.
    ImpossibleText,
    /// An array of `i64::MAX` values is announced.
    HugeArray,
    /// An array in an array, without an end.
    NestedArrays,
    /// A line that does not end.
    EndlessLine,
    /// Messages of RESP3 without an end.
    EndlessPushes,
    /// Replies that nobody asked for, without an end.
    EndlessReplies,
    /// Bytes of another protocol.
    OtherProtocol,
    /// One byte of a reply every 30 ms.
    Drips,
    /// Each connection loses one reply.
    LosesReply,
    /// Each connection sends one reply twice.
    DoublesReply,
    /// Each connection sends an old reply again, and all others one late.
    RepeatsOldReply,
    /// Each connection exchanges two replies.
    SwapsReplies,
    /// Waits and turns of `i64::MAX` microseconds.
    HugeWaits,
    /// Numbers of `u64::MAX`.
    HugeNumbers,
    /// Errors of many lines and 100 KB, with the login of the connection.
    LongErrors,
    /// The login is refused with an error that quotes it.
    EchoesLogin,
    /// `HELLO` is refused with an error that quotes the login.
    EchoesHello,
    /// `HELLO` and `CLIENT` are answered with an error of a proxy's own.
    ProxyErrors,
    /// `HELLO` ends the connection, as some proxies do.
    ClosesOnHello,
    /// `HELLO` and `CLIENT` end the connection, as in twemproxy.
    ClosesOnClient,
    /// Each connection ends after its login.
    ClosesAfterHello,
    /// The script is never known, and its text is refused.
    RefusesScripts,
    /// Each call moves to another node with a name of 100 KB.
    MovesToLongNames,
    /// Each call moves to another node that does not exist.
    MovesToDeadNodes,
    /// Each call is asked to go to another node that does not exist.
    AsksDeadNodes,
    /// Each map of the cluster has more nodes than the one before, and more than there are slots.
    GrowingMaps,
    /// Each map of the cluster has 2 000 other nodes.
    ChangingMaps,
}

use Hostility as Mode;

impl Hostility {
    /// All modes.
    pub const ALL: [Self; 28] = [
        Self::HugeText,
        Self::ImpossibleText,
        Self::HugeArray,
        Self::NestedArrays,
        Self::EndlessLine,
        Self::EndlessPushes,
        Self::EndlessReplies,
        Self::OtherProtocol,
        Self::Drips,
        Self::LosesReply,
        Self::DoublesReply,
        Self::RepeatsOldReply,
        Self::SwapsReplies,
        Self::HugeWaits,
        Self::HugeNumbers,
        Self::LongErrors,
        Self::EchoesLogin,
        Self::EchoesHello,
        Self::ProxyErrors,
        Self::ClosesOnHello,
        Self::ClosesOnClient,
        Self::ClosesAfterHello,
        Self::RefusesScripts,
        Self::MovesToLongNames,
        Self::MovesToDeadNodes,
        Self::AsksDeadNodes,
        Self::GrowingMaps,
        Self::ChangingMaps,
    ];

    /// Returns `true` if the calls of this mode are decided.
    pub fn decides(self) -> bool {
        matches!(self, Self::ProxyErrors | Self::ClosesOnHello)
    }

    fn is_cluster(self) -> bool {
        use Mode::{AsksDeadNodes, ChangingMaps, GrowingMaps, MovesToDeadNodes, MovesToLongNames};

        let of_cluster =
            [MovesToLongNames, MovesToDeadNodes, AsksDeadNodes, GrowingMaps, ChangingMaps];
        of_cluster.contains(&self)
    }
}

/// The calls of a connection before the server does something else.
const HARMLESS: u64 = 20;

/// A server on a free port, for as long as the process lives.
#[derive(Debug)]
pub struct HostileServer {
    port: u16,
    mode: Mode,
    connections: Arc<AtomicU64>,
}

impl HostileServer {
    /// The user that clients log in with.
    pub const USER: &str = "zebra-user";

    /// The password of this user.
    pub const PASSWORD: &str = "zebra-password";

    /// Starts a server.
    pub fn start(mode: Hostility) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let connections = Arc::<AtomicU64>::default();
        let accepted = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accepted.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || {
                    Session { mode, port, calls: 0, old: Vec::new() }.serve(&client)
                });
            }
        });
        Self { port, mode, connections }
    }

    /// Returns the URL, with a login.
    pub fn url(&self) -> String {
        let scheme = if self.mode.is_cluster() { "redis+cluster" } else { "redis" };
        format!("{scheme}://{}:{}@127.0.0.1:{}", Self::USER, Self::PASSWORD, self.port)
    }

    /// Returns the number of accepted connections so far.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// One connection.
struct Session {
    mode: Mode,
    port: u16,
    calls: u64,
    /// A reply of before.
    old: Vec<u8>,
}

/// A reply to one command.
enum Reply {
    Bytes(Vec<u8>),
    /// The first bytes, and then the others again and again.
    Endless(&'static str, Vec<u8>),
    Close,
}

fn text(text: &str) -> Reply {
    Reply::Bytes(text.into())
}

impl Session {
    fn serve(mut self, mut client: &TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut commands = BufReader::new(client);
        loop {
            let command = read(&mut commands)?;
            let words: Vec<_> = command.iter().map(String::as_str).collect();
            match self.reply(&words) {
                Reply::Bytes(bytes) if self.mode == Mode::Drips && words[0] == "EVALSHA" => {
                    for byte in bytes {
                        client.write_all(&[byte])?;
                        thread::sleep(Duration::from_millis(30));
                    }
                }
                Reply::Bytes(bytes) => client.write_all(&bytes)?,
                Reply::Endless(first, rest) => {
                    client.write_all(first.as_bytes())?;
                    loop {
                        client.write_all(&rest)?;
                    }
                }
                Reply::Close => return Ok(()),
            }
        }
    }

    fn reply(&mut self, words: &[&str]) -> Reply {
        let login = format!("'{}' '{}'", HostileServer::USER, HostileServer::PASSWORD);
        match (self.mode, words) {
            (Mode::EchoesHello, ["HELLO", ..]) => {
                Reply::Bytes(format!("-ERR I know no HELLO 3 AUTH {login}\r\n").into())
            }
            (Mode::EchoesLogin, ["HELLO" | "AUTH", ..]) => {
                Reply::Bytes(format!("-WRONGPASS not for {login}\r\n").into())
            }
            (Mode::ProxyErrors, ["HELLO" | "CLIENT", ..]) => text("-PROXY command not for you\r\n"),
            (Mode::ClosesOnHello, ["HELLO", ..])
            | (Mode::ClosesOnClient, ["HELLO" | "CLIENT", ..])
            | (Mode::ClosesAfterHello, ["CLIENT", "SETNAME", ..]) => Reply::Close,
            (_, ["HELLO", ..]) => text("%1\r\n$5\r\nproto\r\n:3\r\n"),
            (mode, ["CLUSTER", ..]) => Reply::Bytes(map(mode, self.port)),
            (_, ["EVALSHA", _, "1", key, numbers @ ..]) => self.decision(key, numbers[3], &login),
            (_, ["EVAL", ..]) => text("-NOPERM no scripts for you\r\n"),
            (_, ["AUTH" | "CLIENT" | "SELECT" | "ASKING", ..]) => text("+OK\r\n"),
            _ => text("-ERR unknown command\r\n"),
        }
    }

    /// Decides a call. The units left are the number at the end of its key.
    fn decision(&mut self, key: &str, echo: &str, login: &str) -> Reply {
        let caller: String = key.rsplit('-').next().unwrap_or_default().into();
        let reply = |wait: &str, more: &str| {
            format!("*8\r\n:{echo}\r\n:{wait}\r\n:9\r\n:{caller}\r\n:9\r\n:0\r\n:{more}\r\n:9\r\n")
        };
        let good = reply("9", "0").into_bytes();
        self.calls += 1;
        let is_odd_one = self.calls == HARMLESS;
        match self.mode {
            Mode::HugeText => Reply::Endless("$2000000000\r\n", vec![b'x'; 64 << 10]),
            Mode::ImpossibleText => text("$99999999999999999999\r\n"),
            Mode::HugeArray => text(&format!("*{}\r\n", i64::MAX)),
            Mode::NestedArrays => Reply::Endless("", "*1\r\n".repeat(1 << 12).into()),
            Mode::EndlessLine => Reply::Endless("+", vec![b'x'; 64 << 10]),
            Mode::EndlessPushes => Reply::Endless("", ">1\r\n+news\r\n".repeat(1 << 12).into()),
            Mode::EndlessReplies => Reply::Endless("", good.repeat(1 << 10)),
            Mode::OtherProtocol => text("HTTP/1.1 400 Bad Request\r\n\r\n"),
            Mode::LosesReply if is_odd_one => Reply::Bytes(Vec::new()),
            Mode::DoublesReply if is_odd_one => Reply::Bytes(good.repeat(2)),
            Mode::RepeatsOldReply if is_odd_one => Reply::Bytes([&self.old[..], &good].concat()),
            Mode::SwapsReplies if is_odd_one => {
                self.old = good;
                Reply::Bytes(Vec::new())
            }
            Mode::SwapsReplies if self.calls == HARMLESS + 1 => {
                Reply::Bytes([&good[..], &self.old].concat())
            }
            Mode::HugeWaits => {
                let longest = i64::MAX.to_string();
                Reply::Bytes(reply(&longest, &longest).into())
            }
            Mode::HugeNumbers => text(&reply(&u64::MAX.to_string(), "0")),
            Mode::LongErrors => {
                let line = format!("of {login}\r");
                text(&format!("-ERR {}\r\n", line.repeat(100 * 1024 / line.len())))
            }
            Mode::RefusesScripts => text("-NOSCRIPT No matching script\r\n"),
            Mode::MovesToLongNames => {
                text(&format!("-MOVED 7 {}{}:7\r\n", "x".repeat(100 << 10), self.calls))
            }
            Mode::MovesToDeadNodes => text(&format!("-MOVED 7 {}:7\r\n", dead(next()))),
            Mode::AsksDeadNodes => text(&format!("-ASK 7 {}:7\r\n", dead(next()))),
            _ => {
                self.old.clone_from(&good);
                Reply::Bytes(good)
            }
        }
    }
}

/// Returns a number that no other call got.
fn next() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns an address of this machine at which nobody listens.
fn dead(number: u64) -> Ipv4Addr {
    let [.., high, middle, low] = number.to_be_bytes();
    Ipv4Addr::new(127, high | 128, middle, low)
}

/// Returns the reply of `CLUSTER SLOTS`.
fn map(mode: Mode, port: u16) -> Vec<u8> {
    let nodes = match mode {
        Mode::GrowingMaps => 40_000 + next() % 1_000,
        Mode::ChangingMaps => 2_000,
        _ => 1,
    };
    let mut map = format!("*{nodes}\r\n");
    for node in 0..nodes {
        let (first, last) = if nodes == 1 { (0, 16_383) } else { (node % 16_384, node % 16_384) };
        let host = if nodes == 1 { Ipv4Addr::LOCALHOST } else { dead(next()) }.to_string();
        let length = host.len();
        let node = format!("*2\r\n${length}\r\n{host}\r\n:{port}\r\n");
        map.extend(["*3\r\n:", &first.to_string(), "\r\n:", &last.to_string(), "\r\n", &node]);
    }
    map.into()
}

/// Reads a command: an array of texts.
fn read(from: &mut impl BufRead) -> io::Result<Vec<String>> {
    (0..number(from)?)
        .map(|_| {
            let mut word = vec![0; number(from)? + 2];
            from.read_exact(&mut word)?;
            word.truncate(word.len() - 2);
            Ok(String::from_utf8_lossy(&word).into_owned())
        })
        .collect()
}

/// Reads the number of a line.
fn number(from: &mut impl BufRead) -> io::Result<usize> {
    let mut line = String::new();
    from.take(32).read_line(&mut line)?;
    let number = line.get(1..).and_then(|number| number.trim_end().parse().ok());
    number.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
