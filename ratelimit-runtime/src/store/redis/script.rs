//! The scripts: which one decides, what it is given, what its reply means.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

use once_cell::sync::Lazy;
use redis::{Cmd, Value};

use super::Attempt;
use crate::{
    error::UnavailableReason,
    key::Key,
    policy::Policy,
    rules::Algorithm,
    store::{Outcome, Refund, Request, Source},
};

/// A script's text, and the digest that the server knows it by.
struct Script {
    text: &'static str,
    sha1: &'static str,
}

static SLIDING_WINDOW: Script = Script {
    text: include_str!("sliding_window.lua"),
    sha1: "8c3d33a40fc64dde4d8e1720dacce2fa0005b5db",
};
static SLIDING_COUNTER: Script = Script {
    text: include_str!("sliding_counter.lua"),
    sha1: "c8dc7b22b32137651542d8385016b47d2e546d96",
};
static FIXED_WINDOW: Script = Script {
    text: include_str!("fixed_window.lua"),
    sha1: "aad5b8ec12724f87318f911fd01f0baf3d8c1bad",
};
static TOKEN_BUCKET: Script = Script {
    text: include_str!("token_bucket.lua"),
    sha1: "140feb3fb8cf4601aade6be10da55dd98b81ca60",
};

impl Script {
    fn of(algorithm: Algorithm) -> &'static Self {
        match algorithm {
            Algorithm::SlidingWindow => &SLIDING_WINDOW,
            Algorithm::SlidingCounter => &SLIDING_COUNTER,
            Algorithm::FixedWindow => &FIXED_WINDOW,
            Algorithm::TokenBucket => &TOKEN_BUCKET,
        }
    }
}

/// One call of a script, which may have to be sent twice.
pub(super) struct Call<'a> {
    script: &'static Script,
    key: &'a Key,
    policy: &'a Policy,
    cost: u32,
    /// What a log calls the call's units; of another state, 0 to look, 1 to take, or when what is
    /// given back was taken. A log is looked at without a name.
    mark: Option<u64>,
    /// The script's third argument, where it has one.
    recorded: u8,
}

impl<'a> Call<'a> {
    pub(super) fn decision(key: &'a Key, request: Request<'a>) -> Self {
        let Request { policy, cost, record, id } = request;
        let mark = match policy.algorithm() {
            Algorithm::SlidingWindow => record.then(|| id.unwrap_or_else(next_id)),
            _ => Some(record.into()),
        };
        let recorded = if id.is_some() { 2 } else { policy.counts_rejected().into() };
        Self { script: Script::of(policy.algorithm()), key, policy, cost, mark, recorded }
    }

    /// Gives back what was taken from another state than a log.
    pub(super) fn refund(key: &'a Key, refund: Refund<'a>) -> Self {
        let Refund { policy, cost, mark, .. } = refund;
        let script = Script::of(policy.algorithm());
        Self { script, key, policy, cost, mark: Some(mark), recorded: 0 }
    }

    /// Whether the script notices that it has decided the call before: by the name that its units
    /// have in a log.
    pub(super) fn is_repeatable(&self) -> bool {
        let is_log = self.policy.algorithm() == Algorithm::SlidingWindow;
        is_log && !self.policy.counts_rejected()
    }

    pub(super) fn command(&self, attempt: Attempt) -> Cmd {
        let Self { script, key, policy, cost, mark, recorded } = *self;
        let recorded = if attempt.again && self.is_repeatable() { 2 } else { recorded };
        let (name, script) =
            if attempt.with_text { ("EVAL", script.text) } else { ("EVALSHA", script.sha1) };
        // Room for all of it from the start; a number has 20 digits at the most.
        let (numbers, key) = (3 + 3 * policy.tiers().len(), key.as_bytes());
        let bytes = name.len() + script.len() + 1 + key.len() + 20 * numbers;
        let mut command = Cmd::with_capacity(4 + numbers, bytes);
        command.arg(name).arg(script).arg(1).arg(key);
        match mark {
            Some(mark) => command.arg(mark),
            None => command.arg(""),
        };
        command.arg(cost);
        if policy.algorithm() != Algorithm::FixedWindow {
            command.arg(recorded);
        }
        for tier in policy.tiers() {
            match policy.algorithm() {
                Algorithm::SlidingWindow | Algorithm::FixedWindow => {
                    command.arg(tier.micros()).arg(tier.threshold())
                }
                Algorithm::SlidingCounter => {
                    command.arg(tier.micros()).arg(tier.threshold()).arg(tier.tick())
                }
                Algorithm::TokenBucket => {
                    let bucket = policy.bucket(*tier);
                    command.arg(bucket.token).arg(bucket.refill).arg(bucket.full)
                }
            };
        }
        command
    }

