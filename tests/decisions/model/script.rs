//! A shipped script, called with the arguments that a limiter sends.

mod expiry;
mod pauses;
#[path = "../../../ratelimit-runtime/src/redis/script/sources.rs"]
mod sources;
mod units_ahead;

use harness::{
    RedisServer,
    model::{Answer, MAX_LINE, TIMEOUT, left_of},
    schedule::{Case, Kind, Operation},
};
use ratelimit_runtime::Algorithm;

use super::micros;

/// A shipped script, with a clock that the test sets and keys that outlive it.
pub(crate) struct Script {
    kind: Kind,
    sha1: String,
    /// The scripts around that of the algorithm, for policies of calls in flight.
    permits: PermitScripts,
    connection: redis::Connection,
    calls: u64,
    /// `false` names all calls, which a script decides by its general way.
    pub(crate) goes_straight: bool,
}

/// The mark of a charge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// The id, or the birth of the state.
    of: u64,
    /// The birth of a log with ids.
    birth: u64,
    pub(crate) at: u64,
    /// The time before which its state cannot have expired.
    ends: u64,
    /// The tier of the answer.
    tier: usize,
}

impl Mark {
    /// Follows an advance or a pause.
    pub(crate) fn move_to(&mut self, at: u64) {
        self.ends = self.ends + at - self.at;
        self.at = at;
    }
}

/// The most units of one entry.
const ENTRY: u32 = 99_999_999;

/// The op, a script's first argument.
const PEEK: u8 = 0;
const TAKE: u8 = 1;
const SETTLE: u8 = 2;
const ADVANCE: u8 = 3;

/// The third argument of a call with a request id.
const NAMED: u8 = 4;

struct PermitScripts {
    decide: String,
    renew: String,
}

/// Takes the time from the keys in place of the server's, as often as the text reads it.
fn with_clock(text: &str, at: &str, times: usize) -> String {
    let (shipped, tested) = ("local time = redis.call('TIME')\n", format!("local time = {at}\n"));
    assert_eq!(text.matches(shipped).count(), times, "{text}");
    text.replace(shipped, &tested)
}

fn load(connection: &mut redis::Connection, text: &str) -> String {
    redis::cmd("SCRIPT").arg("LOAD").arg(text).query(connection).expect("a script")
}

/// Loads the script of windows of the calendar, with the time in the second and third key, and returns its digest.
pub(super) fn load_calendar(connection: &mut redis::Connection) -> String {
    let shipped = "local ttl = string.format('%d', math.floor(lasts / 1000) + 999)\n";
    let text = with_clock(sources::CALENDAR_WINDOW[0], "{KEYS[2], KEYS[3]}", 1);
    load(connection, &text.replace(shipped, "local ttl = '1000000000000'\n"))
}

impl Script {
    pub(crate) fn load(server: &RedisServer, kind: Kind) -> Self {
        let [text, with_permit] = match kind {
            Kind::Plain(Algorithm::SlidingWindow) | Kind::SingleUnits => sources::SLIDING_WINDOW,
            Kind::Plain(Algorithm::SlidingCounter) => sources::SLIDING_COUNTER,
            Kind::Plain(Algorithm::FixedWindow) => sources::FIXED_WINDOW,
            Kind::Plain(Algorithm::TokenBucket) => sources::TOKEN_BUCKET,
            Kind::InFlight => sources::WITHOUT_WINDOW,
            Kind::Plain(other) => unreachable!("{other:?} is not tested"),
        };
        let has_window = usize::from(kind != Kind::InFlight);
        let tested = |text: &str, times| {
            let shipped = expiry::shipped(kind);
            assert_eq!(text.matches(&shipped).count(), has_window, "{kind:?}");
            let at = if times > has_window { "{KEYS[4], KEYS[5]}" } else { "{KEYS[3], KEYS[4]}" };
            with_clock(text, at, times)
                .replace(&shipped, &expiry::recorded(&shipped, at))
                .replace("call('PEXPIRE', log, ARGV[DETAIL])", &expiry::recorded_straight(at))
                .replace("math.floor(forgiven / 1000) + 999", "1000000000000")
        };
        let mut connection = server.connection();
        let sha1 = load(&mut connection, &tested(text, has_window));
        let permits = PermitScripts {
            decide: load(&mut connection, &tested(with_permit, has_window + 1)),
            renew: load(&mut connection, &with_clock(sources::RENEW, "{KEYS[2], KEYS[3]}", 1)),
        };
        Self { kind, sha1, permits, connection, calls: 0, goes_straight: true }
    }

