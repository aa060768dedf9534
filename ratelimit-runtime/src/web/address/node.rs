//! Addresses as proxies write them into headers: with ports, brackets and zones.

use std::net::{IpAddr, Ipv6Addr};

/// Parses an address, with or without a port; IPv6 also in brackets, before a port always.
pub(super) fn node(text: &str) -> Option<IpAddr> {
    let (address, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
        (IpAddr::V6(zoned(address)?), port)
    } else if let Some(address) = address(text) {
        (address, None)
    } else {
        let (address, port) = text.split_once(':')?;
        (IpAddr::V4(address.parse().ok()?), Some(port))
    };
    port.is_none_or(is_port).then(|| address.to_canonical())
}

/// Parses an address before its port. IPv6 has no brackets, or has them.
pub(super) fn viewer_address(text: &str) -> Option<IpAddr> {
    let (viewer, port) = text.rsplit_once(':')?;
    let bracketed = || viewer.strip_prefix('[')?.strip_suffix(']');
    let found = bracketed().map_or_else(|| address(viewer), |inner| Some(zoned(inner)?.into()));
    found.filter(|_| is_number(port)).map(|address| address.to_canonical())
}

/// Parses an address without a port.
fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| zoned(text).map(IpAddr::V6))
}

/// Parses an IPv6 address. The zone of a link-local one (RFC 6874) is dropped: it is the name of an
/// interface of the proxy, such as `fe80::1%eth0`.
fn zoned(text: &str) -> Option<Ipv6Addr> {
    let Some((address, zone)) = text.split_once('%') else { return text.parse().ok() };
    let address: Ipv6Addr = address.parse().ok()?;
    (is_word(zone, b"._~-") && address.is_unicast_link_local()).then_some(address)
}

/// Returns `true` for a port: a number, or a proxy's obfuscated name for it (RFC 7239, section
/// 6.3).
fn is_port(text: &str) -> bool {
    is_number(text) || text.strip_prefix('_').is_some_and(|name| is_word(name, b"._-"))
}

/// Returns `true` for one or more letters, digits and `others`.
fn is_word(text: &str, others: &[u8]) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || others.contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}
