//! The status of a fleet: the counts of each process, as it reports them on Redis.

use std::{
    array,
    borrow::Cow,
    collections::BTreeMap,
    error::Error,
    fmt,
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use super::callers::DIGEST;
use crate::{
    error::UnavailableReason,
    key::{Caller, IntoCaller},
    request::DecidedBy,
    telemetry::{
        RefusalCount, refused_within,
        stats::{self, PolicyStats, TimeWindow, Verdict},
    },
};

/// The number of callers that a process reports of a limit, for each window of time.
const CALLERS: usize = 8;

/// The time from which calls are counted.
pub(super) static STARTED: LazyLock<SystemTime> = LazyLock::new(SystemTime::now);

/// The counts of a fleet, as its processes have reported them: see
/// [`Limiter::fleet`](crate::Limiter::fleet).
#[derive(Clone, Debug)]
pub struct FleetStatus {
    pub(super) processes: Vec<FleetProcess>,
}

/// The report of one process, about all its limiters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FleetProcess {
    /// A random text, which no other process has.
    #[serde(skip)]
    pub id: String,
    /// The name for people: see [`process_name`].
    pub name: String,
    /// The [version](crate::LimiterBuilder::version) of the program, if one is set.
    pub version: Option<String>,
    /// The time from which calls are counted, by the clock of the process.
    pub started: SystemTime,
    /// The time of the report, by the clock of Redis.
    pub reported: SystemTime,
    /// The limits that were called, by name.
    pub limits: Vec<FleetLimit>,
}

/// The counts of one limit: those of a process, or their sums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FleetLimit {
    /// The name of the policy; of a plan `api@pro`.
    pub name: String,
    /// The admitted calls since the start of the process.
    pub admitted: u64,
    /// The refused calls since the start of the process.
    pub refused: u64,
    /// The calls since the start of the process that Redis was to decide and did not.
    pub undecided: u64,
    /// All calls since the start of the process, whatever their answers.
    #[serde(default)]
    pub calls: u64,
    /// The refused calls within each of [`TimeWindow::ALL`].
    pub refused_within: [u64; 3],
    /// The callers that were refused most, those of the last hour first.
    pub callers: Vec<FleetCaller>,
}

/// A caller that was refused. It is passed in place of the caller to the functions of
/// [`Overrides`](crate::Overrides), also if its name is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FleetCaller {
    /// The caller as overrides write it down.
    text: String,
    /// The refused calls within each of [`TimeWindow::ALL`], as
    /// [`RefusedCaller::calls`](crate::usage::RefusedCaller::calls).
    pub refused_within: [u64; 3],
}

/// Returns the name of this process for people: its host, if the variable `HOSTNAME` names it, and
/// its number.
#[must_use]
pub fn process_name() -> String {
    let id = std::process::id();
    match std::env::var("HOSTNAME") {
        Ok(host) if !host.is_empty() => format!("{host}, process {id}"),
        _ => format!("process {id}"),
    }
}

impl FleetStatus {
    /// Returns the processes that have reported within the last ten seconds, the oldest first.
    #[must_use]
    pub fn processes(&self) -> &[FleetProcess] {
        &self.processes
    }

    /// Returns the sums over all processes, by the limits' names.
    #[must_use]
    pub fn limits(&self) -> Vec<FleetLimit> {
        let mut sums = BTreeMap::<&str, FleetLimit>::new();
        for limit in self.processes.iter().flat_map(|process| &process.limits) {
            sums.entry(&limit.name).or_default().add(limit);
        }
        sums.into_values().collect()
    }
}

impl FleetProcess {
    /// Returns the report of this process. `text` writes a caller down, if it may.
    pub(super) fn current(
        version: Option<&str>,
        reported: SystemTime,
        text: impl Fn(&Caller) -> Option<String>,
    ) -> Self {
        let (version, name) = (version.map(str::to_owned), process_name());
        let limits = stats::snapshot().iter().map(|it| FleetLimit::of(it, &text)).collect();
        Self { id: String::new(), name, version, started: *STARTED, reported, limits }
    }

