//! The stream to a server: TCP, TLS, or a unix socket.
//!
//! The client's own way is not used: with RESP2, it does not report the end of a connection that it
//! has made.

use std::io;

use redis::{
    ConnectionAddr, ConnectionInfo,
    io::tcp::{TcpSettings, socket2::SockRef},
};
use tokio::{net::TcpStream, task::JoinSet};

use super::{
    stream::{BoxedStream, EagerSocket},
    tls::Tls,
};

/// Opens a stream to the server at this address.
#[cfg_attr(not(feature = "tls"), allow(unused_variables, reason = "as with TLS"))]
pub(super) async fn dial(info: &ConnectionInfo, tls: &Tls) -> io::Result<BoxedStream> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            Ok(Box::new(tcp(host, *port, info.tcp_settings()).await?))
        }
        #[cfg(feature = "tls")]
        ConnectionAddr::TcpTls { host, port, .. } => {
            let encryption = tls.encryption(host)?;
            encryption.handshake(tcp(host, *port, info.tcp_settings()).await?).await
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            Ok(Box::new(EagerSocket::new(tokio::net::UnixStream::connect(path).await?)))
        }
        // This build supports no other address.
        _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

/// Connects to all addresses of the host, and returns the first connection.
async fn tcp(host: &str, port: u16, settings: &TcpSettings) -> io::Result<EagerSocket<TcpStream>> {
    let mut attempts = JoinSet::new();
    for address in tokio::net::lookup_host((host, port)).await? {
        attempts.spawn(TcpStream::connect(address));
    }
    let mut why = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    while let Some(attempt) = attempts.join_next().await {
        match attempt.map_err(io::Error::other).and_then(|connected| connected) {
            Ok(socket) => {
                set(&socket, settings)?;
                return Ok(EagerSocket::new(socket));
            }
            Err(error) => why = error,
        }
    }
    Err(why)
}

fn set(socket: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    socket.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(socket);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}
