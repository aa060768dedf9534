//! The runtime's events, as a subscriber at debug level receives them.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use tracing::{
    Dispatch, Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::{DefaultGuard, NoSubscriber},
};

/// Makes `subscriber` the one of this thread until the guard is dropped.
///
/// While a process has one subscriber, tracing asks only the thread that reaches an event first
/// whether it is enabled, and another thread of a test has no subscriber: its "no" then holds for
/// all threads. A second subscriber, which stays, has tracing ask every one that is registered.
pub fn listen(subscriber: impl Into<Dispatch>) -> DefaultGuard {
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));
    LazyLock::force(&SECOND);
    tracing::dispatcher::set_default(&subscriber.into())
}

/// Captures the events of the runtime and of its page, one line each.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
    /// The only target that is captured, if there is one.
    target: Option<&'static str>,
}

impl Lines {
    /// Captures the events of exactly this target.
    #[must_use]
    pub fn of_target(target: &'static str) -> Self {
        Self { target: Some(target), ..Self::default() }
    }

    /// Returns all events so far.
    pub fn all(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let crates = ["ratelimit_runtime", "ratelimit_dashboard"];
        let is_own = |name: &&str| metadata.target().starts_with(*name);
        self.target.map_or_else(|| crates.iter().any(is_own), |target| metadata.target() == target)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words(event.metadata().level().to_string());
        event.record(&mut words);
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(words.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
