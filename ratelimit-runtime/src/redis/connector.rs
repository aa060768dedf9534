//! Connecting to a server, or to the primary that Sentinels name.

use std::{future::poll_fn, io, pin::pin, sync::Arc, task::Poll, time::Duration};

use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError,
    RedisResult, TlsMode,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::{sync::Mutex, time::Instant};

use super::{
    background::Home,
    connect_options::ConnectOptions,
    credentials::{Credentials, CredentialsProvider},
    dial::dial,
    exchange::{Exchange, Reply},
    failure::message,
    multiplexer::{Multiplexer, MultiplexerTask},
    secrets::Secrets,
    stream::{BoxedStream, MeteredStream, Traffic},
    target::{Kind, Target, tcp_settings},
    tls::Tls,
};
use crate::error::ConnectFault;

/// The timeout of connecting to a server, with name resolution and handshake.
const SERVER_TIMEOUT: Duration = Duration::from_secs(1);

/// The timeout of the query for the primary, long enough if one of the Sentinels is stopped.
const SENTINEL_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest reply of a server, in bytes. Scripts reply in a hundred.
const MAX_REPLY: usize = 1 << 20;

/// The longest reply of a cluster's node, in bytes: its map may have a range for each slot.
const MAX_REPLY_OF_NODE: usize = 2 << 20;

/// The user that a server has without a login.
const DEFAULT_USER: &str = "default";

/// The settings of connections to one server.
#[derive(Clone)]
pub(super) struct Connector {
    endpoint: Endpoint,
    protocol: Option<ProtocolVersion>,
    options: ConnectOptions,
    /// The longest reply, in bytes.
    max_reply: usize,
}

#[derive(Clone)]
enum Endpoint {
    Server(Box<ConnectionInfo>),
    Sentinels { target: Arc<Target>, client: Arc<Mutex<SentinelClient>> },
}

impl Connector {
    /// Connects to a node of a cluster.
    pub(super) fn to_node(
        info: ConnectionInfo,
        protocol: Option<ProtocolVersion>,
        options: ConnectOptions,
    ) -> Self {
        let endpoint = Endpoint::Server(Box::new(info));
        Self { endpoint, protocol, options, max_reply: MAX_REPLY_OF_NODE }
    }

    /// Connects to the target's only server, or to the primary behind its Sentinels.
    pub(super) fn to_target(target: &Target) -> Result<Self, ConnectFault> {
        let endpoint = match &target.kind {
            Kind::Sentinel { .. } => {
                let client = sentinels(target, None);
                let client = client.map_err(|error| ConnectFault::malformed(message(&error)))?;
                Endpoint::Sentinels {
                    target: Arc::new(target.clone()),
                    client: Arc::new(Mutex::new(client)),
                }
            }
            Kind::Single | Kind::Cluster => Endpoint::Server(Box::new(target.servers[0].clone())),
        };
        Ok(Self {
            endpoint,
            protocol: target.protocol,
            options: target.options.clone(),
            max_reply: MAX_REPLY,
        })
    }

    /// Connects to the same server. A reply of more than this many bytes ends the connection.
    #[cfg(feature = "overrides")]
    pub(super) fn with_max_reply(&self, max_reply: usize) -> Self {
        Self { max_reply, ..self.clone() }
    }

