//! The whole fleet: the counts that each process reports while a page shows them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{extract::State, http::StatusCode, response::Response};
use ratelimit_runtime::{FleetProcess, FleetStatus};
use serde::Serialize;
use tokio::time::Instant;

use crate::{ActionError, Dashboard, json, limits::millis};

/// The time for which all viewers get the same status.
const KEPT: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct ProcessView<'a> {
    id: &'a str,
    name: &'a str,
    version: Option<&'a str>,
    /// In milliseconds since 1970.
    started: u64,
    reported: u64,
    /// Admitted, refused and undecided calls since the start, and those that were refused within the last minute, ten
    /// minutes and hour.
    limits: BTreeMap<&'a str, [u64; 6]>,
}

impl<'a> From<&'a FleetProcess> for ProcessView<'a> {
    fn from(process: &'a FleetProcess) -> Self {
        let limits = process.limits.iter().map(|limit| {
            let [minute, minutes, hour] = limit.refused_within;
            let counts = [limit.admitted, limit.refused, limit.undecided, minute, minutes, hour];
            (&*limit.name, counts)
        });
        Self {
            id: &process.id,
            name: &process.name,
            version: process.version.as_deref(),
            started: millis(process.started),
            reported: millis(process.reported),
            limits: limits.collect(),
        }
    }
}

pub(super) async fn status(
    State(dashboard): State<Arc<Dashboard>>,
) -> Result<Response, ActionError> {
    let status = dashboard.fleet().await?;
    Ok(json(&status.processes().iter().map(ProcessView::from).collect::<Vec<_>>()))
}

impl Dashboard {
    /// Returns the status of the fleet, of at most a second ago.
    pub(super) async fn fleet(&self) -> Result<Arc<FleetStatus>, ActionError> {
        let mut kept = self.fleet.lock().await;
        if let Some((status, at)) = &*kept
            && at.elapsed() < KEPT
        {
            return Ok(Arc::clone(status));
        }
        let status =
            self.limiter.fleet().await.map_err(|why| {
                ActionError::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
            })?;
        let status = Arc::new(status);
        *kept = Some((Arc::clone(&status), Instant::now()));
        Ok(status)
    }
}
