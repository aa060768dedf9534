//! How a connection is made: to one server, or to the primary that Sentinels know.

use std::{pin::Pin, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, RedisError,
    RedisResult, TlsMode,
    aio::MultiplexedConnection,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::sync::Mutex;

use super::{
    dial::dial,
    failure::describe,
    stream::{Counted, Traffic},
    target::{Kind, Target, tcp_settings},
    tls::Tls,
};
use crate::error::ConnectFault;

/// How long connecting to a server may take, name resolution and handshake included.
const SERVER: Duration = Duration::from_secs(1);

/// How long Sentinels may take to tell where the primary is: a stopped one is waited for.
const SENTINELS: Duration = Duration::from_secs(3);

/// Makes connections, one after the other.
#[derive(Clone)]
pub(super) struct Connector {
    source: Source,
    protocol: Option<ProtocolVersion>,
    tls: Tls,
    /// So long may a reply be, in bytes.
    limit: usize,
}

#[derive(Clone)]
enum Source {
    Server(Box<ConnectionInfo>),
    Sentinels(Arc<Mutex<SentinelClient>>),
}

impl Connector {
    pub(super) fn to_server(
        info: ConnectionInfo,
        protocol: Option<ProtocolVersion>,
        tls: Tls,
    ) -> Self {
        Self { source: Source::Server(Box::new(info)), protocol, tls, limit: usize::MAX }
    }

    /// To the only server of the target, or to its primary.
    pub(super) fn to_target(target: &Target) -> Result<Self, ConnectFault> {
        let source = match &target.kind {
            Kind::Sentinel { primary, username, password } => {
                let client = sentinels(target, primary, username.as_deref(), password.as_deref());
                let client = client.map_err(|error| ConnectFault::malformed(describe(&error)))?;
                Source::Sentinels(Arc::new(Mutex::new(client)))
            }
            Kind::Single | Kind::Cluster => Source::Server(Box::new(target.servers[0].clone())),
        };
        Ok(Self { source, protocol: target.protocol, tls: target.tls.clone(), limit: usize::MAX })
    }

    /// To the same server, by connections that end when a reply is longer than so many bytes.
    #[cfg(feature = "overrides")]
    pub(super) fn limited(&self, limit: usize) -> Self {
        Self { limit, ..self.clone() }
    }

    /// Connects.
    pub(super) async fn connect(&mut self) -> RedisResult<Connected> {
        let info = match &mut self.source {
            Source::Server(info) => (**info).clone(),
            Source::Sentinels(client) => {
                let ask = async { client.lock().await.async_get_client().await };
                let client = within(SENTINELS, "", ask).await?;
                client.get_connection_info().clone()
            }
        };
        if let Some(protocol) = self.protocol {
            return self.open(&info, protocol).await;
        }
        match self.open(&info, ProtocolVersion::RESP3).await {
            Err(error) if is_unknown(&error) => {
                self.protocol = Some(ProtocolVersion::RESP2);
                self.open(&info, ProtocolVersion::RESP2).await
            }
            connected => connected,
        }
    }

    async fn open(
        &self,
        info: &ConnectionInfo,
        protocol: ProtocolVersion,
    ) -> RedisResult<Connected> {
        let settings = info.redis_settings().clone().set_protocol(protocol);
        let is_encrypted = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        // A call waits no longer than the limiter's deadline; the connection itself does not count.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let traffic = Traffic::default();
        let work = async {
            let stream = dial(info, &self.tls).await?;
            let stream = Counted::new(stream, traffic.clone(), self.limit);
            MultiplexedConnection::new_with_config(&settings, stream, config).await
        };
        let hint = if is_encrypted { " (does the port speak TLS?)" } else { "" };
        let (connection, driver) = within(SERVER, hint, work).await?;
        Ok(Connected { connection, driver: Box::pin(driver), traffic })
    }
}

/// Whether it is RESP3 that the server, or what stands for it, does not know.
fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || describe(error).to_ascii_lowercase().starts_with("unknown command")
}

/// A connection that has just been made.
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    /// Carries its bytes, and is done when the connection has ended.
    pub(super) driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(super) traffic: Traffic,
}

async fn within<T>(
    limit: Duration,
    hint: &str,
    work: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        let why = format!("no answer within {limit:?}{hint}");
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, why).into())
    })
}

fn sentinels(
    target: &Target,
    primary: &str,
    username: Option<&str>,
    password: Option<&str>,
) -> RedisResult<SentinelClient> {
    let addresses = target.servers.iter().map(|server| server.addr().clone());
    let mut builder = SentinelClientBuilder::new(addresses, primary, SentinelServerType::Master)?
        .set_client_to_redis_tcp_settings(tcp_settings())
        .set_client_to_sentinel_tcp_settings(tcp_settings());
    // The login in the URL is the primary's; Sentinels have one of their own, or none.
    let settings = target.servers[0].redis_settings();
    builder = builder.set_client_to_redis_db(settings.db());
    if let Some(username) = settings.username() {
        builder = builder.set_client_to_redis_username(username);
    }
    if let Some(password) = settings.password() {
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
        builder = with_tls(builder.set_client_to_redis_tls_mode(mode), &target.tls);
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
