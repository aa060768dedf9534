//! The client's address: the socket's peer, or the one that trusted proxies have recorded.

use std::{
    error::Error,
    fmt,
    iter::Rev,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use ipnet::{IpNet, Ipv4Net};

/// Bytes of forwarding headers that are parsed, from the right end: enough for long proxy chains, and a
/// bound on work that clients can cause.
const MAX_BYTES: usize = 8 * 1024;

/// The way to find a client's address.
///
/// By default it is the peer of the socket, which no header can change. Behind proxies the peer is
/// the last proxy. Name the proxies; only entries that they wrote are then trusted. All lines of
/// the chosen header are read from right to left, because each proxy appends the address of its
/// peer. If an entry is no address, the proxy that wrote it counts as the client.
///
/// Addresses are canonical. Only the network of an IPv6 address counts, a /64 by default, because one
/// client has at least that many addresses. An address that embeds the client's IPv4 address counts as
/// that one: mapped (`::ffff:0:0/96`), translated by NAT64 (`64:ff9b::/96`), or 6to4 (`2002::/16`).
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
#[derive(Clone, Debug)]
pub struct ClientAddress {
    proxies: Proxies,
    header: ForwardingHeader,
    ipv6_prefix: u8,
}

/// The trusted proxies.
#[derive(Clone, Debug)]
enum Proxies {
    /// This many, with any addresses.
    Hops(usize),
    /// All with an address in these networks.
    Networks(Arc<[IpNet]>),
}

/// The header in which proxies record their clients. Only one is read: a proxy that writes one of
/// them forwards the other as the client sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForwardingHeader {
    /// `X-Forwarded-For: 203.0.113.9, 10.0.0.2`
    #[default]
    XForwardedFor,
    /// `Forwarded: for="[2001:db8::9]:4711";proto=https` (RFC 7239)
    Forwarded,
}

impl ForwardingHeader {
    /// Returns the name of the header, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }
}

impl ClientAddress {
    /// Finds the peer of the socket; headers are not read.
    #[must_use]
    pub fn peer() -> Self {
        Self::behind_hops(0)
    }

    /// Finds the client in front of proxies in `networks`: the rightmost address outside of them. A
    /// peer outside of them is the client itself.
    ///
    /// A network is an address, or one in CIDR notation. Every host in it is trusted. List the
    /// proxies' own addresses or their subnet, and not a private network that other services share.
    ///
    /// # Errors
    ///
    /// [`InvalidNetwork`] with the first text that is neither.
    pub fn behind_proxies<N: AsRef<str>>(
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Self, InvalidNetwork> {
        let networks: Result<_, _> =
            networks.into_iter().map(|net| network(net.as_ref())).collect();
        Ok(Self { proxies: Proxies::Networks(networks?), ..Self::peer() })
    }

    /// Finds the client in front of exactly `hops` proxies: the address that many places from the
    /// right. The peer is the first proxy, also on a unix socket without an address.
    ///
    /// A client that reaches the service past one of the proxies can choose its address. Prefer
    /// [`behind_proxies`](Self::behind_proxies) if the proxies' networks are known.
    #[must_use]
    pub fn behind_hops(hops: usize) -> Self {
        Self { proxies: Proxies::Hops(hops), header: ForwardingHeader::default(), ipv6_prefix: 64 }
    }

    /// Sets the header that the proxies write; `X-Forwarded-For` by default.
    #[must_use]
    pub fn header(mut self, header: ForwardingHeader) -> Self {
        self.header = header;
        self
    }

    /// Sets the leading bits of an IPv6 address that count: 64 by default, at most 128. An embedded
    /// IPv4 address counts as a whole.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits.min(128);
        self
    }

    /// Returns the name of the header whose lines [`resolve`](Self::resolve) takes.
    #[must_use]
    pub fn header_name(&self) -> &'static str {
        self.header.name()
    }

    /// Returns the client's address, from the socket's peer and the values of all lines of the header
    /// in their order.
    ///
    /// `None` if the peer has no address and no proxy names one.
    pub fn resolve<'a, I>(&self, peer: Option<IpAddr>, lines: I) -> Option<IpAddr>
    where
        I: IntoIterator<Item = &'a [u8], IntoIter: DoubleEndedIterator>,
    {
        let mut client = peer.map(|peer| peer.to_canonical());
        let mut entries = Entries {
            lines: lines.into_iter().rev(),
            rest: None,
            budget: MAX_BYTES,
            header: self.header,
        };
        let mut hops = 0;
        while self.is_proxy(client, hops)
            && let Some(next) = entries.next_address()
        {
            client = Some(next);
            hops += 1;
        }
        client.map(|address| network_of(address, self.ipv6_prefix))
    }

    /// Returns `true` if a header is read for this peer.
    pub(super) fn reads_header(&self, peer: Option<IpAddr>) -> bool {
        self.is_proxy(peer.map(|peer| peer.to_canonical()), 0)
    }

    fn is_proxy(&self, address: Option<IpAddr>, hops: usize) -> bool {
        match &self.proxies {
            Proxies::Hops(count) => hops < *count,
            Proxies::Networks(networks) => address
                .is_some_and(|address| networks.iter().any(|network| network.contains(&address))),
        }
    }
}

