//! Redis: one script on one key per caller, one round trip per decision, the server's clock.

mod script;

use std::time::Duration;

use redis::{
    Client, ErrorKind, IntoConnectionInfo, RedisError, ServerErrorKind,
    aio::{ConnectionManager, ConnectionManagerConfig},
    io::tcp::TcpSettings,
};

use self::script::Call;
use super::{Outcome, Refund, Request};
use crate::{error::UnavailableReason, key::Key, rules::Algorithm};

/// How long connecting may take, name resolution and handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Why no connection could be made.
#[derive(Debug)]
pub(crate) enum OpenError {
    Malformed(String),
    Unreachable { address: String, cause: String },
}

#[derive(Clone)]
pub(crate) struct RedisStore {
    /// One multiplexed connection, shared by all calls, made anew in the background when lost.
    connection: ConnectionManager,
}

impl RedisStore {
    pub(crate) async fn open(url: &str) -> Result<Self, OpenError> {
        let malformed = |error: RedisError| {
            // What follows the words is the client's own classification.
            let why = describe(&error);
            OpenError::Malformed(why.split(" - ").next().unwrap_or_default().to_owned())
        };
        let settings = TcpSettings::default().set_nodelay(true);
        let info = url.into_connection_info().map_err(malformed)?.set_tcp_settings(settings);
        let address = info.addr().to_string();
        let client = Client::open(info).map_err(malformed)?;
        // The limiter's deadline bounds a call; a lost connection is reported at once.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None);
        let connecting = ConnectionManager::new_with_config(client, config);
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => Ok(Self { connection }),
            Ok(Err(error)) => Err(OpenError::Unreachable { address, cause: describe(&error) }),
            Err(_) => {
                let cause = format!("no answer within {CONNECT_TIMEOUT:?}");
                Err(OpenError::Unreachable { address, cause })
            }
        }
    }

    pub(crate) async fn decide(
        &self,
        key: &Key,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        let call = Call::decision(key, request);
        let reply = self.run(&call).await?;
        call.decode(&reply)
    }

    /// Gives back what an admitted call took.
    pub(crate) async fn refund(
        &self,
        key: &Key,
        refund: Refund<'_>,
    ) -> Result<(), UnavailableReason> {
        if refund.policy.algorithm() != Algorithm::SlidingWindow {
            return self.run(&Call::refund(key, refund)).await.map(drop);
        }
        let mut zrem = redis::cmd("ZREM");
        zrem.arg(key.as_bytes());
        for unit in refund.mark..refund.mark + u64::from(refund.cost) {
            zrem.arg(unit);
        }
        zrem.exec_async(&mut self.connection.clone()).await.map_err(|error| reason(&error))
    }

    async fn run(&self, call: &Call<'_>) -> Result<Vec<i64>, UnavailableReason> {
        let mut connection = self.connection.clone();
        let mut reply = call.evalsha().query_async(&mut connection).await;
        if reply.as_ref().is_err_and(is_noscript) {
            // The server does not know the script (any more): EVAL runs it and makes it known.
            reply = call.eval().query_async(&mut connection).await;
        }
        reply.map_err(|error| reason(&error))
    }

    pub(crate) async fn reset(&self, key: &Key) -> Result<(), UnavailableReason> {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(key.as_bytes());
        unlink.exec_async(&mut self.connection.clone()).await.map_err(|error| reason(&error))
    }
}

fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

fn reason(error: &RedisError) -> UnavailableReason {
    let reason = match error.code() {
        Some("WRONGTYPE") => UnavailableReason::WrongType,
        Some(_) => UnavailableReason::StoreError,
        None => UnavailableReason::Disconnected,
    };
    tracing::debug!(%reason, error = %describe(error), "the rate limit store failed");
    reason
}

/// The server's or the system's words, without what the client puts around them.
fn describe(error: &RedisError) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}
