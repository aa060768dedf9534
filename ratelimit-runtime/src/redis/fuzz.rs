//! Properties of replies, from any server: a reply is a decision with a message, or an error.

use std::time::Duration;

use redis::{RedisError, RedisResult, Value};

use super::{
    script::{
        ScriptCall,
        names::{Number, Numbers},
    },
    servers::cluster::slot::ranges,
    transport::{Failure, ReplyReader, message},
};
use crate::{
    decision::Decision,
    error::{Exceeded, RateLimitError, UnavailableReason},
    key::{Key, KeyRef},
    policy::Policy,
    request::{Op, Request},
};

const MINUTE: Duration = Duration::from_secs(60);
const POLICIES: [Policy; 4] = [
    Policy::sliding_window("p", MINUTE, 5),
    Policy::sliding_window("p", MINUTE, 5).tier(Duration::from_secs(3_600), 50),
    Policy::fixed_window("p", MINUTE, 5),
    Policy::token_bucket("p", MINUTE, 5),
];

/// Checks the properties. The first byte chooses the policy, the rest are the bytes of a reply.
pub(crate) fn assert_property(bytes: &[u8]) {
    let Some((choice, wire)) = bytes.split_first() else { return };
    let replies = read(wire, wire.len().max(1));
    let in_pieces = read(wire, 1 + usize::from(*choice) % 7);
    assert_eq!(format!("{replies:?}"), format!("{in_pieces:?}"));
    let policy = &POLICIES[usize::from(*choice) % POLICIES.len()];
    for reply in replies {
        match reply {
            Ok(reply) => {
                decision_has_the_numbers_of_the_reply(policy, &reply);
                slots_are_within_a_cluster(&reply);
            }
            Err(error) => error_has_a_reason(&error),
        }
    }
}

/// The longest reply that is read.
const MAX_REPLY: usize = 1 << 16;

/// Reads replies from bytes that arrive in pieces of this size. The last may be the error that ends
/// a connection.
fn read(wire: &[u8], piece: usize) -> Vec<RedisResult<Value>> {
    let (mut reader, mut at, mut replies) = (ReplyReader::new(MAX_REPLY), 0, Vec::new());
    for arrived in (0..wire.len()).step_by(piece).map(|start| (start + piece).min(wire.len())) {
        loop {
            match reader.next(&wire[at..arrived]) {
                Ok(Some(frame)) => {
                    assert!(0 < frame.length && frame.length <= arrived - at);
                    at += frame.length;
                    replies.push(frame.reply);
                }
                Ok(None) => break,
                Err(error) => {
                    replies.push(Err(error));
                    return replies;
                }
            }
        }
    }
    replies
}

fn decision_has_the_numbers_of_the_reply(policy: &Policy, reply: &Value) {
    let key = Key::compose("", KeyRef::new(policy, &b"/alice"[..]));
    let request = Request { id: Some(7), ..Request::new(policy, Op::Take, 1) };
    let Some(outcome) = ScriptCall::decision(&key, request, None).decode(reply) else { return };
    let numbers = Numbers::read(reply).expect("only a list of numbers is a decision");
    let more = if outcome.admitted { outcome.turn } else { outcome.more };
    for (name, number) in [
        (Number::Verdict, outcome.admitted.into()),
        (Number::Wait, outcome.wait.get()),
        (Number::Reset, outcome.reset.get()),
        (Number::Remaining, outcome.remaining.into()),
        (Number::Tier, outcome.tier.into()),
        (Number::More, more.get()),
    ] {
        assert_eq!(numbers.number(name, Some(number)), Some(number), "{name:?}");
    }
    if outcome.admitted {
        let decision = Decision::new(policy, outcome);
        assert!(policy.tiers().iter().any(|it| it.period() == decision.period()));
    } else {
        let exceeded = Exceeded::new(policy, outcome, false);
        assert_eq!(exceeded.retry_after().as_micros(), u128::from(outcome.wait.get()));
        let message = RateLimitError::from(exceeded).to_string();
        assert!(message.contains("retry after"), "{message}");
    }
}

fn slots_are_within_a_cluster(reply: &Value) {
    for range in ranges(reply, "asked").into_iter().flatten() {
        assert!(range.first <= range.last && range.last < 16_384, "{range:?}");
        assert!(!range.primary.host.is_empty());
    }
}

fn error_has_a_reason(error: &RedisError) {
    let _ = message(error);
    let reason = UnavailableReason::from(Failure::of(error));
    assert!(!reason.advice().is_empty());
}
