//! The settings of the connections to Redis.

use super::LimiterBuilder;

impl LimiterBuilder {
    /// Sets the name of connections to Redis, which `CLIENT LIST` shows; `ratelimit` by default, `""`
    /// for none. The parameter `client_name` of a URL replaces it.
    ///
    /// The name may have the printable characters of ASCII but the space. A server that does not
    /// permit `CLIENT SETNAME` is used all the same.
    ///
    /// # Errors
    ///
    /// Connecting fails with [`ConnectError`](crate::ConnectError) if the name has other characters.
    ///
    /// ```no_run
    /// use ratelimit_runtime::Limiter;
    ///
    /// # async fn connect() -> Result<(), ratelimit_runtime::ConnectError> {
    /// let limiter = Limiter::builder().client_name("shop-api").connect("redis://127.0.0.1").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn client_name(mut self, name: impl Into<Box<str>>) -> Self {
        self.connection.client_name = name.into();
        self
    }

    /// Sets the certificates, in PEM, of the authorities that sign Redis's certificate; the system's by
    /// default. Needs a URL with TLS: `rediss://`.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.connection.tls.set_root_certificate(pem.into());
        self
    }

    /// Sets the client certificate and its key, in PEM. Needs a URL with TLS: `rediss://`.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.connection.tls.set_client_certificate(certificate.into(), key.into());
        self
    }
}
