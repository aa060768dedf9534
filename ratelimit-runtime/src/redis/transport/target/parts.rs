//! A URL cut into its parts, with the checks that keep a login out of messages.

use crate::{
    error::{Fault, SCHEMES},
    redis::transport::tls::Tls,
};

/// A URL: `transport[+deployment]://[login@]hosts[/path][?query]`.
pub(super) struct UrlParts<'a> {
    /// The scheme that the URL of a single server has.
    pub(super) transport: &'a str,
    pub(super) deployment: Deployment,
    /// The login with its `@`, or nothing.
    pub(super) login: &'a str,
    pub(super) hosts: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Deployment {
    Single,
    Cluster,
    Sentinel,
}

/// The transport whose URL is a path instead of a host.
const UNIX: &str = "unix";

const TRANSPORTS: [&str; 5] = ["redis", "rediss", "valkey", "valkeys", UNIX];

/// The fragment with which the client accepts any certificate.
const INSECURE: &str = "#insecure";

/// The fix for most logins that make a URL unreadable.
pub(super) const ESCAPES: &str = "special characters in a user name or password are percent-encoded, such as `@` \
     as %40, `/` as %2F, `?` as %3F, `#` as %23";

impl<'a> UrlParts<'a> {
    pub(super) fn cut(url: &'a str) -> Result<Self, Fault> {
        // Text in front of the mark may be a login whose password contains the mark: only what can
        // be a scheme is named in the error.
        let (scheme, rest) = url
            .split_once("://")
            .filter(|(scheme, _)| can_be_scheme(scheme))
            .ok_or_else(|| Fault::malformed_url("it has no scheme"))?;
        let (transport, deployment) = match scheme.split_once('+') {
            Some(("redis" | "valkey", UNIX)) => (UNIX, Deployment::Single),
            Some((transport, "cluster")) => (transport, Deployment::Cluster),
            Some((transport, "sentinel")) => (transport, Deployment::Sentinel),
            _ => (scheme, Deployment::Single),
        };
        if !TRANSPORTS.contains(&transport) {
            return Err(Fault::new(format!(
                "unknown scheme `{scheme}`; the schemes are {SCHEMES}"
            )));
        }
        let (rest, is_insecure) = match rest.strip_suffix(INSECURE) {
            Some(rest) if Tls::is_encrypted(transport) => (rest, true),
            _ => (rest, false),
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match place.split_once('/') {
            Some(parts) if transport != UNIX => parts,
            _ => (place, ""),
        };
        // An unescaped character may end the login early. Its remainder would be read as a path, a
        // query or a fragment, and might be quoted in a message.
        let allows_at = transport == UNIX || deployment == Deployment::Sentinel;
        if rest.contains('#') || path.contains('@') || query.contains('@') && !allows_at {
            return Err(Fault::malformed_url(ESCAPES));
        }
        if is_insecure {
            let why = "certificates are always checked; remove `#insecure`, and set root_certificate \
                       to trust one of your own";
            return Err(Fault::new(why));
        }
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        Ok(Self { transport, deployment, login, hosts, path, query })
    }

    pub(super) fn is_unix(&self) -> bool {
        self.transport == UNIX
    }
}

fn can_be_scheme(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}
