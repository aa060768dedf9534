//! Certificates of an authority of the test's own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;

/// An authority that signs certificates, trusted or not.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

/// A certificate with its key, in memory and in files.
#[derive(Debug)]
pub struct Identity {
    /// The certificate, in PEM.
    pub certificate: String,
    /// Its private key, in PEM.
    pub key: String,
    /// The file of the certificate.
    pub certificate_file: PathBuf,
    /// The file of the key.
    pub key_file: PathBuf,
}

impl Authority {
    /// Returns a new authority, which nothing trusts yet.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = format!("authority {:08x} of a test", fastrand::u32(..));
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let directory = TempDir::new().expect("a directory for the certificates");
        fs::write(directory.path().join("ca.pem"), issuer.pem()).expect("a file for it");
        Self { issuer, directory }
    }

    /// The authority's certificate in PEM, which a client must trust.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// The file of its own certificate.
    fn certificate_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// The arguments of a server with this certificate. If it `verifies_clients`, clients need a
    /// certificate of the authority.
    pub fn arguments(&self, identity: &Identity, verifies_clients: bool) -> Vec<String> {
        let file = |path: &Path| path.to_str().expect("a name in UTF-8").to_owned();
        [
            ("cert-file", file(&identity.certificate_file)),
            ("key-file", file(&identity.key_file)),
            ("ca-cert-file", file(&self.certificate_file())),
            ("auth-clients", if verifies_clients { "yes" } else { "no" }.to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [format!("--tls-{name}"), value])
        .collect()
    }

    /// Returns a certificate for these host names and addresses; without any, a client's.
    pub fn identity(&self, file: &str, hosts: &[&str]) -> Identity {
        self.sign(file, &params(hosts))
    }

    /// Returns a certificate that expired at the end of 2020.
    pub fn expired_identity(&self, file: &str, hosts: &[&str]) -> Identity {
        let mut params = params(hosts);
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 12, 31);
        self.sign(file, &params)
    }

    fn sign(&self, file: &str, params: &CertificateParams) -> Identity {
        let pair = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&pair, &self.issuer).expect("a certificate").pem();
        let key = pair.serialize_pem();
        let path = |ending: &str| self.directory.path().join(format!("{file}.{ending}"));
        let (certificate_file, key_file) = (path("pem"), path("key"));
        fs::write(&certificate_file, &certificate).expect("a file for the certificate");
        fs::write(&key_file, &key).expect("a file for the key");
        Identity { certificate, key, certificate_file, key_file }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

fn params(hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().copied().map(str::to_owned).collect();
    CertificateParams::new(hosts).expect("host names")
}
