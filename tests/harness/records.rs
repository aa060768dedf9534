//! The records that callers keep of their calls, each written as it happens: a killed process
//! leaves all that it has written.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ratelimit_runtime::{Decision, Limiter, Policy, RateLimitError};

use super::wall_clock;

/// The interval at which a body asks for its permit.
const ASKS: Duration = Duration::from_millis(5);

/// One event of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the call in its process.
    pub call: u64,
    /// The time of the event. A permit was held at that time, and answers and ends are not later.
    pub at: u64,
    /// The event.
    pub event: Event,
}

/// An event of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A caller asks for so many units.
    Started(u32, usize),
    /// The call is admitted.
    Admitted,
    /// The call is refused.
    Refused,
    /// There is no decision.
    Undecided,
    /// The body runs with its permit.
    Held,
    /// The body runs without its permit.
    Lost,
    /// The caller settles the call at so many units.
    Settles(usize),
    /// The store has the settle.
    Settled,
    /// The body has ended.
    Ended,
}

/// The records of one process.
#[derive(Clone, Debug)]
pub struct Records {
    /// The records, in the order of their time.
    pub records: Vec<Record>,
    /// A time at which the process had certainly ended.
    pub ended: u64,
}

/// The records of calls, shared by their callers.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Inner>);

#[derive(Default)]
struct Inner {
    calls: AtomicU64,
    is_printed: bool,
    kept: Mutex<Vec<Record>>,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, at, event } = self;
        write!(f, "{call} {at} ")?;
        match event {
            Event::Started(caller, cost) => write!(f, "starts {caller} {cost}"),
            Event::Settles(to) => write!(f, "settles {to}"),
            Event::Admitted => f.write_str("admitted"),
            Event::Refused => f.write_str("refused"),
            Event::Undecided => f.write_str("undecided"),
            Event::Held => f.write_str("held"),
            Event::Lost => f.write_str("lost"),
            Event::Settled => f.write_str("settled"),
            Event::Ended => f.write_str("ended"),
        }
    }
}

impl Record {
    fn read(line: &str) -> Self {
        let mut words = line.split(' ');
        let mut word = || words.next().expect(line);
        let number = |word: &str| word.parse::<u64>().expect(line);
        let (call, at, event) = (number(word()), number(word()), word());
        let units = |word: &str| word.parse().expect(line);
        let event = match event {
            "starts" => Event::Started(word().parse().expect(line), units(word())),
            "settles" => Event::Settles(units(word())),
            "admitted" => Event::Admitted,
            "refused" => Event::Refused,
            "undecided" => Event::Undecided,
            "held" => Event::Held,
            "lost" => Event::Lost,
            "settled" => Event::Settled,
            "ended" => Event::Ended,
            _ => panic!("an event: {line}"),
        };
        Self { call, at, event }
    }
}

impl Records {
    /// Reads the output of a process that had certainly ended at this time. A killed one may not
    /// have finished its last line.
    pub fn read(text: &str, ended: u64) -> Self {
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        Self { records: lines.map(Record::read).collect(), ended }
    }

    /// The records of each call.
    pub(crate) fn by_call(&self) -> BTreeMap<u64, Vec<Record>> {
        let mut calls = BTreeMap::<_, Vec<_>>::new();
        for record in &self.records {
            calls.entry(record.call).or_default().push(*record);
        }
        calls
    }
}

impl Recorder {
    /// Prints each record as a line.
    pub fn printing() -> Self {
        Self(Arc::new(Inner { is_printed: true, ..Inner::default() }))
    }

    /// Returns the records so far.
    pub fn records(&self) -> Records {
        let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Records { records: kept.clone(), ended: wall_clock() }
    }

    /// Asks for a permit, and runs with it for so long. Returns `true` if the call was admitted.
    pub async fn run(&self, limiter: &Limiter, policy: &Policy, body: Duration) -> bool {
        let Some((call, decision)) = self.admit(limiter, policy, 0, 1).await else { return false };
        let start = Instant::now();
        loop {
            // Held later is held now.
            let at = wall_clock();
            let event = if decision.has_permit() { Event::Held } else { Event::Lost };
            self.keep(Record { call, at, event });
            let left = body.saturating_sub(start.elapsed());
            if left.is_zero() {
                break;
            }
            tokio::time::sleep(left.min(ASKS)).await;
        }
        drop(decision);
        self.note(call, Event::Ended);
        true
    }

    /// Asks for units, and runs for so long. Then it settles the call at `to` units, if there is a
    /// number. Returns `true` if the call was admitted.
    pub async fn meter(
        &self,
        limiter: &Limiter,
        policy: &Policy,
        (caller, cost): (u32, u32),
        body: Duration,
        to: Option<u32>,
    ) -> bool {
        let Some((call, decision)) = self.admit(limiter, policy, caller, cost).await else {
            return false;
        };
        tokio::time::sleep(body).await;
        if let Some(to) = to {
            self.note(call, Event::Settles(units(to)));
            if limiter.settle(&decision, to).await.is_ok() {
                self.note(call, Event::Settled);
            }
        }
        self.note(call, Event::Ended);
        true
    }

    /// Asks for one unit.
    pub async fn call(&self, limiter: &Limiter, policy: &Policy, caller: u32) {
        self.admit(limiter, policy, caller, 1).await;
    }

    async fn admit(
        &self,
        limiter: &Limiter,
        policy: &Policy,
        caller: u32,
        cost: u32,
    ) -> Option<(u64, Decision)> {
        let call = self.0.calls.fetch_add(1, Ordering::Relaxed);
        self.note(call, Event::Started(caller, units(cost)));
        let answer = limiter.check(policy, caller).cost(cost).await;
        self.note(
            call,
            match &answer {
                Ok(_) => Event::Admitted,
                Err(RateLimitError::Exceeded(_) | RateLimitError::Busy(_)) => Event::Refused,
                Err(RateLimitError::Unavailable(_)) => Event::Undecided,
                Err(error) => panic!("{error}"),
            },
        );
        answer.ok().map(|decision| (call, decision))
    }

    fn note(&self, call: u64, event: Event) {
        self.keep(Record { call, at: wall_clock(), event });
    }

    fn keep(&self, record: Record) {
        if self.0.is_printed {
            // One write each.
            println!("{record}");
        } else {
            self.0.kept.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        }
    }
}

fn units(units: u32) -> usize {
    units.try_into().expect("a number of units")
}
