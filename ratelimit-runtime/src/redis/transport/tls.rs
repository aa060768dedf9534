//! TLS: the certificates of a limiter, and the handshake.

#[cfg(feature = "tls")]
use std::{io, sync::Arc};

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
use super::stream::{BoxedStream, EagerSocket};
use crate::error::Fault;

/// The certificates that a limiter trusts, and its own. By default it trusts the system's, and has
/// none. Without the feature `tls` nobody sets them.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    pub(crate) root_certificate: Option<Vec<u8>>,
    pub(crate) client_certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that is sent and verified, instead of the address's host.
    pub(crate) server_name: Option<Box<str>>,
}

impl Tls {
    pub(super) fn is_encrypted(transport: &str) -> bool {
        matches!(transport, "rediss" | "valkeys")
    }

    /// Refuses a transport that does not match the settings.
    pub(crate) fn check(&self, transport: &str) -> Result<(), Fault> {
        let is_encrypted = Self::is_encrypted(transport);
        if is_encrypted && cfg!(not(feature = "tls")) {
            let why = "this program is built without the feature `tls` of `ratelimit-runtime`";
            return Err(Fault::new(why));
        }
        let has_any = self.root_certificate.is_some() || self.client_certificate.is_some();
        if has_any && !is_encrypted {
            let why = "certificates are set, but the URL has no TLS; write rediss://";
            return Err(Fault::malformed_url(why));
        }
        if self.server_name.is_some() && !is_encrypted {
            let why = "`tls_server_name` is set, but the URL has no TLS; write rediss://";
            return Err(Fault::malformed_url(why));
        }
        #[cfg(feature = "tls")]
        if has_any {
            let unusable = |error| Fault::malformed_url(format!("certificates: {error}"));
            self.config().map_err(unusable)?;
        }
        #[cfg(feature = "tls")]
        if let Some(name) = &self.server_name
            && ServerName::try_from(&**name).is_err()
        {
            let why = format!(
                "tls_server_name {name:?} is no host name; write for example redis.example"
            );
            return Err(Fault::new(why));
        }
        Ok(())
    }
}

#[cfg(feature = "tls")]
impl Tls {
    /// Encrypts a connection to this host.
    pub(super) async fn encrypt(
        &self,
        host: &str,
        socket: EagerSocket<TcpStream>,
    ) -> io::Result<BoxedStream> {
        let host = self.server_name.as_deref().unwrap_or(host);
        let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::new(self.config()?));
        Ok(Box::new(connector.connect(host, socket).await?))
    }

    fn config(&self) -> io::Result<ClientConfig> {
        // With several providers compiled in, or none, rustls panics unless one is installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &self.root_certificate {
            for certificate in certificates(pem)? {
                roots.add(certificate).map_err(io::Error::other)?;
            }
        } else {
            // Read for each connection, because they are replaced while programs run.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        let Some((certificate, key)) = &self.client_certificate else {
            return Ok(config.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
        let chain = certificates(certificate)?;
        config.with_client_auth_cert(chain, key).map_err(io::Error::other)
    }
}

#[cfg(feature = "tls")]
fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(io::Error::other)
}