    /// Returns `true` if the report is no older than this at a time of Redis, whose clock may have
    /// been set back.
    pub(super) fn is_within(&self, age: Duration, now: SystemTime) -> bool {
        now.duration_since(self.reported).unwrap_or_else(|ahead| ahead.duration()) <= age
    }
}

impl FleetLimit {
    fn of(counts: &PolicyStats, text: impl Fn(&Caller) -> Option<String>) -> Self {
        let name = counts.name();
        let total = |verdicts: &[Verdict]| verdicts.iter().map(|it| counts.total(*it)).sum();
        let undecided = [DecidedBy::Fallback, DecidedBy::Nobody]
            .map(|it| Verdict::ALL.iter().map(|verdict| counts.calls(*verdict, it)).sum::<u64>());
        let listed: [_; 3] = array::from_fn(|at| refused_within(name, TimeWindow::ALL[at]));
        let mut callers = Vec::<FleetCaller>::new();
        for (caller, _) in listed.iter().flat_map(|listed| listed.iter().take(CALLERS)) {
            let Some(text) = text(caller) else { break };
            let calls = |listed: &Vec<(Caller, RefusalCount)>| {
                listed.iter().find(|(it, _)| it == caller).map_or(0, |(_, count)| count.calls)
            };
            if !callers.iter().any(|it| it.text == text) {
                callers.push(FleetCaller { text, refused_within: listed.each_ref().map(calls) });
            }
        }
        Self {
            name: name.to_owned(),
            admitted: total(&[Verdict::Admitted]),
            refused: total(&[Verdict::Refused, Verdict::Busy, Verdict::Denied, Verdict::TooLarge]),
            undecided: undecided.iter().sum(),
            calls: total(Verdict::ALL),
            refused_within: array::from_fn(|at| counts.refused_within(TimeWindow::ALL[at])),
            callers,
        }
    }

    /// Adds the counts of another process.
    fn add(&mut self, other: &Self) {
        self.name.clone_from(&other.name);
        self.admitted = self.admitted.saturating_add(other.admitted);
        self.refused = self.refused.saturating_add(other.refused);
        self.undecided = self.undecided.saturating_add(other.undecided);
        self.calls = self.calls.saturating_add(other.calls);
        add(&mut self.refused_within, other.refused_within);
        for caller in &other.callers {
            match self.callers.iter_mut().find(|known| known.text == caller.text) {
                Some(known) => add(&mut known.refused_within, caller.refused_within),
                None => self.callers.push(caller.clone()),
            }
        }
        self.callers.sort_by_key(|caller| std::cmp::Reverse(caller.refused_within[2]));
    }
}

impl FleetCaller {
    /// Returns the name for people, as [`RefusedCaller::name`](crate::usage::RefusedCaller::name).
    #[must_use]
    pub fn name(&self) -> &str {
        match self.text.strip_prefix(DIGEST) {
            Some(digest) => digest.rsplit('-').next().unwrap_or_default(),
            None => self.text.strip_prefix('/').unwrap_or(&self.text),
        }
    }

    /// Returns the caller, if its process [shows](crate::LimiterBuilder::show_callers) it.
    #[must_use]
    pub fn caller(&self) -> Option<Caller> {
        let is_shown = !self.text.starts_with(DIGEST);
        is_shown.then(|| self.into_caller().into_owned())
    }
}

impl<'a> IntoCaller<'a> for &FleetCaller {
    fn into_caller(self) -> Cow<'a, Caller> {
        Cow::Owned(Caller::from_parts(self.text.as_bytes()))
    }
}

/// Adds numbers that come from other processes.
fn add(sums: &mut [u64; 3], numbers: [u64; 3]) {
    for (sum, number) in sums.iter_mut().zip(numbers) {
        *sum = sum.saturating_add(number);
    }
}

/// The error of [`Limiter::fleet`](crate::Limiter::fleet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetError {
    pub(super) reason: Option<UnavailableReason>,
}

impl FleetError {
    /// Returns the reason why Redis did not answer; none if the limiter is in memory.
    #[must_use]
    pub fn reason(&self) -> Option<UnavailableReason> {
        self.reason
    }
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Some(reason) => write!(f, "no status of the fleet from Redis: {reason}"),
            None => f.write_str("a limiter in memory has no fleet; connect it to Redis"),
        }
    }
}

impl Error for FleetError {}
