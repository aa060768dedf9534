//! Locks and atomics: the locks of `parking_lot` and the atomics of the standard library, or loom's
//! for the tests of all schedules (`ci/schedules`).
//!
//! Loom runs a test once for each interleaving of its threads, and for each value that a thread can
//! read from an atomic.
//!
//! Floor 1: imports nothing of this crate. Every room above may import it.

#[cfg(all(test, ratelimit_loom))]
pub(crate) use self::{
    loom_lock::Mutex,
    schedules::{Thread, advance, each, each_bounded, with},
};
#[cfg(all(test, ratelimit_loom))]
pub(crate) use loom::sync::{MutexGuard, atomic};
#[cfg(not(all(test, ratelimit_loom)))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(all(test, ratelimit_loom)))]
pub(crate) use std::sync::atomic;

/// A lock of loom with the methods of `parking_lot`.
#[cfg(all(test, ratelimit_loom))]
mod loom_lock {
    use std::sync::PoisonError;

    use loom::sync::MutexGuard;

    #[derive(Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}

#[cfg(all(test, ratelimit_loom))]
mod schedules {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use loom::thread::JoinHandle;
    use tokio::runtime::{Builder, Runtime};

    /// The body of a thread.
    pub(crate) type Thread<T> = Box<dyn FnOnce() -> T + Send>;

    /// The stack of a thread, in words.
    const STACK: usize = 1 << 16;

    thread_local! {
        /// The runtime whose clock is used: all of loom's threads are one thread.
        static CLOCK: Runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime for its clock");
    }

    /// Runs the model once for each schedule. Only [`advance`] moves the clock.
    pub(crate) fn each(model: impl Fn() + Send + Sync + 'static) {
        explore(loom::model::Builder::new(), model);
    }

    /// Runs the model once for each schedule with up to four preemptions. All schedules of three
    /// threads with many steps take more than 40 minutes.
    pub(crate) fn each_bounded(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        // The bound of `LOOM_MAX_PREEMPTIONS` goes before.
        builder.preemption_bound.get_or_insert(4);
        explore(builder, model);
    }

    fn explore(builder: loom::model::Builder, model: impl Fn() + Send + Sync + 'static) {
        let schedules = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&schedules);
        CLOCK.with(|clock| {
            let _clock = clock.enter();
            let model = Arc::new(model);
            builder.check(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                let model = Arc::clone(&model);
                spawn(move || model()).join().expect("no panic");
            });
        });
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        println!("{name}: {} schedules", schedules.load(Ordering::Relaxed));
    }

    /// Spawns a thread whose stack has room for a limiter.
    fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        loom::thread::Builder::new().stack_size(STACK).spawn(body).expect("a thread")
    }

    /// Runs `others` at the same time as `own`, and returns all results, the last of `own`.
    pub(crate) fn with<T: Send + 'static>(
        others: impl IntoIterator<Item = Thread<T>>,
        own: impl FnOnce() -> T,
    ) -> Vec<T> {
        let others: Vec<_> = others.into_iter().map(spawn).collect();
        let own = own();
        let mut all: Vec<_> = others.into_iter().map(|it| it.join().expect("no panic")).collect();
        all.push(own);
        all
    }

    /// Advances the clock, and fires the timers that are due.
    pub(crate) fn advance(by: Duration) {
        CLOCK.with(|clock| clock.block_on(tokio::time::advance(by)));
    }
}
