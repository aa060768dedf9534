//! A round: the calls of all processes.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
};

use super::{
    LIMITS, MIXED_DEADLINE, Note, NoteLine, NumberChange, ProcessNotes, Reply, Span,
    call::MixedCall, layers::Layers, micros, overlaps,
};

/// The time by which a task is late on a machine that is not busy.
pub(super) const SLACK: u64 = 60_000;

/// The time before an answer in which the lateness of its process matters.
pub(super) const RECENT: u64 = 1_000_000;

/// The time by which a replica is behind its primary. What the primary answered so shortly before
/// its end may be lost, and nothing else.
const LAG: u64 = 200_000;

/// The time in which a process notices a reset by another.
pub(super) const NOTICES: u64 = 1_200_000;

/// A time in which something stood still.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// The process; none for all.
    pub process: Option<usize>,
    /// The runtime; 0 for all.
    pub runtime: u8,
    /// The time.
    pub span: (u64, u64),
}

/// A pause of a limit's key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    pub(super) limit: usize,
    /// The time at which it was asked for, and that at which it was certainly in force; none if it
    /// may not be.
    pub(super) asked: u64,
    pub(super) applied: Option<u64>,
    pub(super) length: u64,
}

/// The units of a limit in Redis, when all calls had ended.
#[derive(Clone, Copy, Debug)]
pub struct Audit {
    /// The number of the limit.
    pub limit: usize,
    /// The time in which the units were read.
    pub span: (u64, u64),
    /// The units of the window, or the permits.
    pub units: u64,
}

/// The records of all processes, with the faults that the test has caused.
#[derive(Clone, Debug, Default)]
pub struct MixedRound {
    /// The start of the load.
    pub started: u64,
    /// The end of the load.
    pub ended: u64,
    pub(super) calls: Vec<MixedCall>,
    pub(super) processes: Vec<(usize, Span, bool)>,
    /// The times in which something was late.
    pub gaps: Vec<Gap>,
    pub(super) numbers: Vec<NumberChange>,
    /// The times in which periods of limits were doubled, or are again as declared.
    pub(super) slowed: Vec<(usize, Span)>,
    pub(super) resets: Vec<(usize, Span)>,
    pub(super) pauses: Vec<Pause>,
    /// The process of each warning, its limit and its time.
    pub(super) warnings: Vec<(usize, usize, u64)>,
    /// The calls of each process that its candidate has newly admitted, and those that were refused
    /// otherwise.
    pub(super) tried: Vec<(usize, [u64; 2])>,
    /// The times in which Redis could not be reached.
    pub outages: Vec<(u64, u64)>,
    /// The times at which Redis has lost its keys.
    pub losses: Vec<(u64, u64)>,
    /// The times before the kill of a primary in which its replica perhaps did not have all.
    pub(super) lags: Vec<Span>,
    /// The units in Redis when all calls had ended.
    pub audits: Vec<Audit>,
    /// The keys in Redis after the time in which all expire.
    pub left_over: Vec<String>,
    pub(super) unsent: Vec<(usize, u64, u64)>,
}

