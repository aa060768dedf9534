//! Certificates of an encrypted connection.

use redis::ConnectionInfo;
#[cfg(feature = "tls")]
use redis::{Client, ClientTlsConfig, TlsCertificates};

use super::OpenError;
#[cfg(feature = "tls")]
use super::failure::describe;

/// Whom to trust, and who we are; by default the system's authorities, and nobody.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    #[cfg(feature = "tls")]
    root_certificate: Option<redacted::Pem>,
    #[cfg(feature = "tls")]
    client_certificate: Option<(redacted::Pem, redacted::Pem)>,
}

/// A URL's transports that are encrypted.
const ENCRYPTED: [&str; 2] = ["rediss", "valkeys"];

impl Tls {
    pub(super) fn is_encrypted(transport: &str) -> bool {
        ENCRYPTED.contains(&transport)
    }

    /// Whether the transport can be used with what is set.
    #[cfg(feature = "tls")]
    pub(super) fn check(&self, transport: &str) -> Result<(), OpenError> {
        let has_any = self.root_certificate.is_some() || self.client_certificate.is_some();
        if has_any && !ENCRYPTED.contains(&transport) {
            let why = "certificates are set, but the URL does not ask for TLS: write rediss://";
            return Err(OpenError::Malformed(why.to_owned()));
        }
        Ok(())
    }

    #[cfg(not(feature = "tls"))]
    #[allow(clippy::unused_self, reason = "as with TLS")]
    pub(super) fn check(&self, transport: &str) -> Result<(), OpenError> {
        if ENCRYPTED.contains(&transport) {
            let why = "TLS needs the feature `tls` of ratelimit-runtime";
            return Err(OpenError::Malformed(why.to_owned()));
        }
        Ok(())
    }

    #[cfg(not(feature = "tls"))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with TLS")]
    pub(super) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, OpenError> {
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

    /// The certificates, as the client takes them.
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

    pub(super) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, OpenError> {
        if !matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
            return Ok(info);
        }
        // rustls would panic where two providers are compiled in, or none, and the program has
        // chosen neither.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::build_with_tls(info, self.certificates())
            .map_err(|error| OpenError::Malformed(format!("certificates: {}", describe(&error))))?;
        Ok(client.get_connection_info().clone())
    }
}

#[cfg(feature = "tls")]
mod redacted {
    use std::fmt;

    /// A certificate or a key, which is not printed.
    #[derive(Clone)]
    pub(super) struct Pem(pub(super) Vec<u8>);

    impl fmt::Debug for Pem {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("..")
        }
    }
}
