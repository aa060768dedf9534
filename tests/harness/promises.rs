//! The turns that calls are promised, as the runtime's events tell them.

use std::{cell::Cell, fmt, time::Duration};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::wall_clock;

tokio::task_local! {
    /// The turn of the task's call, once it is promised.
    static PROMISED: Cell<Option<u64>>;
}

/// Receives the event of a call that waits, in the task of the call.
#[derive(Debug)]
pub struct Promises {
    on_promise: fn(u64),
}

/// The fields of an event.
#[derive(Default)]
struct WaitFields {
    message: String,
    wait: Option<Duration>,
}

impl Promises {
    /// Receives the events of this process, and calls `on_promise` with each turn.
    pub fn install(on_promise: fn(u64)) {
        tracing::subscriber::set_global_default(Self { on_promise }).expect("the first subscriber");
    }

    /// Runs a call of which [`turn`](Self::turn) is the promise.
    pub async fn scope<T>(call: impl Future<Output = T>) -> T {
        PROMISED.scope(Cell::new(None), call).await
    }

    /// Returns the first turn that the task's call was promised, in microseconds of the machine's
    /// clock.
    pub fn turn() -> Option<u64> {
        PROMISED.try_with(Cell::get).ok().flatten()
    }
}

impl Visit for WaitFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "wait" => self.wait = Some(duration(&format!("{value:?}"))),
            _ => {}
        }
    }
}

/// Returns the duration of which this is the debug output.
fn duration(text: &str) -> Duration {
    let number = text.trim_end_matches(|letter: char| letter.is_alphabetic());
    let unit = match &text[number.len()..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        "ns" => 1e-9,
        other => panic!("a unit: {other}"),
    };
    Duration::from_secs_f64(number.parse::<f64>().expect("a number") * unit)
}

impl Subscriber for Promises {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("ratelimit_runtime")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = WaitFields::default();
        event.record(&mut fields);
        if fields.message == "rate limit call waits"
            && let Some(wait) = fields.wait
        {
            let turn = wall_clock() + u64::try_from(wait.as_micros()).expect("some minutes");
            let is_first = PROMISED.try_with(|promised| {
                let is_first = promised.get().is_none();
                promised.set(promised.get().or(Some(turn)));
                is_first
            });
            if is_first == Ok(true) {
                (self.on_promise)(turn);
            }
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