/// Parses an address, or a network in CIDR notation.
fn network(text: &str) -> Result<IpNet, InvalidNetwork> {
    let parsed = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network: IpNet = parsed.map_err(|_| InvalidNetwork(text.to_owned()))?;
    // Peers are compared in canonical form, so a mapped network has to have it too.
    let mapped = match network {
        IpNet::V6(mapped) if mapped.prefix_len() >= 96 => mapped
            .addr()
            .to_ipv4_mapped()
            .and_then(|address| Ipv4Net::new(address, mapped.prefix_len() - 96).ok()),
        _ => None,
    };
    Ok(mapped.map_or(network, IpNet::V4))
}

/// Returns the network that counts as one client. Proxies are recognized before this, so that no embedded
/// address is taken for a proxy's.
fn network_of(address: IpAddr, ipv6_prefix: u8) -> IpAddr {
    let IpAddr::V6(address) = address else { return address };
    if let Some(embedded) = embedded_ipv4(address) {
        return embedded.into();
    }
    let mask = u128::MAX.checked_shl(128 - u32::from(ipv6_prefix)).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask).into()
}

/// Returns the IPv4 address of a client that NAT64 (RFC 6052) or 6to4 (RFC 3056) translates. All clients of
/// a NAT64 have one /64, and one client of 6to4 has 2^16 of them.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    }
}

/// The entries of all lines, right to left.
struct Entries<'a, I> {
    lines: Rev<I>,
    /// The unread left end of the current line.
    rest: Option<&'a [u8]>,
    /// The bytes that may still be parsed.
    budget: usize,
    header: ForwardingHeader,
}

impl<'a, I: DoubleEndedIterator<Item = &'a [u8]>> Entries<'a, I> {
    /// Returns the next address; `None` at the end, at an entry that is no address, and once
    /// [`MAX_BYTES`] are used up.
    fn next_address(&mut self) -> Option<IpAddr> {
        let line = self.rest.take().or_else(|| self.lines.next())?;
        let start = line.len().saturating_sub(self.budget);
        let separator = match self.header {
            ForwardingHeader::XForwardedFor => line[start..].iter().rposition(|&byte| byte == b','),
            ForwardingHeader::Forwarded => last_unquoted(&line[start..], b','),
        };
        let entry = match separator {
            Some(at) => {
                self.rest = Some(&line[..start + at]);
                &line[start + at + 1..]
            }
            None if start == 0 => line,
            None => return None,
        };
        self.budget = self.budget.saturating_sub(entry.len() + 1);
        let entry = str::from_utf8(entry).ok()?;
        match self.header {
            ForwardingHeader::XForwardedFor => node(entry.trim()),
            ForwardingHeader::Forwarded => forwarded_for(entry).and_then(node),
        }
    }
}

/// Returns the position of the last `separator` outside quotes. The search starts at the right: a
/// client's text further left cannot open a quote around an entry that a proxy appended.
fn last_unquoted(text: &[u8], separator: u8) -> Option<usize> {
    let mut quoted = false;
    for (at, &byte) in text.iter().enumerate().rev() {
        if byte == b'"' {
            let backslashes = text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
            quoted ^= backslashes % 2 == 0;
        } else if byte == separator && !quoted {
            return Some(at);
        }
    }
    None
}

/// Returns the node of the only `for` in one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<&str> {
    let mut found = None;
    let mut rest = Some(element);
    while let Some(pairs) = rest {
        let (left, pair) = match last_unquoted(pairs.as_bytes(), b';') {
            Some(at) => (Some(&pairs[..at]), &pairs[at + 1..]),
            None => (None, pairs),
        };
        rest = left;
        if let Some((name, value)) = pair.split_once('=')
            && name.trim().eq_ignore_ascii_case("for")
            && found.replace(value.trim()).is_some()
        {
            return None;
        }
    }
    let value = found?;
    match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"'),
        None => Some(value),
    }
}

/// Parses an address, with or without a port; IPv6 also in brackets, before a port always.
fn node(text: &str) -> Option<IpAddr> {
    let (address, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
        (IpAddr::V6(address.parse().ok()?), port)
    } else if let Ok(address) = text.parse() {
        (address, None)
    } else {
        let (address, port) = text.split_once(':')?;
        (IpAddr::V4(address.parse().ok()?), Some(port))
    };
    port.is_none_or(is_port).then(|| address.to_canonical())
}

/// Returns `true` for a port: a number, or a proxy's obfuscated name for it (RFC 7239, section 6.3).
fn is_port(text: &str) -> bool {
    let number = text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok();
    let is_obfuscated = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    number || text.strip_prefix('_').is_some_and(is_obfuscated)
}

/// A text that is neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNetwork(String);

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is neither an address nor a network in CIDR notation, such as 10.0.0.0/28",
            self.0
        )
    }
}

impl Error for InvalidNetwork {}
