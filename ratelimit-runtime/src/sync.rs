//! Locks and atomics: those of the standard library, or loom's for the tests of all schedules
//! (`ci/schedules`).
//!
//! Loom runs a test once for each interleaving of its threads, and for each value that a thread can
//! read from an atomic.
//!
//! Floor 1: imports nothing of this crate. Every room above may import it.

#[cfg(not(all(test, ratelimit_loom)))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(all(test, ratelimit_loom))]
pub(crate) use self::schedules::{advance, each, with};
#[cfg(all(test, ratelimit_loom))]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};

#[cfg(all(test, ratelimit_loom))]
mod schedules {
    use std::{
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Context, Waker},
        time::Duration,
    };

    /// Runs the model once for each schedule. Only [`advance`] moves the clock.
    pub(crate) fn each(model: impl Fn() + Send + Sync + 'static) {
        // All of loom's threads are this one, so this clock is theirs.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime for its clock");
        let _clock = runtime.enter();
        let schedules = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&schedules);
        loom::model(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            model();
        });
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        println!("{name}: {} schedules", schedules.load(Ordering::Relaxed));
    }

    /// Runs `others` at the same time as `own`, and returns all results, the last of `own`.
    pub(crate) fn with<T: 'static>(
        others: impl IntoIterator<Item = Box<dyn FnOnce() -> T>>,
        own: impl FnOnce() -> T,
    ) -> Vec<T> {
        let others: Vec<_> = others.into_iter().map(loom::thread::spawn).collect();
        let own = own();
        let mut all: Vec<_> = others.into_iter().map(|it| it.join().expect("no panic")).collect();
        all.push(own);
        all
    }

    /// Advances the clock.
    pub(crate) fn advance(by: Duration) {
        // The first poll advances it; later ones only let other tasks run.
        let _ = pin!(tokio::time::advance(by)).poll(&mut Context::from_waker(Waker::noop()));
    }
}