    /// Connects, with RESP3 if the server has it and the URL names no version.
    pub(super) async fn connect(&mut self) -> RedisResult<NewConnection> {
        let login = match &self.options.credentials {
            Some(provider) => Some(provider.for_connect().await?),
            None => None,
        };
        let mut info = match &mut self.endpoint {
            Endpoint::Server(info) => (**info).clone(),
            Endpoint::Sentinels { target, client } => {
                let ask = async {
                    let mut client = client.lock().await;
                    if login.is_some() {
                        // It asks the primary for its role, with the login that it was made with.
                        *client = sentinels(target, login.as_ref())?;
                    }
                    client.async_get_client().await
                };
                let secrets = Secrets::default();
                if let Kind::Sentinel { username, password, .. } = &target.kind {
                    secrets.add(username.as_deref(), password.as_deref());
                }
                add_login_in_url(&secrets, target.servers[0].redis_settings());
                if let Some(login) = &login {
                    secrets.add_login(login);
                }
                let client = within(SENTINEL_TIMEOUT, "", ask).await;
                let client = client.map_err(|error| secrets.cleaned(error))?;
                client.get_connection_info().clone()
            }
        };
        if let Some(login) = &login {
            let settings = info.redis_settings().clone().set_username(login.username());
            info = info.set_redis_settings(settings.set_password(login.password()));
        }
        let mut connection = match self.protocol {
            Some(protocol) => self.open(&info, protocol).await?,
            None => match self.open(&info, ProtocolVersion::RESP3).await {
                Err(error) if may_lack_resp3(&error) => {
                    let connection = self.open(&info, ProtocolVersion::RESP2).await?;
                    self.protocol = Some(ProtocolVersion::RESP2);
                    connection
                }
                result => result?,
            },
        };
        connection.renewal = login.and_then(|login| login.renewal());
        Ok(connection)
    }

    /// Returns the runtime that carries the bytes.
    pub(super) fn home(&self) -> &Home {
        &self.options.home
    }

    /// Returns the provider of logins.
    pub(super) fn credentials(&self) -> Option<&CredentialsProvider> {
        self.options.credentials.as_ref()
    }

    async fn open(
        &self,
        info: &ConnectionInfo,
        protocol: ProtocolVersion,
    ) -> RedisResult<NewConnection> {
        let is_encrypted = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let (traffic, secrets) = (Traffic::default(), Secrets::default());
        add_login_in_url(&secrets, info.redis_settings());
        let work = async {
            let stream = dial(info, &self.options.tls).await?;
            let stream = MeteredStream::new(stream, traffic.clone());
            let (multiplexer, mut driver) =
                Multiplexer::new(stream, self.max_reply, secrets.clone());
            let handshake = self.shake_hands(&multiplexer, info.redis_settings(), protocol);
            first(handshake, &mut driver).await.unwrap_or_else(|| Err(broken()))?;
            Ok((multiplexer, driver))
        };
        let hint = if is_encrypted { " (is it a TLS port?)" } else { "" };
        let (multiplexer, driver) = within(SERVER_TIMEOUT, hint, work).await?;
        Ok(NewConnection { multiplexer, driver, traffic, secrets, renewal: None })
    }

    /// Logs the connection in, and chooses its protocol and its database.
    async fn shake_hands(
        &self,
        to: &Multiplexer,
        settings: &RedisConnectionInfo,
        protocol: ProtocolVersion,
    ) -> RedisResult<()> {
        let login = settings.password().map(|password| (settings.username(), password));
        let mut commands = Vec::new();
        match (protocol.supports_resp3(), login) {
            (true, None) => commands.push(redis::cmd("HELLO").arg(3).take()),
            (true, Some((username, password))) => {
                let username = username.unwrap_or(DEFAULT_USER);
                let login = ["AUTH", username, password];
                commands.push(redis::cmd("HELLO").arg(3).arg(&login).take());
            }
            (false, None) => {}
            (false, Some((username, password))) => {
                // A server without users has only the password.
                let username = username.filter(|name| *name != DEFAULT_USER);
                commands.push(redis::cmd("AUTH").arg(username).arg(password).take());
            }
        }
        if settings.db() != 0 {
            commands.push(redis::cmd("SELECT").arg(settings.db()).take());
        }
        let send = |command: Cmd| {
            let exchange = Exchange::new(command, false);
            to.send(&exchange, true);
            exchange
        };
        let needed: Vec<_> = commands.into_iter().map(send).collect();
        let name = &*self.options.client_name;
        let name =
            (!name.is_empty()).then(|| send(redis::cmd("CLIENT").arg("SETNAME").arg(name).take()));
        for exchange in needed {
            reply_to(&exchange).await?;
        }
        // A server or a proxy may refuse to name the connection.
        match name {
            Some(name) => match reply_to(&name).await {
                Err(error) if error.code().is_some() => {
                    tracing::debug!(error = %message(&error), "connection without a name");
                    Ok(())
                }
                result => result,
            },
            None => Ok(()),
        }
    }
}

