//! A failing network: a TCP proxy in front of a server.

use std::{
    io,
    net::{self, Ipv4Addr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    runtime, select,
    sync::{oneshot, watch},
    task::JoinSet,
};

use super::wait_for;

/// The state of the network, for new connections and open ones.
#[derive(Clone, Copy, Debug, Default)]
pub enum Network {
    /// Without faults.
    #[default]
    Whole,
    /// Each piece is delayed.
    Slow {
        /// The least delay.
        latency: Duration,
        /// The largest random addition to it.
        jitter: Duration,
    },
    /// Every byte is sent alone.
    InBytes,
    /// Drops all data in both directions, without closing a connection.
    Swallows,
    /// Open connections drop all data for good; new ones work.
    Forgets,
    /// Drops all replies, without closing a connection.
    LosesReplies,
    /// A connection drops all that its client sends, from these bytes on.
    LosesFrom(&'static str),
    /// Open connections are closed in an orderly manner; new ones work.
    Ends,
    /// Open connections are reset; new ones work.
    Resets,
    /// After this many further bytes of replies one connection is reset; then the network is whole
    /// again.
    ResetsAfter(usize),
    /// The server's direction is closed in an orderly manner, the client's stays open.
    HalfClosed,
    /// New connections are refused.
    Refuses,
}

/// A proxy between a limiter and its server. It runs on a thread of its own, and a waiting test
/// does not block it.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    network: watch::Sender<Network>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    target: AtomicUsize,
    accepted: AtomicUsize,
    open: AtomicUsize,
    is_listening: watch::Sender<bool>,
    /// The remaining bytes of [`Network::ResetsAfter`].
    until_reset: Mutex<Option<usize>>,
}

impl Proxy {
    /// Starts a proxy in front of the server on this port.
    pub fn start(target: u16) -> Self {
        let (network, conditions) = watch::channel(Network::Whole);
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::new(Shared {
            target: AtomicUsize::new(target.into()),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            is_listening: watch::channel(false).0,
            until_reset: Mutex::new(None),
        });
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime for the proxy");
        let listener = net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        listener.set_nonblocking(true).expect("a listener for tokio");
        let of_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener for tokio");
                select! {
                    () = serve(listener, conditions, of_thread) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { port, shared, network, stop: Some(stop), thread: Some(thread) }
    }

    /// The port that the proxy listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL that leads through the proxy.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Changes the network, for open connections as well.
    pub fn set(&self, network: Network) {
        *lock(&self.shared.until_reset) = match network {
            Network::ResetsAfter(bytes) => Some(bytes),
            _ => None,
        };
        self.network.send_replace(network);
        let is_listening = !matches!(network, Network::Refuses);
        wait_for("the proxy's listener", || {
            (*self.shared.is_listening.borrow() == is_listening).then_some(())
        });
    }

    /// Makes the network whole.
    pub fn heal(&self) {
        self.set(Network::Whole);
    }

    /// Leads new connections to the server on this port.
    pub fn lead_to(&self, target: u16) {
        self.shared.target.store(target.into(), Ordering::Relaxed);
    }

    /// Returns the number of accepted connections so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, mut network: watch::Receiver<Network>, shared: Arc<Shared>) {
    let address = listener.local_addr().expect("the listener's address");
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        if matches!(*network.borrow_and_update(), Network::Refuses) {
            listener = None;
        } else if listener.is_none() {
            listener = Some(TcpListener::bind(address).await.expect("the port is still ours"));
        }
        shared.is_listening.send_replace(listener.is_some());
        select! {
            Some(client) = accept(listener.as_ref()) => {
                shared.accepted.fetch_add(1, Ordering::Relaxed);
                let (network, shared) = (network.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    shared.open.fetch_add(1, Ordering::Relaxed);
                    let _ = connect(client, network, &shared).await;
                    shared.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Some(_) = connections.join_next() => {}
            changed = network.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(client, _)| client),
        None => std::future::pending().await,
    }
}

/// Carries one connection until an end of it is closed.
async fn connect(
    mut client: TcpStream,
    network: watch::Receiver<Network>,
    shared: &Shared,
) -> io::Result<()> {
    let target = shared.target.load(Ordering::Relaxed);
    let target = u16::try_from(target).expect("a port");
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ended = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        select! {
            ended = carry(from_client, to_server, network.clone(), None) => ended,
            ended = carry(from_server, to_client, network, Some(&shared.until_reset)) => ended,
        }
    };
    if ended? == End::Reset {
        client.set_zero_linger()?;
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum End {
    Closed,
    Reset,
}

/// Carries data from one end to the other; replies are the data that may be cut short.
async fn carry(
    mut from: tcp::ReadHalf<'_>,
    mut to: tcp::WriteHalf<'_>,
    mut network: watch::Receiver<Network>,
    until_reset: Option<&Mutex<Option<usize>>>,
) -> io::Result<End> {
    let mut buffer = vec![0; 64 * 1024];
    let is_half_closed = |now| matches!(now, Network::HalfClosed) && until_reset.is_some();
    loop {
        let now = *network.borrow_and_update();
        if is_half_closed(now) {
            let _ = to.shutdown().await;
        }
        let read = select! {
            read = from.read(&mut buffer) => read?,
            // Open connections change as well; a dropped proxy ends them.
            changed = network.changed() => match changed {
                Ok(()) if matches!(*network.borrow(), Network::Forgets) => {
                    // The client may still close; the server's data is dropped.
                    if until_reset.is_some() {
                        std::future::pending::<()>().await;
                    }
                    while from.read(&mut buffer).await? > 0 {}
                    return Ok(End::Closed);
                }
                Ok(()) if matches!(*network.borrow(), Network::Ends) => return Ok(End::Closed),
                Ok(()) if matches!(*network.borrow(), Network::Resets) => return Ok(End::Reset),
                Ok(()) => continue,
                Err(_) => return Ok(End::Closed),
            },
        };
        if read == 0 {
            return Ok(End::Closed);
        }
        let now = *network.borrow();
        let is_lost = matches!(now, Network::LosesReplies) && until_reset.is_some();
        if is_lost || matches!(now, Network::Swallows) || is_half_closed(now) {
            continue;
        }
        if let (Network::LosesFrom(text), None) = (now, until_reset)
            && buffer[..read].windows(text.len()).any(|it| it == text.as_bytes())
        {
            while from.read(&mut buffer).await? > 0 {}
            return Ok(End::Closed);
        }
        if let Network::Slow { latency, jitter } = now {
            tokio::time::sleep(latency + jitter.mul_f64(fastrand::f64())).await;
        }
        let cut = until_reset.and_then(|until| cut(&mut lock(until), read));
        let bytes = &buffer[..cut.unwrap_or(read)];
        if matches!(now, Network::InBytes) {
            for byte in bytes {
                to.write_all(&[*byte]).await?;
                tokio::task::yield_now().await;
            }
        } else {
            to.write_all(bytes).await?;
        }
        if cut.is_some() {
            return Ok(End::Reset);
        }
    }
}

/// Returns the number of these bytes that still pass, if the connection is reset here.
fn cut(until_reset: &mut Option<usize>, bytes: usize) -> Option<usize> {
    let left = until_reset.as_mut()?;
    if *left > bytes {
        *left -= bytes;
        return None;
    }
    until_reset.take()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::RedisServer;

    const SOON: Duration = Duration::from_millis(50);

    fn connect(proxy: &Proxy) -> redis::RedisResult<redis::Connection> {
        let connection = redis::Client::open(proxy.url())?.get_connection()?;
        connection.set_read_timeout(Some(SOON))?;
        Ok(connection)
    }

    fn ping(connection: &mut redis::Connection) -> redis::RedisResult<String> {
        redis::cmd("PING").query(connection)
    }

    #[test]
    fn each_fault_takes_effect_and_ends() {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.port());
        let mut connection = connect(&proxy).unwrap();
        ping(&mut connection).unwrap();
        assert_eq!((proxy.accepted(), proxy.open()), (1, 1));

        proxy.set(Network::InBytes);
        ping(&mut connection).unwrap();
        proxy.set(Network::Slow { latency: SOON / 10, jitter: SOON / 10 });
        let asked = Instant::now();
        ping(&mut connection).unwrap();
        assert!(asked.elapsed() >= SOON / 5, "{:?}", asked.elapsed());

        proxy.set(Network::Refuses);
        assert!(connect(&proxy).err().unwrap().is_connection_refusal());
        ping(&mut connection).unwrap();

        for lost in [Network::Swallows, Network::LosesReplies] {
            proxy.set(lost);
            assert!(ping(&mut connection).unwrap_err().is_timeout());
            proxy.heal();
            connection = connect(&proxy).unwrap();
        }

        proxy.set(Network::ResetsAfter(2));
        let error = ping(&mut connection).unwrap_err();
        assert!(error.to_string().contains("reset"), "{error}");
        connection = connect(&proxy).unwrap();
        ping(&mut connection).unwrap();

        proxy.set(Network::Ends);
        assert!(ping(&mut connection).unwrap_err().is_connection_dropped());
        connection = connect(&proxy).unwrap();
        ping(&mut connection).unwrap();

        proxy.set(Network::Resets);
        let error = ping(&mut connection).unwrap_err();
        assert!(error.to_string().contains("reset"), "{error}");
        connection = connect(&proxy).unwrap();
        ping(&mut connection).unwrap();

        proxy.set(Network::Forgets);
        assert!(ping(&mut connection).unwrap_err().is_timeout());
        connection = connect(&proxy).unwrap();
        ping(&mut connection).unwrap();

        proxy.set(Network::LosesFrom("ECHO"));
        connection = connect(&proxy).unwrap();
        ping(&mut connection).unwrap();
        let lost = redis::cmd("ECHO").arg("a").query::<String>(&mut connection).unwrap_err();
        assert!(lost.is_timeout());
        connection = connect(&proxy).unwrap();
        ping(&mut connection).unwrap();

        proxy.set(Network::HalfClosed);
        assert!(ping(&mut connection).unwrap_err().is_connection_dropped());
        proxy.heal();
        ping(&mut connect(&proxy).unwrap()).unwrap();

        drop(connection);
        wait_for("the end of all connections", || (proxy.open() == 0).then_some(()));
        let other = RedisServer::start();
        proxy.lead_to(other.port());
        let port: (String, String) = redis::cmd("CONFIG")
            .arg("GET")
            .arg("port")
            .query(&mut connect(&proxy).unwrap())
            .unwrap();
        assert_eq!(port.1, other.port().to_string());
    }
}
