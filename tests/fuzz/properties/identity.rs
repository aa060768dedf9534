//! Two requests have one caller if they say the same, and only then.

use std::{net::SocketAddr, sync::LazyLock};

use http::request::Parts;
use ratelimit_runtime::{
    Caller,
    web::tower::{Identity, PeerAddress},
};

const HEADER: &str = "x-api-key";

/// What a request says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Key(String),
    Peer([u8; 4]),
    Nothing,
}

/// Two requests, separated by an empty line: the values of the header, a line each, and behind `@` the
/// peer's last byte.
pub(crate) fn holds(bytes: &[u8]) {
    let at = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or(bytes.len());
    let (one, other) = (&bytes[..at], bytes.get(at + 2..).unwrap_or_default());
    let (Some(one), Some(other)) = (request(one), request(other)) else { return };
    let same = said(&one) == said(&other);
    assert_eq!(caller(&one) == caller(&other), same, "{:?} {:?}", said(&one), said(&other));
}

fn request(lines: &[u8]) -> Option<Parts> {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    for line in lines.split(|byte| *byte == b'\n') {
        if let [b'@', peer] = line {
            let address = SocketAddr::from(([192, 0, 2, *peer], 80));
            parts.extensions.insert(PeerAddress(address));
        } else {
            parts.headers.append(HEADER, http::HeaderValue::from_bytes(line).ok()?);
        }
    }
    Some(parts)
}

/// By the words of the documentation.
fn said(request: &Parts) -> Said {
    let lines: Vec<_> = request.headers.get_all(HEADER).iter().collect();
    let key = match lines[..] {
        [line] => str::from_utf8(line.as_bytes()).unwrap_or_default().trim(),
        _ => "",
    };
    match request.extensions.get::<PeerAddress>().map(|peer| peer.0) {
        _ if !key.is_empty() => Said::Key(key.to_owned()),
        Some(SocketAddr::V4(peer)) => Said::Peer(peer.ip().octets()),
        _ => Said::Nothing,
    }
}

fn caller(request: &Parts) -> Caller {
    static IDENTITY: LazyLock<Identity> =
        LazyLock::new(|| Identity::header(HEADER).or(Identity::peer()));
    IDENTITY.caller(request).expect("no request is refused")
}
