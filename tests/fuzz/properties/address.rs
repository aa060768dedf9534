//! Forwarding headers of any content never yield an address that no trusted proxy has seen.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ratelimit_runtime::web::{ClientAddress, ForwardingHeader};

const CLIENT: &str = "203.0.113.9";

/// The settings and the lines of the header.
struct Request<'a> {
    address: ClientAddress,
    header: ForwardingHeader,
    prefix: u8,
    peer: Option<IpAddr>,
    lines: Vec<&'a [u8]>,
}

/// The first line is the configuration, as in `x 64 10.0.0.0/8,::1 10.0.0.1`; the others are lines of the
/// header. It has `x`, `f`, `s` or `c` for the header, the prefix of IPv6, the number of proxies or their
/// networks, and the peer or `-`.
pub(crate) fn holds(bytes: &[u8]) {
    let Some(request) = read(bytes) else { return };
    let request = &request;
    let Request { address, header, prefix, peer, lines } = request;
    let found = address.resolve(*peer, lines.iter().copied());
    if let Some(found) = found {
        assert_eq!(found, found.to_canonical());
        if let IpAddr::V6(found) = found {
            assert!(found.to_bits().trailing_zeros() >= u32::from(128 - prefix), "{found}");
            let is_whole = *prefix == 128;
            assert!(!(is_whole && is_translated(found)), "{found} counts as an IPv4 address");
        }
    }
    // An untrusted peer is the client.
    let direct = ClientAddress::peer().ipv6_prefix(*prefix);
    let itself = direct.resolve(*peer, lines.iter().copied());
    assert_eq!(direct.resolve(*peer, []), itself);
    assert_eq!(peer.is_some(), itself.is_some());
    what_std_reads_is_read_alike(lines);
    if let ForwardingHeader::Single(_) | ForwardingHeader::CloudFrontViewerAddress = header {
        a_single_address_is_read_if_it_is_sent_once(request, itself);
        return;
    }
    assert_eq!(address.resolve(*peer, []), itself);
    a_proxy_is_trusted_and_senders_before_it_are_not(*header, lines);
    if *header == ForwardingHeader::XForwardedFor && bytes.len() < 4_096 {
        let joined = lines.join(&b","[..]);
        let joined = (!lines.is_empty()).then_some(&joined[..]);
        assert_eq!(address.resolve(*peer, joined), found, "lines are one list");
    }
}

fn read(bytes: &[u8]) -> Option<Request<'_>> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let mut words = str::from_utf8(lines.next()?).ok()?.split(' ');
    let header = match words.next()? {
        "x" => ForwardingHeader::XForwardedFor,
        "f" => ForwardingHeader::Forwarded,
        "s" => ForwardingHeader::Single("x-real-ip"),
        "c" => ForwardingHeader::CloudFrontViewerAddress,
        _ => return None,
    };
    let prefix = words.next()?.parse::<u8>().ok()?.min(128);
    let proxies = words.next()?;
    let address = match proxies.parse() {
        Ok(hops) => ClientAddress::behind_hops(hops),
        Err(_) => ClientAddress::behind_proxies(proxies.split(',')).ok()?,
    };
    let address = address.header(header).ipv6_prefix(prefix);
    let peer = match words.next()? {
        "-" => None,
        peer => Some(peer.parse().ok()?),
    };
    Some(Request { address, header, prefix, peer, lines: lines.collect() })
}

