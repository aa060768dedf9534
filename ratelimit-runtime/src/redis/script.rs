//! The scripts of the algorithms: arguments, digests, replies.

mod bounds;
mod lease;
mod permits;
mod settle;
mod sources;
#[cfg(test)]
mod tests;
mod text;
pub(super) mod turn;

use redis::{Cmd, Value};
use smallvec::SmallVec;

#[cfg(test)]
pub(super) use self::lease::LeaseMark;
use self::{lease::entry_id, permits::ScriptGate, text::Text};
pub(super) use self::{
    lease::{EndedLease, Grant, LeaseCall, LeaseRequest},
    permits::{MAX_RENEWED, decode_lost, release, renew, reset},
    settle::{settle_command, settle_is_known_for},
};
use super::echo::{Command, next_echo};
use crate::{
    calendar,
    error::UnavailableReason,
    key::Key,
    policy::{Policy, StateKind, Tier},
    request::{
        Charged, EntryMark, Mark, Op, Outcome, OutcomeKind, PermitRequest, Request, next_id,
    },
    time::{Micros, Timestamp},
};

/// The script of one algorithm.
struct Script {
    text: Text,
    /// The same behind the gates.
    gated: Text,
    /// Appends the arguments of one tier.
    push_tier: PushTier,
}

type PushTier = fn(&mut Cmd, &Policy, &Tier);

impl Script {
    const fn new(
        sources: [&'static str; 2],
        sha1s: [&'static str; 2],
        push_tier: PushTier,
    ) -> Self {
        let text = Text { source: sources[0], sha1: sha1s[0] };
        let gated = Text { source: sources[1], sha1: sha1s[1] };
        Self { text, gated, push_tier }
    }

    fn push_tiers(&self, command: &mut Cmd, policy: &Policy) {
        for tier in policy.tiers() {
            (self.push_tier)(command, policy, tier);
        }
    }
}

/// Returns a number of a reply that is not negative.
fn number(value: &Value) -> Option<u64> {
    if let Value::Int(number) = value { (*number).try_into().ok() } else { None }
}

/// The scripts, in the order of [`StateKind::ALL`].
static SCRIPTS: [Script; StateKind::ALL.len()] = [
    Script::new(
        sources::SLIDING_WINDOW,
        ["f76b2898f5de6c0ca2777d9d3f371b952ff0aef6", "f05371ce35fd4c8b1b08420c752317d162fe52df"],
        push_window,
    ),
    Script::new(
        sources::SLIDING_COUNTER,
        ["95b50fa24091899f2bf88cb72ecdc3bf0ba54259", "9842d06655f96cf6b0a6c663782607d726210635"],
        push_ticking_window,
    ),
    Script::new(
        sources::FIXED_WINDOW,
        ["bb92b2e6771ee4619bd8bb7b91235c7101c43119", "60f59014e5ad6fc7e01a74e9751715b55846d1b8"],
        push_window,
    ),
    Script::new(
        sources::TOKEN_BUCKET,
        ["6ce55b9dae11f692d9fde279bf0311d2bd047682", "5647ebe70e9247a444ddfec5b772605641fa1a8a"],
        push_bucket,
    ),
    Script::new(
        sources::WEIGHTED_WINDOW,
        ["7b25e91882620d011063ccb724691db941d9134a", "3dfd70a71d4b651b57811a6290226d09b2118968"],
        push_window,
    ),
    Script::new(
        sources::CALENDAR_WINDOW,
        ["4435ca3729be4501b18c33da59da008aa9428b4b", "1549b457894225ec3a1769da464af7daebeca6a1"],
        push_calendar_window,
    ),
];

fn push_window(command: &mut Cmd, _: &Policy, tier: &Tier) {
    command.arg(tier.micros().get()).arg(tier.threshold());
}

/// The boundaries are those around the client's time; the script picks the window by the server's.
fn push_calendar_window(command: &mut Cmd, policy: &Policy, tier: &Tier) {
    push_window(command, policy, tier);
    command.arg(&policy.windows_at(calendar::now()).unwrap_or_default()[..]);
}

fn push_ticking_window(command: &mut Cmd, _: &Policy, tier: &Tier) {
    command.arg(tier.micros().get()).arg(tier.threshold()).arg(tier.tick());
}

fn push_bucket(command: &mut Cmd, policy: &Policy, tier: &Tier) {
    let bucket = policy.bucket(*tier);
    command.arg(bucket.token).arg(bucket.refill).arg(bucket.full).arg(policy.tokens_left(*tier));
}

/// In microseconds.
const MILLISECOND: u64 = 1_000;

/// The most by which the ways of two questions to the server differ, in microseconds.
const DELAY: u64 = 1_000_000;

/// The operation that a script executes: its first argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScriptOp {
    Peek = 0,
    Take = 1,
    Settle = 2,
    Advance = 3,
    Pause = 4,
    Turns = 5,
}

/// The treatment of refused and of repeated calls: a script's third argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Plain = 0,
    /// Refused calls are recorded too.
    CountRejected = 1,
    /// A log may have charged the call before, under the same id. It is not charged again.
    MayBeCharged = 2,
    /// A weighted log may have charged the call before, under the same request id.
    Named = 4,
    /// The settled call has joined an entry of a weighted log.
    Joined = 5,
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
    request: Request<'a>,
    /// The gate before the decision; none if the policy has neither `concurrency` nor blocks.
    gate: Option<ScriptGate>,
    op: ScriptOp,
    mode: Mode,
    /// The units of the call, which name the members that a log records.
    charged: Charged,
    /// The number by which the reply names the call: that of its first unit. If units have no numbers, the call has
    /// one.
    echo: u64,
}

