use super::*;
use crate::key::KeyRef;

/// A digest changes only with its script, and deliberately: during a deploy, processes of both
/// versions load a script of their own.
#[test]
fn the_digests_are_those_of_the_scripts() {
    let of_algorithms = SCRIPTS.iter().flat_map(|it| [&it.text, &it.gated]);
    let of_permits = [&permits::WITHOUT_WINDOW, &permits::RENEW];
    let all = of_algorithms.chain(of_permits).chain(&lease::LEASES[1..=4]);
    let mut changed = Vec::new();
    for Text { source, sha1 } in all {
        let script = redis::Script::new(source);
        if script.get_hash() != *sha1 {
            changed.push(format!("s/{sha1}/{}/", script.get_hash()));
        }
    }
    assert!(changed.is_empty(), "{}", changed.join(";"));
}

#[test]
fn a_reply_out_of_range_is_an_error() {
    let policy = Policy::fixed_window("p", std::time::Duration::from_secs(1), 1);
    let key = Key::compose("", KeyRef::new(&policy, &b""[..]));
    let request = Request::new(&policy, Op::Take, 1);
    let call = ScriptCall::decision(&key, request, None);
    let decode =
        |reply: &[i64]| call.decode(&Value::Array(reply.iter().copied().map(Value::Int).collect()));
    assert_eq!(
        decode(&[1, 0, 1, 0, 0, 0, 7, 5]).unwrap().mark,
        Mark { at: Timestamp::new(7), charged: Charged::Generation(5) }
    );
    for reply in [
        &[1, 0, -1, 0, 0, 0, 7, 5][..],
        &[1, 0, 1, 0, 0, -1, 7, 5],
        &[1, 0, 1, 0, 0, 0, -7, 5],
        &[1, 0, 1, 0, 0, 0, 7, -5],
        // The policy has one tier.
        &[1, 1, 1, 0, 0, 0, 7, 5],
        // The call does not wait, and nothing lasts that long.
        &[1, 0, 1, 0, 0, 1, 7, 5],
        &[1, 0, 1, i64::MAX, 0, 0, 7, 5],
        &[1, 0, 1, 0, i64::MAX, 0, 7, 5],
        &[0, 0, 0, 0, 0, i64::MAX, 7, 5],
        &[1, 0, 1, 0, 0, 0],
        &[],
    ] {
        assert_eq!(decode(reply), Err(UnavailableReason::StoreError));
    }
    assert_eq!(call.decode(&Value::Nil), Err(UnavailableReason::StoreError));
}
