//! The address of a client comes from trusted proxies only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::{collection::vec, prelude::*};
use ratelimit_runtime::web::{ClientAddress, ForwardingHeader};

const PROXY: &str = "10.0.0.1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn resolve(address: &ClientAddress, peer: &str, lines: &[&str]) -> String {
    let lines = lines.iter().map(|line| line.as_bytes());
    address.resolve(Some(ip(peer)), lines).expect("there is a peer").to_string()
}

/// Returns a configuration for proxies in `10.0.0.0/8`, which is wide, and at `2001:db8:ffff::1`.
fn behind_proxies() -> ClientAddress {
    ClientAddress::behind_proxies(["10.0.0.0/8", "2001:db8:ffff::1"]).unwrap()
}

fn forwarded() -> ClientAddress {
    behind_proxies().header(ForwardingHeader::Forwarded)
}

#[test]
fn a_header_is_trusted_as_far_as_trusted_proxies_wrote_it() {
    let long = format!("{},203.0.113.9", "x".repeat(64 * 1024));
    let commas = ",".repeat(64 * 1024);
    let many = "1.1.1.1,".repeat(8 * 1024) + "203.0.113.9";
    for (case, lines, expected) in [
        ("no header", vec![], PROXY),
        ("one proxy", vec!["203.0.113.9"], "203.0.113.9"),
        ("a forged first entry", vec!["198.51.100.7, 203.0.113.9"], "203.0.113.9"),
        ("a forged line before", vec!["198.51.100.7", "203.0.113.9"], "203.0.113.9"),
        ("a forged proxy", vec!["198.51.100.7, 10.9.9.9, 203.0.113.9"], "203.0.113.9"),
        ("two proxies", vec!["198.51.100.7, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        ("two proxies, two lines", vec!["198.51.100.7, 203.0.113.9", "10.0.0.2"], "203.0.113.9"),
        ("proxies only", vec!["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("an IPv6 proxy", vec!["203.0.113.9, 2001:db8:ffff::1"], "203.0.113.9"),
        ("a mapped proxy", vec!["203.0.113.9, ::ffff:10.0.0.2"], "203.0.113.9"),
        ("a mapped client", vec!["::ffff:203.0.113.9"], "203.0.113.9"),
        ("hex digits of a mapped client", vec!["::ffff:cb00:7109"], "203.0.113.9"),
        ("dots in an IPv6 address", vec!["2001:db8::1.2.3.4"], "2001:db8::"),
        ("a port", vec!["203.0.113.9:4711"], "203.0.113.9"),
        ("brackets", vec!["[2001:db8::9]"], "2001:db8::"),
        ("brackets and a port", vec!["[2001:db8::9]:4711"], "2001:db8::"),
        ("a zone", vec!["fe80::1%eth0"], "fe80::"),
        ("brackets, a zone and a port", vec!["[fe80::1%eth0]:4711"], "fe80::"),
        ("tabs and spaces", vec![" \t203.0.113.9\t "], "203.0.113.9"),
        // An invalid address ends the walk at the last known proxy.
        ("empty", vec![""], PROXY),
        ("a comma", vec![","], PROXY),
        ("unknown", vec!["203.0.113.9, unknown"], PROXY),
        ("unknown behind two", vec!["203.0.113.9, unknown, 10.0.0.2"], "10.0.0.2"),
        ("a host name", vec!["203.0.113.9, evil.example"], PROXY),
        ("a port that is none", vec!["203.0.113.9:70000"], PROXY),
        ("a port that is a word", vec!["203.0.113.9:http"], PROXY),
        ("a bracket too few", vec!["[2001:db8::9"], PROXY),
        ("IPv4 in brackets", vec!["[203.0.113.9]"], PROXY),
        ("leading zeros", vec!["203.0.113.09"], PROXY),
        ("too short an address", vec!["203.0.113"], PROXY),
        ("a network", vec!["203.0.113.0/24"], PROXY),
        ("a zone outside of the link", vec!["2001:db8::9%eth0"], PROXY),
        ("no zone after its sign", vec!["fe80::1%"], PROXY),
        ("quotes", vec!["\"203.0.113.9\""], PROXY),
        // The entry of the proxy is read behind any amount of a client's data.
        ("64 KiB before", vec![&long], "203.0.113.9"),
        ("64 KiB of entries before", vec![&many], "203.0.113.9"),
        ("64 KiB of commas in a line before", vec![&commas, "203.0.113.9"], "203.0.113.9"),
        ("64 KiB of commas", vec![&commas], PROXY),
    ] {
        assert_eq!(resolve(&behind_proxies(), PROXY, &lines), expected, "{case}");
        // The same lines from elsewhere are ignored.
        assert_eq!(resolve(&behind_proxies(), "192.0.2.1", &lines), "192.0.2.1", "{case}");
        assert_eq!(resolve(&ClientAddress::peer(), PROXY, &lines), PROXY, "{case}");
    }
    let not_utf8 = [&b"203.0.113.9, \xff"[..]];
    assert_eq!(behind_proxies().resolve(Some(ip(PROXY)), not_utf8), Some(ip(PROXY)));
}

#[test]
fn only_so_much_of_a_chain_is_read() {
    // More than 8 KiB of proxies: the walk ends among them.
    let chain = format!("203.0.113.9{}", ",10.0.0.2".repeat(1_000));
    assert_eq!(resolve(&behind_proxies(), PROXY, &[&chain]), "10.0.0.2");
    let chain = format!("203.0.113.9{}", ",10.0.0.2".repeat(500));
    assert_eq!(resolve(&behind_proxies(), PROXY, &[&chain]), "203.0.113.9");
}

#[test]
fn forwarded_is_read_by_its_grammar() {
    for (case, lines, expected) in [
        ("plain", vec!["for=203.0.113.9"], "203.0.113.9"),
        ("any case", vec!["For=203.0.113.9;PROTO=https"], "203.0.113.9"),
        ("not first", vec!["proto=https; by=10.0.0.1; for=203.0.113.9"], "203.0.113.9"),
        ("quoted", vec!["for=\"203.0.113.9:4711\""], "203.0.113.9"),
        ("IPv6", vec!["for=\"[2001:db8::9]:4711\""], "2001:db8::"),
        ("a zone", vec!["for=\"[fe80::1%eth0]:4711\""], "fe80::"),
        ("a made-up port", vec!["for=\"203.0.113.9:_a.b-c\""], "203.0.113.9"),
        ("two proxies", vec!["for=203.0.113.9, for=10.0.0.2;by=10.0.0.1"], "203.0.113.9"),
        ("two lines", vec!["for=198.51.100.7", "for=203.0.113.9"], "203.0.113.9"),
        (
            "separators in quotes",
            vec!["for=203.0.113.9;host=\"a,for=198.51.100.7;b\"", "for=10.0.0.2"],
            "203.0.113.9",
        ),
        (
            "escaped quotes in quotes",
            vec![r#"for=203.0.113.9;host="a\",for=198.51.100.7;x=\"""#],
            "203.0.113.9",
        ),
        ("a quote opened by the client", vec!["for=\"evil, for=203.0.113.9"], "203.0.113.9"),
        ("a quote opened in a line before", vec!["for=\"x", "for=203.0.113.9"], "203.0.113.9"),
        ("a made-up name", vec!["for=_hidden"], PROXY),
        ("unknown", vec!["for=198.51.100.7, for=unknown"], PROXY),
        ("twice", vec!["for=198.51.100.7;for=203.0.113.9"], PROXY),
        ("no for", vec!["for=198.51.100.7, proto=https"], PROXY),
        ("no value", vec!["for"], PROXY),
        ("half a quote", vec!["for=\"203.0.113.9"], PROXY),
        ("an escape", vec![r#"for="203.0.113\.9""#], PROXY),
        ("the other header's form", vec!["203.0.113.9"], PROXY),
    ] {
        assert_eq!(resolve(&forwarded(), PROXY, &lines), expected, "{case}");
    }
}

#[test]
fn hops_are_counted_from_the_right() {
    let hops = ClientAddress::behind_hops;
    let lines = ["198.51.100.7, 203.0.113.9", "192.0.2.8"];
    assert_eq!(resolve(&hops(0), "192.0.2.1", &lines), "192.0.2.1");
    assert_eq!(resolve(&hops(1), "192.0.2.1", &lines), "192.0.2.8");
    assert_eq!(resolve(&hops(2), "192.0.2.1", &lines), "203.0.113.9");
    // Fewer entries than proxies: the last one known.
    assert_eq!(resolve(&hops(2), "192.0.2.1", &["192.0.2.8"]), "192.0.2.8");
    assert_eq!(resolve(&hops(2), "192.0.2.1", &["unknown, 192.0.2.8"]), "192.0.2.8");
    assert_eq!(resolve(&hops(usize::MAX), "192.0.2.1", &[]), "192.0.2.1");
    // A unix socket has no address; the proxy on it has seen one.
    let line = [&b"203.0.113.9"[..]];
    assert_eq!(hops(1).resolve(None, line), Some(ip("203.0.113.9")));
    assert_eq!(hops(0).resolve(None, line), None);
    assert_eq!(behind_proxies().resolve(None, line), None);
}

#[test]
fn the_network_of_an_ipv6_address_counts() {
    let client = "2001:db8:1:2:3:4:5:6";
    for (bits, expected) in [
        (64, "2001:db8:1:2::"),
        (48, "2001:db8:1::"),
        (56, "2001:db8:1::"),
        (128, client),
        (255, client),
        (0, "::"),
    ] {
        let address = ClientAddress::peer().ipv6_prefix(bits);
        assert_eq!(resolve(&address, client, &[]), expected, "/{bits}");
        assert_eq!(resolve(&address, "::ffff:192.0.2.1", &[]), "192.0.2.1", "/{bits}");
    }
}

#[test]
fn clients_behind_nat64_and_6to4_are_their_ipv4_addresses() {
    for (client, expected) in [
        ("64:ff9b::203.0.113.9", "203.0.113.9"),
        ("64:ff9b::203.0.113.10", "203.0.113.10"),
        ("2002:cb00:7109::1", "203.0.113.9"),
        ("2002:cb00:7109:ffff::1", "203.0.113.9"),
        ("2002:cb00:710a::1", "203.0.113.10"),
        // Near to both, but neither.
        ("64:ff9b:1::203.0.113.9", "64:ff9b:1::"),
        ("64:ff9b::1:203.0.113.9", "64:ff9b::"),
        ("2003:cb00:7109:1::1", "2003:cb00:7109:1::"),
    ] {
        assert_eq!(resolve(&ClientAddress::peer(), client, &[]), expected);
        assert_eq!(resolve(&behind_proxies(), PROXY, &[client]), expected);
    }
    // An embedded address makes no peer a proxy.
    for peer in ["64:ff9b::10.0.0.1", "2002:0a00:0001::1"] {
        assert_eq!(resolve(&behind_proxies(), peer, &["203.0.113.9"]), PROXY);
    }
}

#[test]
fn networks_are_addresses_or_cidr() {
    for right in ["10.0.0.0/8", "10.1.2.3/8", "10.0.0.1", "::1", "2001:db8::/32", "0.0.0.0/1"] {
        assert!(ClientAddress::behind_proxies([right]).is_ok(), "{right}");
    }
    for wrong in [
        "",
        "10.0.0/8",
        "10.0.0.0/33",
        "::/129",
        "localhost",
        "10.0.0.0/8,::1",
        "*",
        "fe80::1%eth0",
    ] {
        let error = ClientAddress::behind_proxies(["::1", wrong]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{wrong}` is neither an address nor a network")));
    }
    // Behind a network of all addresses, each client would name its own.
    for all in ["0.0.0.0/0", "10.0.0.0/0", "::/0", "::ffff:0.0.0.0/96"] {
        let error = ClientAddress::behind_proxies(["::1", all]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{all}` trusts every client")), "{error}");
    }
    // A mapped network is the IPv4 network.
    let mapped = ClientAddress::behind_proxies(["::ffff:10.0.0.0/104"]).unwrap();
    assert_eq!(resolve(&mapped, "10.200.0.1", &["203.0.113.9"]), "203.0.113.9");
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped())),
    ]
}

/// Any bytes that a client can send in a header line, with plenty that have a meaning.
fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        vec(any::<u8>(), 0..20),
        any_address().prop_map(|address| address.to_string().into_bytes()),
        "[0-9a-f.:,;=\"\\\\\\[\\] _]{0,20}".prop_map(String::into_bytes),
        Just(b",".to_vec()),
        Just(b"for=".to_vec()),
        Just(b"10.0.0.2".to_vec()),
        Just(b"\"".to_vec()),
    ];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn lines(lines: &[Vec<u8>]) -> impl DoubleEndedIterator<Item = &[u8]> {
    lines.iter().map(Vec::as_slice)
}

proptest! {
    #[test]
    fn a_stranger_is_itself_whatever_it_sends(forged in vec(any_line(), 0..4), peer in any_address()) {
        let network = ClientAddress::peer().resolve(Some(peer), []);
        prop_assume!(!peer.to_canonical().to_string().starts_with("10."));
        prop_assert_eq!(behind_proxies().resolve(Some(peer), lines(&forged)), network);
        prop_assert_eq!(forwarded().resolve(Some(peer), lines(&forged)), network);
    }

    #[test]
    fn what_a_client_sends_does_not_change_who_it_is(
        forged in vec(any_line(), 0..4),
        in_one_line in any::<bool>(),
        bits in any::<u128>(),
    ) {
        let client = IpAddr::V6(Ipv6Addr::from_bits(bits | 1 << 127));
        let network = ClientAddress::peer().resolve(Some(client), []);
        for (address, appended) in [
            (behind_proxies(), client.to_string()),
            (forwarded(), format!("for=\"[{client}]\"")),
            (ClientAddress::behind_hops(1), format!("[{client}]:443")),
        ] {
            let mut all = forged.clone();
            match all.last_mut() {
                Some(last) if in_one_line => last.extend_from_slice(format!(", {appended}").as_bytes()),
                _ => all.push(appended.into_bytes()),
            }
            prop_assert_eq!(address.resolve(Some(ip(PROXY)), lines(&all)), network);
        }
    }

    #[test]
    fn one_ipv6_network_is_one_client(network in any::<u64>(), a in any::<u64>(), b in any::<u64>()) {
        // Not the networks of embedded addresses, which are IPv4.
        prop_assume!(![0, 0x64_ff9b << 32].contains(&network) && network >> 48 != 0x2002);
        let of = |host: u64| {
            let address = Ipv6Addr::from_bits(u128::from(network) << 64 | u128::from(host));
            ClientAddress::peer().resolve(Some(address.into()), [])
        };
        prop_assert_eq!(of(a), of(b));
        let other = Ipv6Addr::from_bits(u128::from(network ^ 1) << 64 | 1 << 63 | u128::from(a));
        prop_assert_ne!(ClientAddress::peer().resolve(Some(other.into()), []), of(a));
    }

    #[test]
    fn a_mapped_address_is_the_address(bits in any::<u32>()) {
        let address = Ipv4Addr::from_bits(bits);
        let found = ClientAddress::peer().resolve(Some(address.to_ipv6_mapped().into()), []);
        prop_assert_eq!(found, Some(IpAddr::V4(address)));
    }
}
