//! Nobody is admitted in a block, which ends when its refusals say, and none is longer than its
//! step.
//!
//! A refusal's wait is the longer one of the block and of the window. If it is longer than any
//! window, it is that of the block, and is counted from before its question: the block ends at the
//! question's time and that wait, or as much later as an answer of Redis took.

use super::{
    BLOCKS, Findings, LIMITS, MixedRound, Reply, Span, call::MixedCall, overlaps, round::SLACK,
};

/// A block, of which refusals are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// The time in which it began: the first question that it refused, and the answer.
    began: Span,
    /// The time in which it ends.
    ends: Span,
    length: u64,
}

/// Returns the time in which the block of a refusal ends, if its wait is certainly that of a block.
fn end_of(call: &MixedCall) -> Option<(u64, Span)> {
    let is_of_block = |wait: &u64| call.blocks > 0 && *wait > call.limit().period_micros();
    let length = call.refused_for.filter(is_of_block)?;
    Some((length, (call.asked + length, call.answered + length)))
}

/// Returns the longest block at this step under any of the policies, in microseconds.
pub(super) fn longest(step: usize) -> u64 {
    let at = |lengths: &&[u64]| lengths[step.min(lengths.len()) - 1];
    1_000 * BLOCKS[1..].iter().map(at).max().unwrap_or(0)
}

impl MixedRound {
    /// Returns the blocks of all limits, in the order in which they are first known.
    pub(super) fn blocks(&self) -> Vec<(usize, Block)> {
        let mut blocks = Vec::<(usize, Block)>::new();
        for call in &self.calls {
            let Some((length, ends)) = end_of(call) else { continue };
            let near = (ends.0.saturating_sub(SLACK), ends.1 + SLACK);
            let is_its =
                |(limit, it): &(usize, Block)| *limit == call.limit && overlaps(it.ends, near);
            if !blocks.iter().any(is_its) {
                blocks
                    .push((call.limit, Block { began: (call.asked, call.answered), ends, length }));
            }
        }
        blocks
    }

    /// Returns the calls that were admitted in a block, refusals that moved its end, and blocks
    /// that are too long.
    pub(super) fn wrong_blocks(&self) -> Findings {
        let mut findings = Findings::default();
        let is_kept = |it: &&MixedCall| {
            !self.was_lost((it.asked.saturating_sub(longest(usize::MAX)), it.answered))
        };
        let refused = self.calls.iter().filter(is_kept).filter_map(|it| Some((it, end_of(it)?)));
        for (first, (length, ends)) in refused {
            let after = self.calls.iter().filter(|it| {
                let is_within = it.asked > first.answered && it.answered < ends.0;
                // A reset, or a store without keys, has no block, and others notice that later.
                is_within
                    && it.limit == first.limit
                    && it.blocks > 0
                    && !self.began_anew(
                        it.limit,
                        (first.asked.saturating_sub(longest(usize::MAX)), it.answered),
                    )
            });
            for call in after {
                // A refusal that is repeated without Redis ends earlier, by the time of its first
                // answer.
                let latest = ends.1 + self.delay(first.process, first.answered);
                let moved = end_of(call).filter(|(_, later)| later.0 > latest);
                if call.is_admitted() || moved.is_some() {
                    let text = format!("until {ends:?} for {length}: {}", call.text());
                    findings.add(if moved.is_some() { "block moved" } else { "blocked" }, text);
                }
            }
        }
        for fault in self.long_blocks() {
            findings.add("block length", fault);
        }
        findings
    }

    /// The step of a block is at most the number of offences, of which each quiet stretch forgives
    /// one.
    fn long_blocks(&self) -> Vec<String> {
        let steps = BLOCKS.map(<[u64]>::len).into_iter().max().unwrap_or(0);
        // Of each limit the offences that are perhaps not forgiven, the latest end of the last
        // block, and the time after its beginning.
        let (mut states, mut faults) = ([(0, 0, 0); LIMITS.len()], Vec::new());
        for (limit, block) in self.blocks() {
            let (mut step, mut quiet, since) = states[limit];
            // One whose answer is not known may have offended too.
            let unknown = self.of(limit).filter(|call| {
                // Two limits that are asked together have one wait.
                let is_unknown = matches!(call.reply, None | Some(Reply::Undecided | Reply::Left))
                    || call.is_exempt()
                    || call.is_joint && call.reply == Some(Reply::Refused);
                is_unknown && call.blocks > 0 && (since..=block.began.1).contains(&call.asked)
            });
            let unknown = unknown.count();
            while step > 0 && unknown == 0 && quiet + longest(step) <= block.began.0 {
                (quiet, step) = (quiet + longest(step), step - 1);
            }
            step = (step + unknown + 1).min(steps);
            let most = longest(step).max(LIMITS[limit].period_micros());
            if block.length > most {
                faults.push(format!("{block:?}, and at most {most}"));
            }
            states[limit] = (step, block.ends.1.max(quiet), block.began.1 + 1);
        }
        faults
    }
}
