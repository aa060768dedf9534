//! Connecting to a server, or to the primary that Sentinels name.

use std::{future::poll_fn, io, pin::pin, sync::Arc, task::Poll, time::Duration};

use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, RedisError,
    RedisResult, TlsMode,
    aio::MultiplexedConnection,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::{sync::Mutex, time::Instant};

use super::{
    connect_options::ConnectOptions,
    credentials::{Credentials, CredentialsProvider},
    dial::dial,
    failure::message,
    stream::{BoxedStream, MeteredStream, Traffic, lend},
    target::{Kind, Target, tcp_settings},
    tls::Tls,
};
use crate::error::ConnectFault;

/// The timeout of connecting to a server, with name resolution and handshake.
const SERVER_TIMEOUT: Duration = Duration::from_secs(1);

/// The timeout of the query for the primary, long enough if one of the Sentinels is stopped.
const SENTINEL_TIMEOUT: Duration = Duration::from_secs(3);

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
    pub(super) fn to_server(
        info: ConnectionInfo,
        protocol: Option<ProtocolVersion>,
        options: ConnectOptions,
    ) -> Self {
        Self {
            endpoint: Endpoint::Server(Box::new(info)),
            protocol,
            options,
            max_reply: usize::MAX,
        }
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
            max_reply: usize::MAX,
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
                let client = within(SENTINEL_TIMEOUT, "", ask).await?;
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
                Err(error) if lacks_resp3(&error) => {
                    self.protocol = Some(ProtocolVersion::RESP2);
                    self.open(&info, ProtocolVersion::RESP2).await?
                }
                result => result?,
            },
        };
        connection.renewal = login.and_then(|login| login.renewal());
        Ok(connection)
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
        let settings = info.redis_settings().clone().set_protocol(protocol);
        let is_encrypted = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        // The limiter's deadline bounds calls.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let traffic = Traffic::default();
        let work = async {
            let stream = dial(info, &self.options.tls).await?;
            let stream = MeteredStream::new(stream, traffic.clone(), self.max_reply);
            let (lender, lent) = lend(stream);
            // The handshake is the client's, and the connection after it our own.
            let (mut handshake, driver) =
                MultiplexedConnection::new_with_config(&settings, lent, config).await?;
            first(self.name(&mut handshake), driver).await.unwrap_or_else(|| Err(broken()))?;
            drop(handshake);
            lender.reclaim().ok_or_else(broken)
        };
        let hint = if is_encrypted { " (is it a TLS port?)" } else { "" };
        let stream = within(SERVER_TIMEOUT, hint, work).await?;
        Ok(NewConnection { stream, traffic, renewal: None })
    }

    /// Names the connection. A server or a proxy may refuse it.
    async fn name(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        if self.options.client_name.is_empty() {
            return Ok(());
        }
        let mut command = redis::cmd("CLIENT");
        command.arg("SETNAME").arg(&*self.options.client_name);
        match command.exec_async(connection).await {
            Err(error) if error.code().is_some() => {
                tracing::debug!(error = %message(&error), "connection without a name");
                Ok(())
            }
            result => result,
        }
    }
}

/// Returns `true` if the server, or a proxy, does not support RESP3.
fn lacks_resp3(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || message(error).to_ascii_lowercase().starts_with("unknown command")
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
        Poll::Pending => other.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// A connection after its handshake.
pub(super) struct NewConnection {
    pub(super) stream: MeteredStream<BoxedStream>,
    pub(super) traffic: Traffic,
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
    if let ConnectionAddr::TcpTls { insecure, .. } = target.servers[0].addr() {
        let mode = if *insecure { TlsMode::Insecure } else { TlsMode::Secure };
        builder = with_tls(builder.set_client_to_redis_tls_mode(mode), &target.options.tls);
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
