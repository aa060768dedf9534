//! The hash of the fleet's status: each process writes its report to it while somebody reads them.

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

use super::{FORBIDDEN_PAUSE, FleetHashes, Overrides};
use crate::{
    error::{Replied, UnavailableReason},
    follow::Logged,
    overrides::{
        Shown,
        callers::random,
        fleet::{FleetError, FleetProcess, FleetStatus},
    },
};

/// The key of the hash after the limiter's prefix.
pub(super) const STATUS_KEY: &str = "status";

/// The field with the time until which processes report, in milliseconds since 1970.
const WATCHED: &str = "watched";

/// The time for which processes report after each reading.
const WATCH: Duration = Duration::from_secs(10);

/// The age after which a report is removed.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The time after which an unread hash ends by itself.
const EXPIRY: Duration = Duration::from_secs(60);

/// The largest number of processes.
const MAX_PROCESSES: usize = 10_000;

/// The polls of overrides between two reports: two seconds.
const POLLS: u32 = 5;

/// The field of this process.
static ID: LazyLock<String> = LazyLock::new(|| format!("{:016x}", random()));

/// Reports this process's counts along with the polls of overrides.
#[derive(Default)]
pub(super) struct Reporter {
    polls: u32,
    /// The time before which nothing is read.
    pause: Option<Instant>,
    refused: Logged,
}

impl Reporter {
    /// Writes a report if it is time, and somebody reads them.
    pub(super) async fn poll(&mut self, hashes: &FleetHashes, overrides: &Overrides) {
        self.polls = self.polls.wrapping_add(1);
        let is_paused = self.pause.is_some_and(|until| Instant::now() < until);
        if is_paused || !self.polls.is_multiple_of(POLLS) {
            return;
        }
        // Others are logged by the poll of overrides.
        if let Err(reason @ UnavailableReason::NotPermitted) = report(hashes, overrides).await {
            self.pause = Some(Instant::now() + FORBIDDEN_PAUSE);
            if self.refused.is_new(&reason) {
                tracing::warn!(%reason, advice = reason.advice(), "status not reported to the fleet");
            }
        }
    }
}

async fn report(hashes: &FleetHashes, overrides: &Overrides) -> Replied<()> {
    let Some(until) = hashes.status.field(WATCHED).await? else { return Ok(()) };
    let now = hashes.status.time().await?;
    if until.parse().unwrap_or(0) < millis(now) {
        return Ok(());
    }
    let Shown { secret, callers, version } = overrides.shown();
    let report = FleetProcess::current(version.as_deref(), now, |caller| {
        if *callers {
            return Some(String::from_utf8_lossy(caller.parts()).into_owned());
        }
        secret.is_some().then(|| overrides.shared.identities.text(caller))
    });
    // Cannot fail: it has no maps.
    let report = serde_json::to_string(&report).unwrap_or_default();
    hashes.status.set(&[(ID.clone(), report)], &[], MAX_PROCESSES, Some(EXPIRY)).await?;
    Ok(())
}

impl Overrides {
    /// Reads the reports of the fleet, and asks for further ones.
    pub(crate) async fn fleet_status(&self) -> Result<FleetStatus, FleetError> {
        let hashes = self.hashes().map_err(|_| FleetError { reason: None })?;
        let failed = |reason| FleetError { reason: Some(reason) };
        read(hashes).await.map_err(failed)
    }
}

async fn read(hashes: &FleetHashes) -> Replied<FleetStatus> {
    let hash = &hashes.status;
    let now = hash.time().await?;
    let watched = (WATCHED.to_owned(), millis(now + WATCH).to_string());
    hash.set(&[watched], &[], MAX_PROCESSES, Some(EXPIRY)).await?;
    let (mut processes, mut old) = (Vec::new(), Vec::new());
    for (id, report) in hash.fields(MAX_PROCESSES).await?.fields {
        // Another version may write what this one cannot read.
        let Ok(process) = serde_json::from_str::<FleetProcess>(&report) else { continue };
        if process.is_within(MAX_AGE, now) {
            processes.push(FleetProcess { id, ..process });
        } else {
            old.push((id, report));
        }
    }
    if !old.is_empty() {
        hash.set(&[], &old, MAX_PROCESSES, None).await?;
    }
    processes.sort_by(|one, other| (one.started, &one.id).cmp(&(other.started, &other.id)));
    Ok(FleetStatus { processes })
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
