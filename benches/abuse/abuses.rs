//! Ten abuses. Each has a bar that a limiter passes or misses.

use std::{
    fmt,
    io::Write,
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use harness::{Clock, Network, Proxy, RedisServer, wait_for};

use crate::{
    peer::{
        Answer::{Admitted, Failed},
        Limit, Peer,
    },
    process::{Call, Process, callers, count, longest},
};

/// An abuse of limiters.
pub(crate) struct Abuse {
    pub(crate) name: &'static str,
    pub(crate) bar: &'static str,
    pub(crate) run: fn(Peer) -> Cell,
}

pub(crate) const ABUSES: &[Abuse] = &[
    Abuse { name: "two processes", bar: "20 of 40 admitted", run: two_processes },
    Abuse { name: "`kill -STOP` of the server", bar: "a call ends in 1 s", run: stopped_server },
    Abuse { name: "clock steps, 1 h", bar: "none more, free in 4 s", run: stepped_clock },
    Abuse { name: "window edge", bar: "20 in any 2 s", run: window_edge },
    Abuse { name: "lost reply", bar: "20 calls admitted", run: lost_reply },
    Abuse { name: "forged header", bar: "20 of 40 admitted", run: forged_header },
    Abuse { name: "flood of names", bar: "less than 10 B stay of a caller", run: flood },
    Abuse { name: "stale refusal", bar: "admitted once reset", run: stale_refusal },
    Abuse { name: "failover", bar: "none more, decided in 2 s", run: failover },
    Abuse { name: "hostile server", bar: "1 s, 64 MB", run: hostile_server },
];

/// The outcome of an abuse.
pub(crate) enum Cell {
    Passed(String),
    Missed(String),
    DoesNotApply(&'static str),
}

impl Cell {
    fn new(is_passed: bool, text: String) -> Self {
        if is_passed { Self::Passed(text) } else { Self::Missed(text) }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(text) => f.write_str(text),
            Self::Missed(text) => write!(f, "**{text}**"),
            Self::DoesNotApply(reason) => write!(f, "does not apply: {reason}"),
        }
    }
}

const A_MINUTE: Limit = Limit { threshold: 20, seconds: 60 };
const TWO_SECONDS: Limit = Limit { threshold: 20, seconds: 2 };
const NO_SERVER: Cell = Cell::DoesNotApply("no server");

/// Two processes ask in turn for one caller.
fn two_processes(peer: Peer) -> Cell {
    let server = RedisServer::start();
    let mut processes = [0, 1].map(|_| Process::start(peer, &server.url(), A_MINUTE));
    let calls: Vec<_> = (0..40).map(|call| processes[call % 2].ask("alice")).collect();
    let admitted = count(&calls, Admitted);
    Cell::new(admitted == 20, format!("{admitted}"))
}

/// The server does not run for three seconds.
fn stopped_server(peer: Peer) -> Cell {
    if !peer.is_on_redis() {
        return NO_SERVER;
    }
    let server = RedisServer::start();
    let mut process = Process::start(peer, &server.url(), A_MINUTE);
    process.asks("alice", 5);
    server.signal("STOP");
    let calls = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_secs(3));
            server.signal("CONT");
        });
        process.asks("alice", 5)
    });
    let slowest = longest(&calls);
    let fails = if count(&calls, Failed) > 0 { ", fails" } else { "" };
    Cell::new(slowest < 1., format!("{slowest:.1} s{fails}"))
}

/// The machine's wall clock goes forward by an hour, and back.
fn stepped_clock(peer: Peer) -> Cell {
    let clock = Clock::new();
    let server = clock.server(&[]);
    let environment = clock.environment();
    let start = |limit| Process::with_environment(peer, &server.url(), limit, &environment);
    let mut process = start(A_MINUTE);
    process.asks("alice", 20);
    clock.step(&server, 3_600_000);
    let more = count(&process.asks("alice", 40), Admitted);

    let mut process = start(TWO_SECONDS);
    process.asks("bob", 20);
    clock.step(&server, 0);
    let free = until(|| process.ask("bob").is(Admitted));
    let shut_out = free.map_or("shut out".to_owned(), |after| format!("free after {after:.0} s"));
    Cell::new(more == 0 && free.is_some_and(|after| after < 4.), format!("{more} more, {shut_out}"))
}

/// Asks until a call is admitted, and returns the seconds that it took, or `None` after 20.
fn until(mut is_done: impl FnMut() -> bool) -> Option<f64> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if is_done() {
            return Some(start.elapsed().as_secs_f64());
        }
        thread::sleep(Duration::from_millis(10));
    }
    None
}

