//! The whole fleet: the counts that each process reports while a page shows them.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use ratelimit_runtime::fleet::{FleetLimit, FleetProcess, FleetStatus};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{ActionError, Answer, Dashboard, reply, samples::millis};

/// The time for which all viewers get the same status.
const KEPT: Duration = Duration::from_secs(1);

pub(super) async fn status(State(dashboard): State<Arc<Dashboard>>) -> Answer {
    Ok(reply(&dashboard.fleet().await?.processes().iter().map(view).collect()))
}

/// Returns the counts of a process, as the page shows them. Times are in milliseconds since 1970.
fn view(process: &FleetProcess) -> Value {
    // Admitted, refused, undecided and all calls since the start, and those that were refused
    // within the last minute, ten minutes and hour.
    let limits = process.limits.iter().map(|limit| {
        let [minute, minutes, hour] = limit.refused_within;
        let FleetLimit { admitted, refused, undecided, calls, .. } = *limit;
        let counts = [admitted, refused, undecided, calls, minute, minutes, hour];
        (&*limit.name, json!(counts))
    });
    json!({
        "id": process.id,
        "name": process.name,
        "version": process.version,
        "started": millis(process.started),
        "reported": millis(process.reported),
        "limits": limits.collect::<Value>(),
    })
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
        let status = self.limiter.fleet().await;
        let status = status.map_err(|error| ActionError::unavailable(error.to_string()))?;
        let status = Arc::new(status);
        *kept = Some((Arc::clone(&status), Instant::now()));
        Ok(status)
    }
}