async fn reply_to(exchange: &Exchange) -> RedisResult<()> {
    match poll_fn(|context| exchange.poll_reply(context)).await {
        Reply::Received(reply) => reply.map(drop),
        Reply::Unsent => Err(broken()),
    }
}

fn add_login_in_url(secrets: &Secrets, settings: &RedisConnectionInfo) {
    secrets.add(settings.username(), settings.password());
}

/// Returns `true` if the server, or a proxy, may not support RESP3: it refuses other than the login, or ends
/// the connection.
fn may_lack_resp3(error: &RedisError) -> bool {
    match error.code() {
        Some("WRONGPASS" | "NOAUTH" | "NOPERM") => false,
        Some(_) => true,
        None => error.is_connection_dropped(),
    }
}

pub(super) fn broken() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// Returns the output of `work`, or `None` if `other`, which runs beside it, ends before.
pub(super) async fn first<T>(
    work: impl Future<Output = T>,
    other: impl Future<Output = ()>,
) -> Option<T> {
    let (mut work, mut other) = (pin!(work), pin!(other));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if other.as_mut().poll(context).is_pending() => Poll::Pending,
        // Its end may be what the work waits for.
        Poll::Pending => match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        },
    })
    .await
}

/// A connection after its handshake.
pub(super) struct NewConnection {
    pub(super) multiplexer: Multiplexer,
    /// The future that carries its bytes.
    pub(super) driver: MultiplexerTask<MeteredStream<BoxedStream>>,
    pub(super) traffic: Traffic,
    pub(super) secrets: Secrets,
    /// The time of the next login, if this one ends.
    pub(super) renewal: Option<Instant>,
}

async fn within<T>(
    limit: Duration,
    hint: &str,
    work: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let why = format!("no answer within {limit:?}{hint}");
        Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
    })
}

/// Returns the client of a target behind Sentinels. The login, if there is one, is the primary's.
fn sentinels(target: &Target, login: Option<&Credentials>) -> RedisResult<SentinelClient> {
    let Kind::Sentinel { primary, username, password } = &target.kind else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
    };
    let addresses = target.servers.iter().map(|server| server.addr().clone());
    let mut builder = SentinelClientBuilder::new(addresses, primary, SentinelServerType::Master)?
        .set_client_to_redis_tcp_settings(tcp_settings())
        .set_client_to_sentinel_tcp_settings(tcp_settings());
    // The login in the URL is the primary's. Sentinels have one of their own, or none.
    let settings = target.servers[0].redis_settings();
    builder = builder.set_client_to_redis_db(settings.db());
    if let Some(username) = login.map(Credentials::username).or(settings.username()) {
        builder = builder.set_client_to_redis_username(username);
    }
    if let Some(password) = login.map(Credentials::password).or(settings.password()) {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(username) = username {
        builder = builder.set_client_to_sentinel_username(username);
    }
    if let Some(password) = password {
        builder = builder.set_client_to_sentinel_password(password);
    }
    if let ConnectionAddr::TcpTls { .. } = target.servers[0].addr() {
        let builder_of_primary = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        builder = with_tls(builder_of_primary, &target.options.tls);
    }
    builder.build()
}

#[cfg(feature = "tls")]
fn with_tls(builder: SentinelClientBuilder, tls: &Tls) -> SentinelClientBuilder {
    builder.set_client_to_redis_certificates(tls.certificates())
}

#[cfg(not(feature = "tls"))]
fn with_tls(builder: SentinelClientBuilder, _: &Tls) -> SentinelClientBuilder {
    builder
}