/// The client is the peer, whose address is `itself`, if it is untrusted. It is in the only line of a trusted
/// peer, and otherwise nowhere.
fn a_single_address_is_read_if_it_is_sent_once(request: &Request<'_>, itself: Option<IpAddr>) {
    let Request { address, header, prefix, peer, lines } = request;
    let resolve = |lines: &[&[u8]]| address.resolve(*peer, lines.iter().copied());
    let seen = match header {
        ForwardingHeader::CloudFrontViewerAddress => "203.0.113.9:443",
        _ => CLIENT,
    };
    let sent = resolve(&[seen.as_bytes()]);
    if sent != CLIENT.parse().ok() {
        assert_eq!(sent, itself, "an untrusted peer");
        assert_eq!(resolve(lines), itself, "an untrusted peer");
        return;
    }
    assert_eq!(resolve(&[]), None, "not sent");
    let [line] = lines[..] else { return assert_eq!(resolve(lines), None, "repeated") };
    assert_eq!(resolve(&[line, seen.as_bytes()]), None, "a forged line before");
    assert_eq!(resolve(&[seen.as_bytes(), line]), None, "a forged line behind");
    let found = resolve(lines);
    let text = str::from_utf8(line).map(str::trim).unwrap_or_default();
    if text.is_empty() || text.contains([',', ';', '=', '"', '/', ' ']) {
        assert_eq!(found, None, "{text}");
    }
    if let Ok(written) = text.parse::<SocketAddr>()
        && !text.contains('%')
    {
        let direct = ClientAddress::peer().ipv6_prefix(*prefix);
        assert_eq!(found, direct.resolve(Some(written.ip()), []), "{text}");
    }
    if *header == ForwardingHeader::CloudFrontViewerAddress
        && let Some((viewer, port)) = text.rsplit_once(':')
        && let (Ok(viewer), Ok(_)) = (viewer.parse::<IpAddr>(), port.parse::<u16>())
        && port.bytes().all(|byte| byte.is_ascii_digit())
    {
        let direct = ClientAddress::peer().ipv6_prefix(*prefix);
        assert_eq!(found, direct.resolve(Some(viewer), []), "{text}");
    }
}

/// A proxy appends the address that it saw to any lines of the client.
fn a_proxy_is_trusted_and_senders_before_it_are_not(header: ForwardingHeader, sent: &[&[u8]]) {
    let (proxy, second) = (IpAddr::from([10, 0, 0, 1]), "10.0.0.2");
    let seen = |address: &str| match header {
        ForwardingHeader::XForwardedFor => address.to_owned(),
        ForwardingHeader::Forwarded => format!("for={address};proto=https"),
        other => panic!("no proxy writes {other:?} here"),
    };
    let by_network = ClientAddress::behind_proxies(["10.0.0.0/8"]).expect("a network");
    for (address, chain) in [
        (by_network.clone(), seen(CLIENT)),
        (by_network.clone(), format!("{}, {}", seen(CLIENT), seen(second))),
        (ClientAddress::behind_hops(1), seen(CLIENT)),
        (ClientAddress::behind_hops(2), format!("{}, {}", seen(CLIENT), seen(second))),
    ] {
        let address = address.header(header);
        let client = Some(CLIENT.parse().expect("an address"));
        let mut lines = sent.to_vec();
        lines.push(chain.as_bytes());
        assert_eq!(address.resolve(Some(proxy), lines), client, "a line of its own");
        let (last, others) = match sent {
            [others @ .., last] => (*last, others),
            [] => (&b""[..], sent),
        };
        let appended = [last, &b", "[..], chain.as_bytes()].concat();
        let lines = others.iter().copied().chain([&appended[..]]);
        assert_eq!(address.resolve(Some(proxy), lines.collect::<Vec<_>>()), client, "appended");
    }
    // A stranger is no proxy, whatever its address embeds.
    let stranger = IpAddr::from([192, 0, 2, 1]);
    let by_network = by_network.header(header);
    let found = by_network.resolve(Some(stranger), sent.iter().copied());
    assert_eq!(found, Some(stranger));
    let embedding = "64:ff9b::10.0.0.1".parse().ok();
    assert_eq!(by_network.resolve(embedding, sent.iter().copied()), Some(proxy));
}

fn what_std_reads_is_read_alike(lines: &[&[u8]]) {
    let Some(text) = lines.last().and_then(|line| str::from_utf8(line).ok()) else { return };
    let read = text.trim();
    let address = read.parse::<IpAddr>().ok();
    // A socket's scope is no part of an address in these headers.
    let address = address
        .or_else(|| Some(read.parse::<SocketAddr>().ok().filter(|_| !read.contains('%'))?.ip()));
    if let Some(address) = address {
        let ours = ClientAddress::behind_hops(1).ipv6_prefix(128);
        let found = ours.resolve(None, [text.as_bytes()]);
        match address.to_canonical() {
            IpAddr::V6(address) if is_translated(address) => {
                assert!(found.is_some_and(|found| found.is_ipv4()), "{address}");
            }
            address => assert_eq!(found, Some(address)),
        }
    }
}

/// Returns `true` for an address of NAT64 or 6to4.
fn is_translated(address: Ipv6Addr) -> bool {
    address.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] || address.segments()[0] == 0x2002
}
