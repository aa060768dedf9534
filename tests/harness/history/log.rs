//! Units that Redis has recorded, matched with their calls.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use super::{Call, Outcome, of};
use crate::RedisServer;

/// The units of each caller in the sorted sets of a Redis: by name, the time of each.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub(super) units: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl Log {
    /// Adds the units that the server has of these callers right now.
    pub fn read(&mut self, server: &RedisServer, policy: &str, callers: u32) {
        let mut connection = server.connection();
        for caller in 0..callers {
            let key = format!("ratelimit:sliding_window:{policy}/{caller}");
            let mut zrange = redis::cmd("ZRANGEBYSCORE");
            zrange.arg(key).arg(0).arg("+inf").arg("WITHSCORES");
            let units: Vec<(String, u64)> =
                zrange.query(&mut connection).expect("the server answers");
            self.units.entry(caller).or_default().extend(units);
        }
    }

    /// Adds a unit.
    pub fn add(&mut self, caller: u32, name: &str, at: u64) {
        self.units.entry(caller).or_default().insert(name.to_owned(), at);
    }

    pub(super) fn of(&self, caller: u32) -> Vec<u64> {
        let mut times: Vec<u64> =
            self.units.get(&caller).into_iter().flat_map(BTreeMap::values).copied().collect();
        times.sort_unstable();
        times
    }
}

/// Admitted calls without a unit of their time, and units that no call has asked for.
pub(super) fn unmatched(calls: &[&Call], units: &[u64], late: u64) -> Vec<String> {
    let span = |call: &&Call| {
        let late = if call.outcome == Outcome::Admitted { 0 } else { late };
        (call.asked, call.answered + late)
    };
    let admitted: Vec<_> =
        of(calls, |outcome| outcome == Outcome::Admitted).iter().map(span).collect();
    let counted: Vec<_> =
        of(calls, |outcome| outcome != Outcome::Refused).iter().map(span).collect();
    // Each side by itself: if both can be matched, both can be matched at once.
    let (without_unit, _) = assign(&admitted, units);
    let (_, without_call) = assign(&counted, units);
    let calls = without_unit.iter().map(|at| format!("a call admitted until {at} left no unit"));
    let units = without_call.iter().map(|at| format!("no call asked for the unit at {at}"));
    calls.chain(units).collect()
}

/// Assigns each unit to a span around it, first to those that end first. Returns the rest of both.
fn assign(spans: &[(u64, u64)], units: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let mut coming = spans.iter().peekable();
    let mut open = BinaryHeap::new();
    let (mut missed, mut spare) = (Vec::new(), Vec::new());
    for &unit in units {
        while let Some((_, end)) = coming.next_if(|(start, _)| *start <= unit) {
            open.push(Reverse(*end));
        }
        while let Some(Reverse(end)) = open.peek().copied().filter(|Reverse(end)| *end < unit) {
            open.pop();
            missed.push(end);
        }
        if open.pop().is_none() {
            spare.push(unit);
        }
    }
    missed.extend(open.into_iter().map(|Reverse(end)| end));
    missed.extend(coming.map(|(_, end)| end));
    (missed, spare)
}
