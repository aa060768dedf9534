//! One server: its connections and its circuit breaker.

#[cfg(feature = "overrides")]
use std::sync::OnceLock;
use std::{sync::Arc, time::Duration};

use redis::{Cmd, RedisFuture, RedisResult, Value, aio::ConnectionLike};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::{
    breaker::Breaker,
    connection::Connection,
    connector::Connector,
    echo::{Command, is_named},
    failure::Failure,
    managed::{ManagedConnection, PendingCommand},
};
use crate::error::UnavailableReason;

/// Commands whose replies are awaited at one time although their callers have gone.
const MAX_ABANDONED: usize = 16;

/// The longest reply over the side connection, in bytes.
#[cfg(feature = "overrides")]
const MAX_SIDE_REPLY: usize = 4 << 20;

/// The longest wait for the side connection when it is first used.
#[cfg(feature = "overrides")]
const SIDE_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time after which a connection that has taken the place of another one proves its late replies lost.
const LATE: Duration = Duration::from_secs(1);

pub(super) struct Node {
    transport: Transport,
    breaker: Arc<Breaker>,
    abandoned: Arc<Semaphore>,
}

enum Transport {
    /// Connections that the limiter manages.
    Managed {
        main: Arc<ManagedConnection>,
        #[cfg(feature = "overrides")]
        side: SideConnection,
    },
    /// The program's own connection.
    External(Box<dyn ExternalConnection>),
}

/// The connection for a command. A connection of the program's own is both.
#[derive(Clone, Copy)]
pub(super) enum Lane {
    /// The connection of decisions.
    Main,
    /// The connection of long replies, so that no decision waits behind one.
    #[cfg(feature = "overrides")]
    Side,
}

/// A connection for long replies, made for the first of them.
#[cfg(feature = "overrides")]
struct SideConnection {
    connector: Connector,
    connection: OnceLock<Arc<ManagedConnection>>,
}

#[cfg(feature = "overrides")]
impl SideConnection {
    fn new(connector: &Connector) -> Self {
        Self { connector: connector.with_max_reply(MAX_SIDE_REPLY), connection: OnceLock::new() }
    }

    fn get(&self) -> &Arc<ManagedConnection> {
        let connect = || ManagedConnection::new(Connection::lazy(self.connector.clone()));
        self.connection.get_or_init(connect)
    }
}

impl Transport {
    fn managed(connection: Connection, connector: &Connector) -> Self {
        #[cfg(not(feature = "overrides"))]
        let _ = connector;
        Self::Managed {
            main: ManagedConnection::new(connection),
            #[cfg(feature = "overrides")]
            side: SideConnection::new(connector),
        }
    }
}

impl Node {
    /// Connects.
    pub(super) async fn open(connector: &Connector, name: String) -> RedisResult<Self> {
        let connection = Connection::open(connector.clone()).await?;
        Ok(Self::new(Transport::managed(connection, connector), name))
    }

    /// Connects in the background.
    pub(super) fn lazy(connector: &Connector, name: String) -> Self {
        let connection = Connection::lazy(connector.clone());
        Self::new(Transport::managed(connection, connector), name)
    }

