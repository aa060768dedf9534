//! The scripts of the algorithms: arguments, digests, replies.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

use once_cell::sync::Lazy;
use ratelimit_core::Algorithm;
use redis::{Cmd, Value};

use crate::{
    error::UnavailableReason,
    key::Key,
    policy::{Policy, Tier},
    request::{Charged, DecidedBy, Mark, Op, Outcome, Refund, Request},
    time::{Micros, Timestamp},
};

/// The script of one algorithm.
struct Script {
    source: &'static str,
    /// The digest that `EVALSHA` names the script by.
    sha1: &'static str,
    /// Appends the arguments of one tier.
    push_tier: fn(&mut Cmd, &Policy, &Tier),
}

/// The scripts, in the order of [`Algorithm::ALL`].
static SCRIPTS: [Script; Algorithm::ALL.len()] = [
    Script {
        source: include_str!("../algorithms/sliding_window.lua"),
        sha1: "5f9fc5b0ae3f138746c8fbf2a04c8bdb26988e3e",
        push_tier: push_window,
    },
    Script {
        source: include_str!("../algorithms/sliding_counter.lua"),
        sha1: "19ad2adb8a7351cec4dfab548ef46deba0847f8c",
        push_tier: push_ticking_window,
    },
    Script {
        source: include_str!("../algorithms/fixed_window.lua"),
        sha1: "ff1c0182630cffd4c22347c4c175ab1287af606c",
        push_tier: push_window,
    },
    Script {
        source: include_str!("../algorithms/token_bucket.lua"),
        sha1: "a540d1b301cf110f5fc38342e8cb0c3378ee5b63",
        push_tier: push_bucket,
    },
];

fn push_window(command: &mut Cmd, _: &Policy, tier: &Tier) {
    command.arg(tier.micros().get()).arg(tier.threshold());
}

fn push_ticking_window(command: &mut Cmd, _: &Policy, tier: &Tier) {
    command.arg(tier.micros().get()).arg(tier.threshold()).arg(tier.tick());
}

fn push_bucket(command: &mut Cmd, policy: &Policy, tier: &Tier) {
    let bucket = policy.bucket(*tier);
    command.arg(bucket.token).arg(bucket.refill).arg(bucket.full);
}

/// The operation that a script executes: its first argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScriptOp {
    Peek = 0,
    Take = 1,
    Refund = 2,
}

/// The treatment of refused and of repeated calls: a script's third argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Plain = 0,
    /// Refused calls are recorded too.
    CountRejected = 1,
    /// A log may have charged the call before, under the same id. It is not charged again.
    MayBeCharged = 2,
}

/// One attempt at sending a call.
#[derive(Clone, Copy, Default)]
pub(super) struct Attempt {
    /// Sends the script's source by `EVAL`, because the server does not have it in its cache.
    pub(super) send_source: bool,
    /// `true` if an earlier attempt may have been executed.
    pub(super) may_have_run: bool,
}

/// One call of a script. It may be sent more than once.
pub(super) struct ScriptCall<'a> {
    script: &'static Script,
    key: &'a Key,
    policy: &'a Policy,
    /// The policy as written in the source, if an override decides.
    written: &'a Policy,
    op: ScriptOp,
    cost: u32,
    mode: Mode,
    /// The mark of the units, which names the members that a log records. `at` is 0 except for a
    /// refund.
    mark: Mark,
}

impl<'a> ScriptCall<'a> {
    /// Checks a request.
    pub(super) fn decision(key: &'a Key, request: Request<'a>) -> Self {
        let Request { policy, written, op, cost, id } = request;
        let op = match op {
            Op::Peek => ScriptOp::Peek,
            Op::Take => ScriptOp::Take,
        };
        let mode = match id {
            Some(_) => Mode::MayBeCharged,
            None if policy.counts_rejected() => Mode::CountRejected,
            None => Mode::Plain,
        };
        let first = match policy.algorithm() {
            Algorithm::SlidingWindow => id.or_else(|| (op == ScriptOp::Take).then(next_id)),
            _ => None,
        };
        let charged = first.map_or(Charged::Nothing, |first| Charged::Units { first });
        let script = &SCRIPTS[policy.algorithm() as usize];
        Self { script, key, policy, written, op, cost, mode, mark: Mark { charged, ..Mark::NONE } }
    }

    /// Refunds what was taken.
    pub(super) fn refund(key: &'a Key, refund: Refund<'a>) -> Self {
        let Refund { policy, cost, mark, id } = refund;
        let script = &SCRIPTS[policy.algorithm() as usize];
        let mode = if id.is_some() { Mode::MayBeCharged } else { Mode::Plain };
        Self { script, key, policy, written: policy, op: ScriptOp::Refund, cost, mode, mark }
    }

