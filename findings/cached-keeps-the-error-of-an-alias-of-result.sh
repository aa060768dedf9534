#!/usr/bin/env bash
# `#[cached]` keeps no `Err` of a function that returns a `Result`, so that a refused or failed call is tried again. It
# goes by the name: if the type is an alias, such as `Answer`, the same function caches its first error for ever. Nothing
# warns. A limit inside such a function refuses its caller long after the window has ended.
. "$(dirname "$0")/setup"
with_crates <<'TOML'
cached = "=4.1.0"
TOML
cat >src/main.rs <<'RS'
use std::sync::atomic::{AtomicU32, Ordering};

use cached::proc_macro::cached;

type Answer = Result<u32, String>;

static CALLS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

/// Fails at its first call.
fn ask(which: usize) -> Result<u32, String> {
    match CALLS[which].fetch_add(1, Ordering::SeqCst) {
        0 => Err("two calls in 30 s".into()),
        calls => Ok(calls),
    }
}

#[cached]
fn in_full() -> Result<u32, String> {
    ask(0)
}

#[cached]
fn by_an_alias() -> Answer {
    ask(1)
}

fn main() {
    let in_full = [in_full().is_ok(), in_full().is_ok(), in_full().is_ok()];
    let by_an_alias = [by_an_alias().is_ok(), by_an_alias().is_ok(), by_an_alias().is_ok()];
    println!("admitted: Result<u32, String> {in_full:?}, an alias of it {by_an_alias:?}");
    assert_eq!((in_full, by_an_alias), ([false, true, true], [false, false, false]));
}
RS
cargo run --quiet
