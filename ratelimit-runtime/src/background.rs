//! Background work: on a thread of the limiters' own, and connections on the runtime that made the
//! limiter.
//!
//! A runtime of the program may block a thread, or end. Work that others depend on would then stop.
//! The tasks of one thread, which starts with the first limiter on Redis, therefore send posted
//! commands, renew permits, exchange leases, ask for turns and keep connections.
//!
//! The bytes of a connection are carried by the [runtime that made the limiter](Home), because
//! callers are near. Carried by the thread, a call took up to twice the processor time, with 64
//! tasks and with one. The thread does so once that runtime has ended, or does not run.
//!
//! Events of a task go to the subscriber of the code that started it.
//!
//! Floor 1: imports locks alone. Only Redis needs background work.

use std::{
    future::pending,
    panic::resume_unwind,
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle as Runtime},
    task::{JoinError, JoinHandle, JoinSet},
    time::timeout,
};
use tracing::instrument::WithSubscriber;

use crate::sync::Mutex;

/// The time after which a runtime that has not run a task counts as blocked.
const STALL: Duration = Duration::from_millis(500);

/// The runtime of the thread, which lasts as long as the process.
static THREAD: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime for the background work of limiters");
    let handle = runtime.handle().clone();
    let thread = thread::Builder::new().name("ratelimit".to_owned());
    let started = thread.spawn(move || runtime.block_on(pending::<()>()));
    started.expect("a thread for the background work of limiters");
    handle
});

/// Spawns a task on the thread, from any thread.
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    THREAD.spawn(task.with_current_subscriber())
}

/// Spawns a task on the thread that ends when the returned owner is dropped.
pub(crate) fn spawn_owned(task: impl Future<Output = ()> + Send + 'static) -> JoinSet<()> {
    aborted_on_drop(&THREAD, task)
}

/// A task on the thread, which its owner starts anew once it has ended, also by a panic.
#[derive(Default)]
pub(crate) struct Worker(Option<JoinHandle<()>>);

impl Worker {
    pub(crate) fn is_running(&self) -> bool {
        self.0.as_ref().is_some_and(|task| !task.is_finished())
    }

    pub(crate) fn start(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.0 = Some(spawn(work));
    }
}

/// Begins a task here and now, and lets the thread go on with it once it is woken. What it sends
/// first is sent before what its caller sends later, and replies are received in their order.
pub(crate) fn start(task: impl Future<Output = ()> + Send + 'static) {
    let _timers = THREAD.enter();
    let task = Box::pin(task.with_current_subscriber());
    Arc::new(StartedTask(Mutex::new(Some(task)))).poll();
}

/// A task that has been started, until its end.
struct StartedTask(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl StartedTask {
    fn poll(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut task = self.0.lock();
        let polled = task.as_mut().map(|it| it.as_mut().poll(&mut Context::from_waker(&waker)));
        if polled.is_some_and(|it| it.is_ready()) {
            *task = None;
        }
    }
}

impl Wake for StartedTask {
    fn wake(self: Arc<Self>) {
        THREAD.spawn(async move { self.poll() });
    }
}

/// The runtime that made a limiter, if one did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Home(Option<Runtime>);

impl Home {
    /// Returns the current runtime, if there is one.
    pub(crate) fn current() -> Self {
        Self(Runtime::try_current().ok())
    }

    /// Runs work on the runtime that made the limiter, or on the thread if that has ended or does
    /// not run. Work whose result nobody awaits any more is dropped.
    pub(crate) async fn run<T, F>(&self, work: impl Fn() -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        if let Some(home) = &self.0
            && let Some(done) = run_on(home, work()).await
        {
            return done;
        }
        let done = aborted_on_drop(&THREAD, work()).join_next().await;
        done.and_then(unless_ended).expect("the thread lasts as long as the process")
    }
}

/// Runs work on a runtime. Returns nothing if that ends or is blocked meanwhile.
async fn run_on<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let mut task = aborted_on_drop(runtime, work);
    loop {
        // Nothing, if it does not run.
        timeout(STALL, runtime.spawn(async {})).await.ok()?.ok()?;
        if let Ok(ended) = timeout(STALL, task.join_next()).await {
            return ended.and_then(unless_ended);
        }
    }
}

fn aborted_on_drop<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = T> + Send + 'static,
) -> JoinSet<T> {
    let mut task = JoinSet::new();
    task.spawn_on(work.with_current_subscriber(), runtime);
    task
}

/// Returns the output of a task, unless its runtime has ended. Panics as the task did.
fn unless_ended<T>(output: Result<T, JoinError>) -> Option<T> {
    match output {
        Ok(output) => Some(output),
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}
