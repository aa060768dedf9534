//! How late the machine is at the moment: a control beside calls whose time is asserted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const SLEEP: Duration = Duration::from_millis(2);

/// A thread that sleeps again and again, and notes how late it is woken.
pub struct Lateness(Arc<AtomicU64>);

impl Lateness {
    /// Starts the thread, which ends with this value.
    pub fn watch() -> Self {
        let worst = Arc::new(AtomicU64::new(0));
        let weak = Arc::downgrade(&worst);
        thread::spawn(move || {
            let mut asleep = Instant::now();
            while let Some(worst) = weak.upgrade() {
                thread::sleep(SLEEP);
                let late = asleep.elapsed().saturating_sub(SLEEP).as_micros();
                worst.fetch_max(late.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
                asleep = Instant::now();
            }
        });
        Self(worst)
    }

    /// The latest so far. A call is descheduled several times at the most while it ends.
    pub fn worst(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}
