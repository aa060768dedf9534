//! Names that are written and not known, and the ones that were meant.
//!
//! Floor 1.

/// Names that other rate limiters have, for which there is no single argument here; with what to
/// write.
const INSTEAD: [(&[&str], &str); 5] = [
    (
        &["on_error", "error_handler", "handler", "on_limited", "on_exceeded"],
        "for the value that a refused call returns, write `otherwise = |error| ..`; for the answer \
         without Redis, `on_store_error = deny`",
    ),
    (
        &["per_second", "per_minute", "per_hour", "per_day"],
        "write the length of the window and its calls: `period = \"1m\", threshold = 100` admits 100 \
         in any minute",
    ),
    (
        &["failures_only", "only_failures", "count_failures", "skip_successful"],
        "write `settle = |out| u32::from(out.is_err())`, which gives each successful call back",
    ),
    (
        &["skip_failed", "successes_only", "only_successes"],
        "write `settle = |out| u32::from(out.is_ok())`, which gives each failed call back",
    ),
    (
        &["fair", "fairness", "fair_share"],
        "`key = user` counts each caller apart, and with `max_wait` the calls of one key are served \
         first come, first served",
    ),
];

/// Returns what to write instead of a name, if it is one of another rate limiter.
pub(crate) fn instead(unknown: &str) -> Option<&'static str> {
    INSTEAD.iter().find(|(names, _)| names.contains(&unknown)).map(|(_, text)| *text)
}

/// Returns the most similar name, if one is similar enough.
pub(crate) fn nearest<'a>(
    written: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let distance = |name: &str| strsim::damerau_levenshtein(written, name);
    let closest = names.into_iter().min_by_key(|name| distance(name))?;
    (distance(closest) <= 1 + closest.len() / 4).then_some(closest)
}

/// Formats the names for a message, each in backticks.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}
