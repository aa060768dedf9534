//! `cargo bench -p ratelimit-benches --bench scaling`
//!
//! The growth of the cost of an annotated call in memory: with the callers, with the threshold of a
//! sliding window, with the tiers. Ratios are to the first two rows of each table.

use ratelimit_benches::{
    annotated,
    rounds::{Contender, compare},
};

fn main() {
    let callers: [Contender<'_>; 4] = [
        ("without the attribute", annotated!(plain)),
        ("token_bucket", annotated!(bucket)),
        ("sliding_window 3, refused", annotated!(window_3)),
        ("fixed_window", annotated!(fixed)),
    ];
    for number in [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000] {
        compare("scaling: ", 1, number, &callers);
    }
    let full: [Contender<'_>; 4] = [
        ("sliding_window 3, refused", annotated!(window_3)),
        ("sliding_window 96, refused", annotated!(window_96)),
        ("sliding_window 1 000, refused", annotated!(window_1_000)),
        ("sliding_window 100 000, refused", annotated!(window_100_000)),
    ];
    compare("scaling: ", 1, 1, &full);
    let rotating: [Contender<'_>; 2] = [
        ("sliding_window 100", annotated!(window_of_100)),
        ("sliding_window 1 000", annotated!(window_of_1_000)),
    ];
    compare("scaling: ", 1, 1_000, &rotating);
    let tiers: [Contender<'_>; 10] = [
        ("sliding_window, 1 tier", annotated!(window_of_100)),
        ("token_bucket, 1 tier", annotated!(bucket)),
        ("sliding_window, 2 tiers", annotated!(windows_2)),
        ("token_bucket, 2 tiers", annotated!(buckets_2)),
        ("sliding_window, 3 tiers", annotated!(windows_3)),
        ("token_bucket, 3 tiers", annotated!(buckets_3)),
        ("sliding_window, 4 tiers", annotated!(windows_4)),
        ("token_bucket, 4 tiers", annotated!(buckets_4)),
        ("sliding_window, 5 tiers", annotated!(windows_5)),
        ("token_bucket, 5 tiers", annotated!(buckets_5)),
    ];
    compare("scaling: ", 1, 100, &tiers);
    for threads in [1, 2] {
        compare("scaling: ", threads, 1, &callers);
        compare("scaling: ", threads, 10_000, &callers);
    }
}
