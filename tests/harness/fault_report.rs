//! The effects of faults on callers, in figures: one line for each, shown by `--nocapture`.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    sync::{Mutex, MutexGuard, Once, PoisonError},
    time::{Duration, Instant},
};

use tokio::runtime::{Handle, Id};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
};

use crate::{History, Outcome};

/// One line of figures.
#[derive(Debug)]
#[must_use = "a line is there to be printed"]
pub struct FaultLine {
    line: String,
}

impl FaultLine {
    /// The line of this fault.
    pub fn of(fault: &str) -> Self {
        Self { line: format!("fault: {fault}") }
    }

    /// Adds a figure.
    pub fn with(mut self, figure: &str, value: impl fmt::Display) -> Self {
        let _ = write!(self.line, " | {figure} {value}");
        self
    }

    /// Adds a time.
    pub fn after(self, what: &str, time: Duration) -> Self {
        self.with(what, format!("{:.1} ms", time.as_secs_f64() * 1e3))
    }

    /// Prints it.
    pub fn print(self) {
        println!("{}", self.line);
    }

    /// Prints it with the answers of a load whose units Redis has `counted`.
    ///
    /// # Panics
    ///
    /// If a call was not decided, or counted otherwise than once.
    pub fn assert_all_counted(self, history: &History, counted: usize) {
        self.with("callers get", history.answers())
            .with("counted", counted)
            .after("slowest call", history.slowest())
            .print();
        assert_eq!(history.unavailable(), 0);
        assert_eq!(history.count(|outcome| outcome == Outcome::Admitted), counted);
    }
}

/// The log of the runtime about the store, with times: what is logged in the test's runtime, or
/// started by the test's thread.
#[derive(Debug)]
pub struct Watch {
    runtime: Id,
    _listening: DefaultGuard,
}

/// The logged lines, by the tokio runtime in which they were logged.
static LOGGED: Mutex<Option<HashMap<Id, Vec<Logged>>>> = Mutex::new(None);

#[derive(Clone, Debug)]
struct Logged {
    at: Instant,
    message: String,
}

impl Watch {
    /// Starts to collect the events of the test's runtime.
    pub fn start() -> Self {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(|| {
            let recorder = Recorder { runtime: None };
            tracing::subscriber::set_global_default(recorder).expect("the first subscriber");
        });
        let runtime = Handle::current().id();
        logged().get_or_insert_default().insert(runtime, Vec::new());
        // Background work has the subscriber of the code that started it.
        let recorder = Recorder { runtime: Some(runtime) };
        Self { runtime, _listening: crate::listen(recorder) }
    }

    /// Returns the first instant after this one at which a circuit breaker opened.
    pub fn breaker_opened(&self, after: Instant) -> Option<Instant> {
        self.first("circuit breaker open", after)
    }

    /// Returns the first instant after this one at which a circuit breaker closed.
    pub fn breaker_closed(&self, after: Instant) -> Option<Instant> {
        self.first("circuit breaker closed", after)
    }

    /// Returns the number of messages that contain these words.
    pub fn count(&self, words: &str) -> usize {
        self.all().iter().filter(|logged| logged.message.contains(words)).count()
    }

    /// Returns all messages, for the text of a failed assertion.
    pub fn text(&self) -> String {
        self.all().iter().map(|logged| logged.message.clone() + "\n").collect()
    }

    fn first(&self, words: &str, after: Instant) -> Option<Instant> {
        let mut later = self.all().into_iter().filter(|logged| logged.at >= after);
        later.find(|logged| logged.message.contains(words)).map(|logged| logged.at)
    }

    fn all(&self) -> Vec<Logged> {
        logged().as_ref().and_then(|all| all.get(&self.runtime)).cloned().unwrap_or_default()
    }
}

fn logged() -> MutexGuard<'static, Option<HashMap<Id, Vec<Logged>>>> {
    LOGGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects the limiter's events under a runtime: this one, or that of their thread.
struct Recorder {
    runtime: Option<Id>,
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("ratelimit_runtime")
    }

    fn event(&self, event: &Event<'_>) {
        let current = || Some(Handle::try_current().ok()?.id());
        let Some(runtime) = self.runtime.or_else(current) else { return };
        if let Some(of_test) = logged().as_mut().and_then(|all| all.get_mut(&runtime)) {
            let mut message = Message(event.metadata().level().to_string());
            event.record(&mut message);
            of_test.push(Logged { at: Instant::now(), message: message.0 });
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// An event in one line.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
