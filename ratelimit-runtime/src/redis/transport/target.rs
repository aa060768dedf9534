//! The target of a URL: one server, a cluster, or the primary behind Sentinels.

mod parts;
mod query;
#[cfg(test)]
mod tests;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use self::{
    parts::{Deployment, UrlParts},
    query::{CLIENT_NAME, Query},
};
use super::{connect_options::ConnectOptions, credentials::Credentials, failure::message};
use crate::error::Fault;

/// The servers that a URL names, and the settings of connections to them.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    /// The addresses in the URL: one of a single server, at least one of a cluster or of Sentinels.
    pub(crate) servers: Vec<ConnectionInfo>,
    /// The version of the protocol, if the URL names one.
    pub(super) protocol: Option<ProtocolVersion>,
    pub(crate) options: ConnectOptions,
}

#[derive(Clone)]
pub(crate) enum Kind {
    Single,
    Cluster,
    /// The primary of this name, and the login of the Sentinels.
    Sentinel {
        primary: String,
        login: Option<Credentials>,
    },
}

/// The port of a Sentinel whose address names none.
const SENTINEL_PORT: &str = ":26379";

impl Target {
    pub(crate) fn parse(url: &str, options: &ConnectOptions) -> Result<Self, Fault> {
        let url = UrlParts::cut(url)?;
        let query = Query::parse(&url)?;
        let mut options = options.clone();
        if let Some(name) = query.value(CLIENT_NAME) {
            options.client_name = Some(name.into());
        }
        options.check(url.transport)?;
        let (kind, database) = Kind::parse(url.deployment, url.path, &query)?;
        let hosts: Vec<_> = match kind {
            // A comma may be part of a path.
            Kind::Single => vec![url.hosts],
            Kind::Cluster | Kind::Sentinel { .. } => url.hosts.split(',').collect(),
        };
        let servers = hosts.into_iter().map(|host| {
            let port = match kind {
                Kind::Sentinel { .. } if !has_port(host) => SENTINEL_PORT,
                _ => "",
            };
            let mut server = format!("{}://{}{host}{port}", url.transport, url.login);
            if !url.is_unix() {
                server.extend(["/", database]);
            }
            let info = format!("{server}?{}", query.of_one_server()).into_connection_info();
            info.map_err(|error| Fault::malformed_url(message(&error)))
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let settings = servers[0].redis_settings();
        let has_login = settings.username().is_some() || settings.password().is_some();
        if options.credentials.is_some() && has_login {
            let why = "`credentials` are set, and the URL has a login as well; remove one of them";
            return Err(Fault::new(why));
        }
        if matches!(kind, Kind::Sentinel { .. }) && options.has_addresses_of_nodes() {
            let why = "`address_map` and `tls_server_name` do not apply behind Sentinels; let them announce \
                       host names by `sentinel announce-hostnames yes`";
            return Err(Fault::new(why));
        }
        let protocol = query.value("protocol").map(|_| settings.protocol());
        Ok(Self { kind, servers, protocol, options })
    }

    /// Returns the addresses, for messages.
    pub(crate) fn addresses(&self) -> String {
        let addresses: Vec<_> =
            self.servers.iter().map(|server| server.addr().to_string()).collect();
        match &self.kind {
            Kind::Single => format!("Redis at {}", addresses.join(", ")),
            Kind::Cluster => format!("a Redis cluster at {}", addresses.join(", ")),
            Kind::Sentinel { primary, .. } => {
                format!("the primary `{primary}` through Sentinels at {}", addresses.join(", "))
            }
        }
    }
}

impl Kind {
    /// Reads the path of a URL. Returns the database as well, as written.
    fn parse<'a>(
        deployment: Deployment,
        path: &'a str,
        query: &Query<'_>,
    ) -> Result<(Self, &'a str), Fault> {
        match deployment {
            Deployment::Single => Ok((Self::Single, path)),
            Deployment::Cluster => Ok((Self::Cluster, path)),
            Deployment::Sentinel => {
                let (primary, database) = path.split_once('/').unwrap_or((path, ""));
                if primary.is_empty() {
                    return Err(Fault::malformed_url(
                        "the name of the primary is missing: redis+sentinel://host:26379/mymaster",
                    ));
                }
                let [username, password] =
                    ["sentinel_username", "sentinel_password"].map(|name| query.value(name));
                let login = Credentials::in_url(username.as_deref(), password.as_deref());
                Ok((Self::Sentinel { primary: primary.to_owned(), login }, database))
            }
        }
    }
}

/// Returns the address of another server of a deployment, which has the transport of this one.
pub(crate) fn beside(address: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match address.clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

fn has_port(host: &str) -> bool {
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}
