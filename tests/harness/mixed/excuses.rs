//! Excuses of an answer: something stood still, was reset, or is lost.

use super::{
    Gap, MIXED_DEADLINE, MixedRound, Span, micros, overlaps,
    round::{NOTICES, RECENT, SLACK},
};

/// The time after an outage in which calls may be undecided: a probe is sent once a second.
const PROBED: u64 = 1_300_000;

impl MixedRound {
    /// Returns for how long the runtimes of a process stood still around a time.
    pub(super) fn stood_still(&self, process: usize, span: Span) -> u64 {
        let is_its = |gap: &&Gap| gap.process.is_none_or(|it| it == process);
        let gaps = self.gaps.iter().filter(is_its).filter(|gap| overlaps(gap.span, span));
        gaps.map(|gap| gap.span.1 - gap.span.0).sum()
    }

    /// Returns a span with the time before it after whose outages a process is perhaps not
    /// connected again.
    pub(super) fn with_probe(&self, process: usize, (from, to): Span) -> Span {
        // A process that stands still sends its probe later.
        let stood_still = self.stood_still(process, (from.saturating_sub(2 * PROBED), to));
        (from.saturating_sub(PROBED + SLACK + stood_still), to)
    }

    /// Returns the longest time before a time at which Redis has decided what a process notes then.
    pub(super) fn delay(&self, process: usize, at: u64) -> u64 {
        let recent = (at.saturating_sub(RECENT), at);
        let outages = self.outages.iter().filter(|it| overlaps(**it, recent));
        let away = outages.map(|it| it.1 - it.0).sum::<u64>();
        SLACK + 3 * (self.stood_still(process, recent) + away)
    }

    /// Returns `true` if a limit was reset in this span, or Redis has lost its keys.
    pub(super) fn began_anew(&self, limit: usize, span: Span) -> bool {
        let resets = self.resets.iter().filter(|(it, _)| *it == limit).map(|(_, at)| at);
        resets.chain(&self.losses).any(|at| overlaps(*at, span))
    }

    /// Returns how often the counts of a limit have begun anew in this span. Other processes use
    /// their units on lease, and turns that come before they notice.
    pub(super) fn restarts(&self, limit: usize, span: Span) -> u64 {
        let is_within = |at: &Span| overlaps((at.0, at.1 + NOTICES), span);
        let resets = self.resets.iter().filter(|(it, _)| *it == limit).map(|(_, at)| at);
        resets.chain(&self.losses).filter(|at| is_within(at)).count() as u64
    }

    /// Returns `true` if something has happened that excuses a late turn.
    pub(super) fn was_disturbed(&self, limit: usize, span: Span) -> bool {
        let is_within = |it: &&Span| overlaps(**it, span);
        self.outages.iter().chain(&self.losses).any(|it| is_within(&it))
            || self.restarts(limit, span) > 0
            || self.was_lowered(limit, span)
            || self.was_paused(limit, span)
    }

    /// Returns `true` if a pause may have moved turns in this span.
    pub(super) fn was_paused(&self, limit: usize, span: Span) -> bool {
        let mut pauses = self.pauses.iter().filter(|pause| pause.limit == limit);
        pauses.any(|pause| overlaps((pause.asked, pause.asked + pause.length + NOTICES), span))
    }

    /// Returns `true` if a process stood still in this span, or Redis, for so long that a reply
    /// perhaps came too late.
    pub(super) fn may_miss_deadline(&self, process: usize, span: Span) -> bool {
        let is_its = |gap: &&Gap| gap.process.is_none_or(|it| it == process);
        let late = self.gaps.iter().filter(is_its).filter(|gap| overlaps(gap.span, span));
        2 * late.map(|gap| gap.span.1 - gap.span.0).sum::<u64>() > micros(MIXED_DEADLINE)
    }

    /// Returns `true` if what was written in this span is perhaps lost with a primary.
    pub(super) fn was_lost(&self, span: Span) -> bool {
        self.lags.iter().any(|lag| overlaps(*lag, span))
    }
}