    /// Uses a connection of the program's own.
    pub(super) fn from_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let name = "a connection of the program's own".to_owned();
        Self::new(Transport::External(Box::new(connection)), name)
    }

    fn new(transport: Transport, name: String) -> Self {
        let abandoned = Arc::new(Semaphore::new(MAX_ABANDONED));
        Self { transport, breaker: Breaker::new(name), abandoned }
    }

    /// Returns the name for operators.
    pub(super) fn name(&self) -> &str {
        self.breaker.server()
    }

    pub(super) fn breaker(&self) -> &Arc<Breaker> {
        &self.breaker
    }

    /// Returns the semaphore of commands whose callers have gone.
    pub(super) fn abandoned(&self) -> &Arc<Semaphore> {
        &self.abandoned
    }

    /// Returns the number of the connection of decisions: each reconnect has another one. A connection of
    /// the program's own has none.
    #[cfg(feature = "overrides")]
    pub(super) fn connection_number(&self) -> Option<u64> {
        match &self.transport {
            Transport::Managed { main, .. } => main.number(),
            Transport::External(_) => None,
        }
    }

    /// Returns `true` if the last attempt to connect failed.
    pub(super) fn is_down(&self) -> bool {
        match &self.transport {
            Transport::Managed { main, .. } => main.is_down(),
            Transport::External(_) => false,
        }
    }

    /// Makes the side connection and waits for it, if it is the first time and the breaker is closed.
    #[cfg(feature = "overrides")]
    pub(super) async fn open_side(&self) {
        if let Transport::Managed { side, .. } = &self.transport
            && side.connection.get().is_none()
            && self.breaker.failure().is_none()
        {
            let _ = tokio::time::timeout(SIDE_CONNECT_TIMEOUT, side.get().settled()).await;
        }
    }

    /// Starts a command, past the breaker. With `asking`, it is for a slot that this node imports.
    pub(super) fn start(&self, command: Command, asking: bool, lane: Lane) -> PendingReply {
        match (&self.transport, lane) {
            (Transport::Managed { main, .. }, Lane::Main) => {
                PendingReply::Managed(PendingCommand::new(main, command, asking))
            }
            #[cfg(feature = "overrides")]
            (Transport::Managed { side, .. }, Lane::Side) => {
                PendingReply::Managed(PendingCommand::new(side.get(), command, asking))
            }
            (Transport::External(connection), _) => {
                PendingReply::External(connection.send(command.command), command.echo)
            }
        }
    }
}

/// The reply to a command under way.
pub(super) enum PendingReply {
    Managed(PendingCommand),
    /// The reply, and the number by which it names the command.
    External(RedisFuture<'static, Value>, Option<u64>),
}

impl PendingReply {
    /// Returns `true` if the command was sent, or may have been.
    pub(super) fn is_sent(&self) -> bool {
        match self {
            Self::Managed(command) => command.is_sent(),
            Self::External(..) => true,
        }
    }

    /// Waits for the late reply to a sent command, at most until then. It is lost once another connection has
    /// been tried for a while in vain.
    pub(super) async fn wait_on(&mut self, until: Instant) -> Result<Value, Failure> {
        loop {
            let is_replaced = matches!(self, Self::Managed(command) if command.is_replaced());
            let answer = self.wait((Instant::now() + LATE).min(until)).await;
            match answer {
                Err(failure) if failure.is_late() && !is_replaced && Instant::now() < until => {}
                answer => return answer,
            }
        }
    }

    /// Waits for the reply until the deadline. A wait that is cancelled can be resumed.
    pub(super) async fn wait(&mut self, deadline: Instant) -> Result<Value, Failure> {
        match self {
            Self::Managed(command) => {
                let reply = timeout_at(deadline, command.reply()).await;
                reply.unwrap_or_else(|_| {
                    command.on_timeout();
                    Err(UnavailableReason::DeadlineExceeded.into())
                })
            }
            Self::External(reply, echo) => {
                let reply = timeout_at(deadline, reply).await;
                let reply = reply.map_err(|_| UnavailableReason::DeadlineExceeded)?;
                let mut reply =
                    reply.and_then(Value::extract_error).map_err(|it| Failure::logged(&it))?;
                if is_named(&mut reply, *echo) {
                    Ok(reply)
                } else {
                    Err(UnavailableReason::UnexpectedReply.into())
                }
            }
        }
    }
}

/// A connection of the program's own, shared by calls.
trait ExternalConnection: Send + Sync {
    fn send(&self, command: Cmd) -> RedisFuture<'static, Value>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> ExternalConnection for C {
    fn send(&self, command: Cmd) -> RedisFuture<'static, Value> {
        let mut connection = self.clone();
        Box::pin(async move { connection.req_packed_command(&command).await })
    }
}
