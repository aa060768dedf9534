//! The record of a process, whose lines are written as it happens: a killed process leaves all that
//! it has written.

use std::fmt;

use super::{Span, overlaps};

/// The record of one process.
#[derive(Clone, Debug)]
pub struct ProcessNotes {
    /// The lines, in the order of their time.
    pub lines: Vec<NoteLine>,
    /// The number of the process; one that is killed is followed by one of its number.
    pub number: usize,
    /// A time at which the process had certainly ended.
    pub ended: u64,
    /// `true` if it was killed.
    pub is_killed: bool,
}

impl ProcessNotes {
    /// Reads the output of a process. A killed one may not have finished its last line.
    #[must_use]
    pub fn read(text: &str, number: usize, ended: u64, is_killed: bool) -> Self {
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        Self { lines: lines.map(NoteLine::read).collect(), number, ended, is_killed }
    }

    /// Returns for how long the process stood still around a time.
    pub(super) fn late(&self, span: Span) -> u64 {
        let length = |line: &NoteLine| match line.note {
            Note::Gap(_, from) if overlaps((from, line.at), span) => line.at - from,
            _ => 0,
        };
        self.lines.iter().map(length).sum()
    }
}

/// A line: the number of a call in its process, the time, and the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoteLine {
    /// The number of the call; 0 of an event of the whole process.
    pub call: u64,
    /// The time.
    pub at: u64,
    /// The event.
    pub note: Note,
}

/// An event of a call or of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A call asks.
    Asks(CallNote),
    /// A waiting call is promised its turn.
    Promised(u64),
    /// A call is refused for so many microseconds: its answer comes next.
    RefusedFor(u64),
    /// The call was decided without Redis: its answer comes next.
    Here,
    /// A call has its answer.
    Answered(Reply),
    /// The permit is held.
    Held,
    /// The permit is lost.
    Lost,
    /// A call is to be settled at so many units.
    Settles(u64),
    /// The store has the settle.
    Settled,
    /// The body has ended.
    Ended,
    /// A runtime was late since that time; runtime 0 is the whole process.
    Gap(u8, u64),
    /// The process has changed the number of a limit since that time; 0 is the declared one.
    Overrides(usize, u64, u64),
    /// The process has doubled the period of a limit since that time.
    Slows(usize, u64),
    /// The process has switched a limit off since that time.
    Off(usize, u64),
    /// The process enforces a limit for a share of the callers since that time, in percent.
    Share(usize, u8, u64),
    /// The process multiplies all numbers by a factor since that time, in thousandths.
    Scales(u64, u64),
    /// The process has overridden a limit for the caller since the second time, until the first
    /// one, 0 for ever.
    OfCaller(usize, OfCaller, u64, u64),
    /// The process begins to reset a limit at that time.
    Resets(usize, u64),
    /// The process has reset a limit since that time.
    Reset(usize, u64),
    /// The process begins to pause a limit: its number, the length, and the time.
    Pauses(usize, u64, u64),
    /// The pause of this length that began at that time is in force.
    Paused(usize, u64, u64),
    /// The caller is warned of a limit.
    Warned(usize),
    /// The candidate has so many calls newly admitted, and refused otherwise.
    Tried(u64, u64),
    /// All calls have ended, and so many settles, releases and leases could not be sent.
    Flushed(u64),
}

/// An override of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfCaller {
    /// The limit has this number.
    Number(u64),
    /// The caller is exempt.
    Off,
    /// The caller is shut out.
    Denied,
    /// There is no override.
    Removed,
}

/// The question of a call, with its units, its policy and its options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallNote {
    /// The number of its limit.
    pub limit: usize,
    /// Its units.
    pub cost: u64,
    /// The longest wait in microseconds.
    pub max_wait: u64,
    /// The number of its tokio runtime.
    pub runtime: u8,
    /// Its request id, 0 for none.
    pub id: u64,
    /// `true` if the policy has a lease.
    pub is_leased: bool,
    /// `true` if it is decided together with another call.
    pub is_joint: bool,
    /// The share of the limit that it leaves, in percent.
    pub leave: u64,
    /// `true` under the plan of half of the number.
    pub is_small: bool,
    /// The choice of lengths of blocks.
    pub blocks: usize,
    /// The share of the limit of which its caller is warned, in percent; 0 for none.
    pub warn_at: u64,
    /// Its place among the budgets of which one pays for a call, from 1 on; 0 for a call without.
    pub budget: u8,
}