impl<'a> ScriptCall<'a> {
    /// Checks a request.
    pub(super) fn decision(
        key: &'a Key,
        request: Request<'a>,
        permit: Option<PermitRequest>,
    ) -> Self {
        let Request { policy, op, id, .. } = request;
        let state = policy.state();
        let op = match op {
            Op::Peek => ScriptOp::Peek,
            Op::Take => ScriptOp::Take,
        };
        let mode = match id {
            Some(_) if state == StateKind::WeightedWindow => Mode::Named,
            Some(_) => Mode::MayBeCharged,
            None if policy.counts_rejected() => Mode::CountRejected,
            None => Mode::Plain,
        };
        let new_id = || (op == ScriptOp::Take).then(next_id);
        let first = match state {
            StateKind::SlidingWindow => id.or_else(new_id),
            StateKind::WeightedWindow => id.or_else(|| new_id().map(entry_id)),
            _ => None,
        };
        let charged = first.map_or(Charged::Nothing, |first| Charged::Units { first });
        let echo = first.unwrap_or_else(next_echo);
        let (script, gate) = (&SCRIPTS[state as usize], ScriptGate::of(policy, permit));
        Self { script, key, request, gate, op, mode, charged, echo }
    }

    /// Reads each tier by itself, and the permits.
    pub(super) fn usage(key: &'a Key, policy: &'a Policy) -> Self {
        let look = Self::decision(key, Request::new(policy, Op::Peek, 0), None);
        Self { gate: Some(ScriptGate::EachTier), ..look }
    }

    /// Returns `true` if a second execution changes nothing: a log recognizes units by their id, and
    /// a permit is recognized by its own.
    pub(super) fn is_idempotent(&self) -> bool {
        self.request.policy.state().names_charges() && self.mode != Mode::CountRejected
    }

