//! The client's address: the socket's peer, or the one that trusted proxies have recorded.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod header;
mod node;
mod proxies;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use self::header::Entries;
pub use self::{
    header::ForwardingHeader,
    proxies::{InvalidNetwork, ProxiesFileError, TrustedProxies},
};
use super::single_value::MalformedHeader;

/// The way to find a client's address.
///
/// By default it is the peer of the socket, which no header can change. Behind proxies the peer is
/// the last proxy. Name the proxies; only what they wrote is then believed. All lines of a list
/// such as `X-Forwarded-For` are read from right to left, because each proxy appends the address of
/// its peer. If an entry is no address, the proxy that wrote it counts as the client.
///
/// A [header with a single address](ForwardingHeader#single-addresses), such as `CF-Connecting-IP`,
/// is believed if it is sent once by a trusted peer.
///
/// Addresses are canonical. Only the network of an IPv6 address counts, a /64 by default, because
/// one client has at least that many addresses. An address that embeds the client's IPv4 address
/// counts as that one: mapped (`::ffff:0:0/96`), translated by NAT64 (`64:ff9b::/96`), or 6to4
/// (`2002::/16`).
///
/// ```
/// use std::net::IpAddr;
/// use ratelimit_runtime::web::ClientAddress;
///
/// // The proxies and nothing else: a neighbour in a trusted network chooses its address.
/// let address = ClientAddress::behind_proxies(["10.0.0.1", "10.0.0.2"]).unwrap();
/// let proxy: IpAddr = "10.0.0.1".parse().unwrap();
/// // The client wrote the first address, and the proxy appended the second.
/// let lines = [&b"198.51.100.7, 203.0.113.9"[..]];
/// assert_eq!(address.resolve(Some(proxy), lines).unwrap().to_string(), "203.0.113.9");
///
/// // The header of a peer that is no proxy is ignored.
/// let stranger: IpAddr = "192.0.2.1".parse().unwrap();
/// assert_eq!(address.resolve(Some(stranger), lines), Some(stranger));
/// ```
#[must_use = "the address of a client is passed to an identity"]
#[derive(Clone, Debug)]
pub struct ClientAddress {
    proxies: Proxies,
    header: ForwardingHeader,
    ipv6_prefix: u8,
}

/// The proxies in front of the service.
#[derive(Clone, Debug)]
enum Proxies {
    /// This many, with any addresses.
    Hops(usize),
    /// All with a trusted address.
    Trusted(TrustedProxies),
}

impl ClientAddress {
    /// Finds the peer of the socket; headers are not read.
    pub fn peer() -> Self {
        Self::behind_hops(0)
    }

    /// Finds the client in front of proxies in `networks`, as [`behind`](Self::behind) does.
    ///
    /// # Errors
    ///
    /// [`InvalidNetwork`] with the first text that is neither an address nor a network, or a
    /// network of all addresses.
    pub fn behind_proxies<N: AsRef<str>>(
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Self, InvalidNetwork> {
        TrustedProxies::new(networks).map(Self::behind)
    }

    /// Finds the client in front of trusted proxies. A peer that is none of them is the client
    /// itself, and its headers are not read.
    ///
    /// In a list, the client is the rightmost address that is no trusted proxy's. A header with a
    /// single address names the client.
    pub fn behind(proxies: TrustedProxies) -> Self {
        Self { proxies: Proxies::Trusted(proxies), ..Self::peer() }
    }

    /// Finds the client in front of Cloudflare, from `CF-Connecting-IP`.
    ///
    /// The proxies are Cloudflare's networks, which are published and change: see
    /// [`TrustedProxies::follow_file`]. The service must be the next hop after Cloudflare. A proxy
    /// in between passes on the `CF-Connecting-IP` of clients that reach it directly. With such a
    /// proxy, add it to the networks and read `X-Forwarded-For`:
    ///
    /// ```
    /// use ratelimit_runtime::web::{ClientAddress, TrustedProxies};
    ///
    /// # fn find(edge: TrustedProxies) -> Result<(), Box<dyn std::error::Error>> {
    /// let direct = ClientAddress::cloudflare(edge.clone());
    ///
    /// let load_balancer = TrustedProxies::new(["10.0.0.7"])?;
    /// let chained = ClientAddress::behind(load_balancer.and(&edge));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "cf-connecting-ip")]
    pub fn cloudflare(proxies: TrustedProxies) -> Self {
        Self::behind(proxies).header(ForwardingHeader::Single("cf-connecting-ip"))
    }

    /// Finds the client in front of a `CloudFront` distribution, from `CloudFront-Viewer-Address`.
    /// Add this header to the distribution's origin request policy.
    ///
    /// The proxies are the networks of `CLOUDFRONT_ORIGIN_FACING` in AWS's `ip-ranges.json`. The
    /// service must be the next hop, as behind [`cloudflare`](Self::cloudflare).
    #[doc(alias = "cloudfront-viewer-address")]
    pub fn cloudfront(proxies: TrustedProxies) -> Self {
        Self::behind(proxies).header(ForwardingHeader::CloudFrontViewerAddress)
    }

    /// Finds the client in front of exactly `hops` proxies: the address that many places from the
    /// right. The peer is the first proxy, also on a unix socket without an address. A header with
    /// a single address names the client behind any number of proxies but 0.
    ///
    /// A client that reaches the service past one of the proxies can choose its address. Prefer
    /// [`behind_proxies`](Self::behind_proxies) if the proxies' networks are known.
    pub fn behind_hops(hops: usize) -> Self {
        Self { proxies: Proxies::Hops(hops), header: ForwardingHeader::default(), ipv6_prefix: 64 }
    }

    /// Sets the header that the proxies write; `X-Forwarded-For` by default.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use ratelimit_runtime::web::{ClientAddress, ForwardingHeader};
    ///
    /// let address = ClientAddress::behind_proxies(["10.0.0.1"]).unwrap();
    /// let address = address.header(ForwardingHeader::Single("x-real-ip"));
    /// let proxy: IpAddr = "10.0.0.1".parse().unwrap();
    /// let client = address.resolve(Some(proxy), [&b"203.0.113.9"[..]]);
    /// assert_eq!(client.unwrap().to_string(), "203.0.113.9");
    ///
    /// // The proxy has passed on a line of the client: which one is the proxy's is unknown.
    /// assert_eq!(address.resolve(Some(proxy), [&b"198.51.100.7"[..], b"203.0.113.9"]), None);
    /// ```
    pub fn header(self, header: ForwardingHeader) -> Self {
        Self { header, ..self }
    }

    /// Sets the leading bits of an IPv6 address that count: 64 by default, at most 128. An embedded
    /// IPv4 address counts as a whole.
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Self { ipv6_prefix: bits.min(128), ..self }
    }

