//! Each forwarding header names the client if a trusted peer sends it as documented, and nobody
//! otherwise. The rules are the same in all frameworks.

use std::net::{IpAddr, SocketAddr};

use actix_web::test::TestRequest;
use axum::http::{HeaderName, HeaderValue, Request};
use ratelimit_runtime::{
    Caller,
    web::{
        ClientAddress, ForwardingHeader, OnMalformed, Refusal, TrustedProxies, actix,
        tower::{self, PeerAddress},
    },
};

const PROXY: &str = "10.0.0.1:443";
const STRANGER: &str = "192.0.2.1:443";
const CLIENT: &str = "203.0.113.9";

/// The lines of a header, `*` for the client as this header has it.
type Lines = &'static [&'static [u8]];

/// The result for a request of a trusted peer.
#[derive(Clone, Copy, Debug)]
enum Found {
    Client,
    Proxy,
    Missing,
    Malformed,
}

use Found::{Client, Malformed, Missing, Proxy};

/// The lines of a header, its result if it is a list, and if it has a single address.
const CASES: [(&str, Lines, Found, Found); 15] = [
    ("not sent", &[], Proxy, Missing),
    ("once", &[b"*"], Client, Client),
    ("spaces around", &[b" \t* "], Client, Client),
    ("repeated", &[b"*", b"*"], Client, Malformed),
    ("another before", &[b"@", b"*"], Client, Malformed),
    ("nonsense before", &[b"\xff", b"*"], Client, Malformed),
    ("an empty one before", &[b"", b"*"], Client, Malformed),
    ("an empty one behind", &[b"*", b""], Proxy, Malformed),
    ("a list of two", &[b"@, *"], Client, Malformed),
    ("empty", &[b""], Proxy, Malformed),
    ("spaces", &[b" \t "], Proxy, Malformed),
    ("not UTF-8", &[b"\xff"], Proxy, Malformed),
    ("not UTF-8 at the end", &[b"*\xc3\x28"], Proxy, Malformed),
    ("a word", &[b"unknown"], Proxy, Malformed),
    ("a network", &[b"203.0.113.0/24"], Proxy, Malformed),
];

/// The header, the form in which it has an address, and `true` for a list.
const HEADERS: [(ForwardingHeader, &str, bool); 10] = [
    (ForwardingHeader::XForwardedFor, "{}", true),
    (ForwardingHeader::XForwardedFor, "{}:4711", true),
    (ForwardingHeader::Forwarded, "for={}", true),
    (ForwardingHeader::Forwarded, "proto=https;for=\"{}:4711\"", true),
    (ForwardingHeader::Single("cf-connecting-ip"), "{}", false),
    (ForwardingHeader::Single("fly-client-ip"), "{}", false),
    (ForwardingHeader::Single("true-client-ip"), "{}", false),
    (ForwardingHeader::Single("x-real-ip"), "{}:4711", false),
    (ForwardingHeader::Single("X-Real-IP"), "{}", false),
    (ForwardingHeader::CloudFrontViewerAddress, "{}:4711", false),
];

/// Returns a line with the addresses in the header's form: `*` is the client, `@` another.
fn written(line: &[u8], form: &str) -> Vec<u8> {
    line.split_inclusive(|byte| b"*@".contains(byte))
        .flat_map(|piece| match piece {
            [before @ .., b'*'] => [before, form.replace("{}", CLIENT).as_bytes()].concat(),
            [before @ .., b'@'] => [before, form.replace("{}", "198.51.100.7").as_bytes()].concat(),
            piece => piece.to_vec(),
        })
        .collect()
}

/// A request of a framework: peer, name of the header, its lines.
type Ask<I> = fn(&I, SocketAddr, &str, &[Vec<u8>]) -> Result<Caller, Refusal>;

fn on_tower(
    identity: &tower::Identity,
    peer: SocketAddr,
    name: &str,
    lines: &[Vec<u8>],
) -> Result<Caller, Refusal> {
    let (mut request, ()) = Request::new(()).into_parts();
    request.extensions.insert(PeerAddress(peer));
    for line in lines {
        let name = HeaderName::try_from(name).unwrap();
        request.headers.append(name, HeaderValue::from_bytes(line).unwrap());
    }
    identity.caller(&request)
}

