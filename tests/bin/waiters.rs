//! Waits in a line with many calls, of which some leave at a random time. LEAVING is a percentage.
//!
//! Prints a line for each call, in the order of their arrival: `left`, or the microseconds of its turn, as it
//! was promised, and of its pass. The last line is how late this process was woken at the worst.
//!
//! waiters URL CALLS LEAVING

use std::{cell::Cell, env, fmt, io::stdin, time::Duration};

use harness::wall_clock;
use ratelimit_runtime::{Limiter, Policy, RateLimitError};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

const LINE: Policy = Policy::sliding_window("line", Duration::from_millis(100), 20).weighted();
const PATIENCE: Duration = Duration::from_secs(60);

tokio::task_local! {
    /// The turn of the task's call, once it is promised.
    static PROMISED: Cell<Option<u64>>;
}

/// Receives the event of a call that waits, in the task of the call.
struct Promises;

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    wait: Option<Duration>,
}

impl Visit for Fields {
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
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.message == "rate limit call waits" {
            let wait = fields.wait.expect("the wait until a turn").as_micros();
            let turn = wall_clock() + u64::try_from(wait).expect("some minutes");
            PROMISED.with(|promised| promised.set(Some(turn)));
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The times of a call that has passed: its turn and its end.
type Times = (u64, u64);

/// Waits in the line, for as long as the call's patience lasts.
async fn wait(limiter: Limiter, patience: Duration) -> Result<Option<Times>, RateLimitError> {
    let call = limiter.check(&LINE, "all").max_wait(PATIENCE).into_future();
    let Ok(decided) = timeout(patience, call).await else { return Ok(None) };
    let (decided, passed) = (decided?, wall_clock());
    let promised = PROMISED.with(Cell::get);
    assert_eq!(promised.is_some(), !decided.waited().is_zero());
    Ok(Some((promised.unwrap_or(passed), passed)))
}

/// Returns how late a sleeping task of this process is woken at the worst, until `calls` have ended.
async fn lateness(calls: JoinHandle<()>) -> Duration {
    let (mut worst, nap) = (Duration::ZERO, Duration::from_millis(2));
    while !calls.is_finished() {
        let start = Instant::now();
        sleep(nap).await;
        worst = worst.max(start.elapsed().saturating_sub(nap));
    }
    worst
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, calls, leaving] = arguments.as_slice() else {
        return Err("usage: waiters URL CALLS LEAVING".into());
    };
    let (calls, leaving): (u32, u32) = (calls.parse()?, leaving.parse()?);
    tracing::subscriber::set_global_default(Promises)?;
    let limiter = Limiter::builder().deadline(PATIENCE).max_line(10_000).connect(url).await?;
    limiter.peek(&LINE, "all").cost(0).await?;
    println!("ready");
    stdin().read_line(&mut String::new())?;
    let calls = tokio::spawn(async move {
        let mut waiting = Vec::new();
        for _ in 0..calls {
            sleep(Duration::from_micros(fastrand::u64(..800))).await;
            let leaves = fastrand::u32(..100) < leaving;
            let brief = Duration::from_millis(fastrand::u64(..2_000));
            let call = wait(limiter.clone(), if leaves { brief } else { PATIENCE });
            waiting.push(tokio::spawn(PROMISED.scope(Cell::new(None), call)));
        }
        for call in waiting {
            match call.await.expect("no panic").expect("an admission") {
                Some((promised, passed)) => println!("{promised} {passed}"),
                None => println!("left"),
            }
        }
        limiter.flush().await.expect("Redis is there");
    });
    println!("late {}", lateness(calls).await.as_micros());
    Ok(())
}