/// The answer of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Admitted.
    Admitted {
        /// `false` if enforcement is off.
        is_counted: bool,
        /// The time for which it has waited.
        waited: u64,
    },
    /// The limit was reached, or the call is too large for it.
    Refused,
    /// No permit was free.
    Busy,
    /// The caller is shut out.
    Denied,
    /// There was no decision.
    Undecided,
    /// The caller gave up.
    Left,
    /// An earlier budget has paid: this one was not asked.
    Spared,
}

impl fmt::Display for NoteLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, at, note } = self;
        write!(f, "{call} {at} ")?;
        match *note {
            Note::Asks(CallNote {
                limit,
                cost,
                max_wait,
                runtime,
                id,
                is_leased,
                is_joint,
                leave,
                is_small,
                blocks,
                warn_at,
                budget,
            }) => {
                let flags = [is_leased, is_joint, is_small].map(u8::from);
                let [is_leased, is_joint, is_small] = flags;
                write!(f, "asks {limit} {cost} {max_wait} {runtime} {id} {is_leased} {is_joint} ")?;
                write!(f, "{leave} {is_small} {blocks} {warn_at} {budget}")
            }
            Note::RefusedFor(wait) => write!(f, "refused_for {wait}"),
            Note::Promised(turn) => write!(f, "promised {turn}"),
            Note::Answered(Reply::Admitted { is_counted, waited }) => {
                write!(f, "admitted {} {waited}", u8::from(is_counted))
            }
            Note::Answered(Reply::Refused) => f.write_str("refused"),
            Note::Answered(Reply::Busy) => f.write_str("busy"),
            Note::Answered(Reply::Denied) => f.write_str("denied"),
            Note::Answered(Reply::Undecided) => f.write_str("undecided"),
            Note::Answered(Reply::Left) => f.write_str("left"),
            Note::Answered(Reply::Spared) => f.write_str("spared"),
            Note::Here => f.write_str("here"),
            Note::Held => f.write_str("held"),
            Note::Lost => f.write_str("lost"),
            Note::Settles(to) => write!(f, "settles {to}"),
            Note::Settled => f.write_str("settled"),
            Note::Ended => f.write_str("ended"),
            Note::Gap(runtime, from) => write!(f, "gap {runtime} {from}"),
            Note::Overrides(limit, number, from) => write!(f, "overrides {limit} {number} {from}"),
            Note::Slows(limit, from) => write!(f, "slows {limit} {from}"),
            Note::Off(limit, from) => write!(f, "off {limit} {from}"),
            Note::Share(limit, percent, from) => write!(f, "share {limit} {percent} {from}"),
            Note::Scales(factor, from) => write!(f, "scales {factor} {from}"),
            Note::OfCaller(limit, what, until, from) => {
                let (word, number) = match what {
                    OfCaller::Number(number) => ("number", number),
                    OfCaller::Off => ("off", 0),
                    OfCaller::Denied => ("denied", 0),
                    OfCaller::Removed => ("removed", 0),
                };
                write!(f, "caller {limit} {word} {number} {until} {from}")
            }
            Note::Resets(limit, from) => write!(f, "resets {limit} {from}"),
            Note::Reset(limit, from) => write!(f, "reset {limit} {from}"),
            Note::Pauses(limit, length, from) => write!(f, "pauses {limit} {length} {from}"),
            Note::Paused(limit, length, from) => write!(f, "paused {limit} {length} {from}"),
            Note::Warned(limit) => write!(f, "warned {limit}"),
            Note::Tried(admitted, otherwise) => write!(f, "tried {admitted} {otherwise}"),
            Note::Flushed(unsent) => write!(f, "flushed {unsent}"),
        }
    }
}