fn on_actix(
    identity: &actix::Identity,
    peer: SocketAddr,
    name: &str,
    lines: &[Vec<u8>],
) -> Result<Caller, Refusal> {
    let mut request = TestRequest::default().peer_addr(peer);
    for line in lines {
        let value = actix_web::http::header::HeaderValue::from_bytes(line).unwrap();
        request = request.append_header((name, value));
    }
    identity.caller(&request.to_srv_request())
}

fn caller(address: SocketAddr) -> Caller {
    address.ip().into()
}

/// Asserts all rules for one framework, whose identity of an address is `by` of it.
fn assert_matrix<I>(by: fn(ClientAddress) -> I, shared: fn(I) -> I, ask: Ask<I>) {
    let (proxy, stranger): (SocketAddr, SocketAddr) =
        (PROXY.parse().unwrap(), STRANGER.parse().unwrap());
    let client: IpAddr = CLIENT.parse().unwrap();
    for (header, form, is_list) in HEADERS {
        for (case, lines, in_list, alone) in CASES {
            let lines: Vec<_> = lines.iter().map(|line| written(line, form)).collect();
            let behind = |address: ClientAddress| by(address.header(header));
            let trusted = || ClientAddress::behind_proxies(["10.0.0.1"]).unwrap();
            let expected = match if is_list { in_list } else { alone } {
                Client => Ok(client.into()),
                Proxy => Ok(caller(proxy)),
                Missing => Err(Refusal::NoIdentity),
                Malformed => Err(Refusal::MalformedIdentity),
            };
            let name = header.name();
            let found = |identity: &I, peer| ask(identity, peer, name, &lines);
            let case = format!("{name}, {form}, {case}");
            assert_eq!(found(&behind(trusted()), proxy), expected, "{case}");
            // One hop is a proxy of any address.
            let one_hop = behind(ClientAddress::behind_hops(1));
            assert_eq!(found(&one_hop, proxy), expected, "{case}");
            if expected == Err(Refusal::MalformedIdentity) {
                let identity = shared(behind(trusted()));
                assert_eq!(found(&identity, proxy), Ok(Caller::shared()), "{case}");
            }
            // Nobody else is believed, and nothing that a stranger sends is malformed.
            for address in [trusted(), ClientAddress::peer(), ClientAddress::behind_hops(0)] {
                assert_eq!(found(&behind(address), stranger), Ok(caller(stranger)), "{case}");
            }
            assert_eq!(found(&behind(ClientAddress::peer()), proxy), Ok(caller(proxy)), "{case}");
        }
    }
}

#[test]
fn a_header_is_believed_from_trusted_peers_on_tower() {
    assert_matrix(tower::Identity::address, |i| i.on_malformed(OnMalformed::Shared), on_tower);
}

#[test]
fn a_header_is_believed_from_trusted_peers_on_actix() {
    assert_matrix(actix::Identity::address, |i| i.on_malformed(OnMalformed::Shared), on_actix);
}

#[test]
fn no_header_but_the_chosen_one_is_read() {
    let peer = PROXY.parse().unwrap();
    for (chosen, _, is_list) in HEADERS {
        let trusted = ClientAddress::behind_proxies(["10.0.0.1"]).unwrap().header(chosen);
        let identity = tower::Identity::address(trusted);
        let expected = if is_list { Ok(caller(peer)) } else { Err(Refusal::NoIdentity) };
        for (other, form, _) in HEADERS {
            if !other.name().eq_ignore_ascii_case(chosen.name()) {
                let lines = [written(b"*", form)];
                let found = on_tower(&identity, peer, other.name(), &lines);
                assert_eq!(found, expected, "{chosen:?}, {other:?}");
            }
        }
    }
}

#[test]
fn an_alternative_counts_missing_addresses_and_no_malformed_ones() {
    let edge = TrustedProxies::new(["10.0.0.1"]).unwrap();
    let identity = tower::Identity::address(ClientAddress::cloudflare(edge));
    let identity = identity.or(tower::Identity::peer());
    let ask =
        |lines: &[Vec<u8>]| on_tower(&identity, PROXY.parse().unwrap(), "cf-connecting-ip", lines);
    assert_eq!(ask(&[]), Ok(Caller::fallback("10.0.0.1")));
    assert_eq!(ask(&[CLIENT.into()]), Ok(CLIENT.into()));
    assert_eq!(ask(&[CLIENT.into(), CLIENT.into()]), Err(Refusal::MalformedIdentity));
    assert_eq!(ask(&[vec![]]), Err(Refusal::MalformedIdentity));
}