    fn is_log(&self) -> bool {
        matches!(self.kind, Kind::Plain(Algorithm::SlidingWindow) | Kind::SingleUnits)
    }

    pub(crate) fn decide(
        &mut self,
        tiers: &[Tiers],
        calls: &[(Operation, String)],
    ) -> Vec<(Answer, Mark)> {
        let mut pipe = redis::pipe();
        let mut ids = Vec::new();
        for (Operation { now, cost, record, policy, id, permit, max_wait, .. }, key) in calls {
            let Tiers { count_rejected, permits, blocks, deciding, arguments, .. } =
                &tiers[*policy];
            let is_gated = permits.is_some() || !blocks.is_empty();
            let script = if is_gated { &self.permits.decide } else { &self.sha1 };
            pipe.cmd("EVALSHA").arg(script).arg(if is_gated { 5 } else { 4 });
            pipe.arg(key).arg(permits_of(key)).arg(is_gated.then(|| format!("{key}:b")));
            pipe.arg(now / 1_000_000).arg(now % 1_000_000);
            if is_gated {
                pipe.arg(permit).arg(permits.unwrap_or(0)).arg(TIMEOUT).arg(u8::from(*cost > 0));
                pipe.arg(blocks);
            }
            self.calls += 1;
            let is_named = id.is_some() || !self.goes_straight;
            let recorded = if is_named { NAMED } else { u8::from(*count_rejected) };
            let has_header = self.is_log() && *record && recorded == 0 && *max_wait == 0;
            let header = if has_header { tiers[*policy].header() } else { None };
            pipe.arg(if *record { TAKE } else { PEEK }).arg(cost);
            match header {
                Some((score, _)) => pipe.arg(score),
                None => pipe.arg(recorded),
            };
            // The gap exceeds the entries of a call, and the charge, its excess and its settle.
            let id = id.map_or(4 * 100 * self.calls, |id| id * 10);
            ids.push(id);
            pipe.arg(id);
            match (header, max_wait) {
                (Some((_, lasts)), _) => pipe.arg(lasts),
                (None, 0) => pipe.arg(0),
                (None, _) => pipe.arg(format!("{max_wait} {MAX_LINE}")),
            };
            pipe.arg(*deciding).arg(arguments);
        }
        let replies: Vec<Vec<i64>> = pipe.query(&mut self.connection).expect("replies");
        let answer =
            |((mut reply, id), (operation, _)): ((Vec<i64>, u64), &(Operation, String))| {
                let of = &tiers[operation.policy];
                // The first number names the call.
                assert_eq!(reply[0].unsigned_abs(), id, "{reply:?}");
                reply[0] = i64::from(reply[0] > 0);
                match reply[..] {
                    [0, _] => return (Answer::BUSY, Mark::default()),
                    [1, 0, 0, free] if of.deciding == 0 => {
                        let remaining = u32::try_from(free).unwrap();
                        let answer =
                            Answer { admitted: true, is_busy: false, remaining, ..Answer::BUSY };
                        return (answer, Mark::default());
                    }
                    _ => {}
                }
                let reply =
                    reply.into_iter().map(|number| u64::try_from(number).unwrap()).collect();
                let is_log = of.algorithm == Algorithm::SlidingWindow;
                let [admitted, wait, reset, remaining, at, tier, more, birth, id] =
                    completed(reply, id);
                let answer = Answer {
                    admitted: admitted == 1,
                    is_busy: false,
                    tier: usize::try_from(tier).unwrap(),
                    remaining: u32::try_from(remaining).unwrap(),
                    wait,
                    reset,
                    more,
                };
                let lasts = tiers[operation.policy].lasts(answer, operation.cost);
                let (of, birth) = if is_log { (id, birth) } else { (birth, 0) };
                (answer, Mark { of, birth, at, ends: at + lasts, tier: answer.tier })
            };
        replies.into_iter().zip(ids).zip(calls).map(answer).collect()
    }

