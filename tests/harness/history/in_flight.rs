//! Calls in flight, checked against the number of permits.

use std::{fmt, ops::RangeInclusive};

use crate::records::{Event, Record, Records};

/// The longest interval between two looks at a permit in which it was certainly held throughout:
/// losses and gains are further apart.
const GAP: u64 = 50_000;

/// The bodies of recorded calls, and the calls that found no permit free.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    bodies: Vec<Body>,
    refused: Vec<RangeInclusive<u64>>,
}

/// A call that has or may have taken a permit.
#[derive(Clone, Debug)]
struct Body {
    asked: u64,
    /// The time at which the body or its process had certainly ended.
    ended: u64,
    /// The times at which it certainly held its permit.
    held: Vec<RangeInclusive<u64>>,
    /// The times at which it ran without one.
    lost: Vec<u64>,
}

/// The promise of a limiter about calls in flight. Times are in microseconds.
#[derive(Clone, Debug, Default)]
pub struct PermitPromise {
    /// The permits of a caller.
    pub permits: usize,
    /// The longest time after its end in which a call may still count: its permit expires, if
    /// nothing else.
    pub late: u64,
    /// The times from a loss of permits, or a step of the clock forward, until the holders have
    /// asked anew. Each of them allows as many permits again.
    pub losses: Vec<RangeInclusive<u64>>,
}

/// Figures of calls in flight.
#[derive(Clone, Copy, Debug)]
pub struct FlightFigures {
    /// The bodies that ran.
    pub bodies: usize,
    /// Those of them that ran on without a permit for a time: past their deadline, or after a loss.
    pub without_permit: usize,
    /// The most that certainly held a permit at one time.
    pub most_held: usize,
    /// The most that ran at one time, with a permit or without.
    pub most_running: usize,
}

impl fmt::Display for FlightFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bodies, without_permit, most_held, most_running } = self;
        write!(
            f,
            "{bodies} bodies, at most {most_running} at one time, {most_held} with a permit; \
             {without_permit} ran on without one"
        )
    }
}

impl InFlight {
    /// Returns the calls in flight that these processes have recorded.
    pub fn recorded(processes: &[Records]) -> Self {
        let mut all = Self::default();
        for process in processes {
            for records in process.by_call().values() {
                all.add(records, process.ended);
            }
        }
        all
    }

    fn add(&mut self, records: &[Record], process_ended: u64) {
        let (asked, last) = (records[0].at, records[records.len() - 1]);
        let ended = match last.event {
            Event::Refused => return self.refused.push(asked..=last.at),
            Event::Ended | Event::Undecided => last.at,
            _ => process_ended,
        };
        let mut body = Body { asked, ended, held: Vec::new(), lost: Vec::new() };
        let mut was_held = false;
        for Record { at, event, .. } in records {
            match (event, body.held.last_mut()) {
                (Event::Held, Some(span)) if was_held && at - span.end() <= GAP => {
                    *span = *span.start()..=*at;
                }
                (Event::Held, _) => body.held.push(*at..=*at),
                (Event::Lost, _) => body.lost.push(*at),
                _ => {}
            }
            was_held = *event == Event::Held;
        }
        self.bodies.push(body);
    }

    /// Returns the times at which certainly too many calls held a permit, and the calls that were
    /// refused although a permit was certainly free.
    pub fn faults(&self, promise: &PermitPromise) -> Vec<String> {
        let mut faults = self.too_many_held(promise);
        faults.extend(self.unjust_refusals(promise));
        faults
    }

    /// Returns the times at which certainly too many calls held a permit.
    pub fn too_many_held(&self, promise: &PermitPromise) -> Vec<String> {
        let too_many = |at: &u64| {
            let held = self.held(*at);
            let lost = promise.losses.iter().filter(|loss| loss.contains(at)).count();
            (held > promise.permits * (1 + lost)).then(|| format!("{held} permits held at {at}"))
        };
        self.starts().filter_map(|at| too_many(&at)).collect()
    }

    /// Returns the calls that were refused although a permit was certainly free.
    pub fn unjust_refusals(&self, promise: &PermitPromise) -> Vec<String> {
        let fault = |refused: &RangeInclusive<u64>| {
            let may_count = |body: &&Body| {
                body.asked <= *refused.end() && body.ended + promise.late >= *refused.start()
            };
            let counting = self.bodies.iter().filter(may_count).count();
            let text = || format!("refused at {} with {counting} in flight", refused.start());
            (counting < promise.permits).then(text)
        };
        self.refused.iter().filter_map(fault).collect()
    }

    /// Returns the figures of these calls.
    pub fn figures(&self) -> FlightFigures {
        let ran = |body: &&Body| !body.held.is_empty() || !body.lost.is_empty();
        let bodies: Vec<_> = self.bodies.iter().filter(ran).collect();
        let running = |at: u64| {
            let first = |body: &Body| {
                let held = body.held.iter().map(|span| *span.start());
                held.chain(body.lost.iter().copied()).min()
            };
            let runs = |body: &&&Body| first(body) <= Some(at) && at <= body.ended;
            bodies.iter().filter(runs).count()
        };
        FlightFigures {
            bodies: bodies.len(),
            without_permit: bodies.iter().filter(|body| !body.lost.is_empty()).count(),
            most_held: self.starts().map(|at| self.held(at)).max().unwrap_or(0),
            most_running: self.starts().map(running).max().unwrap_or(0),
        }
    }

