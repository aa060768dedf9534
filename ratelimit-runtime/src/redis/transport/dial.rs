//! The stream to a server: TCP, TLS, or a unix socket.
//!
//! The client's own way is not used: with RESP2, it does not report the end of a connection that it
//! has made.

use std::{io, time::Duration};

use futures_util::future::select_ok;
use redis::{
    ConnectionAddr,
    io::tcp::socket2::{SockRef, TcpKeepalive},
};
use tokio::net::TcpStream;

use super::{
    stream::{BoxedStream, EagerSocket},
    tls::Tls,
};

/// Opens a stream to the server at this address.
#[cfg_attr(not(feature = "tls"), allow(unused_variables, reason = "as with TLS"))]
pub(super) async fn dial(address: &ConnectionAddr, tls: &Tls) -> io::Result<BoxedStream> {
    match address {
        ConnectionAddr::Tcp(host, port) => Ok(Box::new(tcp(host, *port).await?)),
        #[cfg(feature = "tls")]
        ConnectionAddr::TcpTls { host, port, .. } => {
            tls.encrypt(host, tcp(host, *port).await?).await
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
async fn tcp(host: &str, port: u16) -> io::Result<EagerSocket<TcpStream>> {
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let attempts: Vec<_> = addresses.map(|it| Box::pin(TcpStream::connect(it))).collect();
    if attempts.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    }
    let (socket, _) = select_ok(attempts).await?;
    detect_vanished_peer(&socket)?;
    Ok(EagerSocket::new(socket))
}

/// Sets a socket to send at once, and to fail when its peer vanishes without closing it.
fn detect_vanished_peer(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    // An idle peer that vanished is noticed after 10 s and three probes, 19 s in all.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(3))
        .with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    // The time in which it must acknowledge what was sent.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(5)))?;
    Ok(())
}
