//! The entries of overrides that change no limit, counted over all limiters of the process.

use std::sync::atomic::{AtomicI64, Ordering};

use super::metrics;

/// The sources, as metrics name them.
pub(crate) const SOURCES: [&str; 5] = ["program", "file", "environment", "redis", "operator"];

/// The kinds of problems, as metrics name them.
pub(crate) const KINDS: [&str; 4] = ["rejected", "unknown_limit", "unreadable", "lost"];

/// The problems of one limiter, by source and kind.
pub(crate) type ProblemCounts = [[i64; KINDS.len()]; SOURCES.len()];

static COUNTS: [[AtomicI64; KINDS.len()]; SOURCES.len()] =
    [const { [const { AtomicI64::new(0) }; KINDS.len()] }; SOURCES.len()];

/// Replaces the counts of a limiter.
pub(crate) fn count_override_problems(before: &ProblemCounts, now: &ProblemCounts) {
    for source in 0..SOURCES.len() {
        for kind in 0..KINDS.len() {
            let more = now[source][kind] - before[source][kind];
            if more == 0 {
                continue;
            }
            let count = &COUNTS[source][kind];
            count.fetch_add(more, Ordering::SeqCst);
            let labels = [("source", SOURCES[source]), ("problem", KINDS[kind])];
            metrics::set("ratelimit_override_problems", &labels, count);
        }
    }
}

/// Returns the number of problems.
pub(super) fn total() -> u64 {
    let total: i64 = COUNTS.iter().flatten().map(|count| count.load(Ordering::SeqCst)).sum();
    u64::try_from(total).unwrap_or(0)
}