    /// Builds the command of an attempt.
    pub(super) fn command(&self, attempt: Attempt) -> Command {
        let Self { script, key, request, gate, op, mode, echo, .. } = *self;
        let Request { policy, written, cost, .. } = request;
        let may_be_charged = attempt.may_have_run && self.is_idempotent() && op == ScriptOp::Take;
        let mode = if may_be_charged && mode != Mode::Named { Mode::MayBeCharged } else { mode };
        let text = match gate {
            None => &script.text,
            Some(_) if policy.tiers().is_empty() => &permits::WITHOUT_WINDOW,
            Some(_) => &script.gated,
        };
        let (name, text) = text.command(attempt);
        // Allocated once: a number has at most 20 digits.
        let kept = (!std::ptr::eq(policy, written)).then_some(written);
        let count = policy.tiers().len();
        let kept_count = kept.map_or(0, |kept| kept.tiers().len());
        let numbers = 6 + 4 * (count + kept_count);
        let bytes = name.len() + text.len() + 1 + key.as_bytes().len() + 20 * numbers;
        let mut command = Cmd::with_capacity(4 + numbers, bytes);
        command.arg(name).arg(text);
        match gate {
            None => command.arg(1).arg(key.as_bytes()),
            Some(gate) => gate.push(&mut command, key, policy, cost > 0),
        };
        let is_log = policy.state().is_log_of_units();
        let keep = policy.longest_period().get().div_ceil(MILLISECOND);
        let header = -(keep << 17 | u64::from(policy.largest_threshold())).cast_signed();
        let mode = if is_log && mode == Mode::Plain { header } else { mode as i64 };
        command.arg(op as u8).arg(cost).arg(mode).arg(echo);
        if is_log {
            command.arg(keep + 999);
        } else if op == ScriptOp::Take && request.max_wait > Micros::ZERO {
            command.arg(format!("{} {}", request.max_wait.get(), request.max_line));
        } else {
            command.arg(0);
        }
        command.arg(count);
        for policy in [policy].into_iter().chain(kept) {
            script.push_tiers(&mut command, policy);
        }
        Command::echoed(command, echo)
    }

    /// Reads the script's reply.
    pub(super) fn decode(&self, reply: &Value) -> Result<Outcome, UnavailableReason> {
        let of_permit = reply.as_sequence().and_then(|reply| self.decode_permit(reply));
        of_permit.or_else(|| self.outcome(reply)).ok_or(UnavailableReason::StoreError)
    }

    /// Reads the reply of an algorithm.
    fn outcome(&self, reply: &Value) -> Option<Outcome> {
        let micros = |number: i64| number.try_into().ok().map(Micros::new);
        let int = |value: &Value| if let Value::Int(int) = value { Some(*int) } else { None };
        // On the stack: a reply has at most nine numbers.
        let reply: SmallVec<[i64; 9]> =
            reply.as_sequence()?.iter().map(int).collect::<Option<_>>()?;
        let ([admitted, tier, remaining, wait, reset, more, at], birth) = self.numbers(&reply)?;
        let tier = u8::try_from(tier).ok()?;
        self.request.policy.tiers().get(usize::from(tier))?;
        let (admitted, longest) = (admitted == 1, self.longest_wait());
        let [wait, reset, more] = [micros(wait)?, micros(reset)?, micros(more)?];
        let longest_more = if admitted { self.longest_turn() } else { longest };
        if wait > longest || reset > longest || more > longest_more {
            return None;
        }
        // A log's units are marked by their id, those of other states by its birth.
        let charged = match *birth {
            [] => self.charged,
            [birth] => Charged::Generation(birth.try_into().ok()?),
            // The id is negative if the call has joined the entry of others.
            [birth, id] => {
                Charged::Entry(EntryMark::new(id.unsigned_abs(), birth.try_into().ok()?, id < 0))
            }
            _ => return None,
        };
        // A new charge counts for the longest period from its turn on, and an earlier one does not.
        let is_repeated =
            self.request.id.is_some() && reset != self.request.policy.longest_period();
        let kind = if admitted && is_repeated { OutcomeKind::Repeated } else { OutcomeKind::Plain };
        let mark = Mark { at: Timestamp::new(at.try_into().ok()?), charged };
        let remaining = remaining.try_into().ok()?;
        let refused = Outcome::refused(wait, reset);
        Some(Outcome { admitted, tier, remaining, more, mark, kind, ..refused })
    }

    /// Returns the seven numbers of a reply. A short one, of a log, lacks those that follow from the others.
    fn numbers<'r>(&self, reply: &'r [i64]) -> Option<([i64; 7], &'r [i64])> {
        if let Some((numbers, birth)) = reply.split_first_chunk() {
            return Some((*numbers, birth));
        }
        let policy = self.request.policy;
        let longest = policy.longest_period().get().cast_signed();
        let numbers = match *reply {
            [1, remaining, wait, at] => [1, 0, remaining, wait, longest, 0, at],
            [1, remaining, wait, at, tier] => [1, tier, remaining, wait, longest, 0, at],
            [0, wait, reset] => [0, 0, 0, wait, reset, wait, 0],
            [0, wait, reset, tier] => [0, tier, 0, wait, reset, wait, 0],
            _ => return None,
        };
        policy.state().is_log_of_units().then_some((numbers, &[][..]))
    }
}