/// One call opens a window, and many come when it has nearly ended.
fn window_edge(peer: Peer) -> Cell {
    let server = RedisServer::start();
    let mut process = Process::start(peer, &server.url(), TWO_SECONDS);
    let start = Instant::now();
    let mut admitted = vec![process.ask("alice")];
    thread::sleep(Duration::from_millis(1_700));
    while start.elapsed() < Duration::from_secs(5) {
        let call = process.ask("alice");
        admitted.extend(call.is(Admitted).then_some(call));
        thread::sleep(Duration::from_millis(1));
    }
    // From before the first was asked for until the last was answered, however long calls take.
    let within = |first: &Call| {
        let inside = |call: &&Call| {
            call.asked >= first.asked && call.answered < first.asked + TWO_SECONDS.period()
        };
        admitted.iter().filter(inside).count()
    };
    let most = admitted.iter().map(within).max().unwrap_or_default();
    Cell::new(most <= 20, format!("{most}"))
}

/// The connection is reset after the server has decided a call, and before its reply arrives.
fn lost_reply(peer: Peer) -> Cell {
    if !peer.is_on_redis() {
        return NO_SERVER;
    }
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let mut process = Process::start(peer, &proxy.url(), A_MINUTE);
    let mut calls = process.asks("alice", 5);
    proxy.set(Network::ResetsAfter(0));
    calls.extend(process.asks("alice", 35));
    let (admitted, failed) = (count(&calls, Admitted), count(&calls, Failed));
    let fails = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    Cell::new(admitted == 20 && failed == 0, format!("{admitted}{fails}"))
}

/// A client sends another `X-Forwarded-For` with each request, to which a trusted proxy appends its
/// address.
fn forged_header(peer: Peer) -> Cell {
    if !peer.is_ours() && peer != Peer::TowerGovernor {
        return Cell::DoesNotApply("the program writes the key");
    }
    let server = RedisServer::start();
    let mut process = Process::start(peer, &server.url(), A_MINUTE);
    let calls: Vec<_> = (0..40).map(|number| process.forge(number)).collect();
    let admitted = count(&calls, Admitted);
    Cell::new(admitted == 20, format!("{admitted}"))
}

/// Four times many callers come once each, and their windows end.
fn flood(peer: Peer) -> Cell {
    let server = RedisServer::start();
    let mut process = Process::start(peer, &server.url(), TWO_SECONDS);
    let mut memory = Vec::new();
    for prefix in ["a", "b", "c", "d"] {
        process.flood(prefix);
        memory.push(process.memory("VmRSS"));
        thread::sleep(2 * TWO_SECONDS.period());
    }
    if peer.is_on_redis() {
        let kept = server.command::<u32>("DBSIZE");
        let each = f64::from(kept) / f64::from(4 * callers(peer));
        let text = match kept {
            1 => "1 key in all stays".to_owned(),
            _ if kept > 0 && each < 0.5 => format!("{kept} keys in all stay"),
            _ => format!("{each:.0} keys stay"),
        };
        return Cell::new(kept == 0, text);
    }
    // The bytes of a caller, in the floods after the first.
    let grown = memory[3].saturating_sub(memory[0]) * 1024 / u64::from(3 * callers(peer));
    Cell::new(grown < 10, format!("{grown} B stay"))
}

/// A refused caller is reset elsewhere: by the limiter of another process, or by `DEL` of its key.
fn stale_refusal(peer: Peer) -> Cell {
    if !peer.is_on_redis() && !peer.is_ours() {
        return Cell::DoesNotApply("no reset");
    }
    let server = RedisServer::start();
    let mut process = Process::start(peer, &server.url(), A_MINUTE);
    let mut refused_for = |reset: &mut dyn FnMut(&mut Process)| {
        process.asks("alice", 25);
        reset(&mut process);
        until(|| process.ask("alice").is(Admitted))
    };
    let is_soon = |after: Option<f64>| after.is_some_and(|after| after < 1.);
    let text = |after: Option<f64>| after.map_or("over 20".to_owned(), |it| format!("{it:.1}"));
    let mut by_key = || {
        refused_for(&mut |_| {
            for key in server.keys() {
                let () = server.command(&format!("DEL {key}"));
            }
        })
    };
    match peer {
        Peer::InMemory => {
            let by_reset = refused_for(&mut Process::reset);
            Cell::new(is_soon(by_reset), format!("{} s", text(by_reset)))
        }
        Peer::OnRedis => {
            let by_key = by_key();
            let mut other = Process::start(peer, &server.url(), A_MINUTE);
            let by_reset = refused_for(&mut |_| other.reset());
            let text = format!("{} s, {} s after a `DEL`", text(by_reset), text(by_key));
            Cell::new(is_soon(by_reset) && is_soon(by_key), text)
        }
        _ => {
            let by_key = by_key();
            Cell::new(is_soon(by_key), format!("{} s after a `DEL`", text(by_key)))
        }
    }
}

