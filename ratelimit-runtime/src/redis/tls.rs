//! TLS: the certificates of a limiter, and the handshake.

#[cfg(feature = "tls")]
use std::{io, sync::Arc};

use redis::ConnectionInfo;
#[cfg(feature = "tls")]
use redis::{Client, ClientTlsConfig, TlsCertificates};
#[cfg(feature = "tls")]
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
#[cfg(feature = "tls")]
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::TlsConnector;

#[cfg(feature = "tls")]
use super::failure::message;
#[cfg(feature = "tls")]
use super::stream::{BoxedStream, EagerSocket};
use crate::error::ConnectFault;

/// The certificates that a limiter trusts, and its own. By default it trusts the system's, and has
/// none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    #[cfg(feature = "tls")]
    root_certificate: Option<redacted::Pem>,
    #[cfg(feature = "tls")]
    client_certificate: Option<(redacted::Pem, redacted::Pem)>,
    /// The name that is sent and verified, instead of the address's host.
    #[cfg(feature = "tls")]
    server_name: Option<Box<str>>,
}

/// The transports with TLS.
const ENCRYPTED: [&str; 2] = ["rediss", "valkeys"];

impl Tls {
    pub(super) fn is_encrypted(transport: &str) -> bool {
        ENCRYPTED.contains(&transport)
    }

    /// Refuses a transport that does not match the settings.
    #[cfg(feature = "tls")]
    pub(super) fn check(&self, transport: &str) -> Result<(), ConnectFault> {
        let has_any = self.root_certificate.is_some() || self.client_certificate.is_some();
        if has_any && !ENCRYPTED.contains(&transport) {
            let why = "certificates are set, but the URL has no TLS; write rediss://";
            return Err(ConnectFault::malformed(why));
        }
        let Some(name) = &self.server_name else { return Ok(()) };
        if !ENCRYPTED.contains(&transport) {
            let why = "`tls_server_name` is set, but the URL has no TLS; write rediss://";
            return Err(ConnectFault::malformed(why));
        }
        if ServerName::try_from(&**name).is_err() {
            let why = format!(
                "tls_server_name {name:?} is no host name; write for example redis.example"
            );
            return Err(ConnectFault::Refused(why));
        }
        Ok(())
    }

    #[cfg(not(feature = "tls"))]
    #[allow(clippy::unused_self, reason = "as with TLS")]
    pub(super) fn check(&self, transport: &str) -> Result<(), ConnectFault> {
        if ENCRYPTED.contains(&transport) {
            let why = "this program is built without the feature `tls` of `ratelimit-runtime`";
            return Err(ConnectFault::Refused(why.to_owned()));
        }
        Ok(())
    }

    #[cfg(not(feature = "tls"))]
    #[allow(clippy::unused_self, reason = "as with TLS")]
    pub(super) fn has_server_name(&self) -> bool {
        false
    }

    #[cfg(not(feature = "tls"))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with TLS")]
    pub(super) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, ConnectFault> {
        Ok(info)
    }
}

#[cfg(feature = "tls")]
impl Tls {
    pub(crate) fn set_root_certificate(&mut self, pem: Vec<u8>) {
        self.root_certificate = Some(redacted::Pem(pem));
    }

    pub(crate) fn set_client_certificate(&mut self, certificate: Vec<u8>, key: Vec<u8>) {
        self.client_certificate = Some((redacted::Pem(certificate), redacted::Pem(key)));
    }

    pub(crate) fn set_server_name(&mut self, name: Box<str>) {
        self.server_name = Some(name);
    }

    pub(super) fn has_server_name(&self) -> bool {
        self.server_name.is_some()
    }

    /// Returns the certificates in the client's form.
    pub(super) fn certificates(&self) -> TlsCertificates {
        let client = self.client_certificate.clone();
        TlsCertificates {
            client_tls: client.map(|(certificate, key)| ClientTlsConfig {
                client_cert: certificate.0,
                client_key: key.0,
            }),
            root_cert: self.root_certificate.clone().map(|pem| pem.0),
        }
    }

    pub(super) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, ConnectFault> {
        if !matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
            return Ok(info);
        }
        // With several providers compiled in, or none, rustls panics unless one is installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::build_with_tls(info, self.certificates()).map_err(|error| {
            ConnectFault::malformed(format!("certificates: {}", message(&error)))
        })?;
        Ok(client.get_connection_info().clone())
    }
}

/// The TLS settings of a connection to one host.
#[cfg(feature = "tls")]
pub(super) struct Encryption {
    connector: TlsConnector,
    host: ServerName<'static>,
}

#[cfg(feature = "tls")]
impl Tls {
    pub(super) fn encryption(&self, host: &str) -> io::Result<Encryption> {
        let host = self.server_name.as_deref().unwrap_or(host);
        let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::new(self.config()?));
        Ok(Encryption { connector, host })
    }

    fn config(&self) -> io::Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        match &self.root_certificate {
            Some(pem) => roots.add_parsable_certificates(certificates(&pem.0)?),
            // Read for each connection, because they are replaced while programs run.
            None => roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        };
        let config = ClientConfig::builder().with_root_certificates(roots);
        let Some((certificate, key)) = &self.client_certificate else {
            return Ok(config.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(&key.0).map_err(io::Error::other)?;
        let chain = certificates(&certificate.0)?;
        config.with_client_auth_cert(chain, key).map_err(io::Error::other)
    }
}

#[cfg(feature = "tls")]
fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(io::Error::other)
}

#[cfg(feature = "tls")]
impl Encryption {
    pub(super) async fn handshake(self, socket: EagerSocket<TcpStream>) -> io::Result<BoxedStream> {
        Ok(Box::new(self.connector.connect(self.host, socket).await?))
    }
}

#[cfg(feature = "tls")]
mod redacted {
    use std::fmt;

    /// A certificate or a key, redacted in `Debug`.
    #[derive(Clone)]
    pub(super) struct Pem(pub(super) Vec<u8>);

    impl fmt::Debug for Pem {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("..")
        }
    }
}