    /// What the script's reply says.
    pub(super) fn decode(&self, reply: &Value) -> Result<Outcome, UnavailableReason> {
        let outcome = || {
            let (numbers, now) = reply.as_sequence()?.split_first_chunk()?;
            let [
                Value::Int(admitted),
                Value::Int(tier),
                Value::Int(remaining),
                Value::Int(wait),
                Value::Int(reset),
                Value::Int(more),
            ] = *numbers
            else {
                return None;
            };
            let tier = u8::try_from(tier).ok()?;
            self.policy.tiers().get(usize::from(tier))?;
            Some(Outcome {
                admitted: admitted == 1,
                tier,
                remaining: remaining.try_into().ok()?,
                wait: wait.try_into().ok()?,
                more: more.try_into().ok()?,
                reset: reset.try_into().ok()?,
                // A log goes by the name it was given, the others by the time they tell.
                mark: match now {
                    [] => self.mark.unwrap_or(0),
                    [Value::Int(now)] => (*now).try_into().ok()?,
                    _ => return None,
                },
                source: Source::Store,
            })
        };
        outcome().ok_or(UnavailableReason::StoreError)
    }
}

/// A new member for the log: unlike any other of this or another process.
fn next_id() -> u64 {
    static SEED: Lazy<RandomState> = Lazy::new(RandomState::new);
    static CALLS: AtomicU64 = AtomicU64::new(0);
    // 52 bits: what a double in the script holds exactly, with room to count on from there.
    SEED.hash_one(CALLS.fetch_add(1, Ordering::Relaxed)) >> 12
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_exact_in_a_double_and_do_not_repeat() {
        let ids: HashSet<u64> = (0..100_000).map(|_| next_id()).collect();
        assert_eq!(ids.len(), 100_000);
        assert!(ids.iter().all(|id| *id < 1 << 52));
    }

    /// A digest changes only with the script, and only when that is meant, since processes of both
    /// versions then load a script of their own.
    #[test]
    fn the_digests_are_those_of_the_scripts() {
        for script in [&SLIDING_WINDOW, &SLIDING_COUNTER, &FIXED_WINDOW, &TOKEN_BUCKET] {
            let title = script.text.lines().next().unwrap();
            assert_eq!(redis::Script::new(script.text).get_hash(), script.sha1, "{title}");
        }
    }

    #[test]
    fn a_reply_out_of_range_is_an_error() {
        let policy = Policy::fixed_window("p", std::time::Duration::from_secs(1), 1);
        let key = Key::compose("", &policy, b"");
        let request = Request { policy: &policy, cost: 1, record: true, id: None };
        let call = Call::decision(&key, request);
        let decode = |reply: &[i64]| {
            call.decode(&Value::Array(reply.iter().copied().map(Value::Int).collect()))
        };
        assert_eq!(decode(&[1, 0, 1, 0, 0, 0, 7]).unwrap().mark, 7);
        for reply in [
            &[1, 0, -1, 0, 0, 0, 7][..],
            &[1, 0, 1, 0, 0, -1, 7],
            &[1, 0, 1, 0, 0, 0, -7],
            // The policy has one tier.
            &[1, 1, 1, 0, 0, 0, 7],
            &[1, 0, 1, 0, 0],
            &[],
        ] {
            assert_eq!(decode(reply), Err(UnavailableReason::StoreError));
        }
        assert_eq!(call.decode(&Value::Nil), Err(UnavailableReason::StoreError));
    }
}
