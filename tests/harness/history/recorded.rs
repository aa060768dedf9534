//! The history that processes have recorded.

use ratelimit_runtime::UnavailableReason;

use super::{Call, History, Outcome, Settled};
use crate::records::{Event, Record, Records};

impl History {
    /// Returns the history that these processes have recorded. A call without an answer may be
    /// counted.
    pub fn recorded(processes: &[Records]) -> Self {
        let of_process = |process: &Records| -> Vec<Call> {
            process.by_call().values().map(|records| call(records, process.ended)).collect()
        };
        Self::new(processes.iter().flat_map(of_process).collect())
    }
}

fn call(records: &[Record], ended: u64) -> Call {
    let [Record { event: Event::Started(caller, cost), at: asked, .. }, later @ ..] = records
    else {
        panic!("a call begins with a question: {records:?}");
    };
    let unanswered = Outcome::Unavailable(UnavailableReason::Disconnected);
    let mut call = Call {
        caller: *caller,
        asked: *asked,
        answered: ended,
        outcome: unanswered,
        cost: *cost,
        settled: None,
    };
    for Record { at, event, .. } in later {
        let mut answered = |outcome| (call.answered, call.outcome) = (*at, outcome);
        match event {
            Event::Admitted => answered(Outcome::Admitted),
            Event::Refused => answered(Outcome::Refused),
            Event::Undecided => answered(unanswered),
            Event::Settles(to) => {
                call.settled = Some(Settled { to: *to, asked: *at, applied: None });
            }
            Event::Settled => {
                let settled = call.settled.as_mut().expect("a settle under way");
                settled.applied = Some(*at);
            }
            Event::Started(..) | Event::Held | Event::Lost | Event::Ended => {}
        }
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_of_a_killed_process_are_its_calls_up_to_then() {
        let text = "0 10 starts 3 7\n1 11 starts 4 1\n0 12 admitted\n0 20 settles 5\n0 25 settled\n\
                    2 30 starts 3 9\n2 31 refused\n3 40 starts 3 2\n3 41 admitted\n3 42 settles 8\n4 4";
        let records = Records::read(text, 50);
        assert_eq!(records.records[3].to_string(), "0 20 settles 5");
        let history = History::recorded(&[records]);
        let calls: Vec<_> = history
            .calls()
            .iter()
            .map(|it| (it.caller, it.cost, it.answered, it.outcome == Outcome::Admitted))
            .collect();
        assert_eq!(
            calls,
            [(3, 7, 12, true), (4, 1, 50, false), (3, 9, 31, false), (3, 2, 41, true)]
        );
        let settled: Vec<_> = history.calls().iter().filter_map(|call| call.settled).collect();
        assert_eq!(
            settled,
            [
                Settled { to: 5, asked: 20, applied: Some(25) },
                Settled { to: 8, asked: 42, applied: None },
            ]
        );
        assert_eq!(history.unavailable(), 1);
    }
}
