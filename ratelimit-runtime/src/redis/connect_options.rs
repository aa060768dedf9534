//! The settings of the connections that a limiter makes.

use std::{fmt, sync::Arc};

use super::{background::Home, credentials::CredentialsProvider, tls::Tls};
use crate::error::ConnectFault;

/// The settings of connections, beside those in the URL.
#[derive(Clone, Debug)]
pub(crate) struct ConnectOptions {
    pub(crate) tls: Tls,
    /// The name of connections, which servers list; empty for none.
    pub(crate) client_name: Box<str>,
    /// The provider of logins, instead of one in the URL.
    pub(crate) credentials: Option<CredentialsProvider>,
    /// The addresses of a cluster's nodes.
    pub(crate) address_map: Option<AddressMap>,
    /// The runtime that carries the bytes of connections.
    pub(super) home: Home,
}

/// The address of a node, from the one that a cluster announces.
#[derive(Clone)]
pub(crate) struct AddressMap(pub(crate) Arc<MapAddress>);

/// Maps a host and a port.
type MapAddress = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressMap(..)")
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            tls: Tls::default(),
            client_name: "ratelimit".into(),
            credentials: None,
            address_map: None,
            home: Home::default(),
        }
    }
}

impl ConnectOptions {
    /// Returns these settings for connections of a limiter that the current runtime makes.
    pub(super) fn at_home(&self) -> Self {
        Self { home: Home::current(), ..self.clone() }
    }

    /// Returns `true` if a node is reached or verified by other than what it announces.
    pub(super) fn has_addresses_of_nodes(&self) -> bool {
        self.address_map.is_some() || self.tls.has_server_name()
    }

    /// Refuses settings that do not fit each other, or a URL of this transport.
    pub(super) fn check(&self, transport: &str) -> Result<(), ConnectFault> {
        self.tls.check(transport)?;
        if !self.client_name.bytes().all(|byte| byte.is_ascii_graphic()) {
            let why = "the client name may only have letters, digits and punctuation of ASCII; \
                       write for example client_name=shop-api";
            return Err(ConnectFault::Refused(why.to_owned()));
        }
        Ok(())
    }
}
