//! Two requests have one caller exactly if they carry the same identity. A malformed one is refused and never
//! missing. Headers outside the identity change nothing, through the layer as well.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::pin,
    sync::LazyLock,
    task::{Context, Poll, Waker},
};

use http::{HeaderName, HeaderValue, Request, Response, request::Parts};
use ratelimit_runtime::{
    Caller, caller,
    web::{
        Refusal,
        tower::{Identity, IdentityLayer, PeerAddress, PermitBody},
    },
};
use tower::{Layer, Service, service_fn};

const HEADER: &str = "x-api-key";

/// Headers that a client may send and the identity does not name.
const FOREIGN: [&str; 6] =
    ["x-forwarded-for", "forwarded", "host", "x-real-ip", "x-api-keys", "authorization"];

static IDENTITY: LazyLock<Identity> =
    LazyLock::new(|| Identity::header(HEADER).or(Identity::peer()));

/// The identity in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sent {
    Key(String),
    Peer([u8; 4]),
    Nothing,
    Malformed,
}

/// Two requests, separated by an empty line: the values of the header, a line each, and behind `@` the
/// peer's last byte.
pub(crate) fn holds(bytes: &[u8]) {
    let at = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or(bytes.len());
    let (one, other) = (&bytes[..at], bytes.get(at + 2..).unwrap_or_default());
    let (Some(one), Some(other)) = (request(one), request(other)) else { return };
    let callers = [caller(&one), caller(&other)];
    for (request, caller) in [&one, &other].into_iter().zip(&callers) {
        let sent = sent(request);
        let expected = match sent {
            Sent::Nothing => Some(Refusal::NoIdentity),
            Sent::Malformed => Some(Refusal::MalformedIdentity),
            Sent::Key(_) | Sent::Peer(_) => None,
        };
        assert_eq!(caller.clone().err(), expected, "{sent:?}");
        through_the_layer_it_is_the_same(request, caller);
    }
    if let [Ok(one_caller), Ok(other_caller)] = &callers {
        let same = sent(&one) == sent(&other);
        assert_eq!(one_caller == other_caller, same, "{:?} {:?}", sent(&one), sent(&other));
    }
    headers_that_are_added_make_no_other_caller(&one, &other);
}

fn request(lines: &[u8]) -> Option<Parts> {
    let (mut parts, ()) = Request::new(()).into_parts();
    for line in lines.split(|byte| *byte == b'\n') {
        if let [b'@', peer] = line {
            let address = SocketAddr::from(([192, 0, 2, *peer], 80));
            parts.extensions.insert(PeerAddress(address));
        } else {
            parts.headers.append(HEADER, HeaderValue::from_bytes(line).ok()?);
        }
    }
    Some(parts)
}

/// Returns the identity of a request by the documented rules.
fn sent(request: &Parts) -> Sent {
    let lines: Vec<_> = request.headers.get_all(HEADER).iter().collect();
    let peer = request.extensions.get::<PeerAddress>().map(|peer| peer.0);
    match (&lines[..], peer) {
        ([], Some(SocketAddr::V4(peer))) => Sent::Peer(peer.ip().octets()),
        ([], _) => Sent::Nothing,
        ([line], _) => match str::from_utf8(line.as_bytes()).map(str::trim) {
            Ok(key) if !key.is_empty() => Sent::Key(key.to_owned()),
            _ => Sent::Malformed,
        },
        _ => Sent::Malformed,
    }
}

fn caller(request: &Parts) -> Result<Caller, Refusal> {
    IDENTITY.caller(request)
}

/// Headers outside the identity, with the values of `other`, make no other caller.
fn headers_that_are_added_make_no_other_caller(request: &Parts, other: &Parts) {
    let expected = caller(request);
    let values: Vec<_> = other.headers.get_all(HEADER).iter().collect();
    let mut with_foreign = request.clone();
    for name in FOREIGN {
        for value in &values {
            with_foreign.headers.append(HeaderName::from_static(name), (*value).clone());
        }
    }
    assert_eq!(caller(&with_foreign), expected);
    through_the_layer_it_is_the_same(&with_foreign, &expected);
    if !request.headers.contains_key(HEADER) {
        return;
    }
    for value in values {
        let mut repeated = request.clone();
        repeated.headers.append(HEADER, value.clone());
        assert_eq!(caller(&repeated), Err(Refusal::MalformedIdentity), "{:?}", repeated.headers);
    }
}

/// The service gets a request with its caller, or not at all.
fn through_the_layer_it_is_the_same(request: &Parts, expected: &Result<Caller, Refusal>) {
    let service = service_fn(|_: Request<()>| async {
        let mut response = Response::new(PermitBody::new(String::new()));
        response.extensions_mut().insert(caller::current());
        Ok::<_, Infallible>(response)
    });
    let mut service = IdentityLayer::new(IDENTITY.clone()).layer(service);
    let call = pin!(service.call(Request::from_parts(request.clone(), ())));
    let Poll::Ready(Ok(response)) = call.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the service answers at once");
    };
    let seen = response.extensions().get::<Option<Caller>>();
    match expected {
        Ok(expected) => assert_eq!(seen, Some(&Some(expected.clone()))),
        Err(refusal) => {
            assert_eq!(seen, None, "the service is not called");
            assert_eq!(response.status().as_u16(), refusal.status());
        }
    }
}