    /// Releases a permit.
    pub(crate) fn release(&mut self, key: &str, permit: u64) {
        let mut release = redis::cmd("ZREM");
        release.arg(permits_of(key)).arg(permit).exec(&mut self.connection).expect("a release");
    }

    /// Renews permits, and returns those that are lost.
    pub(crate) fn renew(
        &mut self,
        tiers: &Tiers,
        key: &str,
        permits: &[u64],
        now: u64,
    ) -> Vec<u64> {
        let mut renew = redis::cmd("EVALSHA");
        renew.arg(&self.permits.renew).arg(3).arg(permits_of(key));
        renew.arg(now / 1_000_000).arg(now % 1_000_000);
        renew.arg(TIMEOUT).arg(tiers.permits).arg(permits);
        let reply: Vec<i64> = renew.query(&mut self.connection).expect("a renewal");
        let (name, lost) = reply.split_first().expect("the name of the call");
        assert_eq!(name.unsigned_abs(), permits[0], "{reply:?}");
        lost.iter().map(|id| u64::try_from(*id).unwrap()).collect()
    }

    /// Settles a call at `to` units, twice, as if the first reply had been lost.
    pub(crate) fn settle(
        &mut self,
        tiers: &Tiers,
        (operation, mark, key): (Operation, Mark, &str),
        (now, to): (u64, u32),
    ) {
        let (Operation { cost, id, .. }, Mark { of, birth, at, ends, tier }) = (operation, mark);
        self.calls += 1;
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha1).arg(4).arg(key).arg(format!("{key}:s"));
        call.arg(now / 1_000_000).arg(now % 1_000_000).arg(SETTLE).arg(cost);
        if self.is_log() {
            let name = id.map_or(0, |id| id * 10);
            call.arg(if id.is_some() { NAMED } else { 0 }).arg(of);
            call.arg(format!("{at} {to} {birth} {ends} {name} 0"));
        } else {
            call.arg(0).arg(of);
            call.arg(format!("{at} {to} {of} {ends} {} 60000000", self.calls));
        }
        let mut tier = tiers.of_tier(tier).to_vec();
        if self.is_log() {
            // A log that starts anew keeps entries for the longest period.
            tier[0] = tier[0].max(ends - at);
        }
        call.arg(1).arg(tier);
        for _ in 0..2 {
            call.exec(&mut self.connection).expect("a settle");
        }
    }

    /// Returns `true` if the log has the entry of a call.
    pub(crate) fn confirm(&mut self, operation: Operation, mark: Mark, key: &str) -> bool {
        let (full, rest) = ((operation.cost - 1) / ENTRY, (operation.cost - 1) % ENTRY + 1);
        let member = format!("{}{rest:08}", mark.of + 4 * u64::from(full));
        let score = redis::cmd("ZSCORE").arg(key).arg(member).query(&mut self.connection);
        let score: Option<f64> = score.expect("a score or nothing");
        score.is_some()
    }

    /// Advances a call, and returns the time at which it is charged then, and the time until its turn. A third
    /// number matters to calls under another policy than that of their charge.
    pub(crate) fn advance(
        &mut self,
        tiers: &Tiers,
        (operation, mark, key): (Operation, Mark, &str),
        now: u64,
    ) -> Vec<u64> {
        let Operation { cost, id, .. } = operation;
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha1).arg(4).arg(key).arg("");
        call.arg(now / 1_000_000).arg(now % 1_000_000).arg(ADVANCE).arg(cost);
        call.arg(if id.is_some() { NAMED } else { 0 });
        if self.is_log() {
            let name = id.map_or(0, |id| id * 10);
            call.arg(mark.of).arg(format!("{} {} {name}", mark.at, mark.birth));
        } else {
            call.arg(mark.at).arg(format!("{} {} 0", mark.at, mark.of));
        }
        call.arg(tiers.deciding).arg(&tiers.arguments);
        let reply: Vec<i64> = call.query(&mut self.connection).expect("a turn");
        let (name, turn) = reply.split_first().expect("the name of the call");
        let named = if self.is_log() { mark.of } else { mark.at };
        assert_eq!(name.unsigned_abs(), named, "{reply:?}");
        turn.iter().take(2).map(|number| u64::try_from(*number).unwrap()).collect()
    }
}

