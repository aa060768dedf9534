//! Polling of the sources outside the process: how often, for how long, and what is logged.

use std::{collections::BTreeSet, fmt, sync::Weak, time::Duration};

use super::{Overrides, Shared};

/// The pause between two polls. A change takes effect everywhere within a second.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(400);

/// Returns the overrides after a pause, if a handle is still in use.
pub(super) async fn next_poll(overrides: &Weak<Shared>, pause: Duration) -> Option<Overrides> {
    tokio::time::sleep(pause).await;
    overrides.upgrade().map(|shared| Overrides { shared })
}

/// The errors that were logged, each once until the source is valid again.
#[derive(Default)]
pub(super) struct Logged(BTreeSet<String>);

impl Logged {
    /// The number of errors that are remembered.
    const CAPACITY: usize = 64;

    /// Returns `true` if the error was not logged yet, and remembers it.
    pub(super) fn is_new(&mut self, error: &impl fmt::Display) -> bool {
        if self.0.len() == Self::CAPACITY {
            self.0.clear();
        }
        self.0.insert(error.to_string())
    }
}