#[test]
fn the_address_of_a_single_header_has_a_port_or_a_zone_or_neither() {
    let edge = || TrustedProxies::new(["10.0.0.1"]).unwrap();
    let real_ip = ForwardingHeader::Single("x-real-ip");
    let single = ClientAddress::behind(edge()).header(real_ip).ipv6_prefix(128);
    let cloudfront = ClientAddress::cloudfront(edge()).ipv6_prefix(128);
    assert_eq!(cloudfront.header_name(), "cloudfront-viewer-address");
    let peer: SocketAddr = PROXY.parse().unwrap();
    let find = |address: &ClientAddress, value: &str| {
        Some(address.resolve(Some(peer.ip()), [value.as_bytes()])?.to_string())
    };
    for (value, expected, at_cloudfront) in [
        ("203.0.113.9", Some(CLIENT), None),
        ("203.0.113.9:4711", Some(CLIENT), Some(CLIENT)),
        ("203.0.113.9:47110", Some(CLIENT), Some(CLIENT)),
        ("203.0.113.9:_port", Some(CLIENT), None),
        ("203.0.113.9:", None, None),
        ("203.0.113.9:70000", None, None),
        ("203.0.113.9:+80", None, None),
        ("[2001:db8::9]", Some("2001:db8::9"), None),
        ("[2001:db8::9]:4711", Some("2001:db8::9"), Some("2001:db8::9")),
        // Without brackets the last group is a port in CloudFront's header alone.
        ("2001:db8::9:4711", Some("2001:db8::9:4711"), Some("2001:db8::9")),
        ("2001:db8::9:47110", None, Some("2001:db8::9")),
        ("2001:db8:1:2:3:4:5:6:443", None, Some("2001:db8:1:2:3:4:5:6")),
        ("::ffff:203.0.113.9", Some(CLIENT), None),
        ("::ffff:203.0.113.9:443", None, Some(CLIENT)),
        ("fe80::9%eth0", Some("fe80::9"), None),
        ("[fe80::9%eth0]", Some("fe80::9"), None),
        ("[fe80::9%eth0]:443", Some("fe80::9"), Some("fe80::9")),
        ("fe80::9%3", Some("fe80::9"), None),
        ("fe80::9%", None, None),
        ("fe80::9%eth0.100", Some("fe80::9"), None),
        ("fe80::9%a b", None, None),
        ("fe80::9%a,fe80::8", None, None),
        ("[fe80::9%a,fe80::8]:443", None, None),
        ("fe80::9%eth0:443", None, Some("fe80::9")),
        // Only a link-local address is in a zone.
        ("2001:db8::9%eth0", None, None),
        ("203.0.113.9%eth0", None, None),
        ("::ffff:203.0.113.9%eth0", None, None),
    ] {
        assert_eq!(find(&single, value).as_deref(), expected, "{value}");
        assert_eq!(find(&cloudfront, value).as_deref(), at_cloudfront, "{value}");
    }
}

#[test]
fn a_single_header_names_the_client_behind_any_number_of_hops_and_is_no_proxy() {
    let header = ForwardingHeader::Single("fly-client-ip");
    let line = [CLIENT.as_bytes()];
    for hops in [1, 2, usize::MAX] {
        let address = ClientAddress::behind_hops(hops).header(header);
        assert_eq!(address.resolve(None, line), CLIENT.parse().ok());
    }
    assert_eq!(ClientAddress::peer().header(header).resolve(None, line), None);
    // The proxy's word is final, also for an address among the proxies.
    let address = ClientAddress::behind_proxies(["10.0.0.0/8"]).unwrap().header(header);
    let peer = Some(IpAddr::from([10, 0, 0, 1]));
    assert_eq!(address.resolve(peer, [&b"10.0.0.2"[..]]), "10.0.0.2".parse().ok());
    // A name that no header has is a missing identity, and no shared one.
    for name in ["", "not a name", "x-typo"] {
        let address = address.clone().header(ForwardingHeader::Single(name));
        let identity = tower::Identity::address(address);
        let peer = PROXY.parse().unwrap();
        let found = on_tower(&identity, peer, "x-real-ip", &[CLIENT.into()]);
        assert_eq!(found, Err(Refusal::NoIdentity), "{name}");
    }
}
