//! The settings of the connections that a limiter makes.

use std::{fmt, sync::Arc};

use super::{credentials::CredentialsProvider, tls::Tls};
use crate::{background::Home, error::Fault};

/// The settings of connections, beside those in the URL.
#[derive(Clone, Default)]
pub(crate) struct ConnectOptions {
    pub(crate) tls: Tls,
    /// The name of connections, if it is another one than by default.
    pub(crate) client_name: Option<Box<str>>,
    /// The provider of logins, instead of one in the URL.
    pub(crate) credentials: Option<CredentialsProvider>,
    /// The addresses of a cluster's nodes.
    pub(crate) address_map: Option<Arc<MapAddress>>,
    /// The runtime that carries the bytes of connections.
    pub(super) home: Home,
}

/// Maps the host and the port that a node of a cluster announces to its address.
type MapAddress = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

/// Does not show certificates, keys and logins.
impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.client_name();
        f.debug_struct("ConnectOptions").field("client_name", &name).finish_non_exhaustive()
    }
}

impl ConnectOptions {
    /// Returns the name of connections, which servers list; empty for none.
    pub(super) fn client_name(&self) -> &str {
        self.client_name.as_deref().unwrap_or("ratelimit")
    }

    /// Returns these settings for connections of a limiter that the current runtime makes.
    pub(crate) fn at_home(&self) -> Self {
        Self { home: Home::current(), ..self.clone() }
    }

    /// Returns `true` if a node is reached or verified by other than what it announces.
    pub(super) fn has_addresses_of_nodes(&self) -> bool {
        self.address_map.is_some() || self.tls.server_name.is_some()
    }

    /// Refuses settings that do not fit each other, or a URL of this transport.
    pub(crate) fn check(&self, transport: &str) -> Result<(), Fault> {
        self.tls.check(transport)?;
        if !self.client_name().bytes().all(|byte| byte.is_ascii_graphic()) {
            let why = "the client name may only have letters, digits and punctuation of ASCII; \
                       write for example client_name=shop-api";
            return Err(Fault::new(why));
        }
        Ok(())
    }
}
