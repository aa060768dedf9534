//! Connecting to a server, or to the primary that Sentinels name.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::future::{join_all, select_ok};
use redis::{
    Arg, Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisError, RedisResult, Value,
    from_redis_value,
};
use tokio::time::timeout;

use super::{
    connection::{Connection, NewConnection},
    credentials::Credentials,
    dial::dial,
    exchange::Exchange,
    failure::{Address, broken, message},
    secrets::Secrets,
    target::{Kind, Target, beside},
};

/// The timeout of connecting to a server, with name resolution and handshake.
const SERVER_TIMEOUT: Duration = Duration::from_secs(1);

/// The time for the answers of further Sentinels after the first one. One that has missed a
/// failover names the old primary until another one greets it, for two seconds at most.
const FURTHER_ANSWERS: Duration = Duration::from_millis(100);

/// The longest reply of a server, in bytes. Scripts reply in a hundred.
const MAX_REPLY: usize = 1 << 20;

/// The longest reply of a cluster's node, in bytes: its map may have a range for each slot.
const MAX_REPLY_OF_NODE: usize = 2 << 20;

/// The settings of connections to one server.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) target: Arc<Target>,
    /// The server; behind Sentinels, they are asked for it at each connect.
    address: ConnectionAddr,
    /// The version of the protocol, once it is known.
    protocol: Arc<OnceLock<ProtocolVersion>>,
    /// The longest reply, in bytes.
    max_reply: usize,
}

impl Connector {
    /// Connects to the server of a target at this address, or to the primary behind its Sentinels.
    pub(crate) fn new(target: &Arc<Target>, address: ConnectionAddr) -> Self {
        let max_reply = match target.kind {
            Kind::Cluster => MAX_REPLY_OF_NODE,
            Kind::Single | Kind::Sentinel { .. } => MAX_REPLY,
        };
        let protocol = Arc::new(target.protocol.map(OnceLock::from).unwrap_or_default());
        Self { target: Arc::clone(target), address, protocol, max_reply }
    }

    /// Connects to the same server. A reply of more than this many bytes ends the connection.
    pub(crate) fn with_max_reply(&self, max_reply: usize) -> Self {
        Self { max_reply, ..self.clone() }
    }

    /// Connects, with RESP3 if the server has it and the URL names no version.
    pub(super) async fn connect(self) -> RedisResult<NewConnection> {
        let settings = self.target.servers[0].redis_settings();
        let login = match &self.target.options.credentials {
            Some(provider) => Some(provider.for_connect().await?),
            None => Credentials::in_url(settings.username(), settings.password()),
        };
        let primary = match self.target.kind {
            Kind::Sentinel { .. } => Some(self.find_primary().await?),
            Kind::Single | Kind::Cluster => None,
        };
        let address = primary.as_ref().unwrap_or(&self.address);
        let database = settings.db();
        let open = |protocol| {
            let mut commands = preparation(login.as_ref(), protocol, database);
            commands.extend(primary.as_ref().map(|_| redis::cmd("ROLE")));
            self.open(address, login.as_ref(), commands)
        };
        let (mut connection, role) = match self.protocol.get() {
            Some(protocol) => open(*protocol).await?,
            None => match open(ProtocolVersion::RESP3).await {
                // A server or a proxy that knows the older protocol alone is asked once more, and
                // remembered.
                Err(error) if may_lack_resp3(&error) => {
                    let opened = open(ProtocolVersion::RESP2).await?;
                    let _ = self.protocol.set(ProtocolVersion::RESP2);
                    opened
                }
                result => result?,
            },
        };
        if primary.is_some() && !is_primary(&role) {
            return Err(not_found("the server that the Sentinels name is no primary"));
        }
        connection.renewal = login.and_then(|login| login.renewal());
        Ok(connection)
    }

    /// Asks all Sentinels, and returns the primary of the last failover that one of them knows.
    async fn find_primary(&self) -> RedisResult<ConnectionAddr> {
        let sentinels = self.target.servers.iter().map(ConnectionInfo::addr);
        let questions = sentinels.map(|it| Box::pin(self.ask_sentinel(it)));
        let (first, others) = select_ok(questions).await?;
        // One of them may be stopped.
        let others = join_all(others.into_iter().map(|it| timeout(FURTHER_ANSWERS, it))).await;
        let answers = others.into_iter().flatten().flatten().chain([first]);
        let newest = answers.max_by_key(|(failovers, _)| *failovers);
        newest.map(|(_, primary)| primary).ok_or_else(broken)
    }

    /// Returns the number of failovers that a Sentinel knows, and the primary after them.
    async fn ask_sentinel(&self, sentinel: &ConnectionAddr) -> RedisResult<(u64, ConnectionAddr)> {
        let Kind::Sentinel { primary, login } = &self.target.kind else { return Err(broken()) };
        let mut commands = preparation(login.as_ref(), ProtocolVersion::RESP2, 0);
        commands.push(redis::cmd("SENTINEL").arg("MASTERS").take());
        let (_, reply) = self.open(sentinel, login.as_ref(), commands).await?;
        let primaries: Vec<HashMap<String, String>> = from_redis_value(reply)?;
        let answer =
            primaries.iter().find_map(|it| Some((failovers(it), address_of(primary, it)?)));
        let unknown = || not_found("a Sentinel names no primary of this name that is up");
        let (failovers, it) = answer.ok_or_else(unknown)?;
        Ok((failovers, beside(sentinel, it.host, it.port)))
    }