    /// Returns the number of refused calls.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    fn starts(&self) -> impl Iterator<Item = u64> {
        self.bodies.iter().flat_map(|body| &body.held).map(|span| *span.start())
    }

    fn held(&self, at: u64) -> usize {
        let holds = |body: &&Body| body.held.iter().any(|span| span.contains(&at));
        self.bodies.iter().filter(holds).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls by their number, with what happened when.
    fn in_flight(events: &[(u64, u64, Event)]) -> InFlight {
        let records = events.iter().map(|&(call, at, event)| Record { call, at, event });
        InFlight::recorded(&[Records { records: records.collect(), ended: 9_000_000 }])
    }

    /// A body that asks for its permit at these times, and then ends.
    fn body(call: u64, looks: &[u64]) -> Vec<(u64, u64, Event)> {
        let mut events = vec![(call, looks[0] - 2, Event::Started(0, 1))];
        events.push((call, looks[0] - 1, Event::Admitted));
        events.extend(looks.iter().map(|at| (call, *at, Event::Held)));
        events.push((call, looks[looks.len() - 1] + 1, Event::Ended));
        events
    }

    fn promise(losses: &[RangeInclusive<u64>]) -> PermitPromise {
        PermitPromise { permits: 2, late: 100, losses: losses.to_vec() }
    }

    #[test]
    fn more_bodies_with_a_permit_than_permits_are_a_fault() {
        let two = [body(0, &[1_000, 2_000]), body(1, &[1_500, 2_500])].concat();
        assert_eq!(in_flight(&two).faults(&promise(&[])), [""; 0]);
        let three = [two.clone(), body(2, &[1_800, 1_900])].concat();
        assert_eq!(in_flight(&three).faults(&promise(&[])), ["3 permits held at 1800"]);
        // The first has ended by then.
        let three = [two.clone(), body(2, &[2_001, 2_400])].concat();
        assert_eq!(in_flight(&three).faults(&promise(&[])), [""; 0]);
        // After a loss as many again, until the holders have asked anew.
        let three = [two, body(2, &[1_800, 1_900])].concat();
        assert_eq!(in_flight(&three).faults(&promise(&[1_700..=1_800])), [""; 0]);
        assert_eq!(in_flight(&three).faults(&promise(&[1_700..=1_799])).len(), 1);
        let five: Vec<_> = (0..5).flat_map(|call| body(call, &[1_000 + call, 2_000])).collect();
        assert_eq!(in_flight(&five).faults(&promise(&[1_000..=1_900])).len(), 1);
    }

    #[test]
    fn a_body_without_its_permit_is_counted_apart() {
        let mut events = body(0, &[1_000, 2_000]);
        let end = events.pop().unwrap();
        events.push((0, 2_100, Event::Lost));
        events.push((0, 2_200, Event::Lost));
        events.push((end.0, 2_300, Event::Ended));
        events.extend([body(1, &[1_500, 2_500]), body(2, &[2_150, 2_250])].concat());
        let calls = in_flight(&events);
        assert_eq!(calls.faults(&promise(&[])), [""; 0]);
        let FlightFigures { bodies, without_permit, most_held, most_running } = calls.figures();
        assert_eq!((bodies, without_permit, most_held, most_running), (3, 1, 2, 3));
    }

    #[test]
    fn a_body_that_did_not_look_for_long_may_have_lost_its_permit_meanwhile() {
        let events =
            [body(0, &[1_000, 1_001 + GAP]), body(1, &[1_001, 1_500]), body(2, &[1_002, 1_400])];
        assert_eq!(in_flight(&events.concat()).faults(&promise(&[])), [""; 0]);
    }

    #[test]
    fn a_refusal_while_a_permit_was_free_is_a_fault() {
        let refused = |at| vec![(9, at, Event::Started(0, 1)), (9, at + 5, Event::Refused)];
        let two = [body(0, &[1_000, 2_000]), body(1, &[1_500, 2_500])].concat();
        for (at, faults) in [(900, 1), (1_493, 0), (1_492, 1), (2_000, 0), (2_101, 0), (2_102, 1)] {
            let calls = in_flight(&[two.clone(), refused(at)].concat());
            assert_eq!(calls.faults(&promise(&[])).len(), faults, "{at}");
        }
        // A call without an answer may have taken one, and so may one whose process was killed.
        let undecided = vec![(7, 1_000, Event::Started(0, 1)), (7, 1_010, Event::Undecided)];
        let killed = vec![(8, 1_000, Event::Started(0, 1))];
        let calls = [undecided.clone(), killed.clone(), refused(1_110)].concat();
        assert_eq!(in_flight(&calls).faults(&promise(&[])), [""; 0]);
        let calls = [undecided, killed, refused(1_111)].concat();
        assert_eq!(in_flight(&calls).faults(&promise(&[])).len(), 1);
    }
}