/// Adds the numbers that a reply lacks at its end. The call's own is that of its entry.
fn completed(mut reply: Vec<u64>, id: u64) -> [u64; 9] {
    let more = if reply[0] == 1 { 0 } else { reply[1] };
    reply.extend(&[0, 0, 0, 0, 0, 0, more, 0, id][reply.len()..]);
    reply.try_into().expect("nine numbers")
}

/// Returns the key of the permits beside a key.
fn permits_of(key: &str) -> String {
    format!("{key}:c")
}

/// The arguments of a policy.
pub(crate) struct Tiers {
    algorithm: Algorithm,
    count_rejected: bool,
    permits: Option<u32>,
    /// The lengths of blocks.
    blocks: String,
    deciding: usize,
    arguments: Vec<u64>,
}

impl Tiers {
    pub(crate) fn of(case: &Case) -> Self {
        let whole = Self::leaving(case, 0);
        if case.leave == 0 { whole } else { Self::leaving(case, case.leave).instead_of(&whole) }
    }

    /// Returns the arguments of calls that leave a share.
    fn leaving(case: &Case, leave: u32) -> Self {
        let algorithm = case.policy.algorithm();
        let mut arguments = Vec::new();
        for tier in case.policy.tiers() {
            let left = left_of(case.burst.unwrap_or(tier.threshold()), leave);
            let (period, mut threshold) = (micros(tier.period()), u64::from(tier.threshold()));
            if algorithm != Algorithm::TokenBucket {
                threshold -= u64::from(left);
            }
            match algorithm {
                Algorithm::SlidingCounter => {
                    let product = u128::from(period) * u128::from(threshold);
                    let tick = u64::try_from(product.div_ceil(1 << 53)).unwrap();
                    arguments.extend([period, threshold, tick]);
                }
                Algorithm::TokenBucket => {
                    let divides = |n: &u64| period % n == 0 && threshold % n == 0;
                    let common = (1..=threshold).rev().find(divides).unwrap();
                    let (token, refill) = (period / common, threshold / common);
                    let burst = u64::from(case.burst.unwrap_or(tier.threshold()));
                    arguments.extend([token, refill, burst * token, left.into()]);
                }
                _ => arguments.extend([period, threshold]),
            }
        }
        let (deciding, count_rejected) = (case.policy.tiers().len(), case.policy.counts_rejected());
        let permits = case.policy.get_concurrency().map(|most| most - left_of(most, leave));
        let blocks: Vec<_> = case.policy.get_block().map(|it| micros(it).to_string()).collect();
        let blocks = blocks.join(" ");
        Self { algorithm, count_rejected, permits, blocks, deciding, arguments }
    }

    /// Returns the arguments of one tier.
    fn of_tier(&self, tier: usize) -> &[u64] {
        let size = match self.algorithm {
            Algorithm::SlidingWindow | Algorithm::FixedWindow => 2,
            Algorithm::TokenBucket => 4,
            _ => 3,
        };
        &self.arguments[tier * size..][..size]
    }

    /// Returns the time for which the state of an admitted call cannot expire.
    fn lasts(&self, answer: Answer, cost: u32) -> u64 {
        match (self.algorithm, self.of_tier(answer.tier)) {
            (Algorithm::TokenBucket, [token, refill, _, _]) => {
                (u64::from(cost) * token).div_ceil(*refill)
            }
            _ => answer.reset,
        }
    }

    /// Returns the score of the header of a log of single units, and the milliseconds for which it lasts, from
    /// periods and thresholds.
    fn header(&self) -> Option<(i64, u64)> {
        let tiers = || self.arguments[..2 * self.deciding].chunks(2);
        let keep = tiers().map(|tier| tier[0]).max()?.div_ceil(1_000);
        let largest = tiers().map(|tier| tier[1]).max()?;
        let score = -i64::try_from(keep * 131_072 + largest).unwrap();
        (largest <= 100_000).then_some((score, keep + 999))
    }

    /// Returns the same as an override of a declared policy.
    pub(crate) fn instead_of(mut self, written: &Self) -> Self {
        self.arguments.extend(&written.arguments);
        self
    }
}
