//! One server: its connections and its circuit breaker.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use redis::{Cmd, RedisFuture, Value, aio::ConnectionLike};
use tokio::sync::Semaphore;

use super::breaker::Breaker;
use crate::redis::transport::{Command, Connector, ManagedConnection, PendingReply};

/// Commands whose replies are awaited at one time although their callers have gone.
const MAX_ABANDONED: usize = 16;

/// The longest reply over the side connection, in bytes.
const MAX_SIDE_REPLY: usize = 4 << 20;

/// The longest wait for the side connection when it is first used.
const SIDE_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Node {
    transport: Transport,
    pub(crate) breaker: Arc<Breaker>,
    /// The semaphore of commands whose callers have gone.
    pub(super) abandoned: Arc<Semaphore>,
}

enum Transport {
    /// Connections that the limiter manages.
    Managed {
        main: Arc<ManagedConnection>,
        /// The connection for long replies, made for the first of them.
        side: OnceLock<Arc<ManagedConnection>>,
        to_side: Connector,
    },
    /// The program's own connection.
    External(Box<dyn Fn(Cmd) -> RedisFuture<'static, Value> + Send + Sync>),
}

/// The connection for a command. A connection of the program's own serves both lanes.
#[derive(Clone, Copy)]
pub(crate) enum Lane {
    /// The connection of decisions.
    Main,
    /// The connection of long replies, so that no decision waits behind one.
    Side,
}

impl Node {
    /// Connects in the background.
    pub(crate) fn managed(connector: Connector, name: String) -> Self {
        let to_side = connector.with_max_reply(MAX_SIDE_REPLY);
        let (main, side) = (ManagedConnection::new(connector), OnceLock::new());
        let transport = Transport::Managed { main, side, to_side };
        Self::new(transport, name)
    }

    /// Uses a connection of the program's own.
    pub(crate) fn from_connection<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let send = move |command: Cmd| -> RedisFuture<'static, Value> {
            let mut connection = connection.clone();
            Box::pin(async move { connection.req_packed_command(&command).await })
        };
        let name = "a connection of the program's own".to_owned();
        Self::new(Transport::External(Box::new(send)), name)
    }

    fn new(transport: Transport, name: String) -> Self {
        let abandoned = Arc::new(Semaphore::new(MAX_ABANDONED));
        Self { transport, breaker: Breaker::new(name), abandoned }
    }

    /// Returns the name for operators.
    pub(crate) fn name(&self) -> &str {
        &self.breaker.server
    }

    /// Returns the connection of decisions, unless it is the program's own.
    fn main(&self) -> Option<&Arc<ManagedConnection>> {
        match &self.transport {
            Transport::Managed { main, .. } => Some(main),
            Transport::External(_) => None,
        }
    }

    /// Returns the number of the connection of decisions: each reconnect has another one. A
    /// connection of the program's own has none.
    pub(crate) fn connection_number(&self) -> Option<u64> {
        self.main()?.number()
    }

    /// Waits for the end of the first attempt to connect. The error is its cause.
    pub(crate) async fn connected(&self) -> Result<(), String> {
        let Some(main) = self.main() else { return Ok(()) };
        main.connected().await.map(drop).map_err(|failure| failure.cause.to_string())
    }

    /// Returns `true` if the last attempt to connect failed.
    pub(crate) fn is_down(&self) -> bool {
        self.main().is_some_and(|main| main.is_down())
    }

    /// Makes the side connection and waits for it, if it is the first time and the breaker is
    /// closed.
    pub(crate) async fn open_side(&self) {
        if let Transport::Managed { side, to_side, .. } = &self.transport
            && side.get().is_none()
            && self.breaker.failure().is_none()
        {
            let side = side.get_or_init(|| ManagedConnection::new(to_side.clone()));
            let _ = tokio::time::timeout(SIDE_CONNECT_TIMEOUT, side.connected()).await;
        }
    }

    /// Starts a command, past the breaker. With `asking`, it is for a slot that this node imports.
    pub(crate) fn start(&self, command: Command, asking: bool, lane: Lane) -> PendingReply {
        match &self.transport {
            Transport::Managed { main, side, to_side } => {
                let connection = match lane {
                    Lane::Main => main,
                    Lane::Side => side.get_or_init(|| ManagedConnection::new(to_side.clone())),
                };
                PendingReply::managed(connection, command, asking)
            }
            Transport::External(send) => {
                PendingReply::External { reply: send(command.command), echo: command.echo }
            }
        }
    }
}
