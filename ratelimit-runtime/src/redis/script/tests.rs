use super::*;
use crate::key::KeyRef;

/// A digest changes only with its script, and deliberately: during a deploy, processes of both
/// versions load a script of their own.
#[test]
fn the_digests_are_those_of_the_scripts() {
    let of_algorithms = SCRIPTS.iter().flat_map(|it| [&it.text, &it.gated, &it.lease]);
    let of_permits = [&permits::WITHOUT_WINDOW, &permits::RENEW];
    let mut changed = Vec::new();
    let (empty, texts): (Vec<_>, Vec<_>) =
        of_algorithms.chain(of_permits).partition(|it| it.source.is_empty());
    assert_eq!(empty.len(), 1, "only a window of the calendar has no lease");
    for Text { source, sha1 } in texts {
        let script = redis::Script::new(source);
        if script.get_hash() != *sha1 {
            changed.push(format!("s/{sha1}/{}/", script.get_hash()));
        }
    }
    assert!(changed.is_empty(), "{}", changed.join(";"));
}

/// With another header, every call would take the general way.
#[test]
fn a_window_names_the_header_that_its_log_needs() {
    let (milli, hour) =
        (std::time::Duration::from_millis(1), std::time::Duration::from_secs(3_600));
    let two = Policy::sliding_window("p", milli, 3).tier(hour, 9);
    for (policy, header) in [
        (two, 3_600_000 * 131_072 + 9_u64),
        (Policy::sliding_window("p", milli * 3 / 2, 3), 2 * 131_072 + 3),
    ] {
        let key = Key::compose("", KeyRef::new(&policy, &b""[..]));
        let call = ScriptCall::decision(&key, Request::new(&policy, Op::Take, 1), None);
        let sent = call.command(Attempt::default()).command.get_packed_command();
        let header = format!("\r\n-{header}\r\n");
        assert!(sent.windows(header.len()).any(|it| it == header.as_bytes()), "{policy:?}");
    }
}

#[test]
fn a_short_reply_of_a_log_is_completed() {
    let (hour, day) = (std::time::Duration::from_secs(3_600), 86_400_000_000);
    let log = Policy::sliding_window("p", hour, 3).tier(24 * hour, 9);
    let window = Policy::fixed_window("p", hour, 3).tier(24 * hour, 9);
    let keys = [&log, &window].map(|it| Key::compose("", KeyRef::new(it, &b""[..])));
    let call = |key, policy| ScriptCall::decision(key, Request::new(policy, Op::Take, 1), None);
    let [log, window] = [call(&keys[0], &log), call(&keys[1], &window)];
    let of = |call: &ScriptCall<'_>, numbers: &[i64]| {
        call.decode(&Value::Array(numbers.iter().copied().map(Value::Int).collect()))
    };
    for (short, full) in [
        (&[1, 30, day, 2, 7][..], [1, 30, day, 2, 7, 0, 0, 0]),
        (&[1, 30, day, 2, 7, 1], [1, 30, day, 2, 7, 1, 0, 0]),
        (&[0, 30, 40], [0, 30, 40, 0, 7, 0, 30, 0]),
        (&[0, 30, 40, 0, 7, 1], [0, 30, 40, 0, 7, 1, 30, 0]),
    ] {
        let (completed, full) = (of(&log, short).unwrap(), of(&log, &full).unwrap());
        let mark = if completed.admitted { full.mark } else { completed.mark };
        assert_eq!(completed, Outcome { mark, ..full });
        // The charge of a state without entries is known by the birth of that.
        assert_eq!(of(&window, short).is_some(), !full.admitted);
    }
    let wrong = [&[1, 30, day, 2][..], &[1, 30, day, 2, 7, 2], &[0, 30], &[2, 30, 40]];
    for wrong in wrong.into_iter().chain([&[0, -1, 40][..], &[0, 30, -1], &[0], &[]]) {
        assert_eq!(of(&log, wrong), None, "{wrong:?}");
    }
}

#[test]
fn a_refusal_without_a_reset_has_found_no_permit_free() {
    let policy = Policy::fixed_window("p", std::time::Duration::from_secs(60), 1).concurrency(1);
    let key = Key::compose("", KeyRef::new(&policy, &b""[..]));
    let request = Request::new(&policy, Op::Take, 1);
    let permit = PermitRequest { id: 1, claim: None, is_sent: false };
    let decode = |permit, numbers: [i64; 2]| {
        let call = ScriptCall::decision(&key, request, permit);
        call.decode(&Value::Array(numbers.map(Value::Int).to_vec()))
    };
    let more = Micros::new(9);
    assert_eq!(decode(Some(permit), [0, 9]), Some(Outcome { more, ..Outcome::busy() }));
    for (permit, numbers) in [(None, [0, 9]), (Some(permit), [1, 9]), (Some(permit), [0, -9])] {
        assert_eq!(decode(permit, numbers), None, "{numbers:?}");
    }
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
        decode(&[1, 0, 0, 1, 7, 0, 0, 5]).unwrap().mark,
        Mark { at: Timestamp::new(7), charged: Charged::Generation(5) }
    );
    for reply in [
        &[1, 0, 0, -1, 7, 0, 0, 5][..],
        &[1, 0, -1, 1, 7, 0, 0, 5],
        &[1, 0, 0, 1, 7, 0, -1, 5],
        &[1, 0, 0, 1, -7, 0, 0, 5],
        &[1, 0, 0, 1, 7, 0, 0, -5],
        // The policy has one tier.
        &[1, 0, 0, 1, 7, 1, 0, 5],
        // The call does not wait, and nothing lasts that long.
        &[1, 0, 0, 1, 7, 0, 1, 5],
        &[1, i64::MAX, 0, 1, 7, 0, 0, 5],
        &[1, 0, i64::MAX, 1, 7, 0, 0, 5],
        &[0, 0, 0, 0, 7, 0, i64::MAX, 5],
        &[1, 0, 0, 1, 7, 0, 0],
        &[],
    ] {
        assert_eq!(decode(reply), None);
    }
    assert_eq!(call.decode(&Value::Nil), None);
}

#[test]
fn the_ids_of_lost_permits_are_strings() {
    let id = |id: &str| Value::BulkString(id.into());
    let decode = |reply: &[Value]| permits::decode_lost(&Value::Array(reply.to_vec()));
    assert_eq!(decode(&[Value::Int(0)]), Some(Vec::new()));
    assert_eq!(decode(&[Value::Int(0), id("8"), id("9")]), Some(vec![8, 9]));
    for wrong in [&[][..], &[Value::Int(0), id("w1")], &[Value::Int(0), Value::Nil]] {
        assert_eq!(decode(wrong), None);
    }
    assert_eq!(permits::decode_lost(&Value::Nil), None);
}
