//! What a URL names: one server, a cluster, or the primary that Sentinels know.

#[cfg(test)]
mod tests;

use redis::{
    ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use url::form_urlencoded;

use super::{client::OpenError, failure::describe, tls::Tls};

/// What a URL names, with all that it says about connecting.
pub(super) struct Target {
    pub(super) kind: Kind,
    /// The addresses in the URL: one, or one or several of a cluster or of Sentinels.
    pub(super) servers: Vec<ConnectionInfo>,
    /// Of the servers, if the URL says so.
    pub(super) protocol: Option<ProtocolVersion>,
    pub(super) tls: Tls,
}

pub(super) enum Kind {
    Single,
    Cluster,
    Sentinel { primary: String, username: Option<String>, password: Option<String> },
}

/// The port of a Sentinel whose address names none.
const SENTINEL_PORT: &str = ":26379";

/// How the client is asked for TLS with any certificate.
const INSECURE: &str = "#insecure";

/// Parameters that are a login, or a part of one.
const LOGIN: [&str; 4] = ["user", "pass", "sentinel_username", "sentinel_password"];

/// What is wrong with most logins that make a URL unreadable.
const ESCAPES: &str = "special characters in a user name or password are percent-encoded, such as `@` \
     as %40, `/` as %2F, `?` as %3F, `#` as %23";

impl Target {
    pub(super) fn parse(url: &str, tls: &Tls) -> Result<Self, OpenError> {
        let malformed = |why: &str| OpenError::Malformed(why.to_owned());
        // What stands in front of the mark may be a login whose password has the mark in it.
        let (scheme, rest) = url
            .split_once("://")
            .filter(|(scheme, _)| is_scheme(scheme))
            .ok_or_else(|| malformed("it has no scheme"))?;
        let unknown = || OpenError::UnknownScheme(scheme.to_owned());
        let (transport, kind) = match scheme.split_once('+') {
            Some(("redis" | "valkey", "unix")) => ("unix", ""),
            Some((transport, kind @ ("cluster" | "sentinel"))) => (transport, kind),
            Some(_) => return Err(unknown()),
            None => (scheme, ""),
        };
        if !["redis", "rediss", "valkey", "valkeys", "unix"].contains(&transport) {
            return Err(unknown());
        }
        tls.check(transport)?;

        let (rest, fragment) = match rest.strip_suffix(INSECURE) {
            Some(rest) if Tls::is_encrypted(transport) => (rest, INSECURE),
            _ => (rest, ""),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) if transport != "unix" => (authority, path),
            _ => (rest, ""),
        };
        // What follows would read a part of the login as something else, and might tell it.
        let is_in_query = query.contains('@') && transport != "unix" && kind != "sentinel";
        if rest.contains('#') || query.contains('#') || path.contains('@') || is_in_query {
            return Err(malformed(ESCAPES));
        }

        let has_login_in_query = query.contains('@');
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let known: &[&str] = match (transport, kind) {
            ("unix", _) => &["protocol", "db", "user", "pass"],
            (_, "sentinel") => &["protocol", "sentinel_username", "sentinel_password"],
            _ => &["protocol"],
        };
        if let Some((name, _)) = query.iter().find(|(name, _)| !known.contains(&name.as_ref())) {
            // It may be what follows a `&` or a `?` in a password.
            let may_be_secret = has_login_in_query
                || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                || query.iter().any(|(name, _)| LOGIN.contains(&name.as_ref()));
            let known = known.join("`, `");
            return Err(OpenError::Malformed(if may_be_secret {
                format!("unknown parameter; allowed are `{known}`, and {ESCAPES}")
            } else {
                format!("unknown parameter `{name}`; allowed are `{known}`")
            }));
        }
        let value = |wanted: &str| {
            let found = query.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone().into_owned())
        };

        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        let (kind, database) = match kind {
            "cluster" if !["", "0"].contains(&path) => {
                return Err(malformed("a cluster has no databases but 0"));
            }
            "cluster" => (Kind::Cluster, ""),
            "sentinel" => {
                let (primary, database) = path.split_once('/').unwrap_or((path, ""));
                if primary.is_empty() {
                    return Err(malformed(
                        "the name of the primary is missing: redis+sentinel://host:26379/mymaster",
                    ));
                }
                let username = value("sentinel_username");
                let password = value("sentinel_password");
                (Kind::Sentinel { primary: primary.to_owned(), username, password }, database)
            }
            _ => (Kind::Single, path),
        };
        let hosts: Vec<_> = match kind {
            // A comma may be part of a path.
            Kind::Single => vec![hosts],
            Kind::Cluster | Kind::Sentinel { .. } => hosts.split(',').collect(),
        };
        let servers = hosts.into_iter().map(|host| {
            let port = match kind {
                Kind::Sentinel { .. } if !has_port(host) => SENTINEL_PORT,
                _ => "",
            };
            let mut url = format!("{transport}://{login}{host}{port}");
            if transport != "unix" {
                url.extend(["/", database]);
            }
            let query = query.iter().filter(|(name, _)| !name.starts_with("sentinel_"));
            let query: String =
                form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
            server(&format!("{url}?{query}{fragment}"), tls)
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let protocol = value("protocol").map(|_| servers[0].redis_settings().protocol());
        Ok(Self { kind, servers, protocol, tls: tls.clone() })
    }

    /// The addresses, for messages.
    pub(super) fn addresses(&self) -> String {
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

/// One server's URL, as the client reads it, with our settings of its socket.
fn server(url: &str, tls: &Tls) -> Result<ConnectionInfo, OpenError> {
    let info =
        url.into_connection_info().map_err(|error| OpenError::Malformed(describe(&error)))?;
    tls.apply(info.set_tcp_settings(tcp_settings()))
}

/// Commands leave at once, and a peer that vanished without a word is noticed.
pub(super) fn tcp_settings() -> TcpSettings {
    use std::time::Duration;

    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(3))
        .with_retries(3);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(Duration::from_secs(5));
    settings
}

fn is_scheme(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn has_port(host: &str) -> bool {
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}
