//! The lower of `#[rate_limit]` and another attribute on one function wraps the other.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ratelimit_runtime::{RateLimitError, rate_limit};
use tracing::{Event, Metadata, Subscriber, span};

type Done = Result<(), RateLimitError>;

/// Entered spans of the test's thread.
static DEPTH: AtomicU64 = AtomicU64::new(0);

struct Depth;

impl Subscriber for Depth {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == module_path!()
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &span::Id) {
        DEPTH.fetch_add(1, Relaxed);
    }

    fn exit(&self, _: &span::Id) {
        DEPTH.fetch_sub(1, Relaxed);
    }
}

/// Returns the number of spans around the check.
fn depth(at: &AtomicU64) -> u32 {
    at.store(DEPTH.load(Relaxed), Relaxed);
    1
}

#[rate_limit(threshold = 1, key = depth(at))]
#[tracing::instrument(skip_all)]
async fn above_the_span(at: &AtomicU64) -> Done {
    assert_eq!(DEPTH.load(Relaxed), 1);
    Ok(())
}

#[tracing::instrument(skip_all)]
#[rate_limit(threshold = 1, key = depth(at))]
async fn below_the_span(at: &AtomicU64) -> Done {
    assert_eq!(DEPTH.load(Relaxed), 1);
    Ok(())
}

#[tokio::test]
async fn a_check_above_a_span_runs_inside_it_and_one_below_before_it() {
    let _listening = harness::listen(Depth);
    let at = AtomicU64::new(9);
    above_the_span(&at).await.unwrap();
    assert_eq!(at.load(Relaxed), 1);
    below_the_span(&at).await.unwrap();
    assert_eq!(at.load(Relaxed), 0);
    // A refusal is built by its attribute: inside the span, or without one.
    above_the_span(&at).await.unwrap_err();
    assert_eq!(at.load(Relaxed), 1);
    below_the_span(&at).await.unwrap_err();
    assert_eq!(at.load(Relaxed), 0);
}