impl MixedRound {
    /// Reads the records of all processes.
    #[must_use]
    pub fn new(
        processes: &[ProcessNotes],
        gaps: Vec<Gap>,
        outages: Vec<Span>,
        losses: Vec<Span>,
        kills: &[Span],
    ) -> Self {
        let lags = kills.iter().map(|kill| (kill.0.saturating_sub(LAG), kill.1)).collect();
        let mut round = Self { gaps, outages, losses, lags, ..Self::default() };
        for (process, notes) in processes.iter().enumerate() {
            round.add(process, notes);
        }
        round.started = round.calls.iter().map(|call| call.asked).min().unwrap_or(0);
        round.ended = round.calls.iter().map(|call| call.asked).max().unwrap_or(0);
        round.calls.sort_by_key(|call| call.asked);
        round.find_repeated();
        let stamps: Vec<_> = round.calls.iter().map(|call| round.stamp_of(call)).collect();
        for (call, stamp) in round.calls.iter_mut().zip(stamps) {
            call.stamp = stamp;
        }
        round.forget_lost();
        round
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    fn add(&mut self, process: usize, notes: &ProcessNotes) {
        let first = notes.lines.first().map_or(notes.ended, |line| line.at);
        self.processes.push((notes.number, (first, notes.ended), notes.is_killed));
        let mut calls = BTreeMap::<u64, Vec<NoteLine>>::new();
        let mut numbers: Vec<_> =
            (0..LIMITS.len()).map(|limit| Layers::new(process, limit)).collect();
        let mut is_slow = [false; LIMITS.len()];
        for line in &notes.lines {
            if let Note::Overrides(limit, ..) | Note::Off(limit, _) | Note::Share(limit, ..) =
                line.note
            {
                is_slow[limit] = false;
            }
            match line.note {
                Note::Gap(runtime, from) => {
                    self.gaps.push(Gap { process: Some(process), runtime, span: (from, line.at) });
                }
                Note::Overrides(limit, number, from) => {
                    let declared = LIMITS[limit].number().into();
                    numbers[limit]
                        .set(Some(if number == 0 { declared } else { number }), (from, line.at));
                    if mem::take(&mut is_slow[limit]) {
                        self.slowed.push((limit, (from, line.at)));
                    }
                }
                Note::Slows(limit, from) => {
                    is_slow[limit] = true;
                    let declared = LIMITS[limit].number().into();
                    numbers[limit].set(Some(declared), (from, line.at));
                    self.slowed.push((limit, (from, line.at)));
                }
                Note::Off(limit, from) => numbers[limit].set(None, (from, line.at)),
                Note::Share(limit, percent, from) => {
                    let declared = LIMITS[limit].number().into();
                    numbers[limit].set_for_share(Some(declared), percent, (from, line.at));
                }
                Note::Scales(factor, from) => {
                    for limit in &mut numbers {
                        limit.scale(factor, (from, line.at));
                    }
                }
                Note::OfCaller(limit, what, until, from) => {
                    let recent = (until.saturating_sub(RECENT), until);
                    // An answer that comes later is none.
                    let of_redis = (3 * self.late_redis(recent)).min(micros(MIXED_DEADLINE));
                    let late = SLACK + 3 * notes.late(recent) + of_redis;
                    numbers[limit].set_for_caller(what, until, late, (from, line.at));
                    // Before a doubled period come the numbers of the caller, and after them it is
                    // in force again.
                    if is_slow[limit] {
                        self.slowed
                            .extend([(from, line.at), (until, until + late)].map(|at| (limit, at)));
                    }
                }
                // One of a killed process may have been carried out.
                Note::Resets(limit, from) => {
                    self.resets.push((limit, (from, notes.ended + micros(MIXED_DEADLINE))));
                }
                Note::Reset(limit, from) => {
                    self.resets.retain(|(it, span)| (*it, span.0) != (limit, from));
                    self.resets.push((limit, (from, line.at)));
                }
                Note::Pauses(limit, length, asked) => {
                    self.pauses.push(Pause { limit, length, asked, applied: None });
                }
                Note::Paused(limit, length, asked) => {
                    self.pauses.push(Pause { limit, length, asked, applied: Some(line.at) });
                }
                Note::Tried(admitted, otherwise) => {
                    self.tried.push((process, [admitted, otherwise]));
                }
                Note::Warned(limit) => self.warnings.push((process, limit, line.at)),
                Note::Flushed(unsent) => self.unsent.push((process, line.at, unsent)),
                _ => calls.entry(line.call).or_default().push(*line),
            }
        }
        self.numbers.extend(numbers.into_iter().flat_map(|it| it.changes(notes.ended)));
        let calls = calls.values().map(|lines| MixedCall::read(process, lines, notes));
        self.calls.extend(calls);
    }

    /// A call with an id that was charged before takes nothing.
    fn find_repeated(&mut self) {
        let mut charged: HashMap<u64, Span> = HashMap::new();
        let resets = self.resets.clone();
        for call in self.calls.iter_mut().filter(|call| call.id != 0) {
            let counts = call.is_admitted() || matches!(call.reply, None | Some(Reply::Undecided));
            if !counts {
                continue;
            }
            let period = micros(LIMITS[call.limit].period);
            if let Some(first) = charged.get(&call.id) {
                call.least = 0;
                // A reset forgets ids too.
                let span = (first.0, call.answered);
                let is_known =
                    resets.iter().all(|(it, at)| *it != call.limit || !overlaps(*at, span));
                if call.answered < first.0 + period && call.is_admitted() && is_known {
                    call.asks.cost = 0;
                }
            }
            let first = charged.entry(call.id).or_insert((call.asked, call.answered));
            first.0 = first.0.min(call.asked);
        }
    }

    /// A call whose charge is perhaps lost with a primary is certainly charged for nothing.
    fn forget_lost(&mut self) {
        let lags = self.lags.clone();
        for call in &mut self.calls {
            // Units on lease are used until its end.
            let lease = if call.is_leased { micros(LIMITS[call.limit].lease) } else { 0 };
            let span = (call.asked.saturating_sub(lease), call.answered);
            if lags.iter().any(|lag| overlaps(*lag, span)) {
                call.least = 0;
                call.held.clear();
            }
        }
    }

    fn stamp_of(&self, call: &MixedCall) -> Span {
        if !call.has_waited() || call.is_joint || call.id != 0 {
            return (call.asked, call.answered);
        }
        let late = self.late(call, (call.answered.saturating_sub(RECENT), call.answered));
        let mut earliest = call.answered.saturating_sub(SLACK + 2 * late);
        for outage in self.outages.iter().chain(&self.losses).rev() {
            if overlaps(*outage, (earliest, call.answered)) {
                earliest = earliest.min(outage.0.saturating_sub(SLACK));
            }
        }
        (earliest.max(call.asked), call.answered)
    }

    /// Returns for how long the call's process or runtime, or Redis, stood still around a time.
    pub(super) fn late(&self, call: &MixedCall, span: Span) -> u64 {
        let matters = |gap: &&Gap| {
            let is_own = gap.process.is_none_or(|process| process == call.process)
                && (gap.runtime == 0 || gap.runtime == call.runtime);
            is_own && overlaps(gap.span, span)
        };
        self.gaps.iter().filter(matters).map(|gap| gap.span.1 - gap.span.0).sum()
    }

    /// Returns for how long Redis stood still around a time.
    pub(super) fn late_redis(&self, span: Span) -> u64 {
        let gaps = self.gaps.iter().filter(|gap| gap.process.is_none()).map(|gap| gap.span);
        let late = gaps.chain(self.outages.iter().copied()).filter(|it| overlaps(*it, span));
        late.map(|it| it.1 - it.0).sum()
    }

    pub(super) fn of(&self, limit: usize) -> impl Iterator<Item = &MixedCall> + Clone {
        self.calls.iter().filter(move |call| call.limit == limit)
    }

    pub(super) fn is_killed(&self, process: usize) -> bool {
        self.processes[process].2
    }
}
