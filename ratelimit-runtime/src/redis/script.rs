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

use ratelimit_core::rules::MAX_ENTRIES;
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
use super::transport::{Command, next_echo};
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
        ["0f744d472587e1f1c20f62e3fbb3b41e7915c0f8", "c6a8f3ccc92357ddf9a1588d2085f9af25857ac5"],
        push_window,
    ),
    Script::new(
        sources::SLIDING_COUNTER,
        ["1114445b2c73b41bf478b81746605d53ef10b1ec", "af1b9cb3692bf733f78cc54080aec1acdfc8e604"],
        push_ticking_window,
    ),
    Script::new(
        sources::FIXED_WINDOW,
        ["249d24ad9985ac118783f95dbd777f32737d5d54", "d25c903a93125c359b9b6392c1419c5233c9ebfb"],
        push_window,
    ),
    Script::new(
        sources::TOKEN_BUCKET,
        ["3d8478550612d0d29ea38891e3c25ebc986f0a2f", "36d1755ecdc9a01b82437157a47ef1209e41d524"],
        push_bucket,
    ),
    Script::new(
        sources::CALENDAR_WINDOW,
        ["0f98eee90b868fa49f38b29b5eb32620514d441c", "f1956770576069a95618951138a8fd945a5f69c4"],
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
    /// A log may have charged the call before, under the same request id.
    Named = 4,
    /// The settled call has joined an entry of a log.
    Joined = 5,
}

/// The time of a refusal that no gate has made: those have 0.
const NO_GATE: i64 = 1;

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
    /// The number by which the reply names the call: that of its entry or its request id. If charges have no numbers,
    /// the call has one.
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
            Some(_) => Mode::Named,
            None if policy.counts_rejected() => Mode::CountRejected,
            None => Mode::Plain,
        };
        let new_id = || (op == ScriptOp::Take).then(next_id);
        let entry = match state {
            StateKind::SlidingWindow => id.or_else(|| new_id().map(entry_id)),
            _ => None,
        };
        let echo = entry.unwrap_or_else(next_echo);
        let (script, gate) = (&SCRIPTS[state as usize], ScriptGate::of(policy, permit));
        Self { script, key, request, gate, op, mode, echo }
    }

    /// Reads each tier by itself, the permits and the block.
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
        let header = self.header().filter(|_| mode == Mode::Plain);
        command.arg(op as u8).arg(cost);
        match header {
            Some((score, _)) => command.arg(score),
            None => command.arg(mode as u8),
        };
        command.arg(echo);
        if let Some((_, lasts)) = header {
            command.arg(lasts);
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

    /// Returns the score of the header of a log that has single units alone, and the milliseconds for which it lasts;
    /// none if the log needs more for the call.
    fn header(&self) -> Option<(i64, u64)> {
        let Request { policy, max_wait, .. } = self.request;
        let largest = policy.largest_threshold();
        let is_single = policy.state() == StateKind::SlidingWindow
            && self.op == ScriptOp::Take
            && max_wait == Micros::ZERO
            && policy.lease_micros().is_none()
            && largest as usize <= MAX_ENTRIES;
        let keep = policy.longest_period().get().div_ceil(MILLISECOND);
        let score = -(keep << 17 | u64::from(largest)).cast_signed();
        is_single.then_some((score, keep + 999))
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
        // The reply has the turn of an admitted call in the place of `more`.
        let (more, turn) = if admitted { (Micros::ZERO, more) } else { (more, Micros::ZERO) };
        // A log's charges are marked by their id, those of other states by its birth.
        let charged = match *birth {
            // A short reply. The entry is known by its id alone.
            [] => Charged::Entry(EntryMark::new(self.echo, 0, false)),
            [birth] => Charged::Generation(birth.try_into().ok()?),
            // The id is negative if the call has joined the entry of others.
            [birth, id] => {
                Charged::Entry(EntryMark::new(id.unsigned_abs(), birth.try_into().ok()?, id < 0))
            }
            _ => return None,
        };
        // A new charge counts for the longest period from its turn on, and an earlier one does not.
        let policy = self.request.policy;
        let is_repeated = self.request.id.is_some() && reset != policy.longest_period();
        let kind = match admitted {
            true if is_repeated => OutcomeKind::Repeated,
            false if at == 0 => OutcomeKind::Gated,
            _ => OutcomeKind::Plain,
        };
        let mark = Mark { at: Timestamp::new(at.try_into().ok()?), charged };
        let remaining = remaining.try_into().ok()?;
        let refused = Outcome::refused(wait, reset);
        Some(Outcome { admitted, tier, remaining, more, turn, mark, kind, ..refused })
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
            [0, wait, reset] => [0, 0, 0, wait, reset, wait, NO_GATE],
            [0, wait, reset, tier] => [0, tier, 0, wait, reset, wait, NO_GATE],
            _ => return None,
        };
        (policy.state() == StateKind::SlidingWindow).then_some((numbers, &[][..]))
    }
}
