//! Locks and atomics: those of the standard library, or loom's for the tests of all schedules
//! (`ci/schedules`).
//!
//! Loom runs a test once for each interleaving of its threads, and for each value that a thread can
//! read from an atomic.
//!
//! Floor 1: imports nothing of this crate. Every room above may import it.

use std::sync::{PoisonError, TryLockError};
#[cfg(not(all(test, ratelimit_loom)))]
use std::{hint::spin_loop, sync as locks, thread::yield_now};

#[cfg(all(test, ratelimit_loom))]
use loom::sync as locks;

#[cfg(all(test, ratelimit_loom))]
pub(crate) use self::schedules::{Thread, advance, each, with};
pub(crate) use locks::{MutexGuard, atomic};

/// A lock that is held for some nanoseconds, and that a panic does not poison: nothing that runs under
/// it is foreign code or leaves a value half written.
#[derive(Default)]
pub(crate) struct Mutex<T>(locks::Mutex<T>);

/// The attempts that spin before the next one, each twice as long as the one before.
#[cfg(not(all(test, ratelimit_loom)))]
const SPINS: u32 = 2;

/// The rounds of the first spin, less than a microsecond: the owner decides several calls meanwhile, and the
/// cache line of the lock moves between processors less often.
#[cfg(not(all(test, ratelimit_loom)))]
const FIRST_SPIN: u32 = 32;

/// The attempts at a lock that is taken, before the thread sleeps.
#[cfg(not(all(test, ratelimit_loom)))]
const ATTEMPTS: u32 = 10;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(locks::Mutex::new(value))
    }

    /// Waits for the lock and takes it.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // Under loom an attempt would only multiply the schedules.
        let attempt = if cfg!(all(test, ratelimit_loom)) { None } else { self.try_lock() };
        attempt.unwrap_or_else(|| self.lock_contended())
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Tries some times more before the thread sleeps: going to sleep and being woken take longer than
    /// any owner holds the lock.
    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, T> {
        #[cfg(not(all(test, ratelimit_loom)))]
        for attempt in 0..ATTEMPTS {
            if attempt < SPINS {
                (0..FIRST_SPIN << attempt).for_each(|_| spin_loop());
            } else {
                yield_now();
            }
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let schedules = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&schedules);
        CLOCK.with(|clock| {
            let _clock = clock.enter();
            let model = Arc::new(model);
            loom::model(move || {
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
