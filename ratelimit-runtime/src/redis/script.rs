//! The scripts of the algorithms: arguments, digests, replies.

mod lease;
pub(super) mod names;
mod permits;
mod settle;
mod sources;
#[cfg(test)]
mod tests;
mod text;
pub(super) mod turn;

use ratelimit_core::rules::MAX_ENTRIES;
use redis::{Cmd, Value};

#[cfg(test)]
pub(super) use self::lease::LeaseMark;
use self::{
    lease::entry_id,
    names::{Arguments, Mode, Number, Numbers, ScriptOp},
    permits::ScriptGate,
    text::Text,
    turn::LONGEST_TURN,
};
pub(super) use self::{
    lease::{EndedLease, Grant, LeaseCall, LeaseRequest},
    permits::{MAX_RENEWED, decode_lost, release, renew, reset},
    settle::{settle_command, settle_is_known_for},
};
use super::transport::{Command, next_echo};
use crate::{
    calendar,
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
    /// Exchanges leases. A window of the calendar has none.
    lease: Text,
    /// Appends the arguments of one tier.
    push_tier: fn(&mut Cmd, &Policy, &Tier),
}

impl Script {
    /// Appends the arguments of an operation under a policy.
    fn push(&self, command: &mut Cmd, arguments: Arguments<'_>, policy: &Policy) {
        arguments.push(command, policy.tiers().len());
        self.push_tiers(command, policy);
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
    Script {
        text: Text::new(sources::SLIDING_WINDOW[0], "84b73aec37bc76411c29884d5608bf62468d27ac"),
        gated: Text::new(sources::SLIDING_WINDOW[1], "239b70932ad88dbde018093d870ef1e0ae636094"),
        lease: Text::new(sources::LEASE_OF_LOG, "2a0867e30663b6cba6104646b70dae200be91b05"),
        push_tier: push_window,
    },
    Script {
        text: Text::new(sources::SLIDING_COUNTER[0], "bde6eec9bb46aa40d188143a6872d9db2a89f776"),
        gated: Text::new(sources::SLIDING_COUNTER[1], "a656830e7634d84a35eaa3fcc7df8ab7780af7f4"),
        lease: Text::new(sources::LEASE_OF_COUNTER, "eca0877ee5d9458f4e8054c802a5178c2839a8f0"),
        push_tier: push_ticking_window,
    },
    Script {
        text: Text::new(sources::FIXED_WINDOW[0], "bf1b0348a4c5d91c608562781113cefb93b7207f"),
        gated: Text::new(sources::FIXED_WINDOW[1], "65d3ef55b2f45a8c0eef355cbbd5e9c2dbf72f8f"),
        lease: Text::new(sources::LEASE_OF_FIXED, "61fd067e0d761aab75b4be3819238446dfe6c165"),
        push_tier: push_window,
    },
    Script {
        text: Text::new(sources::TOKEN_BUCKET[0], "25c9375b375d0446d06406603a1019f18e131088"),
        gated: Text::new(sources::TOKEN_BUCKET[1], "514c69914ba30186311d2e7a55bb7cd5ccbadf2e"),
        lease: Text::new(sources::LEASE_OF_BUCKET, "4ae868aa75b6fcada8cf3887419d25660db19daf"),
        push_tier: push_bucket,
    },
    Script {
        text: Text::new(sources::CALENDAR_WINDOW[0], "df75e8d456eaf62afbd3213600dae38481f072a0"),
        gated: Text::new(sources::CALENDAR_WINDOW[1], "5dde1ef3fc4d67a9d06d0b365a9650fe159ebdb1"),
        lease: Text::new("", ""),
        push_tier: push_calendar_window,
    },
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

/// The time of a refusal that no gate has made: those have 0.
const NO_GATE: u64 = 1;

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
    /// The number by which the reply names the call: that of its entry or its request id. If
    /// charges have no numbers, the call has one.
    pub(super) echo: u64,
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

    /// A request that has been decided, of which the reply names the call by this number.
    pub(super) fn decided(key: &'a Key, request: Request<'a>, echo: u64) -> Self {
        Self { echo, ..Self::decision(key, request, None) }
    }

    /// Reads each tier by itself, the permits and the block.
    pub(super) fn usage(key: &'a Key, policy: &'a Policy) -> Self {
        let look = Self::decision(key, Request::new(policy, Op::Peek, 0), None);
        Self { gate: Some(ScriptGate::EachTier), ..look }
    }

    /// Returns `true` if a second execution changes nothing: a log recognizes units by their id,
    /// and a permit is recognized by its own.
    pub(super) fn is_idempotent(&self) -> bool {
        self.request.policy.state().names_charges() && self.mode != Mode::CountRejected
    }

    /// Builds the command of an attempt.
    pub(super) fn command(&self, attempt: Attempt) -> Command {
        let Self { script, key, request, gate, op, mode, echo, .. } = *self;
        let Request { policy, written, cost, .. } = request;
        let may_be_charged = attempt.may_have_run && self.is_idempotent() && op == ScriptOp::Take;
        let mode = if may_be_charged && mode != Mode::Named { Mode::Repeated } else { mode };
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
        // Six before the tiers, and at most four for each. Only the calendar has more.
        let numbers = 6 + 4 * (count + kept_count);
        let bytes = name.len() + text.len() + 1 + key.as_bytes().len() + 20 * numbers;
        let mut command = Cmd::with_capacity(4 + numbers, bytes);
        command.arg(name).arg(text);
        match gate {
            None => command.arg(1).arg(key.as_bytes()),
            Some(gate) => gate.push(&mut command, key, policy, cost > 0),
        };
        let header = self.header().filter(|_| mode == Mode::Plain);
        let waits = [request.max_wait.get(), request.max_line.into()];
        let (mode, detail) = match &header {
            Some((score, lasts)) => (*score, std::slice::from_ref(lasts)),
            None if op == ScriptOp::Take && request.max_wait > Micros::ZERO => {
                (mode as i64, &waits[..])
            }
            None => (mode as i64, &[0][..]),
        };
        let cost = cost.into();
        script.push(&mut command, Arguments { op, cost, mode, id: echo, detail }, policy);
        if let Some(kept) = kept {
            script.push_tiers(&mut command, kept);
        }
        Command::echoed(command, echo)
    }

    /// Returns the score of the header of a log that has single units alone, and the milliseconds
    /// for which it lasts; none if the log needs more for the call.
    fn header(&self) -> Option<(i64, u64)> {
        let Request { policy, max_wait, .. } = self.request;
        let largest = policy.largest_threshold();
        let is_single = policy.state() == StateKind::SlidingWindow
            && self.op == ScriptOp::Take
            && max_wait == Micros::ZERO
            && policy.lease_micros().is_none()
            && largest as usize <= MAX_ENTRIES;
        let keep = policy.longest_period().get().div_ceil(MILLISECOND);
        // As `CAPACITIES` in `log/state.lua`: `MAX_ENTRIES` is below 2^17.
        let score = -(keep << 17 | u64::from(largest)).cast_signed();
        is_single.then_some((score, keep + 999))
    }

    /// Reads the script's reply.
    pub(super) fn decode(&self, reply: &Value) -> Option<Outcome> {
        let (reply, policy) = (Numbers::read(reply)?, self.request.policy);
        let admitted = reply.get(Number::Verdict).filter(|it| matches!(it, 0 | 1))? == 1;
        // An admission lacks none of these.
        let of_refusal = |number| (!admitted).then_some(number);
        let wait = reply.number(Number::Wait, None)?;
        let Some(reset) = reply.get(Number::Reset) else {
            // No permit is free.
            let more = Micros::new(of_refusal(wait).filter(|_| self.gate.is_some())?);
            return Some(Outcome { more, ..Outcome::busy() });
        };
        let remaining = reply.number(Number::Remaining, of_refusal(0))?.try_into().ok()?;
        if policy.tiers().is_empty() {
            return Some(Outcome::admitted(remaining, Micros::ZERO, Micros::ZERO, Mark::NONE));
        }
        let at = reply.number(Number::At, of_refusal(NO_GATE))?;
        let tier = u8::try_from(reply.number(Number::Tier, Some(0))?).ok()?;
        policy.tiers().get(usize::from(tier))?;
        let more = reply.number(Number::More, of_refusal(wait).or(Some(0)))?;
        let [wait, reset, more] = [wait, reset.try_into().ok()?, more].map(Micros::new);
        let longest = self.longest_wait();
        let longest_more = if admitted { self.longest_turn() } else { longest };
        if wait > longest || reset > longest || more > longest_more {
            return None;
        }
        // The reply has the turn of an admitted call in the place of `more`.
        let (more, turn) = if admitted { (Micros::ZERO, more) } else { (more, Micros::ZERO) };
        // A log's charges are marked by their id, those of other states by its birth.
        let is_log = policy.state().names_charges();
        let birth = reply.number(Number::Birth, (is_log || !admitted).then_some(0))?;
        let id = reply.get(Number::Entry).unwrap_or(self.echo.cast_signed());
        // The id is negative if the call has joined the entry of others.
        let entry = EntryMark::new(id.unsigned_abs(), birth, id < 0);
        let charged = if is_log { Charged::Entry(entry) } else { Charged::Generation(birth) };
        // A new charge counts for the longest period from its turn on, and an earlier one does not.
        let is_repeated = self.request.id.is_some() && reset != policy.longest_period();
        let kind = match admitted {
            true if is_repeated => OutcomeKind::Repeated,
            false if at == 0 => OutcomeKind::Gated,
            _ => OutcomeKind::Plain,
        };
        let mark = Mark { at: Timestamp::new(at), charged };
        let refused = Outcome::refused(wait, reset);
        Some(Outcome { admitted, tier, remaining, more, turn, mark, kind, ..refused })
    }

    /// Returns the longest time that can pass until the state has any number of units again: that
    /// of a debt as large as the quota after the turns of other calls, or that of a block.
    fn longest_wait(&self) -> Micros {
        let policy = self.request.policy;
        let fill = |tier: &Tier| {
            let bucket = policy.bucket(*tier);
            bucket.full.div_ceil(bucket.refill.max(1))
        };
        let fills = match policy.state() {
            StateKind::TokenBucket => policy.tiers().iter().map(fill).max().unwrap_or_default(),
            _ => policy.longest_period().get(),
        };
        let longest = fills.saturating_mul(2).saturating_add(LONGEST_TURN);
        policy.block_lengths().iter().copied().fold(Micros::new(longest), Micros::max)
    }

    /// Returns the longest time until the call's own turn.
    fn longest_turn(&self) -> Micros {
        let Request { id, max_wait, .. } = self.request;
        // A repeated call got its turn before. The ways of both to the server may differ.
        let before = if id.is_some() { DELAY } else { 0 };
        Micros::new(max_wait.get().saturating_add(before))
    }
}
