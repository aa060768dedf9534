//! Files of networks with any content: each is an error on one line, or trusts exactly the proxies
//! that it lists.

use std::net::IpAddr;

use super::proxies::{Networks, ProxiesFileError, network};
use crate::follow::UnreadableFile;

/// Asserts the property of the text as a file.
pub(crate) fn assert_property(text: &str) {
    let listed = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let listed: Vec<_> = listed.filter(|line| !line.is_empty()).map(network).collect();
    match Networks::parse(text) {
        Ok(networks) => {
            let listed: Vec<_> = listed.into_iter().map(|line| line.expect("a network")).collect();
            let ends = listed.iter().flat_map(|network| [network.network(), network.broadcast()]);
            for end in ends {
                assert!(networks.contains(end), "{end}");
                for beside in beside(end) {
                    let expected = listed.iter().any(|network| network.contains(&beside));
                    assert_eq!(networks.contains(beside), expected, "{beside}");
                }
            }
        }
        Err(why) => {
            assert!(listed.is_empty() || listed.iter().any(Result::is_err), "{text}");
            let file = UnreadableFile { path: "networks".into(), why };
            let message = ProxiesFileError::from(file).to_string();
            assert!(!message.contains(char::is_control), "{message:?}");
        }
    }
}

/// Returns the addresses before and after this one.
fn beside(address: IpAddr) -> Vec<IpAddr> {
    match address {
        IpAddr::V4(address) => {
            let bits = address.to_bits();
            [bits.wrapping_sub(1), bits.wrapping_add(1)].map(|bits| IpAddr::V4(bits.into())).into()
        }
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            [bits.wrapping_sub(1), bits.wrapping_add(1)].map(|bits| IpAddr::V6(bits.into())).into()
        }
    }
}