    /// Returns `true` if a second execution changes nothing: a log recognizes units by their id.
    pub(super) fn is_idempotent(&self) -> bool {
        let is_log = self.policy.algorithm() == Algorithm::SlidingWindow;
        is_log && (self.op == ScriptOp::Refund || !self.policy.counts_rejected())
    }

    /// Builds the command of an attempt.
    pub(super) fn command(&self, attempt: Attempt) -> Cmd {
        let Self { script, key, policy, written, op, cost, mode, mark } = *self;
        let may_be_charged = attempt.may_have_run && self.is_idempotent() && op == ScriptOp::Take;
        let mode = if may_be_charged { Mode::MayBeCharged } else { mode };
        let (name, script) =
            if attempt.send_source { ("EVAL", script.source) } else { ("EVALSHA", script.sha1) };
        // Allocated once: a number has at most 20 digits.
        let kept = if std::ptr::eq(policy, written) { &[] } else { written.tiers() };
        let deciding = policy.tiers();
        let (numbers, key) = (6 + 3 * (deciding.len() + kept.len()), key.as_bytes());
        let bytes = name.len() + script.len() + 1 + key.len() + 20 * numbers;
        let mut command = Cmd::with_capacity(4 + numbers, bytes);
        command.arg(name).arg(script).arg(1).arg(key);
        command.arg(op as u8).arg(cost).arg(mode as u8);
        command.arg(mark.charged.number()).arg(mark.at.get());
        command.arg(deciding.len());
        let deciding = deciding.iter().map(|tier| (policy, tier));
        for (policy, tier) in deciding.chain(kept.iter().map(|tier| (written, tier))) {
            (self.script.push_tier)(&mut command, policy, tier);
        }
        command
    }

    /// Reads the script's reply.
    pub(super) fn decode(&self, reply: &Value) -> Result<Outcome, UnavailableReason> {
        let micros = |number: i64| number.try_into().ok().map(Micros::new);
        let outcome = || {
            let (numbers, birth) = reply.as_sequence()?.split_first_chunk()?;
            let [
                Value::Int(admitted),
                Value::Int(tier),
                Value::Int(remaining),
                Value::Int(wait),
                Value::Int(reset),
                Value::Int(more),
                Value::Int(at),
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
                wait: micros(wait)?,
                more: micros(more)?,
                lasts: micros(reset)?,
                reset: micros(reset)?,
                mark: Mark {
                    at: Timestamp::new(at.try_into().ok()?),
                    // A log's units are marked by their id, those of other states by its birth.
                    charged: match birth {
                        [] => self.mark.charged,
                        [Value::Int(birth)] => Charged::Generation((*birth).try_into().ok()?),
                        _ => return None,
                    },
                },
                decided_by: DecidedBy::Store,
            })
        };
        outcome().ok_or(UnavailableReason::StoreError)
    }
}

/// Returns a new id for a log, which no other call of this or another process has.
fn next_id() -> u64 {
    static SEED: Lazy<RandomState> = Lazy::new(RandomState::new);
    static CALLS: AtomicU64 = AtomicU64::new(0);
    id(&SEED, std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed))
}

/// Forked processes share the seed and the count, but not the process id.
fn id(seed: &RandomState, process: u32, call: u64) -> u64 {
    // 52 bits: exact as a double in the script, and so are the numbers that follow.
    seed.hash_one((process, call)) >> 12
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

    #[test]
    fn processes_that_share_a_seed_do_not_share_ids() {
        let seed = RandomState::new();
        let of = |process| (0..10_000).map(|call| id(&seed, process, call)).collect();
        let (parent, child): (HashSet<u64>, HashSet<u64>) = (of(7), of(8));
        assert!(parent.is_disjoint(&child));
    }

    /// A digest changes only with its script, and deliberately: during a deploy, processes of both
    /// versions load a script of their own.
    #[test]
    fn the_digests_are_those_of_the_scripts() {
        for script in &SCRIPTS {
            let title = script.source.lines().next().unwrap();
            assert_eq!(redis::Script::new(script.source).get_hash(), script.sha1, "{title}");
        }
    }

    #[test]
    fn a_reply_out_of_range_is_an_error() {
        let policy = Policy::fixed_window("p", std::time::Duration::from_secs(1), 1);
        let key = Key::compose("", &policy, b"");
        let request =
            Request { policy: &policy, written: &policy, op: Op::Take, cost: 1, id: None };
        let call = ScriptCall::decision(&key, request);
        let decode = |reply: &[i64]| {
            call.decode(&Value::Array(reply.iter().copied().map(Value::Int).collect()))
        };
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
            &[1, 0, 1, 0, 0, 0],
            &[],
        ] {
            assert_eq!(decode(reply), Err(UnavailableReason::StoreError));
        }
        assert_eq!(call.decode(&Value::Nil), Err(UnavailableReason::StoreError));
    }
}
