//! Trusted proxies are those that the program or a file names. A file is followed, and a faulty one
//! changes nothing.

use std::{fs, net::IpAddr, path::Path, time::Duration};

use harness::{Watch, until};
use proptest::{collection::vec, prelude::*};
use ratelimit_runtime::web::{ClientAddress, TrustedProxies};

const CLIENT: &str = "203.0.113.9";

/// Returns `true` if the header of this peer is believed.
fn trusts(proxies: &TrustedProxies, peer: &str) -> bool {
    let address = ClientAddress::cloudflare(proxies.clone()).ipv6_prefix(128);
    let peer: IpAddr = peer.parse().unwrap();
    let found = address.resolve(Some(peer), [CLIENT.as_bytes()]).unwrap();
    assert!(found == peer.to_canonical() || found.to_string() == CLIENT, "{found}");
    found.to_string() == CLIENT
}

async fn until_trusted(proxies: &TrustedProxies, peer: &str) {
    until(peer, async || trusts(proxies, peer).then_some(())).await;
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn a_file_is_followed_and_a_faulty_one_changes_nothing() {
    let watch = Watch::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("networks");
    fs::write(&path, "# edge\r\n192.0.2.0/28\r\n\r\n  2001:db8::/32 # IPv6").unwrap();
    let proxies = TrustedProxies::follow_file(&path).unwrap();
    for peer in ["192.0.2.1", "192.0.2.15", "2001:db8:ffff::1", "::ffff:192.0.2.1"] {
        assert!(trusts(&proxies, peer), "{peer}");
    }
    assert!(!trusts(&proxies, "192.0.2.16") && !trusts(&proxies, "198.51.100.1"));

    replace(&path, "198.51.100.0/24\n");
    until_trusted(&proxies, "198.51.100.1").await;
    assert!(!trusts(&proxies, "192.0.2.1"), "the former network is gone");

    // Each fault is logged once, and the networks stay.
    for (text, fault) in [
        ("", "lists no network; write one on each line"),
        ("# nothing\n\n", "lists no network"),
        (
            "192.0.2.0/28\n<html>\n",
            "line 2: `<html>` is neither an address nor a network in CIDR notation",
        ),
        ("192.0.2.0/24 198.51.100.0/24", "line 1: `192.0.2.0/24 198.51.100.0/24` is neither"),
        ("192.0.2.0/242001:db8::/32", "line 1: `192.0.2.0/242001:db8::/32` is neither"),
        ("fe80::1%eth0", "line 1: `fe80::1%eth0` is neither"),
        ("192.0.2.1\u{1b}[2J\rfaked", r"line 1: `192.0.2.1\u{1b}[2J\rfaked` is neither"),
    ] {
        replace(&path, text);
        until(fault, async || (watch.count(fault) > 0).then_some(())).await;
        assert!(trusts(&proxies, "198.51.100.1") && !trusts(&proxies, "192.0.2.1"), "{text}");
    }
    fs::remove_file(&path).unwrap();
    until("a warning", async || (watch.count("No such file") == 1).then_some(())).await;
    assert!(trusts(&proxies, "198.51.100.1"));
    let refused = "trusted proxies refused; previous ones stay in effect";
    assert_eq!(watch.count(refused), 7, "{}", watch.text());

    replace(&path, "192.0.2.1");
    until_trusted(&proxies, "192.0.2.1").await;
    assert!(!trusts(&proxies, "198.51.100.1"));
    assert_eq!(watch.count("trusted proxies read"), 3, "{}", watch.text());
}

#[tokio::test(start_paused = true)]
async fn a_file_is_not_applied_while_it_is_being_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("networks");
    fs::write(&path, "192.0.2.1").unwrap();
    let proxies = TrustedProxies::follow_file(&path).unwrap();
    for text in ["198.51.100.1\n", "198.51.100.1\n198.51.100.2\n"] {
        fs::write(&path, text).unwrap();
        // Longer than one poll, and shorter than two equal ones.
        tokio::time::sleep(Duration::from_millis(500)).await;
        if text.lines().count() == 1 {
            assert!(trusts(&proxies, "192.0.2.1") && !trusts(&proxies, "198.51.100.1"), "{text}");
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(trusts(&proxies, "198.51.100.2") && !trusts(&proxies, "192.0.2.1"));
}

#[tokio::test]
async fn a_file_that_is_faulty_from_the_start_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a\nb");
    let refused = |path: &Path| TrustedProxies::follow_file(path).unwrap_err();
    assert!(refused(&path).to_string().contains(r"a\nb: No such file"), "{}", refused(&path));
    fs::write(&path, "").unwrap();
    assert!(
        refused(&path).to_string().ends_with(r"a\nb: lists no network; write one on each line")
    );
    fs::write(&path, "::1\n\n*\n").unwrap();
    let error = refused(&path);
    assert!(error.to_string().contains(r"a\nb: line 3: `*` is neither an address"), "{error}");
    assert_eq!(format!("{error:?}"), error.to_string());
    fs::write(&path, b"::1\n\xff").unwrap();
    assert!(refused(&path).to_string().contains("UTF-8"));
    for path in [directory.path(), Path::new("/dev/zero")] {
        assert!(refused(path).to_string().ends_with("is no regular file"));
    }
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks, 0, "nothing is followed");
}