    /// Returns the name of the header whose lines [`resolve`](Self::resolve) takes.
    #[must_use]
    pub fn header_name(&self) -> &'static str {
        self.header.name()
    }

    /// Returns the client's address, from the socket's peer and the values of all lines of the
    /// header in their order.
    ///
    /// `None` if the peer has no address and no proxy names one, and if a trusted peer's header
    /// with a [single address](ForwardingHeader#single-addresses) is missing or malformed.
    pub fn resolve<'a, I>(&self, peer: Option<IpAddr>, lines: I) -> Option<IpAddr>
    where
        I: IntoIterator<Item = &'a [u8], IntoIter: DoubleEndedIterator>,
    {
        self.find(peer, lines.into_iter()).ok().flatten()
    }

    /// Returns the client's address; `None` if it is missing.
    ///
    /// # Errors
    ///
    /// [`MalformedHeader`] if the header is read, is malformed, and nobody else is known to be the
    /// client.
    pub(super) fn find<'a>(
        &self,
        peer: Option<IpAddr>,
        lines: impl DoubleEndedIterator<Item = &'a [u8]>,
    ) -> Result<Option<IpAddr>, MalformedHeader> {
        let peer = peer.map(|peer| peer.to_canonical());
        let client = if !self.is_proxy(peer, 0) {
            peer
        } else if self.header.is_list() {
            self.walk(peer, Entries::new(self.header, lines))?
        } else {
            self.header.single_address(lines)?
        };
        Ok(client.map(|address| network_of(address, self.ipv6_prefix)))
    }

    /// Returns the first address from the right, behind a peer that is a proxy, that is no proxy's.
    /// At an entry that is no address it is the proxy that wrote the entry.
    fn walk<'a, I: DoubleEndedIterator<Item = &'a [u8]>>(
        &self,
        peer: Option<IpAddr>,
        mut entries: Entries<'a, I>,
    ) -> Result<Option<IpAddr>, MalformedHeader> {
        let (mut client, mut hops) = (peer, 0);
        loop {
            match entries.next_address() {
                Ok(Some(next)) => client = Some(next),
                Err(malformed) if client.is_none() => return Err(malformed),
                Ok(None) | Err(_) => return Ok(client),
            }
            hops += 1;
            if !self.is_proxy(client, hops) {
                return Ok(client);
            }
        }
    }

    fn is_proxy(&self, address: Option<IpAddr>, hops: usize) -> bool {
        match &self.proxies {
            Proxies::Hops(count) => hops < *count,
            Proxies::Trusted(proxies) => address.is_some_and(|address| proxies.contains(address)),
        }
    }
}

/// Returns the network that counts as one client. Proxies are recognized before this, so that no
/// embedded address is taken for a proxy's.
fn network_of(address: IpAddr, ipv6_prefix: u8) -> IpAddr {
    let IpAddr::V6(address) = address else { return address };
    if let Some(embedded) = embedded_ipv4(address) {
        return embedded.into();
    }
    let mask = u128::MAX.checked_shl(128 - u32::from(ipv6_prefix)).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask).into()
}

/// Returns the IPv4 address of a client that NAT64 (RFC 6052) or 6to4 (RFC 3056) translates. All
/// clients of a NAT64 have one /64, and one client of 6to4 has 2^16 of them.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    }
}