impl NoteLine {
    /// Reads a whole line.
    #[must_use]
    pub fn read(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| -> u64 {
            words.get(at).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        };
        let size = |at: usize| usize::try_from(number(at)).expect(line);
        let byte = |at: usize| u8::try_from(number(at)).expect(line);
        let note = match words.get(2).copied().unwrap_or_default() {
            "asks" => Note::Asks(CallNote {
                limit: size(3),
                cost: number(4),
                max_wait: number(5),
                runtime: byte(6),
                id: number(7),
                is_leased: number(8) == 1,
                is_joint: number(9) == 1,
                leave: number(10),
                is_small: number(11) == 1,
                blocks: size(12),
                warn_at: number(13),
                budget: byte(14),
            }),
            "refused_for" => Note::RefusedFor(number(3)),
            "promised" => Note::Promised(number(3)),
            "admitted" => {
                Note::Answered(Reply::Admitted { is_counted: number(3) == 1, waited: number(4) })
            }
            "refused" => Note::Answered(Reply::Refused),
            "busy" => Note::Answered(Reply::Busy),
            "denied" => Note::Answered(Reply::Denied),
            "undecided" => Note::Answered(Reply::Undecided),
            "left" => Note::Answered(Reply::Left),
            "spared" => Note::Answered(Reply::Spared),
            "here" => Note::Here,
            "held" => Note::Held,
            "lost" => Note::Lost,
            "settles" => Note::Settles(number(3)),
            "settled" => Note::Settled,
            "ended" => Note::Ended,
            "gap" => Note::Gap(byte(3), number(4)),
            "overrides" => Note::Overrides(size(3), number(4), number(5)),
            "slows" => Note::Slows(size(3), number(4)),
            "off" => Note::Off(size(3), number(4)),
            "share" => Note::Share(size(3), byte(4), number(5)),
            "scales" => Note::Scales(number(3), number(4)),
            "caller" => {
                let what = match words[4] {
                    "number" => OfCaller::Number(number(5)),
                    "off" => OfCaller::Off,
                    "denied" => OfCaller::Denied,
                    "removed" => OfCaller::Removed,
                    _ => panic!("an override: {line}"),
                };
                Note::OfCaller(size(3), what, number(6), number(7))
            }
            "resets" => Note::Resets(size(3), number(4)),
            "reset" => Note::Reset(size(3), number(4)),
            "pauses" => Note::Pauses(size(3), number(4), number(5)),
            "paused" => Note::Paused(size(3), number(4), number(5)),
            "warned" => Note::Warned(size(3)),
            "tried" => Note::Tried(number(3), number(4)),
            "flushed" => Note::Flushed(number(3)),
            _ => panic!("an event: {line}"),
        };
        Self { call: number(0), at: number(1), note }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let asks = Note::Asks(CallNote {
            limit: 3,
            cost: 2,
            max_wait: 9,
            runtime: 2,
            id: 7,
            is_leased: true,
            is_joint: false,
            leave: 20,
            is_small: true,
            blocks: 2,
            warn_at: 80,
            budget: 2,
        });
        let admitted = |is_counted, waited| Note::Answered(Reply::Admitted { is_counted, waited });
        let replies = [
            Reply::Refused,
            Reply::Busy,
            Reply::Denied,
            Reply::Undecided,
            Reply::Left,
            Reply::Spared,
        ]
        .map(Note::Answered);
        let of_caller = [OfCaller::Number(7), OfCaller::Off, OfCaller::Denied, OfCaller::Removed];
        let of_caller = of_caller.map(|what| Note::OfCaller(1, what, 9, 6));
        let others = [
            asks,
            admitted(true, 0),
            admitted(false, 5),
            Note::Promised(8),
            Note::RefusedFor(8),
            Note::Warned(3),
            Note::Here,
            Note::Held,
            Note::Lost,
            Note::Settles(3),
            Note::Settled,
            Note::Ended,
            Note::Gap(2, 5),
            Note::Overrides(1, 20, 6),
            Note::Slows(1, 6),
            Note::Off(1, 6),
            Note::Share(1, 20, 6),
            Note::Scales(500, 6),
            Note::Resets(1, 6),
            Note::Reset(1, 6),
            Note::Pauses(1, 7, 6),
            Note::Paused(1, 7, 6),
            Note::Tried(1, 7),
            Note::Flushed(1),
        ];
        for note in replies.into_iter().chain(of_caller).chain(others) {
            let line = NoteLine { call: 4, at: 11, note };
            assert_eq!(NoteLine::read(&line.to_string()), line);
        }
        // A killed process may not have finished its last line.
        let notes = ProcessNotes::read("1 2 held\n1 3 en", 0, 9, true);
        assert_eq!(notes.lines.len(), 1);
    }
}