/// A primary dies, and its replica takes its place at the same address.
fn failover(peer: Peer) -> Cell {
    if !peer.is_on_redis() {
        return NO_SERVER;
    }
    let mut primary = RedisServer::with(&["--repl-diskless-sync-delay", "0"]);
    let replica = RedisServer::with(&["--replicaof", &format!("127.0.0.1 {}", primary.port())]);
    wait_for("the replica", || {
        let info: String = replica.command("INFO replication");
        info.contains("master_link_status:up").then_some(())
    });
    let proxy = Proxy::start(primary.port());
    let mut process = Process::start(peer, &proxy.url(), A_MINUTE);
    process.asks("alice", 20);
    let offset = primary.figure("master_repl_offset");
    wait_for("the writes", || (replica.figure("slave_repl_offset") >= offset).then_some(()));
    primary.kill();
    let start = Instant::now();
    let mut calls = Vec::new();
    // A call may try for long to connect; the window must not end meanwhile.
    while calls.len() < 30 && start.elapsed() < Duration::from_secs(1) {
        calls.push(process.ask("alice"));
    }
    let () = replica.command("REPLICAOF NO ONE");
    let keys = replica.keys().len();
    proxy.lead_to(replica.port());
    // A new key on the new primary is a decision of it.
    let mut number = 0;
    let back = until(|| {
        number += 1;
        process.ask(&format!("caller-{number}"));
        replica.keys().len() > keys
    });
    let before = calls.len();
    while calls.len() < before + 30 && start.elapsed() < Duration::from_secs(45) {
        calls.push(process.ask("alice"));
    }
    let more = count(&calls, Admitted);
    let fails = if count(&calls, Failed) > 0 { ", fails meanwhile" } else { "" };
    assert!(start.elapsed() < Duration::from_secs(50), "the window has ended");
    let slowest = longest(&calls);
    let is_passed = more == 0 && slowest < 1. && back.is_some_and(|after| after < 2.);
    let slow = if slowest < 1. { String::new() } else { format!(", a call over {slowest:.0} s") };
    let back = back.map_or("never".to_owned(), |after| format!("{after:.1} s"));
    Cell::new(is_passed, format!("{more} more, {back}{fails}{slow}"))
}

/// A server that answers a call with a text of 2 GB, as fast as it can, takes the place of the real
/// one.
fn hostile_server(peer: Peer) -> Cell {
    if !peer.is_on_redis() {
        return NO_SERVER;
    }
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let mut process = Process::start(peer, &proxy.url(), A_MINUTE);
    process.ask("alice");
    let hostile = TcpListener::bind("127.0.0.1:0").expect("a free port");
    proxy.lead_to(hostile.local_addr().expect("its address").port());
    proxy.set(Network::Ends);
    thread::spawn(move || {
        for client in hostile.incoming().flatten() {
            thread::spawn(move || answer(client));
        }
    });
    let before = process.memory("VmRSS");
    let mut calls = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        calls.push(process.ask("alice"));
    }
    let megabytes = process.memory("VmHWM").saturating_sub(before) / 1024;
    let slowest = longest(&calls);
    let is_lost = calls.iter().any(|call| call.answer.is_none());
    let time = if is_lost { "no end in 8 s".to_owned() } else { format!("{slowest:.1} s") };
    Cell::new(!is_lost && slowest < 1. && megabytes <= 64, format!("{time}, {megabytes} MB"))
}

/// Admits a client, and answers the first command with the long text.
fn answer(mut client: std::net::TcpStream) -> Option<()> {
    use std::io::{BufRead, BufReader, Read};

    let mut commands = BufReader::new(client.try_clone().ok()?);
    let mut line = || {
        let mut line = String::new();
        commands.read_line(&mut line).ok().filter(|&length| length > 0)?;
        Some(line.trim_end().to_owned())
    };
    loop {
        let words: usize = line()?.strip_prefix('*')?.parse().ok()?;
        let command: Vec<_> =
            (0..words).map(|_| line().and_then(|_| line())).collect::<Option<_>>()?;
        match command.first()?.to_ascii_uppercase().as_str() {
            "HELLO" => client.write_all(b"-ERR unknown command\r\n").ok()?,
            "AUTH" | "CLIENT" | "SELECT" => client.write_all(b"+OK\r\n").ok()?,
            _ => break,
        }
    }
    client.write_all(b"$2000000000\r\n").ok()?;
    std::io::copy(&mut std::io::repeat(b'x').take(2_000_000_000), &mut client).ok().map(drop)
}