#[tokio::test]
async fn a_file_is_followed_until_its_last_user_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("networks");
    fs::write(&path, "192.0.2.1").unwrap();
    let proxies = TrustedProxies::follow_file(&path).unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks(), 1);
    let both = TrustedProxies::new(["10.0.0.7"]).unwrap().and(&proxies);
    let address = ClientAddress::behind(both.clone());
    drop((proxies, both));
    replace(&path, "198.51.100.1");
    let client = || {
        let line = b"203.0.113.9, 198.51.100.1";
        address.resolve("10.0.0.7".parse().ok(), [&line[..]]).unwrap().to_string()
    };
    until("the change", async || (client() == CLIENT).then_some(())).await;
    drop(address);
    until("the task's end", async || (tasks() == 0).then_some(())).await;
}

#[tokio::test]
async fn the_proxies_of_several_sources_are_all_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        TrustedProxies::follow_file(path).unwrap()
    };
    let given = |network| TrustedProxies::new([network]).unwrap();
    let all = given("10.0.0.7")
        .and(&file("v4", "192.0.2.0/28"))
        .and(&file("v6", "2001:db8::/32"))
        .and(&given("10.0.0.8"));
    for peer in ["10.0.0.7", "10.0.0.8", "192.0.2.1", "2001:db8::1"] {
        assert!(trusts(&all, peer), "{peer}");
    }
    assert!(!trusts(&all, "10.0.0.9") && !trusts(&all, "2001:db9::1"));
    let none = TrustedProxies::new([""; 0]).unwrap();
    assert!(!trusts(&none, "10.0.0.7"));
}

/// Networks that often overlap, and addresses that are often in them or beside them.
fn networks() -> impl Strategy<Value = Vec<(IpAddr, u8)>> {
    let v4 = (0..64_u32, 24..=32_u8)
        .prop_map(|(low, bits)| (IpAddr::from((0xc000_0200 | low).to_be_bytes()), bits));
    let v6 = (0..64_u128, 120..=128_u8)
        .prop_map(|(low, bits)| (IpAddr::from((0x2001_0db8 << 96 | low).to_be_bytes()), bits));
    vec(prop_oneof![v4, v6], 0..12)
}

/// Returns so many leading bits of an address.
fn prefix(address: IpAddr, bits: u8) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits() >> (32 - bits)),
        IpAddr::V6(address) => address.to_bits() >> (128 - bits),
    }
}

proptest! {
    #[test]
    fn a_proxy_is_trusted_exactly_in_one_of_the_networks(networks in networks(), low in 0..70_u8) {
        let texts = networks.iter().map(|(address, bits)| format!("{address}/{bits}"));
        let proxies = TrustedProxies::new(texts).unwrap();
        for peer in [format!("192.0.2.{low}"), format!("2001:db8::{low:x}")] {
            let address: IpAddr = peer.parse().unwrap();
            let is_inside = networks.iter().any(|(network, bits)| {
                network.is_ipv4() == address.is_ipv4()
                    && prefix(*network, *bits) == prefix(address, *bits)
            });
            prop_assert_eq!(trusts(&proxies, &peer), is_inside, "{}", peer);
        }
    }
}
