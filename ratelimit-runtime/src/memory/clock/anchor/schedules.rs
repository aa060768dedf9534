//! Promises of the shared anchor under every schedule of threads.

use std::sync::Arc;

use super::*;
use crate::sync::{Thread, each, with};

type Other = Thread<bool>;

/// An anchor of equal parts, so that one of mixed parts is found.
fn anchor(part: u64) -> Anchor {
    Anchor { counter: part, nanos: part, rate: part, ticks: part }
}

/// Replaces the anchor, unless it is being replaced. Returns `true` if all parts were of one.
fn replace(shared: &SharedAnchor, by: u64) -> bool {
    let Some((version, found)) = shared.load() else { return true };
    shared.store(version, anchor(by));
    found == anchor(found.counter)
}

#[test]
fn no_thread_finds_parts_of_two_anchors() {
    each(|| {
        let shared = Arc::new(SharedAnchor::new(Reading { before: 0, nanos: 0, after: 0 }));
        let others = [1, 2].map(|by| {
            let shared = Arc::clone(&shared);
            Box::new(move || replace(&shared, by)) as Other
        });
        let found = with(others, || shared.load().is_none_or(|(_, it)| it == anchor(it.counter)));
        assert_eq!(found, [true; 3]);
        let (version, last) = shared.load().expect("nobody replaces it");
        assert!(version >= 2 && [1, 2].contains(&last.counter) && last == anchor(last.counter));
    });
}