    /// Connects, and returns the reply to the last one of the first commands.
    async fn open(
        &self,
        address: &ConnectionAddr,
        login: Option<&Credentials>,
        commands: Vec<Cmd>,
    ) -> RedisResult<(NewConnection, Value)> {
        let secrets = Secrets::default();
        if let Some(login) = login {
            secrets.add(login);
        }
        let work = async {
            let stream = dial(address, &self.target.options.tls).await?;
            let new = NewConnection::start(stream, self.max_reply, secrets);
            let reply = self.shake_hands(&new.connection, commands).await?;
            Ok((new, reply))
        };
        let is_encrypted = matches!(address, ConnectionAddr::TcpTls { .. });
        timeout(SERVER_TIMEOUT, work).await.unwrap_or_else(|_| {
            let hint = if is_encrypted { " (is it a TLS port?)" } else { "" };
            let why = format!("no answer within {SERVER_TIMEOUT:?}{hint}");
            Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
        })
    }

    /// Sends the first commands, and returns the reply to the last one.
    async fn shake_hands(&self, to: &Arc<Connection>, commands: Vec<Cmd>) -> RedisResult<Value> {
        let send = |command: Cmd| {
            let exchange = Exchange::new(command, false);
            to.send(&exchange);
            exchange
        };
        let send_named = |command: Cmd| (first_word(&command), send(command));
        // All are sent before the first reply is awaited: the handshake takes one round trip.
        let needed: Vec<_> = commands.into_iter().map(send_named).collect();
        let name = self.target.options.client_name();
        let name =
            (!name.is_empty()).then(|| send(redis::cmd("CLIENT").arg("SETNAME").arg(name).take()));
        let mut last = Value::Nil;
        for (command, exchange) in needed {
            last = exchange.answer().await.map_err(|error| ended_at(error, &command))?;
        }
        if let Some(name) = name
            && let Err(error) = name.answer().await
        {
            // A server or a proxy may refuse to name the connection.
            if error.code().is_none() {
                return Err(ended_at(error, "CLIENT SETNAME"));
            }
            tracing::debug!(error = %message(&error), "connection without a name");
        }
        Ok(last)
    }
}

/// Returns the commands that log a connection in, and choose its protocol and its database.
fn preparation(login: Option<&Credentials>, protocol: ProtocolVersion, database: i64) -> Vec<Cmd> {
    let first = match login {
        // With RESP2 there is no `HELLO`, a command that older servers and some proxies lack.
        None if protocol.supports_resp3() => Some(redis::cmd("HELLO").arg(3).take()),
        Some(login) if protocol.supports_resp3() => Some(login.hello()),
        login => login.map(Credentials::auth),
    };
    let select = (database != 0).then(|| redis::cmd("SELECT").arg(database).take());
    first.into_iter().chain(select).collect()
}

/// Returns the name of a command, which is no part of a login.
fn first_word(command: &Cmd) -> String {
    let words = command.args_iter().find_map(|word| match word {
        Arg::Simple(word) => Some(String::from_utf8_lossy(word).into_owned()),
        _ => None,
    });
    words.unwrap_or_default()
}

/// Returns the error of a handshake with the command that was out when the connection ended: some
/// proxies end it at a command that they do not know. An error of the server names its cause
/// itself.
fn ended_at(error: RedisError, command: &str) -> RedisError {
    if !error.is_connection_dropped() {
        return error;
    }
    let hint = match command {
        "CLIENT SETNAME" => "; `?client_name=` in the URL leaves it out",
        _ => "",
    };
    let why = format!("{} at the command {command}{hint}", message(&error));
    io::Error::new(io::ErrorKind::BrokenPipe, why).into()
}

/// Returns the number of the last failover of one of a Sentinel's primaries.
fn failovers(primary: &HashMap<String, String>) -> u64 {
    primary.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0)
}

/// Returns the address of one of a Sentinel's primaries, if it has this name and is up.
fn address_of(name: &str, primary: &HashMap<String, String>) -> Option<Address> {
    let flags = primary.get("flags")?;
    // `s_down` is one Sentinel's view, `o_down` that of several.
    let is_up = flags.contains("master") && !flags.contains("_down");
    let is_found = is_up && primary.get("name")? == name;
    is_found.then(|| Address::new(primary.get("ip")?, primary.get("port")?.parse().ok()?))?
}

/// Returns `true` if the reply to `ROLE` is that of a primary.
fn is_primary(role: &Value) -> bool {
    let role = role.as_sequence().and_then(|role| role.first());
    role.is_some_and(|role| from_redis_value::<String>(role.clone()).is_ok_and(|it| it == "master"))
}

fn not_found(why: &str) -> RedisError {
    io::Error::new(io::ErrorKind::NotFound, why).into()
}

/// Returns `true` if the server, or a proxy, may not support RESP3: it refuses other than the
/// login, or ends the connection.
fn may_lack_resp3(error: &RedisError) -> bool {
    match error.code() {
        Some("WRONGPASS" | "NOAUTH" | "NOPERM") => false,
        Some(_) => true,
        None => error.is_connection_dropped(),
    }
}
