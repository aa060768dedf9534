//! The address of a connection, as the servers of the frameworks leave it in a request's
//! extensions.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;

/// The address at the other end of the socket, for servers that record it nowhere else: insert it
/// into the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

/// Returns the peer's address: a [`PeerAddress`], or that of axum or tonic.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let peer = extensions.get::<PeerAddress>().map(|peer| peer.0);
    #[cfg(feature = "axum")]
    let peer = peer.or_else(|| {
        extensions.get::<axum::extract::ConnectInfo<SocketAddr>>().map(|connection| connection.0)
    });
    #[cfg(feature = "tonic")]
    let peer = peer
        .or_else(|| extensions.get::<tonic::transport::server::TcpConnectInfo>()?.remote_addr());
    Some(peer?.ip())
}
