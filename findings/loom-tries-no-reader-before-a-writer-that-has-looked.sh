#!/usr/bin/env bash
# The loom crate tries, by its documentation, all orders of threads that the memory model allows, so that limiters prove
# their code without locks by it. A thread that reads an atomic before it writes it hides the reads of the other threads:
# the order in which a reader comes after that write is not tried. Of a writer that looks first, as "forget it if it is
# there", a reader that starts at the same time is seen with the old value alone, and a test of it proves nothing.
. "$(dirname "$0")/setup"
with_crates <<'TOML'
loom = "=0.7.2"
TOML
cat >src/main.rs <<'RS'
use std::{collections::BTreeSet, sync::Mutex};

use loom::{
    sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}},
    thread,
};

/// Returns the values that a reader gets in all orders that loom tries, and the number of orders.
fn read(looks_first: bool) -> (BTreeSet<u64>, usize) {
    let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
    let of_model = std::sync::Arc::clone(&seen);
    loom::model(move || {
        let flag = Arc::new(AtomicU64::new(0));
        let of_writer = Arc::clone(&flag);
        let writer = thread::spawn(move || {
            if !looks_first || of_writer.load(SeqCst) == 0 {
                of_writer.store(1, SeqCst);
            }
        });
        let value = flag.load(SeqCst);
        of_model.lock().unwrap().push(value);
        writer.join().unwrap();
    });
    let seen = seen.lock().unwrap();
    (seen.iter().copied().collect(), seen.len())
}

fn main() {
    let [writes, looks] = [false, true].map(read);
    println!("a writer that writes: the reader gets {writes:?}");
    println!("a writer that looks first: the reader gets {looks:?}");
    assert_eq!(writes.0, BTreeSet::from([0, 1]));
    assert_eq!(looks, (BTreeSet::from([0]), 1));
}
RS
cargo run --quiet
