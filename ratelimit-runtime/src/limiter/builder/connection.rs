//! The settings of the connections to Redis.

use std::{error::Error, sync::Arc};

use super::LimiterBuilder;
use crate::redis::{Credentials, CredentialsProvider};

impl LimiterBuilder {
    /// Sets the name of connections to Redis, which `CLIENT LIST` shows; `ratelimit` by default,
    /// `""` for none. The parameter `client_name` of a URL replaces it.
    ///
    /// The name may have the printable characters of ASCII but the space. A server that does not
    /// permit `CLIENT SETNAME` is used all the same.
    ///
    /// # Errors
    ///
    /// Connecting fails with [`ConnectError`](crate::ConnectError) if the name has other
    /// characters.
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
        self.connection.client_name = Some(name.into());
        self
    }

    /// Sets the function that returns the login at Redis, instead of one in the URL. It is for
    /// tokens that end, such as those of IAM for `ElastiCache` and of Microsoft Entra ID for Azure,
    /// and for passwords that are rotated.
    ///
    /// The function is called at each connect. If the login has an end, it is called again after 70
    /// to 80 % of the time until then, and at least one second after the last login. The open
    /// connection logs in again by `AUTH`: no call waits, and nothing reconnects. The function must
    /// not block its thread, which does the background work of all limiters. This applies to each
    /// connection of a limiter, on one server, behind Sentinels and in a cluster. The login of
    /// Sentinels themselves stays in the URL.
    ///
    /// # Errors
    ///
    /// A function that fails, panics or takes more than 10 s is called again after a pause: 100 ms
    /// at first, then up to 10 s. The first failure of a series is logged at `warn`. Meanwhile an
    /// open connection keeps its login, and a new connection uses the last one until its end.
    /// Without any, connecting fails with [`ConnectError`](crate::ConnectError), as it does if the
    /// URL has a login, too.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Credentials, Limiter};
    ///
    /// # async fn iam_token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn connect() -> Result<(), ratelimit_runtime::ConnectError> {
    /// let limiter = Limiter::builder()
    ///     .credentials(|| async {
    ///         let token = iam_token().await?;
    ///         let valid = Duration::from_secs(15 * 60);
    ///         Ok::<_, std::io::Error>(Credentials::new("app", token).valid_for(valid))
    ///     })
    ///     .connect("rediss://cache.example:6379")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, E>(mut self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.connection.credentials = Some(CredentialsProvider::new(provider));
        self
    }

    /// Sets the address of each node of a cluster from the host and port that the cluster
    /// announces, if the program cannot reach those: behind NAT, in containers, or through a
    /// tunnel.
    ///
    /// The function receives what `CLUSTER SLOTS` and redirects report, and returns where to
    /// connect. The addresses in the URL are used as they are. With TLS the returned host is the
    /// name that the certificate must have, unless there is a `tls_server_name`. A single server
    /// announces no address.
    ///
    /// # Errors
    ///
    /// Connecting fails with [`ConnectError`](crate::ConnectError) if the URL is one of Sentinels.
    ///
    /// ```no_run
    /// use ratelimit_runtime::Limiter;
    ///
    /// # async fn connect() -> Result<(), ratelimit_runtime::ConnectError> {
    /// let limiter = Limiter::builder()
    ///     .address_map(|host, port| match host {
    ///         "10.0.0.1" => ("node1.example".into(), 7_001),
    ///         "10.0.0.2" => ("node2.example".into(), 7_002),
    ///         other => (other.into(), port),
    ///     })
    ///     .connect("redis+cluster://node1.example:7001,node2.example:7002")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn address_map(
        mut self,
        map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        self.connection.address_map = Some(Arc::new(map));
        self
    }

    /// Sets the name that TLS sends (SNI) and that each server's certificate must have; the host of
    /// the address by default. It is for clusters that announce IP addresses, with a certificate
    /// for a name.
    ///
    /// # Errors
    ///
    /// Connecting fails with [`ConnectError`](crate::ConnectError) if it is no host name, if the
    /// URL has no TLS, or if it is one of Sentinels.
    ///
    /// ```no_run
    /// use ratelimit_runtime::Limiter;
    ///
    /// # async fn connect() -> Result<(), ratelimit_runtime::ConnectError> {
    /// let limiter = Limiter::builder()
    ///     .tls_server_name("redis.example")
    ///     .connect("rediss+cluster://10.0.0.1:6379,10.0.0.2:6379")
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls_server_name(mut self, name: impl Into<Box<str>>) -> Self {
        self.connection.tls.server_name = Some(name.into());
        self
    }

    /// Sets the certificates, in PEM, of the authorities that sign Redis's certificate; the
    /// system's by default. Needs a URL with TLS: `rediss://`.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.connection.tls.root_certificate = Some(pem.into());
        self
    }

    /// Sets the client certificate and its key, in PEM. Needs a URL with TLS: `rediss://`.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.connection.tls.client_certificate = Some((certificate.into(), key.into()));
        self
    }
}
