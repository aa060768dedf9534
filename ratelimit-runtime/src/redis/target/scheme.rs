//! The scheme of a URL: the transport to a server, and the deployment behind it.

use crate::error::ConnectFault;

#[derive(Clone, Copy)]
pub(super) struct Scheme<'a> {
    /// The scheme that the URL of a single server has.
    pub(super) transport: &'a str,
    pub(super) deployment: Deployment,
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

impl<'a> Scheme<'a> {
    /// Cuts a URL into its scheme and the rest.
    pub(super) fn split(url: &'a str) -> Result<(Self, &'a str), ConnectFault> {
        // Text in front of the mark may be a login whose password contains the mark: only what can
        // be a scheme is named in the error.
        let (scheme, rest) = url
            .split_once("://")
            .filter(|(scheme, _)| can_be_scheme(scheme))
            .ok_or_else(|| ConnectFault::malformed("it has no scheme"))?;
        let (transport, deployment) = match scheme.split_once('+') {
            Some(("redis" | "valkey", UNIX)) => (UNIX, Deployment::Single),
            Some((transport, "cluster")) => (transport, Deployment::Cluster),
            Some((transport, "sentinel")) => (transport, Deployment::Sentinel),
            _ => (scheme, Deployment::Single),
        };
        if !TRANSPORTS.contains(&transport) {
            return Err(ConnectFault::UnknownScheme(scheme.to_owned()));
        }
        Ok((Self { transport, deployment }, rest))
    }

    pub(super) fn is_unix(self) -> bool {
        self.transport == UNIX
    }
}

fn can_be_scheme(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}
