//! One call of a round, as its process has recorded it.

use std::ops::Deref;

use super::{
    CallNote, LIMITS, LONGEST_WAIT, MixedLimit, Note, NoteLine, PERMIT_TIMEOUT, ProcessNotes,
    Reply, SPARE, Span, micros,
};

/// The longest interval between two looks at a permit in which it was certainly held throughout.
const LOOKS: u64 = 50_000;

/// A settle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) to: u64,
    pub(super) asked: u64,
    pub(super) applied: Option<u64>,
}

/// One call.
#[derive(Clone, Debug)]
pub(super) struct MixedCall {
    pub(super) process: usize,
    pub(super) asks: CallNote,
    /// The units that it takes at the least if it is admitted; at the most it takes its cost.
    pub(super) least: u64,
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// None of a call whose process was killed.
    pub(super) reply: Option<Reply>,
    /// `true` if it was decided without Redis.
    pub(super) is_here: bool,
    /// The time for which it is refused.
    pub(super) refused_for: Option<u64>,
    pub(super) promised: Option<u64>,
    /// The time at which the call knew its turn: Redis had decided its place before.
    pub(super) placed: Option<u64>,
    pub(super) settle: Option<Change>,
    /// The times at which it certainly had its permit.
    pub(super) held: Vec<Span>,
    pub(super) ended: u64,
    /// The earliest and the latest time at which its units were charged.
    pub(super) stamp: Span,
}

impl Deref for MixedCall {
    type Target = CallNote;

    fn deref(&self) -> &CallNote {
        &self.asks
    }
}

impl MixedCall {
    pub(super) fn is_admitted(&self) -> bool {
        matches!(self.reply, Some(Reply::Admitted { is_counted: true, .. }))
    }

    /// Returns `true` for a call that passed without being counted.
    pub(super) fn is_exempt(&self) -> bool {
        matches!(self.reply, Some(Reply::Admitted { is_counted: false, .. }))
    }

    /// Returns `true` if its process decided it alone, under its share.
    pub(super) fn is_alone(&self) -> bool {
        self.is_here && self.limit == SPARE
    }

    /// Returns `true` for a call that has waited, and was admitted then.
    pub(super) fn has_waited(&self) -> bool {
        matches!(self.reply, Some(Reply::Admitted { is_counted: true, waited }) if waited > 0)
    }

    pub(super) fn limit(&self) -> &'static MixedLimit {
        &LIMITS[self.limit]
    }

    pub(super) fn text(&self) -> String {
        let Self { process, asked, answered, promised, .. } = self;
        let CallNote { runtime, cost, max_wait, .. } = self.asks;
        let promised = promised.map_or(String::new(), |at| format!(", promised {at}"));
        format!(
            "{}: process {process} runtime {runtime}, cost {cost}, asked {asked}, answered {answered}, \
             may wait {max_wait}{promised}, {:?}",
            self.limit().name,
            self.reply,
        )
    }

    /// Reads the events of one call.
    pub(super) fn read(process: usize, lines: &[NoteLine], notes: &ProcessNotes) -> Self {
        let NoteLine { at: asked, note: Note::Asks(asks), .. } = lines[0] else {
            panic!("a call begins with a question: {lines:?}");
        };
        let mut call = Self {
            process,
            asks,
            least: asks.cost,
            asked,
            answered: notes.ended,
            reply: None,
            is_here: false,
            refused_for: None,
            promised: None,
            placed: None,
            settle: None,
            held: Vec::new(),
            ended: notes.ended + if notes.is_killed { micros(PERMIT_TIMEOUT) } else { 0 },
            stamp: (asked, notes.ended.min(asked + asks.max_wait + micros(LONGEST_WAIT))),
        };
        let mut was_held = false;
        for NoteLine { at, note, .. } in lines {
            match *note {
                Note::Promised(turn) => {
                    call.promised = call.promised.or(Some(turn));
                    call.placed = call.placed.or(Some(*at));
                }
                Note::Here => call.is_here = true,
                Note::RefusedFor(wait) => call.refused_for = Some(wait),
                Note::Answered(reply) => {
                    (call.answered, call.reply) = (*at, Some(reply));
                    if !matches!(reply, Reply::Admitted { .. }) {
                        call.ended = *at;
                    }
                }
                Note::Held => match call.held.last_mut() {
                    Some(span) if was_held && at - span.1 <= LOOKS => span.1 = *at,
                    _ => call.held.push((*at, *at)),
                },
                Note::Settles(to) => call.settle = Some(Change { to, asked: *at, applied: None }),
                Note::Settled => {
                    if let Some(settle) = &mut call.settle {
                        settle.applied = Some(*at);
                    }
                }
                Note::Ended => call.ended = *at,
                _ => {}
            }
            was_held = *note == Note::Held;
        }
        call
    }
}
