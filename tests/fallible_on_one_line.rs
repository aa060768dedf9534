//! Handlers of every public shape, each on one line.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    unused,
    future_incompatible,
    rust_2018_idioms,
    missing_docs
)]
#![allow(clippy::redundant_pub_crate, reason = "`unreachable_pub` asks for the contrary")]

include!(concat!(env!("OUT_DIR"), "/fallible_on_one_line.rs"));
