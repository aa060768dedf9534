//! Figures as `benches/compare` collects them.

/// The least, the median and the most.
///
/// # Panics
///
/// Without rounds.
#[must_use]
pub fn spread(mut rounds: Vec<f64>) -> [f64; 3] {
    rounds.sort_by(f64::total_cmp);
    [rounds[0], rounds[rounds.len() / 2], rounds[rounds.len() - 1]]
}

/// Returns the ratio of each round, of two contenders that ran in turn: rounds next to each other
/// met the same machine.
#[must_use]
pub fn ratios(rounds: &[f64], base: &[f64]) -> Vec<f64> {
    rounds.iter().zip(base).map(|(round, base)| round / base).collect()
}

/// A figure with its spread.
///
/// # Panics
///
/// Without rounds.
#[must_use]
pub fn figure(rounds: Vec<f64>, digits: usize) -> String {
    let [least, median, most] = spread(rounds);
    format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
}

/// Prints a line of the table in which `benches/compare` gathers all that have a bar to pass. The
/// bar is `at most` or `at least` a number, or `-`.
///
/// # Panics
///
/// Without rounds.
pub fn report(what: &str, rounds: Vec<f64>, bar: &str) {
    println!("= figure | {what} | {} | {bar}", figure(rounds, 2));
}

/// Prints a line of a ratio, as [`report`] does. The table has ratios first: a slower machine moves
/// them least.
///
/// # Panics
///
/// Without rounds.
pub fn report_ratio(what: &str, rounds: Vec<f64>, bar: &str) {
    println!("= ratio | {what} | {} | {bar}", figure(rounds, 2));
}
